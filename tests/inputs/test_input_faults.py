"""A fault in an input file is told in one line that names file and line."""

import datetime as dt
import io
import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headbook.errors import InputError, OutputError
from headbook.inputs import open_corpus
from machine import small_files


def fault(file: Path | str) -> str:
    """The message with which a file is refused."""
    with pytest.raises(InputError) as error:
        open_corpus([file])
    message = str(error.value)
    assert "\n" not in message
    assert "; expected " in message
    return message


FAULTS = {
    "bytes that are not UTF-8": ("a.txt", b"fine\nna\xefve\n", "a.txt:2: byte 0xef at column 3"),
    "no text at all": ("a.txt", b"\n \n", "a.txt: no text at all"),
    "an empty file": ("a.jsonl", b"", "a.jsonl: no text at all"),
    "an empty table": ("a.csv", b"", "a.csv:1: columns nothing"),
    "no column for text": ("a.csv", b"words,n\na,1\n", "a.csv:1: columns 'words', 'n'"),
    "a source without its target": ("a.tsv", b"source\tn\na\t1\n", "a.tsv:1: columns 'source'"),
    "a column named twice": ("a.csv", b"text,n,n\na,1,2\n", "a.csv:1: column 'n' twice"),
    "a row too short": ("a.csv", b"text,n\na,1\nb\n", "a.csv:3: 1 columns; expected 2"),
    "an open quote": ("a.csv", b'text,n\n"a,1\nb,2\n', "a.csv:3: "),
    "rows without text": ("a.csv", b"text,n\n,1\n", "a.csv: a header and no row; expected at"),
    "a line that is not JSON": ("a.jsonl", b'{"text": "a"}\n{"text"\n', "a.jsonl:2: Expecting"),
    "JSON nested deeply": (
        "a.jsonl", b'{"text": "a"}\n' + b"[" * 100_000, "a.jsonl:2: JSON nested too deeply; ",
    ),
    "a header alone": ("a.csv", b"text,n\n", "a.csv: a header and no row; expected at"),
    "a header and blank rows": ("a.tsv", b"text\tn\n\n", "a.tsv: a header and no row; expected"),
    "a number without end": ("a.jsonl", b'{"text": "a", "n": ' + b"1" * 5000 + b"}", "a.jsonl:1: "),
    "JSON that is no object": ("a.jsonl", b'["a"]\n', "a.jsonl:1: a JSON list"),
    "an object without text": ("a.jsonl", b'\n{"words": "a"}\n', "a.jsonl:2: columns 'words'"),
    "text that is no string": ("a.jsonl", b'{"text": 1}\n', "a.jsonl:1: text = 1"),
    "a target that is no string": (
        "a.jsonl", b'{"source": "a", "target": 1}\n', "a.jsonl:1: target = 1",
    ),
    "a source alone": (
        "a.jsonl", b'{"source": "a", "n": 1}\n', "a.jsonl:1: columns 'source', 'n'; expected a",
    ),
    "words that are none": ("a.jsonl", b'{"tokens": 7}\n', "a.jsonl:1: tokens = 7; expected a "),
    "words as Python writes them": (
        "a.csv", b"tokens\n\"['a', 'b']\"\n", 'a.csv:2: tokens = "[\'a\', \'b\']"; expected a list',
    ),
    "a translation of three": (
        "a.jsonl", b'{"translation": {"a": "a", "b": "b", "c": "c"}}\n', "a.jsonl:1: translation",
    ),
    "a chat": (
        "a.jsonl", b'{"messages": []}\n', "a.jsonl:1: column 'messages'; expected texts: chats",
    ),
    "a chat under another name": (
        "a.jsonl", b'{"conversations": []}\n', "a.jsonl:1: column 'conversations'; expected",
    ),
    "a cell without a name": (
        "a.csv", b"text,n,\na,1,\nb,2,note\n", "a.csv:3: 'note' in column 3, which has no name",
    ),
    "a cell beyond the header": (
        "a.csv", b"text,n\na,1,,\nb,2,,x\n", "a.csv:3: 4 columns; expected 2",
    ),
    "a quoted line end between tabs": (
        "a.tsv", b'text\tn\n"a\nb"\t1\n', "a.tsv:2: 1 columns; expected 2",
    ),
    "a NUL": ("a.txt", b"fine\nna\0me\n", "a.txt:2: a NUL character at column 3; expected text in"),
    "a NUL in a cell": ("a.tsv", b"text\nfine\na\0\n", "a.tsv:3: a NUL character at column 2"),
    "a NUL between commas": ("a.csv", b"text,n\nfine,\0\n", "a.csv:2: a NUL character at column 6"),
    "half a character of UTF-16": (
        "a.txt", "\ufeffa\nb".encode("utf-16-le") + b"\0\xd8", "a.txt:2: a line that is not UTF-16",
    ),
    "a list of texts": ("a.json", b'["a"]', "a.json:1: a JSON str; expected a JSON object"),
    "a list without end": ("a.json", b'[{"text": "a"},', "a.json: "),
    "an object of several lines": ("a.json", b'{\n"text": "a"\n}', "a.json:1: "),
    "more columns of CoNLL": (
        "a.conll", b"EU B-ORG\ncalls NN O\n", "a.conll:2: 3 columns; expected 2, a word and its",
    ),
    "a workbook that is none": ("a.xlsx", b"one\n", "a.xlsx: a file that is no Excel workbook"),
    "half a character": ("a.jsonl", b'{"text": "a\\ud800"}\n', "a.jsonl:1: the lone surrogate"),
    "a kind of file nobody knows": ("a.docx", b"one\n", "a.docx: a file of kind '.docx'"),
    "a file without a kind": ("notes", b"one\n", "notes: a file of kind 'notes'"),
    "an id without end": (
        "a.conllu", b"%s\tdog%s\n" % (b"1" * 5000, b"\t_" * 8), "a.conllu:1: a number of thousands",
    ),
    "a head without end": (
        "a.conllu", b"1\tdog\t_\t_\t_\t_\t%s\t_\t_\t_\n" % (b"1" * 5000), "a.conllu:1: ",
    ),
    "a range of a billion words": (
        "a.conllu", b"1-1000000000\tdog%s\n1\tdog%s\n" % (b"\t_" * 8, b"\t_" * 8),
        "a.conllu:1: the range 1-1000000000",
    ),
    "a range that goes back": (
        "a.conllu", b"2-1\tdog%s\n1\tdog%s\n" % (b"\t_" * 8, b"\t_" * 8),
        "a.conllu:1: Failed parsing field 'id': '2-1' is not",
    ),
    "a Parquet file that is none": ("a.parquet", b"one\n", "a.parquet: a file that is not Parquet"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_known_in_one_line_with_its_place(tmp_path: Path, name: str) -> None:
    file, content, message = FAULTS[name]
    (tmp_path / file).write_bytes(content)
    assert fault(tmp_path / file).startswith(message)


def test_a_file_that_is_not_there_is_named_as_given(tmp_path: Path) -> None:
    missing = tmp_path / "no.txt"
    assert fault(missing).startswith(f"{missing}: no such file")
    assert fault("no/such.txt.gz").startswith("no/such.txt.gz: no such file")


def test_a_damaged_parquet_file_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"sentence {n}" for n in range(500)]}), file)
    content = bytearray(file.read_bytes())
    for position in range(50, 400):
        content[position] ^= 0x5A
    file.write_bytes(content)
    assert fault(file).startswith("a.parquet: a file that is not Parquet, or damaged")


def test_a_fault_in_any_file_is_found_before_a_sentence_is_given(tmp_path: Path) -> None:
    fine = tmp_path / "a.txt"
    fine.write_text("one\n")
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\nnot json\n')
    with pytest.raises(InputError, match=r"^b\.jsonl:2: "):
        open_corpus([fine, tmp_path / "b.jsonl"])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), 10**7),
        (pa.date64(), -(10**15)),
        (pa.timestamp("s"), 10**13),
        (pa.duration("s"), 10**16),
    ],
)
def test_a_date_beyond_all_calendars_is_a_fault(
    tmp_path: Path, kind: pa.DataType, value: int
) -> None:
    width = pa.int32() if kind == pa.date32() else pa.int64()
    dates = pa.array([0, 0, value], width).cast(kind, safe=False)
    texts = pa.array(["one", "two", "three"])
    pq.write_table(pa.table({"text": texts, "written": dates}), tmp_path / "a.parquet")
    assert fault(tmp_path / "a.parquet").startswith("a.parquet:3: written = ")


def test_a_date_that_python_has_is_metadata(tmp_path: Path) -> None:
    table = pa.table({"text": ["one"], "written": [dt.date(9999, 12, 31)]})
    pq.write_table(table, tmp_path / "a.parquet")
    [sentence] = open_corpus([tmp_path / "a.parquet"])
    assert sentence.metadata == {"written": '"9999-12-31"'}


@pytest.mark.skipif(sys.platform == "win32", reason="other devices")
def test_a_device_is_no_missing_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for name in (os.devnull, str(tmp_path / "pipe.txt")):
        assert fault(name).startswith(f"{name}: a device or pipe, not a file; expected a file, ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (os.fsdecode(b"caf\xe9.txt"), r"caf\udce9.txt: a name that is not UTF-8"),
        ("n" * 300 + ".txt", "n" * 300 + ".txt: File name too long"),
    ],
)
def test_a_name_that_pages_or_disks_do_not_take_is_a_fault(name: str, message: str) -> None:
    assert message in fault(name)


def test_standard_input_that_finds_no_room_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"A sentence.\n" * 10_000)))
    with (
        small_files(10_000),
        pytest.raises(OutputError, match=f"^standard input: File too large in {tmp_path}, where"),
    ):
        open_corpus(["-"])
    assert [*tmp_path.iterdir()] == []


def test_what_a_killed_run_kept_of_standard_input_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"A sentence.\n")))
    child = os.fork()
    if not child:
        _kept = open_corpus(["-"])
        os._exit(9)
    os.waitpid(child, 0)
    assert len([*tmp_path.iterdir()]) == 1
    with open_corpus(["-"]) as corpus:
        assert len(corpus) == 1
        assert len([*tmp_path.iterdir()]) == 1
    assert [*tmp_path.iterdir()] == []


def test_standard_input_that_is_closed_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert fault("-").startswith("standard input: closed")
    with (tmp_path / "out").open("w") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert fault("-").startswith("standard input: ")
