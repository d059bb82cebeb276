"""What can go wrong by use or input, as one tree.

```
HeadbookError           anything the person at the keyboard can mend; exit code 2
├── ConfigError         an option that does not fit
├── InputError          a fault in an input file: file, line, what came, what was expected
├── AnnotatorError      a spaCy pipeline that cannot be used
├── ModelError          a model or tokenizer that cannot be used
│   └── NonFiniteStateError  sentences for which it gives no numbers
├── StudyError          a stored study that cannot be read or merged
├── CheckError          a self-check that failed; all is written, and the exit code is 3
├── PartialResultError  sentences that could not be measured; all else is written, exit code 3
├── OutputError         a folder that must not or cannot be written
└── ResourceError       the machine has too little memory, or does not take what is printed
```

Every message is one line and says what came, what was expected and what to do.
Anything else that escapes is a bug; exit code 1.
"""

import errno
from collections.abc import Mapping

# What libraries say where there is no memory left, beside MemoryError.
MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "failed to map segment",
    "can't start new thread",
)


class HeadbookError(Exception):
    """A fault that the user can mend. Its text is one line, ready to print."""


class ConfigError(HeadbookError):
    """An option, or a line of a configuration file, does not fit."""


class InputError(HeadbookError):
    """A fault in an input file.

    Args:
        file: the file's name as the user gave it.
        line: line (or row) in it, counted from 1; None where the whole file is meant.
        came: what was found.
        expected: what should have been there, and what to do.
    """

    def __init__(self, file: str, line: int | None, *, came: str, expected: str) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {came}; expected {expected}")
        self.file, self.line = file, line


class AnnotatorError(HeadbookError):
    """A spaCy pipeline cannot be loaded or lacks what it needs."""


class ModelError(HeadbookError):
    """A model or its tokenizer cannot be loaded or used."""


class NonFiniteStateError(ModelError):
    """A model gives no numbers for some sentences, of which the first is named.

    Args:
        found: what is wrong with each, by its index.
    """

    def __init__(self, found: Mapping[int, str]) -> None:
        super().__init__(next(iter(found.values())))
        self.found = dict(found)


class StudyError(HeadbookError):
    """A stored study cannot be read, or two studies do not belong together."""


class CheckError(HeadbookError):
    """A self-check failed. What was asked for is written and says so; numbers may be wrong."""


class PartialResultError(HeadbookError):
    """Some sentences could not be measured. All the others are written, which says so."""


class OutputError(HeadbookError):
    """An output folder is not ours to replace, or cannot be written."""


class ResourceError(HeadbookError):
    """The machine has too little memory, or does not take what is printed."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, of any library, says that there is no memory left."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | ImportError) and any(each in text for each in MEMORY)


def is_device_lost(error: BaseException) -> bool:
    """Whether a GPU does nothing more for this process after an error."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)
