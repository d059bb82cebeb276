"""Many files as few blocks of bytes, much smaller than each file by itself.

Pages of a kind are nearly the same, but deflate looks back 32 kB, which is less than one of them.
So what stands anywhere before in a block is taken out first, as `thinned` says; the rest is
deflated. Tables stand column by column, figures as PDF without their own compression.
``templates/onefile.js`` has the other direction.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MOST = 6_000_000  # bytes of files in a block, unless one alone is larger
FAR = 64  # bytes that a repetition must have anywhere; an entry of the index is half as wide
NEAR = 16  # bytes that it must have where it continues the one before
LONG = 256  # bytes that are compared at once
PARTS = {"entries", "paths", "layers"}  # by which files of a folder differ
PAGES = (".html", ".svg", ".pdf")  # that repeat much, and folders of which the same is true;
PARTED = ("data/later/", "data/heads/")  # elsewhere `thinned` takes long for little


class Block(NamedTuple):
    """Files one after the other, packed.

    Attributes:
        files: name and bytes of each as it stands in the block.
        columns: how many columns those have that stand column by column.
        parts: bytes of the first three of the four parts of `thinned`, which follow each other.
        content: these, deflated.
    """

    files: dict[str, int]
    columns: dict[str, int]
    parts: list[int]
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
    whole = b"".join(contents.values())
    name = files[0][0]
    alike = name.endswith(PAGES) or name.startswith(PARTED)
    parts = thinned(whole) if alike else (b"", b"", b"", whole)
    sizes = {name: len(content) for name, content in contents.items()}
    return Block(sizes, columns, [*map(len, parts[:-1])], zlib.compress(b"".join(parts), 9))


def by_column(table: bytes) -> bytes | None:
    """The values of a CSV file, one a line, column by column.

    Returns:
        None where it has quotes, rows of several lengths, or no end of its last line.
    """
    rows = [line.split(b",") for line in table.split(b"\n")]
    whole = rows.pop() == [b""] and b'"' not in table and len({*map(len, rows)}) == 1
    return b"\n".join(b"\n".join(column) for column in zip(*rows, strict=True)) if whole else None


def thinned(content: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Bytes without what stands before in them.

    Returns:
        For each repetition how many bytes stand before it that are none, its length, and how much
        further back it comes from than the one before: numbers of seven bits a byte, lowest first,
        the highest bit on all but the last, and twice the last kind, odd (less one) where negative;
        then all bytes that are no repetition.
    """
    gaps, lengths, moves, rest = bytearray(), bytearray(), bytearray(), []
    done = back = 0
    for start, length, distance in _repetitions(content):
        _number(start - done, gaps)
        _number(length, lengths)
        move = distance - back
        _number(2 * move if move >= 0 else -2 * move - 1, moves)
        rest.append(content[done:start])
        done, back = start + length, distance
    rest.append(content[done:])
    return bytes(gaps), bytes(lengths), bytes(moves), b"".join(rest)


def _repetitions(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Place, length and distance of what stands before, the nearest continuation first."""
    step = FAR // 2
    width = step + 1  # any `FAR` bytes hold a whole entry
    index: dict[bytes, int] = {}
    position = done = known = back = 0
    while position < len(content) - width:
        while known <= position - step:
            index[content[known : known + width]] = known
            known += step
        near = position - back
        follows = back > 0 and content[near : near + NEAR] == content[position : position + NEAR]
        found = near if follows else index.get(content[position : position + width])
        if found is None:
            position += 1
            continue
        before = _alike_before(content, found, position, position - done)
        length = before + _alike(content, found, position)
        if length < (NEAR if follows else FAR):
            position += 1
            continue
        back = position - found
        yield position - before, length, back
        position = done = position - before + length


def _alike(content: bytes, left: int, right: int) -> int:
    """How many bytes from two places on are the same, the right one being the later."""
    start = right
    while content[left : left + LONG] == content[right : right + LONG] and right < len(content):
        step = min(LONG, len(content) - right)
        left, right = left + step, right + step
    while right < len(content) and content[left] == content[right]:
        left, right = left + 1, right + 1
    return right - start


def _alike_before(content: bytes, left: int, right: int, most: int) -> int:
    """How many bytes before two places are the same."""
    count = 0
    while count < min(most, left) and content[left - count - 1] == content[right - count - 1]:
        count += 1
    return count


def _number(value: int, stream: bytearray) -> None:
    while value > 127:
        stream.append(value & 127 | 128)
        value >>= 7
    stream.append(value)
