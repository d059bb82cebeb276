"""Files in blocks come back as they were, and what stands before in a block costs little."""

import re
import zlib
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headbook.site.bundle.solid import blocks, by_column, plain_pdf, thinned
from sites import Site

PIECES = [bytes(range(i, i + 90)) for i in range(0, 60, 7)]


def numbers(part: bytes) -> list[int]:
    """Of seven bits a byte, lowest first."""
    found, value, shift = [], 0, 0
    for byte in part:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def restored(content: bytes, sizes: Sequence[int]) -> bytes:
    """What `thinned` was given."""
    parts, at = [], 0
    for size in sizes:
        parts.append(numbers(content[at : at + size]))
        at += size
    found, back = bytearray(), 0
    for gap, length, move in zip(*parts, strict=True):
        found += content[at : at + gap]
        at += gap
        back += -(move + 1) // 2 if move % 2 else move // 2
        assert 0 < back <= len(found)
        for _ in range(length):
            found.append(found[-back])
    return bytes(found) + content[at:]


def by_row(content: bytes, columns: int) -> bytes:
    """The table that stood column by column."""
    values = content.split(b"\n")
    height = len(values) // columns
    rows = zip(*(values[i * height : (i + 1) * height] for i in range(columns)), strict=True)
    return b"".join(b",".join(row) + b"\n" for row in rows)


def things(pdf: bytes) -> dict[int, tuple[bytes, bytes]]:
    """The objects of a PDF where its table says that they are, streams decompressed."""
    start = int(re.findall(rb"startxref\n(\d+)", pdf)[0])
    count = int(re.findall(rb"xref\n0 (\d+)\n", pdf[start:])[0])
    lines = pdf[start:].split(b"\n")[3 : 2 + count]
    found = {}
    for number, line in enumerate(lines, start=1):
        assert re.fullmatch(rb"\d{10} 00000 n[ \r]{1,2}", line)
        thing = pdf[int(line[:10]) :]
        assert thing.startswith(b"%d 0 obj\n" % number)
        head, mark, rest = thing[: thing.index(b"endobj")].partition(b"stream\n")
        size = int(re.findall(rb"/Length (\d+)", head)[0]) if mark else 0
        assert not mark or rest[size:].split() == [b"endstream"]
        packed = b"/FlateDecode" in head
        basic = re.sub(rb"  /Filter /FlateDecode\n|/Length \d+", b"", head)
        found[number] = (basic, zlib.decompress(rest[:size]) if packed else rest[:size])
    return found


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(PIECES)), max_size=30))
def test_what_was_taken_out_comes_back(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    parts = thinned(content)
    assert restored(b"".join(parts), [*map(len, parts[:-1])]) == content


def test_what_stands_far_before_is_taken_out() -> None:
    """Further than deflate looks back, with a change in between, and right behind itself."""
    one, other = (bytes(i * k % 251 for i in range(40_000)) for k in (7, 11))
    page = b"".join(zlib.compress(each[i : i + 999]) for each in (one, other) for i in range(99))
    changed = page[:5_000] + b"changed" + page[5_000:]
    parts = thinned(page + changed + b"a" * 900)
    assert sum(map(len, parts)) < len(page) + 200
    assert restored(b"".join(parts), [*map(len, parts[:-1])]) == page + changed + b"a" * 900


def test_tables_stand_by_column_where_that_can_be_undone() -> None:
    table = b"a,b,c\n1,,x\n,,\n"
    turned = by_column(table)
    assert turned == b"a\n1\n\nb\n\n\nc\nx\n"
    assert by_row(turned, 3) == table
    for other in (b'a,b\n"1,2",3\n', b"a,b\n1\n", b"a,b\n1,2", b""):
        assert by_column(other) is None


def test_files_of_a_kind_share_a_block() -> None:
    """Others stand alone, and so do tables."""
    names = ["heads/a.html", "heads/b.html", "data/a.csv", "data/b.csv", "figures/a.svg"]
    found = [*blocks((name, name.encode()) for name in names)]
    assert [[*block.files] for block in found] == [names[:2], names[2:3], names[3:4], names[4:]]


def test_a_pdf_is_the_same_without_its_compression(small_site: Site) -> None:
    """Every object, where the table says it is; what has another build stays."""
    for file in sorted((small_site.folder / "figures").glob("*.pdf"))[:3]:
        packed = file.read_bytes()
        basic = plain_pdf(packed)
        assert b"FlateDecode" in packed
        assert b"FlateDecode" not in basic
        assert things(basic) == things(packed)
        assert basic.endswith(b"%%EOF")
    assert plain_pdf(b"%PDF-1.7\nother") == b"%PDF-1.7\nother"
