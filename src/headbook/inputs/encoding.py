r"""Encoding and line ends of files of text: UTF-8 or UTF-16, ``\n`` or ``\r``."""

import io
from collections.abc import Callable, Iterator
from functools import partial

BYTE_ORDER_MARK = "\ufeff"
SAMPLE_BYTES = 4096  # at the beginning of a file, from which its encoding is told
MIN_ZERO_SHARE = 0.5  # of every other byte of Latin text in UTF-16
MAX_ZERO_SHARE = 0.02  # of the bytes between those


def raw_lines(stream: io.BufferedReader, max_bytes: int) -> Iterator[bytes]:
    r"""Yield the lines of a file in UTF-8, with their line ends; UTF-16 is converted.

    Args:
        stream: the file, at its beginning.
        max_bytes: length beyond which a line may be cut, one byte later.

    Raises:
        UnicodeDecodeError: the file is UTF-16 and has half a character.
    """
    encoding = utf16_of(stream.peek(SAMPLE_BYTES)[:SAMPLE_BYTES])
    read: Callable[[], bytes] = partial(stream.readline, max_bytes + 1)
    if encoding:
        text = io.TextIOWrapper(stream, encoding, newline="\n")
        read = lambda: text.readline(max_bytes + 1).encode()  # noqa: E731 - as the line above
    first = read()
    if b"\r" in first and not first.endswith(b"\n") and len(first) <= max_bytes:
        yield from (line + b"\r" for line in first.removesuffix(b"\r").split(b"\r"))
    elif first:
        yield first
    yield from iter(read, b"")


def utf16_of(sample: bytes) -> str:
    """Return the codec of UTF-16 by its mark, or else by its zero bytes; empty for other text.

    Latin letters and spaces have a zero as every second byte. Without a mark, other scripts are
    not known by their bytes.

    Args:
        sample: bytes at the beginning of a file.
    """
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16-le" if sample[:1] == b"\xff" else "utf-16-be"
    half = len(sample) // 2
    if half and (len(sample) % 2 == 0 or len(sample) >= SAMPLE_BYTES):
        even, odd = (sample[start : 2 * half : 2].count(0) / half for start in (0, 1))
        if odd >= MIN_ZERO_SHARE and even <= MAX_ZERO_SHARE:
            return "utf-16-le"
        if even >= MIN_ZERO_SHARE and odd <= MAX_ZERO_SHARE:
            return "utf-16-be"
    return ""
