"""Text in UTF-16, with marks, or with other line ends is read as the same text in UTF-8 is."""

import codecs
import gzip
from pathlib import Path

import pytest

from headbook.inputs import open_corpus
from headbook.inputs.encoding import utf16_of

LINES = ["Good day", "naïve “quotes”", "", "The dog saw 👩\u200d💻"]
BOTH = [("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", codecs.BOM_UTF16_BE)]


def texts(file: Path) -> list[str]:
    with open_corpus([file]) as corpus:
        return [sentence.text for sentence in corpus]


@pytest.mark.parametrize(("encoding", "mark"), [*BOTH, *((name, b"") for name, _ in BOTH)])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_utf_16_is_read_with_and_without_a_mark(
    tmp_path: Path, encoding: str, mark: bytes, end: str
) -> None:
    content = mark + "".join(line + end for line in LINES).encode(encoding)
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    for name in ("a.txt", "a.txt.gz"):
        assert texts(tmp_path / name) == [line for line in LINES if line]


def test_utf_16_is_read_in_tables(tmp_path: Path) -> None:
    for name, content in {
        "a.csv": "text,n\nGood day,1\n",
        "a.tsv": "text\tn\nGood day\t1\n",
        "a.jsonl": '{"text": "Good day", "n": 1}\n',
        "a.json": '[{"text": "Good day", "n": 1}]',
    }.items():
        (tmp_path / name).write_bytes(content.encode("utf-16"))
        with open_corpus([tmp_path / name]) as corpus:
            assert [(s.text, dict(s.metadata)) for s in corpus] == [("Good day", {"n": "1"})]


@pytest.mark.parametrize(
    "content",
    [b"Good\0day\n", b"a\0\n", b"\0", "привет мир\n".encode(), "ab中文".encode() * 3000, b""],
)
def test_other_bytes_are_not_utf_16(content: bytes) -> None:
    assert utf16_of(content[:4096]) == ""


def test_carriage_returns_end_lines_where_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\rtwo\rthree")
    (tmp_path / "a.csv").write_bytes(b"text,n\rone,1\rtwo,2\r")
    (tmp_path / "a.tsv").write_bytes(b"text\tn\rone\t1\rtwo\t2\r")
    (tmp_path / "b.txt").write_bytes(b"one\rtwo\nthree\n")
    assert texts(tmp_path / "a.txt") == ["one", "two", "three"]
    assert texts(tmp_path / "a.csv") == texts(tmp_path / "a.tsv") == ["one", "two"]
    assert texts(tmp_path / "b.txt") == ["one\rtwo", "three"]
    with open_corpus([tmp_path / "a.txt"]) as corpus:
        assert [s.origin for s in corpus] == ["a.txt:1", "a.txt:3", "a.txt:4"]
        assert corpus.files[0].blank == 1


def test_marks_in_later_lines_are_no_text(tmp_path: Path) -> None:
    """Files with marks that were joined have one in the middle."""
    one = "\ufefftext,n\none,1\n".encode()
    (tmp_path / "a.csv").write_bytes(one + "\ufefftwo,2\n".encode())
    (tmp_path / "a.txt").write_bytes("\ufeffone\n\ufefftwo \ufeffthree".encode())
    assert texts(tmp_path / "a.csv") == ["one", "two"]
    assert texts(tmp_path / "a.txt") == ["one", "two three"]


def test_json_keeps_a_nul_that_it_spells(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a\\u0000b"}\n')
    assert texts(tmp_path / "a.jsonl") == ["a\0b"]
