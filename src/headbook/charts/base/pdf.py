"""The same bytes for the same picture: fonts and resources of a PDF come in any order."""

import re
from itertools import pairwise
from typing import NamedTuple

ENTRIES = re.compile(rb"(?<=<<\n)(?: +/\w+ \d+ 0 R\n){2,}")  # of a dictionary
TABLE = re.compile(rb"\nxref\n0 \d+\n(.*?)trailer.*startxref\n(\d+)\n%%EOF\s*$", re.DOTALL)
PLACE = re.compile(rb"^(\d{10}) 00000 n", re.MULTILINE)
REFERENCE = re.compile(rb"\b(\d+)(?= 0 R\b)")
FONT, PARTS = b"/Subtype /Type0", 4  # a font, and the objects behind it that are its own


class Object(NamedTuple):
    """One object of a file, with its number."""

    number: int
    content: bytes

    def renumbered(self, numbers: dict[int, int]) -> "Object":
        """With other numbers for itself and for what it refers to; streams hold no references."""
        own = numbers.get(self.number, self.number)
        head, stream, rest = self.content.partition(b"stream\n")
        head = re.sub(rb"^\d+", str(own).encode(), head)
        head = REFERENCE.sub(lambda m: str(numbers.get(int(m[1]), int(m[1]))).encode(), head)
        return Object(own, head + stream + rest)


def in_order(pdf: bytes) -> bytes:
    """Sort the dictionaries of resources, and the fonts where there are several."""
    pdf = ENTRIES.sub(lambda match: b"".join(sorted(match[0].splitlines(keepends=True))), pdf)
    table = TABLE.search(pdf)
    if pdf.count(FONT) < 2 or table is None:
        return pdf
    found = {int(p): n for n, p in enumerate(PLACE.findall(table[1]), start=1)}
    places = [*sorted(found), table.start() + 1]
    objects = [Object(found[start], pdf[start:end]) for start, end in pairwise(places)]
    return _written(pdf[: places[0]], _sorted(objects), pdf[table.start() + 1 :], table)


def _sorted(objects: list[Object]) -> list[Object]:
    """Fonts by their numbers, which follow their use; their own objects are numbered like that."""
    starts = [i for i, each in enumerate(objects) if FONT in each.content]
    groups = [objects[i : i + 1 + PARTS] for i in starts]
    first, after = starts[0], starts[-1] + 1 + PARTS
    pool = sorted(part.number for group in groups for part in group[1:])
    ordered = sorted(groups, key=lambda group: group[0].number)
    own = [part.number for group in ordered for part in group[1:]]
    numbers = dict(zip(own, pool, strict=True))
    fonts = [part.renumbered(numbers) for group in ordered for part in group]
    return [*objects[:first], *fonts, *objects[after:]]


def _written(start: bytes, objects: list[Object], end: bytes, table: "re.Match[bytes]") -> bytes:
    """The file with the places of its objects as they are now."""
    position, places = len(start), {}
    for each in objects:
        places[each.number] = position
        position += len(each.content)
    numbers = iter(sorted(places))
    rows = PLACE.sub(lambda _: b"%010d 00000 n" % places[next(numbers)], end)
    rows = re.sub(rb"(?<=startxref\n)\d+", str(position).encode(), rows)
    return start + b"".join(each.content for each in objects) + rows
