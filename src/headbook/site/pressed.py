"""Bytes made few with LZMA, a seventh fewer than deflate leaves of what pages read.

``templates/assets/unpack.js`` has the other direction.
"""

import lzma

# No header; the bits of a literal depend on three of the byte before, and nothing on its place:
# the script knows no others.
FILTER = {"id": lzma.FILTER_LZMA1, "preset": 9, "lc": 3, "lp": 0, "pb": 0}
THOROUGH = {"mf": lzma.MF_BT4, "nice_len": 128}
QUICK = {"mf": lzma.MF_HC4, "nice_len": 32}  # half the time, a fiftieth more bytes of small files
FARTHEST = 1 << 23  # bytes that it looks back; memory grows with them
NEAREST = 1 << 12  # the fewest that LZMA takes
SIZE = 4  # bytes that say how many there were


def pressed(content: bytes, *, thoroughly: bool = False) -> bytes:
    """Bytes, compressed; before them their number, the highest byte first."""
    far = {"dict_size": min(FARTHEST, max(len(content), NEAREST))}
    chosen = FILTER | far | (THOROUGH if thoroughly else QUICK)
    body = lzma.compress(content, lzma.FORMAT_RAW, filters=[chosen])
    return len(content).to_bytes(SIZE, "big") + body


def released(content: bytes) -> bytes:
    """The bytes that `pressed` was given.

    Raises:
        lzma.LZMAError: they are not what it gives.
    """
    filters = [FILTER | {"dict_size": FARTHEST}]
    return lzma.decompress(content[SIZE:], lzma.FORMAT_RAW, filters=filters)
