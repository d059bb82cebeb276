"""PDF in as few bytes as it takes, the same ones for the same picture.

What vl-convert writes has fonts made for screens, text that is not compressed, and fonts and
resources in any order.
"""

import re
import struct
import zlib
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from headbook.charts.base.truetype import without_hints

OBJECT = re.compile(rb"(\d+) 0 obj\n(.*?)(?:endobj|stream\r?\n)", re.DOTALL)
ENTRIES = re.compile(rb"(?<=<<\n)(?: +/\w+ \d+ 0 R\n){2,}")  # of a dictionary
REFERENCE = re.compile(rb"\b\d+(?= 0 R\b)")
FONT = re.compile(rb"/FontFile2 (\d+) 0 R")
LENGTH, FLATE = re.compile(rb"  /Length (\d+)\n"), b"  /Filter /FlateDecode\n"
TOGETHER, TABLE, ROOT = b"  /Type /ObjStm\n", b"  /Type /XRef\n", b"/Type /Catalog"
HEADER, END = b"%PDF-1.7\n%\x80\x80\x80\x80\n", b"startxref\n%d\n%%%%EOF"


@dataclass(frozen=True)
class Object:
    """One object of a file.

    Attributes:
        head: all of it but its stream, without length and compression of that.
        stream: uncompressed, unless it has a filter that is not deflate; None where there is none.
    """

    head: bytes
    stream: bytes | None = None

    def compressed(self) -> "Object":
        """With a deflated stream."""
        if self.stream is None or b"/Filter" in self.head:
            return self
        return Object(_with(self.head, FLATE), zlib.compress(self.stream, 9))

    def written(self, number: int) -> bytes:
        """As it stands in a file."""
        if self.stream is None:
            return b"%d 0 obj\n%sendobj\n" % (number, self.head)
        head = _with(self.head, b"  /Length %d\n" % len(self.stream))
        return b"%d 0 obj\n%sstream\n%s\nendstream\nendobj\n" % (number, head, self.stream)


def small(pdf: bytes) -> bytes:
    """The same picture and the same text to copy.

    Args:
        pdf: as vl-convert writes it.
    """
    objects = _in_order(_with_light_fonts(read(pdf)))
    inside = {number: each.head for number, each in objects.items() if each.stream is None}
    group, table = len(objects) + 1, len(objects) + 2
    apart = {number: each for number, each in objects.items() if number not in inside}
    content, places = _body(apart | {group: _together(inside)}, packed=True)
    rows = {0: (0, 0, 0), table: (1, len(content), 0)}
    rows |= {number: (1, place, 0) for number, place in places.items()}
    rows |= {number: (2, group, i) for i, number in enumerate(inside)}
    about = b"<<\n%s  /W [1 4 2]\n%s>>\n" % (TABLE, _trailer(objects, table + 1))
    last = Object(about, b"".join(struct.pack(">BLH", *row) for _, row in sorted(rows.items())))
    return content + last.compressed().written(table) + END % len(content)


def plain(pdf: bytes) -> bytes:
    """A file of `small` without compression, for what compresses many files together.

    One of another build stays as it is.
    """
    objects = read(pdf)
    if not objects:
        return pdf
    content, places = _body(objects, packed=False)
    rows = b"".join(b"%010d 00000 n \n" % place for _, place in sorted(places.items()))
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, rows)
    trailer = b"trailer\n<<\n%s>>\n" % _trailer(objects, len(objects) + 1)
    return content + table + trailer + END % len(content)


def read(pdf: bytes) -> dict[int, Object]:
    """The objects of a file by number, as vl-convert, `small` or `plain` wrote it.

    Returns:
        Nothing where the file has another build.
    """
    found: dict[int, Object] = {}
    place = 0
    while (match := OBJECT.search(pdf, place)) is not None:
        number, head, place = int(match[1]), match[2], match.end()
        length = LENGTH.search(head)
        if not match[0].endswith(b"\n") or length is None:
            found[number] = Object(head)
            continue
        stream, place = pdf[place : place + int(length[1])], place + int(length[1])
        packed, head = FLATE in head, LENGTH.sub(b"", head).replace(FLATE, b"")
        found |= _given(number, Object(head, zlib.decompress(stream) if packed else stream))
    return found


def _given(number: int, thing: Object) -> dict[int, Object]:
    """An object with a stream, or those that it holds; the table of places is none."""
    if TABLE in thing.head:
        return {}
    if TOGETHER not in thing.head or thing.stream is None:
        return {number: thing}
    first = thing.stream.index(b"\n") + 1
    numbers = [*map(int, thing.stream[:first].split())]
    ends = [*numbers[1::2], len(thing.stream) - first]
    heads = [thing.stream[first + start : first + end] for start, end in pairwise(ends)]
    return {n: Object(head) for n, head in zip(numbers[::2], heads, strict=True)}


def _with(head: bytes, entry: bytes) -> bytes:
    return head.replace(b"<<\n", b"<<\n" + entry, 1)


def _with_light_fonts(objects: dict[int, Object]) -> dict[int, Object]:
    """Fonts without what pages do not use."""
    fonts = {int(n): objects[int(n)] for o in objects.values() for n in FONT.findall(o.head)}
    light = {
        n: replace(font, stream=without_hints(font.stream or b"")) for n, font in fonts.items()
    }
    return objects | light


def _in_order(objects: dict[int, Object]) -> dict[int, Object]:
    """Entries by name, objects numbered in the order in which the first one leads to them."""
    heads = {
        number: ENTRIES.sub(lambda m: b"".join(sorted(m[0].splitlines(keepends=True))), each.head)
        for number, each in objects.items()
    }
    roots = [number for number, head in heads.items() if ROOT in head]
    numbers: dict[int, int] = {}
    waiting = roots
    while waiting:
        number = waiting.pop()
        if number not in numbers:
            numbers[number] = len(numbers) + 1
            waiting += [int(each) for each in reversed(REFERENCE.findall(heads[number]))]
    return {
        new: replace(
            objects[old],
            head=REFERENCE.sub(lambda m: b"%d" % numbers[int(m[0])], heads[old]),
        )
        for old, new in numbers.items()
    }


def _together(heads: dict[int, bytes]) -> Object:
    """Objects without streams as the stream of one; their numbers and places come first."""
    starts = accumulate(map(len, heads.values()), initial=0)
    first = b" ".join(b"%d %d" % pair for pair in zip(heads, starts, strict=False)) + b"\n"
    about = b"<<\n%s  /N %d\n  /First %d\n>>\n" % (TOGETHER, len(heads), len(first))
    return Object(about, first + b"".join(heads.values()))


def _body(objects: dict[int, Object], *, packed: bool) -> tuple[bytes, dict[int, int]]:
    """Objects one after the other, and where each starts."""
    content, places = HEADER, {}
    for number, each in objects.items():
        places[number] = len(content)
        content += (each.compressed() if packed else each).written(number)
    return content, places


def _trailer(objects: dict[int, Object], size: int) -> bytes:
    """The entries that say how many objects there are, and which comes first."""
    root = next(number for number, each in objects.items() if ROOT in each.head)
    return b"  /Size %d\n  /Root %d 0 R\n" % (size, root)
