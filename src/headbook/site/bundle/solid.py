"""Many files as few blocks of bytes, much smaller than each file by itself.

Pages of a kind are nearly the same, but deflate looks back 32 kB, which is less than one of them.
So a block is compressed with LZMA, which looks back to its beginning. Tables stand column by
column. ``templates/onefile.js`` has the other direction.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headbook.site.pressed import pressed

MOST = 6_000_000  # bytes of files in a block, unless one alone is larger
PARTS = {"entries", "paths"}  # by which files of a folder differ


class Block(NamedTuple):
    """Files one after the other, packed.

    Attributes:
        files: name and bytes of each as it stands in the block.
        columns: how many columns those have that stand column by column.
        content: these, compressed.
    """

    files: dict[str, int]
    columns: dict[str, int]
    content: bytes


def blocks(files: Iterable[tuple[str, bytes]]) -> Iterator[Block]:
    """Files of a kind together, in the order in which kinds and files come."""
    kinds: dict[str, list[tuple[str, bytes]]] = {}
    for name, content in files:
        kinds.setdefault(_kind(name), []).append((name, content))
    for kind in kinds.values():
        waiting: list[tuple[str, bytes]] = []
        for pair in kind:
            if waiting and sum(len(content) for _, content in [*waiting, pair]) > MOST:
                yield _block(waiting)
                waiting = []
            waiting.append(pair)
        yield _block(waiting)


def _kind(name: str) -> str:
    """What files share that have much in common; large ones that are read alone stand alone."""
    folder, _, file = name.rpartition("/")
    stem, _, suffix = file.partition(".")
    if folder == "data" or stem == "vega":
        return name
    part = stem.rpartition("-")[2]
    return f"{folder} {part if part in PARTS else ''} {suffix}"


def _block(files: list[tuple[str, bytes]]) -> Block:
    columns, contents = {}, {}
    for name, content in files:
        turned = by_column(content) if name.endswith(".csv") else None
        if turned is not None:
            columns[name] = content.partition(b"\n")[0].count(b",") + 1
        contents[name] = content if turned is None else turned
    sizes = {name: len(content) for name, content in contents.items()}
    whole = b"".join(contents.values())
    return Block(sizes, columns, pressed(whole, thoroughly=True))


def by_column(table: bytes) -> bytes | None:
    """The values of a CSV file, one a line, column by column.

    Returns:
        None where it has quotes, rows of several lengths, or no end of its last line.
    """
    rows = [line.split(b",") for line in table.split(b"\n")]
    whole = rows.pop() == [b""] and b'"' not in table and len({*map(len, rows)}) == 1
    return b"\n".join(b"\n".join(column) for column in zip(*rows, strict=True)) if whole else None
