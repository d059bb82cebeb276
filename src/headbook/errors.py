"""The errors that a user can cause or mend, as one tree of exceptions.

```
HeadbookError                  exit code 2, except for the two classes with exit code 3
├── ConfigError
├── InputError
├── AnnotatorError
├── ModelError
│   └── NonFiniteStateError
├── StudyError
├── CheckError                 exit code 3: all output is written
├── PartialResultError         exit code 3: all other output is written
├── OutputError
└── ResourceError
```

A `HeadbookWarning` is no error: something is left out, and the rest is done.

Every message is one line and says what was found, what was expected and what to do.
Any other exception that reaches the command line is a bug; exit code 1.
"""

import errno
import multiprocessing
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

# Phrases, in lower case, in messages of errors by which libraries report a lack of memory without
# raising MemoryError: PyTorch, the memory allocator, the loader of libraries, and threads.
OUT_OF_MEMORY_PHRASES = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "failed to map segment",
    "can't start new thread",
)


class HeadbookError(Exception):
    """A fault that the user can mend. The message is one line, ready to print.

    Attributes:
        python_text: the message with options as arguments, once the error has left a function that
            `headbook.python_options.names_arguments` decorates; otherwise None.
    """

    python_text: str | None = None

    def __str__(self) -> str:
        """Return the message: with arguments in Python, otherwise with flags."""
        return self.python_text or self.with_flags

    @property
    def with_flags(self) -> str:
        """The message with options as flags of the command line."""
        return super().__str__()

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(HeadbookError):
    """An option, or a line of a configuration file, with an unsuitable value."""


class InputError(HeadbookError):
    """A fault in an input file.

    Args:
        file: the file's name as the user gave it.
        line: line or row of the fault, counted from 1; None if the whole file is meant.
        found: what was found in the line or file.
        expected: what the line or file should hold instead, and what to do.
    """

    def __init__(self, file: str, line: int | None, *, found: str, expected: str) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {found}; expected {expected}")
        self.file, self.line = file, line
        self.found, self.expected = found, expected

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, unpickling calls the class with the message alone.
        make = partial(type(self), found=self.found, expected=self.expected)
        return make, (self.file, self.line), self.__dict__


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

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, unpickling calls the class with the message instead of the mapping.
        return type(self), (self.found,), self.__dict__


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


class HeadbookWarning(UserWarning):
    """A fault that leaves something out of the output. The message is one line, ready to print."""

    # `headbook.python_options` sets it, which imports this module.
    in_python: Callable[[str], str] = staticmethod(str)

    def __str__(self) -> str:
        """Return the message with options as arguments of Python functions."""
        return self.in_python(self.with_flags)

    @property
    def with_flags(self) -> str:
        """The message with options as flags of the command line."""
        return super().__str__()


def warn(text: str) -> None:
    """Issue a `HeadbookWarning`, but not in a process that another one started, which warns too."""
    if multiprocessing.parent_process() is None:
        warnings.warn(" ".join(text.split()), HeadbookWarning, stacklevel=2)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library reports that no memory is left."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | ImportError) and any(
        phrase in text for phrase in OUT_OF_MEMORY_PHRASES
    )


def is_device_lost(error: BaseException) -> bool:
    """Whether this process cannot use its GPU any more after an error."""
    # "CUDA error: out of memory" leaves the GPU usable: smaller batches may fit.
    return (
        isinstance(error, RuntimeError)
        and "CUDA error" in str(error)
        and not is_out_of_memory(error)
    )
