"""A PDF as a viewer reads it: from the table at its end, which says where each object stands."""

import re
import struct
import zlib

Thing = tuple[bytes, bytes]  # what stands before a stream, and the stream, decompressed


def things(pdf: bytes) -> dict[int, Thing]:
    """All objects by number, without lengths and filters."""
    assert pdf.endswith(b"%%EOF")
    start = int(re.findall(rb"startxref\n(\d+)", pdf)[-1])
    table = pdf[start:]
    if table.startswith(b"xref\n"):
        rows = table[: table.index(b"trailer")].split(b"\n")[3:-1]
        assert all(re.fullmatch(rb"\d{10} 00000 n[ \r]{1,2}", row) for row in rows)
        return {i: thing(pdf, i, int(row[:10])) for i, row in enumerate(rows, start=1)}
    head, stream = thing(pdf, int(table.split()[0]), start)
    assert b"/Type /XRef" in head
    assert b"/W [1 4 2]" in head
    places = [*struct.iter_unpack(">BLH", stream)]
    assert b"/Size %d\n" % len(places) in head
    assert places[-1] == (1, start, 0)
    numbered = [*enumerate(places)][1:-1]
    alone = {i: thing(pdf, i, place) for i, (kind, place, _) in numbered if kind == 1}
    found = {i: inside(alone[at], i, j) for i, (kind, at, j) in numbered if kind == 2}
    return found | {i: each for i, each in alone.items() if b"/ObjStm" not in each[0]}


def thing(pdf: bytes, number: int, place: int) -> Thing:
    """One that stands alone, at a place in the file."""
    rest = pdf[place:]
    assert rest.startswith(b"%d 0 obj\n" % number)
    body = rest[rest.index(b"\n") + 1 : rest.index(b"\nendobj")]
    head, mark, content = body.partition(b"stream\n")
    if not mark:
        return body + b"\n", b""
    size = int(re.findall(rb"/Length (\d+)", head)[0])
    assert content[size:].split() == [b"endstream"]
    packed = b"/FlateDecode" in head
    basic = re.sub(rb"  /Filter /FlateDecode\n|  /Length \d+\n", b"", head)
    return basic, zlib.decompress(content[:size]) if packed else content[:size]


def inside(group: Thing, number: int, index: int) -> Thing:
    """One of those that stand together in a stream."""
    head, stream = group
    first = int(re.findall(rb"/First (\d+)", head)[0])
    numbers = [*map(int, stream[:first].split())]
    starts = [*numbers[1::2], len(stream) - first]
    assert numbers[2 * index] == number
    return stream[first + starts[index] : first + starts[index + 1]], b""


def unpacked(pdf: bytes) -> bytes:
    """Everything that a file says."""
    return b"\n".join(b"%s\n%s" % each for _, each in sorted(things(pdf).items()))
