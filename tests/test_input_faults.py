"""A fault in an input file is told in one line that names file and line."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headbook.errors import InputError
from headbook.inputs import open_corpus


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
    "a row without text": ("a.csv", b"text,n\n,1\n", "a.csv:2: text = ''"),
    "a line that is not JSON": ("a.jsonl", b'{"text": "a"}\n{"text"\n', "a.jsonl:2: Expecting"),
    "a number without end": ("a.jsonl", b'{"text": "a", "n": ' + b"1" * 5000 + b"}", "a.jsonl:1: "),
    "JSON that is no object": ("a.jsonl", b'["a"]\n', "a.jsonl:1: a JSON list"),
    "an object without text": ("a.jsonl", b'\n{"words": "a"}\n', "a.jsonl:2: keys 'words'"),
    "text that is no string": ("a.jsonl", b'{"text": 1}\n', "a.jsonl:1: text = 1"),
    "a target that is no string": (
        "a.jsonl", b'{"source": "a", "target": 1}\n', "a.jsonl:1: target = 1",
    ),
    "half a character": ("a.jsonl", b'{"text": "a\\ud800"}\n', "a.jsonl:1: the lone surrogate"),
    "a kind of file nobody knows": ("a.docx", b"one\n", "a.docx: a file of kind '.docx'"),
    "a file without a kind": ("notes", b"one\n", "notes: a file of kind 'notes'"),
    "a Parquet file that is none": ("a.parquet", b"one\n", "a.parquet: a file that is not Parquet"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_one_line_with_its_place(tmp_path: Path, name: str) -> None:
    file, content, message = FAULTS[name]
    (tmp_path / file).write_bytes(content)
    assert fault(tmp_path / file).startswith(message)


def test_a_file_that_is_not_there_is_named_as_given(tmp_path: Path) -> None:
    missing = tmp_path / "no.txt"
    assert fault(missing).startswith(f"{missing}: no such file")
    assert fault(tmp_path).startswith(f"{tmp_path}: no such file")


def test_a_damaged_parquet_file_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"sentence {n}" for n in range(500)]}), file)
    content = bytearray(file.read_bytes())
    for place in range(50, 400):
        content[place] ^= 0x5A
    file.write_bytes(content)
    assert fault(file).startswith("a.parquet: a file that is not Parquet, or damaged")


def test_a_fault_in_any_file_is_found_before_a_sentence_is_given(tmp_path: Path) -> None:
    fine = tmp_path / "a.txt"
    fine.write_text("one\n")
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\nnot json\n')
    with pytest.raises(InputError, match=r"^b\.jsonl:2: "):
        open_corpus([fine, tmp_path / "b.jsonl"])
