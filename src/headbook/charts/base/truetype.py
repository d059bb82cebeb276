"""A TrueType font without what only screens of few dots need: half of its bytes."""

import struct
from collections.abc import Iterator
from itertools import pairwise

TRUETYPE = b"\0\1\0\0"
KEPT = (b"glyf", b"head", b"hhea", b"hmtx", b"loca", b"maxp")  # what a PDF needs, by name
SUM, WHOLE = 8, 0xB1B0AFBA  # where `head` makes up for the sum of a file, and that
LONG = 51  # where `head` says whether `loca` counts bytes (1) or pairs of them (0)
WORDS, SCALE, MORE, BOTH, MATRIX, PROGRAM = 1, 8, 32, 64, 128, 256  # flags of a glyph's part


def without_hints(font: bytes) -> bytes:
    """The same outlines and widths without instructions, names and tables for them.

    Args:
        font: the font of a PDF, whose glyphs have no names and stand for no characters.

    Returns:
        The font itself where it is none with TrueType outlines.
    """
    tables = _tables(font) if font.startswith(TRUETYPE) else {}
    if not {*KEPT} <= {*tables}:
        return font
    wide = tables[b"head"][LONG] == 1
    glyphs = [_without_program(glyph) for glyph in _glyphs(tables, wide=wide)]
    places = [0]
    for glyph in glyphs:
        places.append(places[-1] + len(glyph))
    tables[b"glyf"] = b"".join(glyphs)
    tables[b"loca"] = b"".join(
        struct.pack(">L", place) if wide else struct.pack(">H", place // 2) for place in places
    )
    return _font({name: tables[name] for name in KEPT})


def _tables(font: bytes) -> dict[bytes, bytes]:
    (count,) = struct.unpack_from(">H", font, 4)
    entries = (struct.unpack_from(">4s4xLL", font, 12 + 16 * i) for i in range(count))
    return {name: font[start : start + size] for name, start, size in entries}


def _glyphs(tables: dict[bytes, bytes], *, wide: bool) -> Iterator[bytes]:
    """The outline of each glyph, empty where it has none."""
    places = [place for (place,) in struct.iter_unpack(">L" if wide else ">H", tables[b"loca"])]
    factor = 1 if wide else 2
    for start, end in pairwise(places):
        yield tables[b"glyf"][factor * start : factor * end]


def _without_program(glyph: bytes) -> bytes:
    """An outline without its instructions, of an even number of bytes."""
    if not glyph:
        return glyph
    (contours,) = struct.unpack_from(">h", glyph)
    if contours < 0:
        glyph = _of_parts(glyph)
    else:
        place = 10 + 2 * contours  # behind the box and the last point of each contour
        (size,) = struct.unpack_from(">H", glyph, place)
        glyph = glyph[:place] + b"\0\0" + glyph[place + 2 + size :]
    return glyph + b"\0" * (len(glyph) % 2)


def _of_parts(glyph: bytes) -> bytes:
    """One that is put together from others: up to its last part, none of which asks for more."""
    made, place, flags = bytearray(glyph), 10, MORE
    while flags & MORE:
        (flags,) = struct.unpack_from(">H", glyph, place)
        struct.pack_into(">H", made, place, flags & ~PROGRAM)
        place += 8 if flags & WORDS else 6
        place += 2 if flags & SCALE else 4 if flags & BOTH else 8 if flags & MATRIX else 0
    return bytes(made[:place])


def _font(tables: dict[bytes, bytes]) -> bytes:
    """A file of tables, each at a multiple of four bytes, with the sums that they must have."""
    head = tables[b"head"]
    tables = tables | {b"head": head[:SUM] + bytes(4) + head[SUM + 4 :]}
    power = len(tables).bit_length() - 1
    ranges = (16 << power, power, 16 * len(tables) - (16 << power))
    start, entries, body, places = 12 + 16 * len(tables), b"", b"", {}
    for name, table in sorted(tables.items()):
        places[name] = start + len(body)
        padded = table + bytes(-len(table) % 4)
        entries += struct.pack(">4sLLL", name, _sum(padded), places[name], len(table))
        body += padded
    font = bytearray(TRUETYPE + struct.pack(">HHHH", len(tables), *ranges) + entries + body)
    struct.pack_into(">L", font, places[b"head"] + SUM, (WHOLE - _sum(font)) % (1 << 32))
    return bytes(font)


def _sum(content: bytes | bytearray) -> int:
    return int(sum(word for (word,) in struct.iter_unpack(">L", content))) % (1 << 32)
