"""PDF of figures: small, the same bytes every time, and the same picture and text."""

import re
import struct
from itertools import pairwise

import pytest
import vl_convert

from headbook.charts.base.pdf import plain, small
from headbook.charts.base.truetype import without_hints
from pdfs import things

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="300" height="80" font-family="sans-serif">'
    '<g opacity="0.4"><rect width="90" height="40" fill="#0072b2"/></g>'
    '<g opacity="0.7"><rect x="20" width="90" height="40" fill="#d55e00"/></g>'
    '<text y="30">Entropy of H5, Ångström, é: 0.25</text>'
    '<text y="60" font-family="monospace" font-weight="bold">in bold</text></svg>'
)
COLLECTED = re.compile(rb"\b\d+(?= 0 R)")


@pytest.fixture(scope="module")
def written() -> bytes:
    """As vl-convert writes it."""
    return vl_convert.svg_to_pdf(SVG)


def streams(pdf: bytes) -> list[bytes]:
    """All of it but fonts, in any order."""
    return sorted(s for _, s in things(pdf).values() if not s.startswith(b"\0\1\0\0"))


def fonts(pdf: bytes) -> list[bytes]:
    return sorted(s for _, s in things(pdf).values() if s.startswith(b"\0\1\0\0"))


def heads(pdf: bytes) -> list[bytes]:
    """Dictionaries, lines in any order, whatever the numbers of what they refer to."""
    basic = (COLLECTED.sub(b"", head) for head, _ in things(pdf).values())
    lines = (b"\n".join(sorted(head.splitlines())) for head in basic if b"/Producer" not in head)
    return sorted(re.sub(rb"[A-Z]{6}\+", b"", each) for each in lines)


def test_the_same_picture_and_text_in_half_the_bytes(written: bytes) -> None:
    """What is drawn and what letters stand for is byte for byte the same; only fonts are not."""
    made = small(written)
    assert len(made) < 0.55 * len(written)
    assert heads(made) == heads(written)
    assert [s for s in streams(made) if s] == [s for s in streams(written) if s]
    assert len(fonts(made)) == len(fonts(written)) == 2


def test_the_same_picture_gives_the_same_bytes(written: bytes) -> None:
    """Whatever the order of its two fonts."""
    once = small(written)
    assert all(small(vl_convert.svg_to_pdf(SVG)) == once for _ in range(8))
    assert small(once) == once


def test_without_compression_nothing_else_is_different(written: bytes) -> None:
    """So that one file can hold it; what has another build stays as it is."""
    made = small(written)
    basic = plain(made)
    assert b"FlateDecode" not in basic
    assert things(basic) == things(made)
    assert small(basic) == made
    assert plain(b"%PDF-1.7\nother") == b"%PDF-1.7\nother"


def words(content: bytes) -> int:
    """The sum of its numbers of four bytes."""
    padded = content + bytes(-len(content) % 4)
    return int(sum(word for (word,) in struct.iter_unpack(">L", padded))) % 2**32


def tables(font: bytes) -> dict[bytes, bytes]:
    """Of a font, each with the sum that stands for it."""
    found = {}
    for i in range(struct.unpack_from(">H", font, 4)[0]):
        name, total, start, size = struct.unpack_from(">4sLLL", font, 12 + 16 * i)
        found[name] = font[start : start + size]
        assert start % 4 == 0
        basic = found[name] if name != b"head" else found[name][:8] + bytes(4) + found[name][12:]
        assert total == words(basic)
    return found


def glyphs(font: dict[bytes, bytes]) -> list[bytes]:
    wide = font[b"head"][51] == 1
    places = [p for (p,) in struct.iter_unpack(">L" if wide else ">H", font[b"loca"])]
    factor = 1 if wide else 2
    return [font[b"glyf"][factor * a : factor * b] for a, b in pairwise(places)]


def program(glyph: bytes) -> tuple[int, int]:
    """Where the instructions of a simple outline start, and how many bytes they are."""
    place = 12 + 2 * struct.unpack_from(">h", glyph)[0]
    return place, struct.unpack_from(">H", glyph, place - 2)[0]


def test_fonts_keep_outlines_and_widths(written: bytes) -> None:
    """Instructions go; glyphs that are put together from others (Å, é) ask for none."""
    for packed in fonts(written):
        before, after = tables(packed), tables(without_hints(packed))
        assert words(without_hints(packed)) == 0xB1B0AFBA
        assert {b"fpgm", b"cvt "} <= set(before)
        assert set(after) == {b"glyf", b"head", b"hhea", b"hmtx", b"loca", b"maxp"}
        assert all(after[name] == before[name] for name in (b"hhea", b"hmtx", b"maxp"))
        pairs = [*zip(glyphs(before), glyphs(after), strict=True)]
        assert any(program(old)[1] for old, _ in pairs if old and old[0] < 128)
        for old, new in pairs:
            if old and old[0] < 128:
                place, size = program(old)
                assert program(new) == (place, 0)
                assert new[: place - 2] == old[: place - 2]
                assert new[place:].rstrip(b"\0") == old[place + size :].rstrip(b"\0")
            else:
                assert len(new) <= len(old)
                assert not old or new[:10] == old[:10]
    assert without_hints(b"OTTO other") == b"OTTO other"


def test_parts_of_a_glyph_stay_without_its_instructions() -> None:
    """Two parts, the last of which says that instructions follow."""
    box = struct.pack(">hhhhh", -1, 0, 0, 9, 9)
    first, second = struct.pack(">HHbb", 0x22, 3, 1, 2), struct.pack(">HHhhh", 0x109, 4, 5, 6, 7)
    last = struct.pack(">HHhhh", 0x9, 4, 5, 6, 7)
    glyph = box + first + second + struct.pack(">H", 3) + b"abc" + b"\0"
    found = {
        b"glyf": glyph, b"loca": struct.pack(">HH", 0, len(glyph) // 2), b"head": bytes(54),
        b"hhea": b"", b"hmtx": b"", b"maxp": b"", b"prep": b"x",
    }  # fmt: skip
    entries, body = b"", b""
    for name, table in found.items():
        entries += struct.pack(
            ">4sLLL", name, words(table), 12 + 16 * len(found) + len(body), len(table)
        )
        body += table
    font = b"\0\1\0\0" + struct.pack(">HHHH", len(found), 0, 0, 0) + entries + body
    assert glyphs(tables(without_hints(font))) == [box + first + last]
