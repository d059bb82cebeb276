"""A part of an input: its first sentences, or those with the smallest hashes."""

import hashlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headbook.config import Config
from headbook.errors import ConfigError, InputError
from headbook.inputs import Corpus, Selection, TextRecord, open_corpus

WORDS = [f"sentence {number}" for number in range(40)]


def write(file: Path, texts: Sequence[str]) -> Path:
    file.write_text("".join(f"{text}\n" for text in texts))
    return file


def first(files: Sequence[Path], limit: int) -> tuple[list[str], Corpus]:
    with open_corpus(files, Selection(limit=limit)) as corpus:
        return [s.text for s in corpus], corpus


def sample(files: Sequence[Path], size: int) -> list[TextRecord]:
    with open_corpus(files, Selection(sample=size)) as corpus:
        found = [*corpus]
        assert found == [*corpus]
        assert len(corpus) == len(found)
        return found


def naive(texts: Sequence[str], size: int) -> list[str]:
    """All hashes of all texts, sorted; the chosen in the order of the input."""

    def key(place: int) -> tuple[bytes, int]:
        return hashlib.blake2b(texts[place].encode(), digest_size=8).digest(), place

    return [texts[place] for place in sorted(sorted(range(len(texts)), key=key)[:size])]


@pytest.mark.parametrize("limit", [1, 10, 11, 40, 41])
def test_a_limit_takes_the_first_sentences_of_all_files(tmp_path: Path, limit: int) -> None:
    files = [write(tmp_path / "a.txt", WORDS[:10]), write(tmp_path / "b.txt", WORDS[10:])]
    texts, corpus = first(files, limit)
    assert texts == WORDS[:limit]
    assert len(corpus) == len(texts)
    assert [f.sentences for f in corpus.files] == [min(limit, 10), len(texts) - min(limit, 10)]


def test_a_limit_says_what_it_knows_of_the_rest(tmp_path: Path) -> None:
    """None where a file was not read to its end and does not itself say how many it has."""
    files = [write(tmp_path / "a.txt", WORDS[:10]), write(tmp_path / "b.txt", WORDS[10:])]
    left = {n: [f.left for f in first(files, n)[1].files] for n in (9, 10, 11, 39, 40, 41)}
    assert left == {
        9: [None, None], 10: [0, None], 11: [0, None], 39: [0, None], 40: [0, 0], 41: [0, 0],
    }  # fmt: skip
    assert [bool(f.sha256) for f in first(files, 10)[1].files] == [True, False]


def test_a_limit_knows_how_many_rows_parquet_has(tmp_path: Path) -> None:
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for file in files:
        pq.write_table(pa.table({"text": WORDS}), file)
    texts, corpus = first(files, 30)
    assert texts == WORDS[:30]
    assert [f.left for f in corpus.files] == [10, 40]


def test_a_limit_reads_nothing_behind_it(tmp_path: Path) -> None:
    """Neither a fault in the same file nor another file, which only has to be there."""
    broken = tmp_path / "a.jsonl"
    broken.write_text('{"text": "one"}\n{"text": "two"}\n{"text": "three"}\nnot JSON\n')
    other = tmp_path / "b.txt"
    other.write_bytes(b"\xff\n")
    assert first([broken, other], 2)[0] == ["one", "two"]
    with pytest.raises(InputError, match=r"a\.jsonl:4"):
        first([broken], 3)  # whether there are more is looked at
    with pytest.raises(InputError, match="no such file"):
        first([broken, tmp_path / "c.txt"], 2)


def test_a_limit_leaves_the_rest_in_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.BytesIO(b"a line\n \n" * 500_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
    with open_corpus(["-"], Selection(limit=1000)) as corpus:
        assert [s.origin for s in corpus][-1] == "standard input:1999"
        assert (len(corpus), corpus.files[0].left) == (1000, None)
    assert pipe.tell() == 1000 * len(b"a line\n \n") + len(b"a line\n")


@pytest.mark.parametrize("size", [1, 7, 39, 40, 100])
def test_a_sample_is_that_of_all_hashes_sorted(tmp_path: Path, size: int) -> None:
    texts = sorted(WORDS, key=lambda text: text[::-1])
    found = sample([write(tmp_path / "a.txt", texts)], size)
    assert [s.text for s in found] == naive(texts, size)
    assert [s.index for s in found] == [*range(min(size, 40))]
    assert [s.origin for s in found] == [f"a.txt:{texts.index(s.text) + 1}" for s in found]


@settings(
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), size=st.integers(1, 12))
def test_a_sample_is_the_same_in_any_order_and_any_files(
    tmp_path: Path, data: st.DataObject, size: int
) -> None:
    """Sentences that are equal but for their columns, too."""
    rows = [{"text": f"t{n % 5}", "genre": f"g{n % 3}", "id": f"i{n % 2}"} for n in range(15)]
    found = []
    for order in (rows, data.draw(st.permutations(rows))):
        cut = data.draw(st.integers(0, len(rows)))
        files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
        for file, part in zip(files, (order[:cut], order[cut:]), strict=True):
            file.write_text("".join(json.dumps(row) + "\n" for row in part))
        sentences = sample(files, size)
        places = [order.index({"text": s.text, "id": s.id, **s.metadata}) for s in sentences]
        assert len(places) == size
        found.append(sorted((s.text, s.id, s.metadata["genre"]) for s in sentences))
    assert found[0] == found[1]


def test_a_sample_says_what_it_left_of_each_file(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.txt", [*WORDS[:10], ""]), write(tmp_path / "b.txt", WORDS[10:])]
    with open_corpus(files, Selection(sample=12)) as corpus:
        assert sum(f.sentences for f in corpus.files) == 12
        assert [f.sentences + (f.left or 0) for f in corpus.files] == [10, 30]
        assert [f.blank for f in corpus.files] == [1, 0]
        texts = [s.text for s in corpus]
        assert [sum(t in WORDS[:10] for t in texts)] == [corpus.files[0].sentences]
        with open_corpus(files) as whole:
            assert [f.sha256 for f in corpus.files] == [f.sha256 for f in whole.files]


def test_a_target_is_part_of_the_content(tmp_path: Path) -> None:
    """Otherwise all pairs of one source were in the sample, or none."""
    rows = [{"source": "one", "target": f"eins {n}"} for n in range(20)]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [s.target for s in sample([file], 5)] != [row["target"] for row in rows[:5]]


def test_foreign_tags_are_those_of_the_part(tmp_path: Path) -> None:
    """What is said to be uncounted stands in a sentence that was taken."""
    blocks = [f"1\t{t}\t_\t{tag}\t_\t_\t0\troot\t_\t_\n\n" for t, tag in (("a", "X1"), ("b", "X2"))]
    file = tmp_path / "a.conllu"
    file.write_text("".join(blocks))
    with open_corpus([file], Selection(limit=1)) as corpus:
        assert corpus.files[0].foreign_tags == {"X1": 1}
    taken = {s.text: tag for s, tag in zip(open_corpus([file]), ("X1", "X2"), strict=True)}
    with open_corpus([file], Selection(sample=1)) as corpus:
        assert corpus.files[0].foreign_tags == {taken[next(iter(corpus)).text]: 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit: got 0, expected at least 1"),
        ({"sample": 0}, "sample: got 0, expected at least 1"),
        ({"sample": 3, "limit": 5}, "sample: got 3 with limit=, expected one of the two"),
        ({"sample": 3, "pack": 64}, "sample: got 3 with pack=, expected one of the two"),
    ],
)
def test_parts_that_make_no_sense_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**options)  # type: ignore[arg-type]
