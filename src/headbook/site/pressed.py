"""Bytes made few with LZMA, a seventh fewer than deflate leaves of what pages read.

``templates/assets/unpack.js`` has the other direction.
"""

import lzma

# No header; the bits of a literal depend on three of the byte before, and nothing on its place:
# the script knows no others.
FILTER = {"id": lzma.FILTER_LZMA1, "preset": 9, "lc": 3, "lp": 0, "pb": 0}
FILTER |= {"mf": lzma.MF_HC4, "nice_len": 32}  # half the time, a fiftieth more bytes
FARTHEST = 1 << 23  # bytes that it looks back; memory grows with them
NEAREST = 1 << 12  # the fewest that LZMA takes
SIZE = 4  # bytes that say how many there were


def pressed(content: bytes) -> bytes:
    """Bytes, compressed; before them their number, the highest byte first."""
    far = min(FARTHEST, max(len(content), NEAREST))
    body = lzma.compress(content, lzma.FORMAT_RAW, filters=[FILTER | {"dict_size": far}])
    return len(content).to_bytes(SIZE, "big") + body


def released(content: bytes) -> bytes:
    """The bytes that `pressed` was given.

    Raises:
        lzma.LZMAError: they are not what it gives.
    """
    filters = [FILTER | {"dict_size": FARTHEST}]
    return lzma.decompress(content[SIZE:], lzma.FORMAT_RAW, filters=filters)
