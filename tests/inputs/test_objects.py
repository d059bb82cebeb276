"""Sentences from a program's memory: texts, pairs, dicts, tables and datasets beside files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from headbook.config import Config
from headbook.errors import ConfigError, InputError
from headbook.inputs import Corpus, InputLayout, Selection, input_sources, open_corpus
from headbook.schema import ModelKind
from headbook.study.groups import find_facets

TEXTS = ["the cat sleeps .", "a dog runs .", "the bird sings ."]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder with one file, ``there.txt``, and one folder, ``corpus``."""
    monkeypatch.chdir(tmp_path)
    Path("there.txt").write_text("\n".join(TEXTS))
    Path("corpus").mkdir()


def read(inputs: Any, selection: Selection | None = None, **layout: str) -> Corpus:
    columns = InputLayout(**layout)
    return open_corpus(input_sources(inputs, columns), selection, columns)


@pytest.mark.parametrize(
    "inputs",
    [
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        pd.Series(TEXTS),
        (text for text in TEXTS),
        [{"text": text} for text in TEXTS],
        pd.DataFrame({"text": TEXTS}),
    ],
    ids=["list", "tuple", "array", "series", "generator", "dicts", "frame"],
)
def test_all_kinds_of_texts_give_the_same_sentences(inputs: Any) -> None:
    with read(inputs) as corpus:
        assert [sentence.text for sentence in corpus] == TEXTS
        assert [sentence.text for sentence in corpus] == TEXTS  # a second reading
        assert len({sentence.origin for sentence in corpus}) == 3
        assert len(corpus.files[0].sha256) == 64


def test_the_hash_is_that_of_the_texts() -> None:
    hashes = [read(inputs).files[0].sha256 for inputs in (TEXTS, [*TEXTS], TEXTS[::-1])]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_list_of_existing_files_is_read_as_files() -> None:
    for inputs in (["there.txt"], [Path("there.txt")], "there.txt", Path("there.txt")):
        with read(inputs) as corpus:
            assert [sentence.text for sentence in corpus] == TEXTS
            assert corpus.files[0].name == "there.txt"


def test_standard_input_is_a_path() -> None:
    assert input_sources(["-"], InputLayout()) == ("-",)
    assert input_sources("-", InputLayout()) == ("-",)


def test_an_id_alone_is_a_dataset_and_in_a_list_a_text() -> None:
    assert input_sources("owner/data", InputLayout()) == ("owner/data",)
    assert input_sources([Path("owner/data")], InputLayout()) == ("owner/data",)
    assert [sentence.text for sentence in read(["owner/data"])] == ["owner/data"]


def test_pairs_have_a_source_and_a_target() -> None:
    pairs = [("the cat", "die Katze"), ["a dog", "ein Hund"]]
    with read(pairs) as corpus:
        corpus.read_by(ModelKind.ENCODER_DECODER, "x")
        assert [(s.text, s.target) for s in corpus] == [*map(tuple, pairs)]


def test_other_columns_are_metadata_that_group_sentences() -> None:
    table = pd.DataFrame(
        {"sentence": TEXTS, "genre": ["a", "b", "a"], "year": [1, 2, 3], "no": [1.5, None, None]}
    )
    rows = [
        {key: None if pd.isna(value) else value for key, value in row.items()}
        for row in table.to_dict("records")
    ]
    for inputs in (table, rows):
        with read(inputs, text_column="sentence") as corpus:
            first, second, _ = corpus
            assert first.metadata == {"genre": "a", "year": "1", "no": "1.5"}
            assert second.metadata == {"genre": "b", "year": "2"}
            assert "genre" in str(find_facets(corpus, Config().facet, None))


def test_a_long_table_is_read_in_parts() -> None:
    texts = [f"sentence {number}" for number in range(2500)]
    with read(pd.DataFrame({"text": texts, "n": range(2500)})) as corpus:
        assert [(s.text, s.metadata["n"]) for s in corpus] == [
            (text, str(number)) for number, text in enumerate(texts)
        ]


def test_blank_items_are_skipped_and_counted() -> None:
    for inputs in (
        ["", *TEXTS, " "],
        [{"text": None}, *({"text": t} for t in TEXTS), {"text": ""}],
    ):
        with read(inputs) as corpus:
            assert [sentence.text for sentence in corpus] == TEXTS
            assert corpus.files[0].blank == 2


def test_limit_and_sample_take_items_as_they_take_lines() -> None:
    for selection in (Selection(limit=2), Selection(sample=2)):
        with read(TEXTS, selection) as from_memory, read("there.txt", selection) as from_file:
            assert [s.text for s in from_memory] == [s.text for s in from_file]
            assert (from_memory.files[0].sentences, from_memory.files[0].left) == (2, 1)


def test_datasets_are_read_with_their_columns_and_splits() -> None:
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": ["x", "y", "x"]})

    def rows() -> Iterator[dict[str, Any]]:
        yield from (
            {"text": text, "label": label} for text, label in zip(TEXTS, "xyx", strict=True)
        )

    stream = datasets.IterableDataset.from_generator(rows)
    splits = datasets.DatasetDict({"train": data, "test": data.select([1])})
    for inputs in (data, stream, splits, data["text"]):
        with read(inputs) as corpus:
            sentences = [*corpus]
            assert [sentence.text for sentence in sentences] == TEXTS
            assert [*corpus] == sentences
    assert [sentence.metadata for sentence in read(stream)][1] == {"label": "y"}
    with read(splits, split="test") as corpus:
        assert [sentence.text for sentence in corpus] == TEXTS[1:2]
        assert corpus.files[0].name == "in-memory dataset (test)"


LINES: dict[str, tuple[Callable[[], Any], str]] = {
    "a text for a list": (
        lambda: "The cat sleeps.",
        "inputs: got 'The cat sleeps.', which is neither a file nor the id of a dataset; expected "
        "a list for texts, here ['The cat sleeps.']",
    ),
    "a missing file": (
        lambda: "missing.txt",
        "missing.txt: no such file; expected a file that exists",
    ),
    "a missing file in a list": (
        lambda: [*TEXTS, "missing.jsonl.gz"],
        "missing.jsonl.gz: no such file; expected a file that exists; a text of one word may not "
        "end in .jsonl",
    ),
    "a text and a file": (
        lambda: ["the cat .", "a dog .", "there.txt"],
        "inputs: got the text inputs[0] = 'the cat .' and the path inputs[2] = 'there.txt'; "
        "expected items of one kind; texts and files need two calls",
    ),
    "a folder and a text": (
        lambda: [Path("corpus"), "the cat ."],
        "inputs: got the path inputs[0] = 'corpus' and the text inputs[1] = 'the cat .'; expected "
        "items of one kind; texts and files need two calls",
    ),
    "a text and a pair": (
        lambda: ["the cat .", ("a dog", "ein Hund")],
        "inputs: got the text inputs[0] = 'the cat .' and the pair inputs[1] = ('a dog', 'ein "
        "Hund'); expected items of one kind; texts and files need two calls",
    ),
    "three texts as a pair": (
        lambda: [("a", "b", "c")],
        "inputs[0]: got ('a', 'b', 'c'); expected a text, a path, a pair of texts, or a dict",
    ),
    "a missing value": (
        lambda: ["the cat .", None],
        "inputs[1]: got None; expected a text, a path, a pair of texts, or a dict",
    ),
    "a number": (
        lambda: 3,
        "inputs: got an object of type int; expected a path, a list of texts, of paths, of "
        "pairs of texts or of dicts, a pandas DataFrame, or a dataset of Hugging Face",
    ),
    "a dict": (
        lambda: {"text": TEXTS},
        "inputs: got an object of type dict; expected a path, a list of texts, of paths, of "
        "pairs of texts or of dicts, a pandas DataFrame, or a dataset of Hugging Face",
    ),
    "no texts": (
        list,
        "in-memory texts: no text at all; expected at least one text that is not blank",
    ),
    "blank texts": (
        lambda: ["", "  "],
        "in-memory texts: no text at all; expected at least one text that is not blank",
    ),
    "a table without the column": (
        lambda: pd.DataFrame({"body": TEXTS}),
        "in-memory table:1: columns 'body'; expected a column 'text', 'sentence', 'tokens' or "
        "'translation', both 'source' and 'target', or two texts such as 'premise' and "
        "'hypothesis'; --text-column takes another",
    ),
    "a table with a column twice": (
        lambda: pd.DataFrame([["a", "b"]], columns=["text", "text"]),
        "in-memory table:1: column 'text' twice; expected each column name once",
    ),
    "a dict without the column": (
        lambda: [{"text": "the cat ."}, {"words": "a dog ."}],
        "in-memory records:2: columns 'words'; expected a column 'text', 'sentence', 'tokens' or "
        "'translation', both 'source' and 'target', or two texts such as 'premise' and "
        "'hypothesis'; --text-column takes another",
    ),
    "a column of numbers": (
        lambda: pd.DataFrame({"text": [1, 2]}),
        "in-memory table:1: text = 1; expected text that is not blank",
    ),
    "half a character": (
        lambda: ["the \ud800 cat"],
        r"in-memory texts:1: the lone surrogate '\ud800'; expected whole Unicode characters",
    ),
}


@pytest.mark.parametrize("case", LINES)
def test_inputs_that_do_not_fit_are_told_in_one_line(case: str) -> None:
    inputs, line = LINES[case]
    with pytest.raises(InputError) as error:
        read(inputs())
    assert str(error.value) == line


def test_a_column_of_texts_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="--text-column: got 'words' with other inputs"):
        read(TEXTS, text_column="words")
    with pytest.raises(ConfigError, match="--split: got 'test' with other inputs"):
        read(TEXTS, split="test")
