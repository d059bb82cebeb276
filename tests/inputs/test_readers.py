"""Every input format gives the same sentences, untouched."""

import io
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headbook.errors import HeadbookWarning
from headbook.inputs import TextRecord, open_corpus
from headbook.inputs.sources import FileSource

SCRIPTS = (
    "Plain words, and “quotes”.",
    "مرحبا بالعالم",
    "中文没有空格",
    "👩\u200d💻 and 👨\u200d👩\u200d👧 wave 🏳\ufe0f\u200d🌈",
    "nga\u0308he ist nicht n\u00e4he",
    "क्षत्रिय और ज्ञान",
    "non\u00a0breaking, soft\u00adhyphen, zero\u200bwidth",
)
ROWS = [{"text": text, "genre": f"g{index}"} for index, text in enumerate(SCRIPTS)]

Writer = Callable[[Path, list[dict[str, str]]], Path]


def write_txt(folder: Path, rows: list[dict[str, str]]) -> Path:
    file = folder / "a.txt"
    file.write_bytes("".join(row["text"] + "\n" for row in rows).encode())
    return file


def write_jsonl(folder: Path, rows: list[dict[str, str]]) -> Path:
    file = folder / "a.jsonl"
    file.write_bytes("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode())
    return file


def write_csv(folder: Path, rows: list[dict[str, str]], suffix: str = ".csv") -> Path:
    mark = "\t" if suffix == ".tsv" else ","
    quoted = [['"' + cell.replace('"', '""') + '"' for cell in row.values()] for row in rows]
    lines = [mark.join(cells) for cells in ([*rows[0]], *quoted)]
    file = folder / f"a{suffix}"
    file.write_bytes("\n".join(lines).encode())
    return file


def write_tsv(folder: Path, rows: list[dict[str, str]]) -> Path:
    return write_csv(folder, rows, ".tsv")


def write_parquet(folder: Path, rows: list[dict[str, str]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    return folder / "a.parquet"


WITH_COLUMNS: list[Writer] = [write_jsonl, write_csv, write_tsv, write_parquet]


def read(*files: Path | str) -> list[TextRecord]:
    with open_corpus(files) as corpus:
        return list(corpus)


@pytest.mark.parametrize("write", [write_txt, *WITH_COLUMNS])
def test_every_format_gives_every_script_untouched(tmp_path: Path, write: Writer) -> None:
    assert [s.text for s in read(write(tmp_path, ROWS))] == list(SCRIPTS)


@pytest.mark.parametrize("write", [write_txt, *WITH_COLUMNS])
@settings(
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(texts=st.lists(st.text(min_size=1).map(str.strip).filter(bool), min_size=1, max_size=5))
def test_any_text_survives_any_format(tmp_path: Path, write: Writer, texts: list[str]) -> None:
    """All of Unicode that a line can hold, control characters and separators among it."""
    unheld = {"\n", "\r", "\ufeff", "\0"} | ({"\t"} if write is write_tsv else set())
    texts = [text for text in texts if not set(text) & unheld] or ["x"]
    assert [s.text for s in read(write(tmp_path, [{"text": t} for t in texts]))] == texts


@pytest.mark.parametrize("write", WITH_COLUMNS)
def test_other_columns_are_metadata(tmp_path: Path, write: Writer) -> None:
    rows = [
        {"text": "one", "id": "s-1", "genre": "news"},
        {"text": "two", "id": "s-2", "genre": ""},
    ]
    first, second = read(write(tmp_path, rows))
    assert (first.id, first.metadata) == ("s-1", {"genre": "news"})
    assert (second.id, second.metadata) == ("s-2", {"genre": ""})


@pytest.mark.parametrize("write", WITH_COLUMNS)
def test_source_and_target_make_a_pair(tmp_path: Path, write: Writer) -> None:
    file = write(tmp_path, [{"source": "one", "target": "eins"}, {"source": "two", "target": " "}])
    with open_corpus([file]) as corpus:
        assert corpus.pairs
        assert [(s.text, s.target) for s in corpus] == [("one", "eins"), ("two", None)]


def test_metadata_that_is_not_text_is_kept_as_json(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a", "year": 1900, "tags": ["x"], "none": null, "id": 7}\n')
    (sentence,) = read(file)
    assert sentence.metadata == {"year": "1900", "tags": '["x"]'}
    assert sentence.id == "7"


def test_blank_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    files = {
        ".txt": "one\n\n  \t\ntwo\r\n\r\n",
        ".jsonl": '{"text": "one"}\n\n{"text": " ", "n": 1}\n{"text": "two"}\n{"text": null}\n',
        ".csv": "text,n\none,1\n\n ,\ntwo,2\n,\n",
        ".tsv": "text\tn\none\t1\n\n \t\ntwo\t2\n\t\n",
        ".tab": "text\tn\none\t1\n\t2\n\t3\ntwo\t2\n \t4\n",
        ".json": '[{"text": "one"}, {"text": ""}, {"text": null}, {"text": " "}, {"text": "two"}]',
    }
    for suffix, content in files.items():
        file = tmp_path / f"a{suffix}"
        file.write_bytes(content.encode())
        with open_corpus([file]) as corpus:
            assert [s.text for s in corpus] == ["one", "two"], suffix
            assert (corpus.files[0].sentences, corpus.files[0].blank) == (2, 3), suffix


def test_a_parquet_row_without_anything_is_blank(tmp_path: Path) -> None:
    table = pa.table({"text": ["one", None, "two"], "n": ["1", "", "2"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with open_corpus([tmp_path / "a.parquet"]) as corpus:
        assert [s.text for s in corpus] == ["one", "two"]
        assert corpus.files[0].blank == 1
        assert [s.origin for s in corpus] == ["a.parquet:1", "a.parquet:3"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1e"])
def test_only_a_line_feed_ends_a_line(tmp_path: Path, separator: str) -> None:
    text = f"before{separator}after"
    assert [s.text for s in read(write_txt(tmp_path, [{"text": text}]))] == [text]
    assert [s.text for s in read(write_jsonl(tmp_path, [{"text": text}]))] == [text]


def test_text_is_never_normalised(tmp_path: Path) -> None:
    """Composed and decomposed letters stay two different texts."""
    texts = [unicodedata.normalize(form, "Zürich ﬁ") for form in ("NFC", "NFD", "NFKC")]
    found = [s.text for s in read(write_txt(tmp_path, [{"text": t} for t in texts]))]
    assert found == texts
    assert len(set(found)) == 3


def test_duplicates_are_kept(tmp_path: Path) -> None:
    sentences = read(write_txt(tmp_path, [{"text": "same"}] * 3))
    assert [(s.text, s.index) for s in sentences] == [("same", 0), ("same", 1), ("same", 2)]
    assert {s.id for s in sentences} == {""}


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\n")
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbftext\none\n")
    assert [s.text for s in read(tmp_path / "a.txt", tmp_path / "a.csv")] == ["one", "one"]


def test_a_quoted_cell_may_hold_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,n\n"one\nline",1\ntwo,2\n')
    with pytest.warns(HeadbookWarning, match=r"^a\.csv: rows with a line end in a cell.*: 1$"):
        sentences = read(tmp_path / "a.csv")
    assert [(s.text, s.origin) for s in sentences] == [
        ("one\nline", "a.csv:3"), ("two", "a.csv:4"),
    ]  # fmt: skip


def test_files_are_one_stream_that_can_be_read_again(tmp_path: Path) -> None:
    one, two = write_txt(tmp_path, [{"text": "a"}]), write_jsonl(tmp_path, [{"text": "b"}] * 2)
    with open_corpus([one, str(two)]) as corpus:
        first, again = list(corpus), list(corpus)
        assert first == again
        assert len(corpus) == 3
        assert not corpus.pairs
    assert [s.index for s in first] == [0, 1, 2]
    assert [s.origin for s in first] == ["a.txt:1", "a.jsonl:1", "a.jsonl:2"]
    assert len({file.sha256 for file in corpus.files}) == 2


def test_a_minus_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO("one\n\nمرحبا\n".encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    with open_corpus(["-"]) as corpus:
        source = corpus.files[0].source
        assert isinstance(source, FileSource)
        kept = source.path
        assert [s.text for s in corpus] == [s.text for s in corpus] == ["one", "مرحبا"]
        assert corpus.files[0].name == "standard input"
        assert kept.is_file()
    assert not kept.exists()


def test_a_file_name_in_capitals_is_known(tmp_path: Path) -> None:
    (tmp_path / "A.TXT").write_text("one\n")
    assert len(read(tmp_path / "A.TXT")) == 1


def test_one_file_of_several_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    assert len(read(tmp_path / "empty.txt", write_txt(tmp_path, ROWS))) == len(ROWS)
