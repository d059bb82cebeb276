"""Files in blocks come back as they were, and what stands before in a block costs little."""

import zlib
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headbook.site.bundle.solid import blocks, by_column, thinned

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
