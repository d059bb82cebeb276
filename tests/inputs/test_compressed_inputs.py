"""Files with .gz, .bz2 or .zst hold what the plain ones hold; damage is told in one line."""

import bz2
import gzip
import shutil
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headbook.errors import InputError
from headbook.inputs import ending, open_corpus, records, tables

CONTENTS = {
    "a.txt": "one\n\nzwei – Wörter\n",
    "a.jsonl": '{"text": "one", "genre": "x"}\n',
    "a.csv": 'text,genre\n"one, two",x\n',
    "a.tsv": "text\tgenre\none, two\tx\n",
    "a.conllu": "# sent_id = s1\n1\tdog\t_\tNOUN\t_\t_\t0\troot\t_\t_\n",
}


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


Packer = Callable[[bytes], bytes]
PACKERS: dict[str, Packer] = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}
both = pytest.mark.parametrize("suffix", PACKERS)


def fault(file: Path) -> str:
    with pytest.raises(InputError) as error:
        open_corpus([file])
    assert "\n" not in str(error.value)
    return str(error.value)


@both
@pytest.mark.parametrize("name", CONTENTS)
def test_a_compressed_file_holds_the_same(tmp_path: Path, name: str, suffix: str) -> None:
    content = CONTENTS[name].encode()
    (tmp_path / name).write_bytes(content)
    packed = tmp_path / (name + suffix)
    packed.write_bytes(PACKERS[suffix](content))
    with open_corpus([tmp_path / name]) as plain, open_corpus([packed]) as corpus:
        assert [s.origin.replace(suffix, "") for s in corpus] == [s.origin for s in plain]
        for attribute in ("text", "id", "words", "metadata", "target"):
            assert [getattr(s, attribute) for s in corpus] == [getattr(s, attribute) for s in plain]
        [one], [other] = plain.files, corpus.files
        assert (one.blank, one.annotated) == (other.blank, other.annotated)
        assert one.sha256 != other.sha256


@both
def test_several_archives_in_one_file_are_read_to_the_end(tmp_path: Path, suffix: str) -> None:
    """As tools write that compress with several processes, and as appending does."""
    pack = PACKERS[suffix]
    file = tmp_path / f"A.TXT{suffix.upper()}"
    file.write_bytes(pack(b"one\n") + pack(b"two\nth") + pack(b"ree\n"))
    with open_corpus([file]) as corpus:
        assert [s.text for s in corpus] == ["one", "two", "three"]


@pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd")
def test_what_zstd_itself_writes_is_read(tmp_path: Path) -> None:
    text = "".join(f"sentence {number}\n" for number in range(20_000))
    (tmp_path / "a.txt").write_text(text)
    command = ["zstd", "-q", "--ultra", "-22", "--long=27", "-T2", str(tmp_path / "a.txt")]
    subprocess.run(command, check=True)
    with open_corpus([tmp_path / "a.txt.zst"]) as corpus:
        assert len(corpus) == 20_000


@both
def test_damage_is_one_line(tmp_path: Path, suffix: str) -> None:
    whole = PACKERS[suffix]("".join(f"sentence {n * n}\n" for n in range(20_000)).encode())
    middle = len(whole) // 2
    file = tmp_path / f"a.txt{suffix}"
    for damaged in (whole[:middle], whole[:middle] + whole[middle + 50 :]):
        file.write_bytes(damaged)
        message = fault(file)
        assert message.startswith(f"a.txt{suffix}:")
        assert ": an archive that is damaged (" in message
        assert message.endswith("copy it again, or give the file that it was made from")
    file.write_bytes(b"plain text\n" * 9)
    assert fault(file).startswith(f"a.txt{suffix}: an archive that is damaged (")


@both
def test_an_archive_without_text_is_known_as_any_file(tmp_path: Path, suffix: str) -> None:
    for content in (b"", PACKERS[suffix](b" \n\n")):
        (tmp_path / f"a.txt{suffix}").write_bytes(content)
        assert fault(tmp_path / f"a.txt{suffix}").startswith(f"a.txt{suffix}: no text at all")
    (tmp_path / f"b.txt{suffix}").write_bytes(PACKERS[suffix](b"one\n\xff\n"))
    assert fault(tmp_path / f"b.txt{suffix}").startswith(f"b.txt{suffix}:2: byte 0xff")


@both
def test_kinds_that_cannot_be_packed_are_refused(tmp_path: Path, suffix: str) -> None:
    pq.write_table(pa.table({"text": ["one"]}), tmp_path / "a.parquet")
    packed = tmp_path / f"a.parquet{suffix}"
    packed.write_bytes(PACKERS[suffix]((tmp_path / "a.parquet").read_bytes()))
    assert fault(packed).startswith(f"a.parquet{suffix}: a compressed .parquet file; expected the")
    (tmp_path / f"a{suffix}").write_bytes(b"")
    assert fault(tmp_path / f"a{suffix}").startswith(f"a{suffix}: a file of kind 'a{suffix}'")


def test_an_ending_is_what_tells_the_kind() -> None:
    names = ("a.txt", "b.JSONL.gz", "c.v2.conllu.zst", "owner/name (train)", "d.zip", "e.gz", "txt")
    assert [*map(ending, names)] == [".txt", ".JSONL.gz", ".conllu.zst", "", "", "", ""]


@pytest.mark.soak
@both
def test_an_archive_that_inflates_beyond_all_text_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines and one text for ever; a plain file of as many is read."""
    monkeypatch.setattr(records, "MIN_ARCHIVE_BYTES", 1 << 16)
    monkeypatch.setattr(records, "MAX_BLANK_LINES", 1 << 30)
    for line in (b"\n", b"the cat sees the dog\n"):
        content = b"one\n" + line * (1 << 21)
        file = tmp_path / f"a.txt{suffix}"
        file.write_bytes(PACKERS[suffix](content))
        assert len(content) > 410 * file.stat().st_size or suffix == ".gz"
        if suffix == ".zst" or line == b"\n":
            message = fault(file)
            assert ": an archive that inflates to more than 400 times its size; expected" in message
            assert message.startswith(f"a.txt{suffix}:")
    (tmp_path / "a.txt").write_bytes(b"one\n" + b"\n" * (1 << 21))
    with open_corpus([tmp_path / "a.txt"]) as corpus:
        assert len(corpus) == 1


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.conllu"])
def test_a_line_that_would_fill_the_memory_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its limit, not at its end."""
    monkeypatch.setattr(records, "MAX_LINE_BYTES", 1 << 20)
    file = tmp_path / name
    content = b"text\nthe cat " + b"x" * (1 << 20)
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    if name in {"a.txt", "a.txt.gz", "a.csv"}:
        assert fault(file).startswith(f"{name}:2: a line of more than 1 MiB; expected one sentence")
    else:
        file.write_bytes(content.replace(b"\n", b" "))
        assert fault(file).startswith(f"{name}:1: a line of more than 1 MiB; expected one sentence")


def shared(text: str, rows: int) -> pa.Table:
    """A table whose rows share a text, which is stored once."""
    place = pa.array([0] * rows, pa.int32())
    return pa.table({"text": pa.DictionaryArray.from_arrays(place, pa.array([text]))})


@pytest.mark.parametrize("stored", [True, False], ids=["as a dictionary", "as text"])
def test_rows_of_a_table_that_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    """A text that many rows share is never written out for all of them at once."""
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(tables, "MIN_ARCHIVE_BYTES", 1 << 24)
    monkeypatch.setattr(tables, "ROWS_BYTES", 1 << 22)
    file = tmp_path / "a.parquet"
    for text, rows, found in (
        ("the cat " * (1 << 14), 1024, "a.parquet: a table that inflates to more than 400 times"),
        ("the cat " * (1 << 18), 4, "a.parquet:1: a row of more than 1 MiB; expected one sentence"),
    ):
        pq.write_table(
            shared(text, rows), file, compression="zstd", store_schema=stored,
            dictionary_pagesize_limit=1 << 30, data_page_size=1 << 30,
        )  # fmt: skip
        assert file.stat().st_size < 1 << 13
        before = pa.default_memory_pool().max_memory()
        tracemalloc.start()
        message = fault(file)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert message.startswith(found)
        assert most < 1 << 25
        assert pa.default_memory_pool().max_memory() <= max(before, 1 << 25)
    pq.write_table(shared("the cat " * (1 << 14), 4), file)
    with open_corpus([file]) as corpus:
        assert [len(sentence.text) for sentence in corpus] == [(8 << 14) - 1] * 4


def test_a_row_of_words_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 1 << 20)
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"tokens": [["a"], ["a"] * 40_000]}), file)
    assert fault(file).startswith("a.parquet:2: a row of more than 1 MiB; expected one sentence")
    pq.write_table(pa.table({"tokens": [["a"], ["a"] * 20_000]}), file)
    with open_corpus([file]) as corpus:
        assert [len(sentence.words or ()) for sentence in corpus] == [1, 20_000]


def test_a_table_of_a_few_texts_a_million_times_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MIN_REPEATED_ROWS", 1 << 14)
    file = tmp_path / "a.parquet"
    pq.write_table(shared("the cat", 20_000), file, compression="zstd")
    assert file.stat().st_size < 2_000
    assert fault(file).startswith("a.parquet: a table of 20,000 rows that inflates to more than")
    pq.write_table(pa.table({"text": [f"the cat {n}" for n in range(20_000)]}), file)
    with open_corpus([file]) as corpus:
        assert len(corpus) == 20_000


def test_texts_of_a_table_may_be_bytes(tmp_path: Path) -> None:
    """In UTF-8; as programs write them that do not say so."""
    rows = {"text": ["wörter".encode(), b"two"], "id": [b"one", b"\xff"], "genre": [b"x", b"\xff"]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    with open_corpus([tmp_path / "a.parquet"]) as corpus:
        assert [s.text for s in corpus] == ["wörter", "two"]
        assert [s.id for s in corpus] == ["one", "b'\\xff'"]
        assert next(iter(corpus)).metadata == {"genre": "x"}
    pq.write_table(pa.table({"text": [b"\xff"]}), tmp_path / "a.parquet")
    assert fault(tmp_path / "a.parquet").startswith("a.parquet:1: text = b'\\xff'; expected text")


def test_rows_without_text_without_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BLANK_LINES", 100)
    texts = ["one", *[None] * 101, "two"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    found = "a.parquet:102: more than 100 blank lines in a row; expected one"
    assert fault(tmp_path / "a.parquet").startswith(found)
    pq.write_table(pa.table({"text": [*texts[:101], *texts[:101]]}), tmp_path / "b.parquet")
    with open_corpus([tmp_path / "b.parquet"]) as corpus:
        assert len(corpus) == 2


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv"])
def test_blank_lines_without_end_are_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines between sentences do not add up."""
    monkeypatch.setattr(records, "MAX_BLANK_LINES", 100)
    file = tmp_path / name
    content = b"text\n" + b"\n" * 101 + b"one\n"
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert fault(file).startswith(f"{name}:102: more than 100 blank lines in a row; expected one")
    (tmp_path / "b.txt").write_bytes((b"\n" * 99 + b"one\n") * 3)
    with open_corpus([tmp_path / "b.txt"]) as corpus:
        assert len(corpus) == 3
