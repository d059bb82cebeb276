"""Files in blocks come back as they were, and what stands before in a block costs little."""

import numpy as np

from headbook.site.bundle.solid import blocks, by_column
from headbook.site.pressed import released


def by_row(content: bytes, columns: int) -> bytes:
    """The table that stood column by column."""
    values = content.split(b"\n")
    height = len(values) // columns
    rows = zip(*(values[i * height : (i + 1) * height] for i in range(columns)), strict=True)
    return b"".join(b",".join(row) + b"\n" for row in rows)


def test_what_stands_far_before_costs_little() -> None:
    """Further than deflate looks back, with a change in between."""
    page = np.random.default_rng(0).bytes(90_000)
    files = {"heads/a.html": page, "heads/b.html": page[:5_000] + b"changed" + page[5_000:]}
    [block] = blocks(files.items())
    assert len(block.content) < len(page) * 1.02
    assert released(block.content) == b"".join(files.values())


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
