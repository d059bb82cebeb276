"""The errors that a user can cause or mend, as one tree of exceptions.

```
HeadbookError           any fault that the user can mend; exit code 2
├── ConfigError         an option that does not fit
├── InputError          a fault in an input file: file, line, what was found and expected
├── AnnotatorError      a spaCy pipeline that cannot be used
├── ModelError          a model or tokenizer that cannot be used
│   └── NonFiniteStateError  sentences whose states are not finite
├── StudyError          a stored study that cannot be read or merged
├── CheckError          a failed self-check; all output is written, exit code 3
├── PartialResultError  sentences that could not be measured; the rest is written, exit code 3
├── OutputError         a folder that must not or cannot be written
└── ResourceError       too little memory, or an output stream that cannot be written
```

Every message is one line and says what was found, what was expected and what to do.
Any other exception that reaches the command line is a bug; exit code 1.
"""

import errno
from collections.abc import Mapping

# Parts of messages with which libraries report a lack of memory other than by MemoryError.
MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "failed to map segment",
    "can't start new thread",
)


class HeadbookError(Exception):
    """A fault that the user can mend. The message is one line, ready to print."""


class ConfigError(HeadbookError):
    """An option, or a line of a configuration file, with an unsuitable value."""


class InputError(HeadbookError):
    """A fault in an input file.

    Args:
        file: the file's name as the user gave it.
        line: line or row of the fault, counted from 1; None if the whole file is meant.
        came: what was found there.
        expected: what should be there instead, and what to do.
    """

    def __init__(self, file: str, line: int | None, *, came: str, expected: str) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {came}; expected {expected}")
        self.file, self.line = file, line


class AnnotatorError(HeadbookError):
    """A spaCy pipeline that cannot be loaded or lacks a needed component."""


class ModelError(HeadbookError):
    """A model or tokenizer that cannot be loaded or used."""


class NonFiniteStateError(ModelError):
    """Sentences whose states hold NaN or infinities; the message names the first sentence.

    Args:
        found: description of the fault of each sentence, by the sentence's index.
    """

    def __init__(self, found: Mapping[int, str]) -> None:
        super().__init__(next(iter(found.values())))
        self.found = dict(found)


class StudyError(HeadbookError):
    """A stored study that cannot be read, or two studies that do not belong together."""


class CheckError(HeadbookError):
    """A failed self-check. The output is written and reports the failure; numbers may be wrong."""


class PartialResultError(HeadbookError):
    """Sentences that could not be measured. The output is written and lists these sentences."""


class OutputError(HeadbookError):
    """An output folder that Headbook must not replace or cannot write."""


class ResourceError(HeadbookError):
    """Too little memory, or an output stream that cannot be written."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library reports that no memory is left."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | ImportError) and any(each in text for each in MEMORY)


def is_device_lost(error: BaseException) -> bool:
    """Whether this process cannot use its GPU any more after an error."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)
