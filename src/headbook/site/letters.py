"""Bytes as letters that mean nothing to HTML or in a script's text: eight for every seven bytes.

Each letter is seven bits, the first ones highest. Those that may not stand there, `UNFIT`, are
written together with what follows as one letter beyond ASCII, which takes the bytes of both.
``templates/assets/unpack.js`` has the other direction.
"""

import numpy as np
from numpy.typing import NDArray

BITS = 7
UNFIT = np.frombuffer(b'\0\n\r"&<>\\', np.uint8)
PAIRS, LAST, END = 0x100, 0x500, 0x508  # letters for an unfit one and the next, and for the last


def letters(content: bytes) -> str:
    """Bytes as letters."""
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    groups = np.pad(bits, (0, -len(bits) % BITS)).reshape(-1, BITS)
    sevens = np.packbits(groups, axis=1).ravel().astype("<u4") >> 1
    places = _leading(np.flatnonzero(np.isin(sevens, UNFIT)))
    kinds = np.searchsorted(UNFIT, sevens[places]).astype("<u4")
    ends = places == len(sevens) - 1
    followers = places[~ends] + 1
    sevens[places[ends]] = LAST + kinds[ends]
    sevens[places[~ends]] = PAIRS + (kinds[~ends] << BITS | sevens[followers])
    return np.delete(sevens, followers).tobytes().decode("utf-32-le")


def _leading(places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Of ascending places every second one where they follow each other, from the first on."""
    starts = np.diff(places, prepend=-2) > 1
    first: NDArray[np.intp] = places[starts][np.cumsum(starts) - 1]
    leading: NDArray[np.intp] = places[(places - first) % 2 == 0]
    return leading


def from_letters(text: str) -> bytes:
    """The bytes that `letters` wrote.

    Raises:
        ValueError: the text has other letters.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    between = (codes > 127) & (codes < PAIRS)
    if (between | (codes >= END) | np.isin(codes, UNFIT)).any():
        raise ValueError("expected letters that stand for bytes")
    paired, ended = (codes >= PAIRS) & (codes < LAST), codes >= LAST
    places = np.cumsum(1 + paired) - 1 - paired
    sevens = np.zeros(len(codes) + paired.sum(), np.uint8)
    sevens[places] = codes & 127
    sevens[places[paired] + 1] = codes[paired] & 127
    sevens[places[paired]] = UNFIT[codes[paired] - PAIRS >> BITS]
    sevens[places[ended]] = UNFIT[codes[ended] - LAST]
    bits = np.unpackbits(np.left_shift(sevens, 1, dtype=np.uint8)[:, None], axis=1)[
        :, :BITS
    ].ravel()
    return np.packbits(bits[: len(bits) // 8 * 8]).tobytes()
