"""The same rules say which columns hold text, in files, tables, dicts and datasets."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headbook.config import FACETS
from headbook.errors import InputError
from headbook.inputs import (
    Corpus,
    InputLayout,
    Region,
    TextRecord,
    Word,
    input_sources,
    open_corpus,
)
from headbook.inputs.records import Record
from headbook.inputs.rows import KNOWN_COLUMNS, matching_column
from headbook.model.packing import DOCUMENT_COLUMN
from headbook.run import task_texts
from headbook.schema import MAX_REGIONS, PAIR_REGIONS, ModelKind
from headbook.study.groups import PAIR_COLUMN
from headbook.text.aligned_words import GOLD

Rows = Sequence[Mapping[str, Any]]


def write_lines(folder: Path, rows: Rows, suffix: str = ".jsonl") -> Path:
    file = folder / f"a{suffix}"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_ndjson(folder: Path, rows: Rows) -> Path:
    return write_lines(folder, rows, ".ndjson")


def write_lines_as_json(folder: Path, rows: Rows) -> Path:
    return write_lines(folder, rows, ".json")


def write_json(folder: Path, rows: Rows) -> Path:
    file = folder / "b.json"
    file.write_text("\n" + json.dumps(rows, indent=1))
    return file


def write_parquet(folder: Path, rows: Rows) -> Path:
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), folder / "a.parquet")
    return folder / "a.parquet"


def frame(_: Path, rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(list(rows))


def arrays(_: Path, rows: Rows) -> pd.DataFrame:
    """Lists as pandas has them that come from Parquet."""
    columns = [
        {name: np.array(v) if isinstance(v, list) else v for name, v in row.items()} for row in rows
    ]
    return pd.DataFrame(columns)


def dicts(_: Path, rows: Rows) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


def dataset(_: Path, rows: Rows) -> Any:
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    return datasets.Dataset.from_list([dict(row) for row in rows])


def stream(folder: Path, rows: Rows) -> Any:
    return dataset(folder, rows).to_iterable_dataset()


NESTED: list[Callable[[Path, Rows], Any]] = [
    write_lines, write_ndjson, write_lines_as_json, write_json, write_parquet, frame, arrays, dicts,
    dataset, stream,
]  # fmt: skip


def write_cells(folder: Path, rows: Rows, suffix: str = ".csv", mark: str = ",") -> Path:
    file = folder / f"a{suffix}"
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, [*rows[0]], delimiter=mark)
        writer.writeheader()
        writer.writerows(rows)
    return file


def write_tsv(folder: Path, rows: Rows) -> Path:
    return write_cells(folder, rows, ".tsv", "\t")


def write_tab(folder: Path, rows: Rows) -> Path:
    return write_cells(folder, rows, ".tab", "\t")


def write_semicolons(folder: Path, rows: Rows) -> Path:
    return write_cells(folder, rows, ".csv", ";")


def write_tabs_as_csv(folder: Path, rows: Rows) -> Path:
    return write_cells(folder, rows, ".csv", "\t")


def write_commas_as_tsv(folder: Path, rows: Rows) -> Path:
    return write_cells(folder, rows, ".tsv", ",")


def write_named_separator(folder: Path, rows: Rows) -> Path:
    file = write_cells(folder, rows, ".csv", "|")
    file.write_text("sep=|\n" + file.read_text())
    return file


def write_workbook(folder: Path, rows: Rows) -> Path:
    openpyxl = pytest.importorskip("openpyxl", reason="the extra 'xlsx' is not installed")
    workbook = openpyxl.Workbook()
    workbook.active.append([*rows[0]])
    for row in rows:
        workbook.active.append([*row.values()])
    workbook.save(folder / "a.xlsx")
    return folder / "a.xlsx"


FLAT: list[Callable[[Path, Rows], Any]] = [
    write_cells, write_tsv, write_tab, write_semicolons, write_tabs_as_csv, write_commas_as_tsv,
    write_named_separator, write_workbook,
]  # fmt: skip


def opened(inputs: Any, **layout: str) -> Corpus:
    names = InputLayout(**layout)
    return open_corpus(input_sources(inputs, names), layout=names)


def read(inputs: Any, **layout: str) -> list[TextRecord]:
    with opened(inputs, **layout) as corpus:
        sentences = [*corpus]
        assert [*corpus] == sentences  # a second reading
        return sentences


@pytest.mark.parametrize("form", [*FLAT, *NESTED])
def test_a_target_beside_a_text_is_metadata_and_an_id_of_0_an_id(
    tmp_path: Path, form: Callable[[Path, Rows], Any]
) -> None:
    rows = [
        {"id": 0, "keyword": "fire", "text": "Forest fire", "target": 1},
        {"id": 4, "keyword": "flood", "text": "Stay inside, all", "target": 0},
    ]
    first, second = read(form(tmp_path, rows))
    assert (first.id, first.text, first.target) == ("0", "Forest fire", None)
    assert (second.id, second.text, second.target) == ("4", "Stay inside, all", None)
    assert [s.metadata for s in (first, second)] == [
        {"keyword": "fire", "target": "1"}, {"keyword": "flood", "target": "0"},
    ]  # fmt: skip


@pytest.mark.parametrize("form", [*FLAT, *NESTED])
def test_source_and_target_are_a_pair(tmp_path: Path, form: Callable[[Path, Rows], Any]) -> None:
    rows = [{"source": "one", "target": "eins"}, {"source": "two", "target": "zwei"}]
    assert [(s.text, s.target) for s in read(form(tmp_path, rows))] == [
        ("one", "eins"), ("two", "zwei"),
    ]  # fmt: skip


@pytest.mark.parametrize("form", [*FLAT, *NESTED])
def test_sentence_is_a_column_of_text(tmp_path: Path, form: Callable[[Path, Rows], Any]) -> None:
    rows = [{"sentence": "one", "source": "x"}, {"sentence": " ", "source": "y"}]
    with opened(form(tmp_path, rows)) as corpus:
        assert [(s.text, s.metadata) for s in corpus] == [("one", {"source": "x"})]
        assert corpus.files[0].blank == 1


@pytest.mark.parametrize("form", NESTED)
def test_words_are_joined_and_keep_their_places(
    tmp_path: Path, form: Callable[[Path, Rows], Any]
) -> None:
    rows: Rows = [
        {"tokens": ["EU", " rejects", "New York", ""], "ner_tags": [3, 0, 7, 0]},
        {"tokens": [], "ner_tags": []},
    ]
    with opened(form(tmp_path, rows)) as corpus:
        [sentence] = corpus
        assert corpus.files[0].blank == 1
    assert sentence.text == "EU rejects New York"
    assert sentence.words == (Word(0, 2), Word(3, 10), Word(11, 19))
    assert sentence.metadata == {"ner_tags": "[3, 0, 7, 0]"}
    assert sentence.bare_words


@pytest.mark.parametrize("form", FLAT)
def test_words_in_a_cell_are_json_or_parted_by_blanks(
    tmp_path: Path, form: Callable[[Path, Rows], Any]
) -> None:
    rows = [{"tokens": '["a", "New York"]', "labels": "0 1"}, {"tokens": "b c", "labels": "1 0"}]
    assert [(s.text, len(s.words or ())) for s in read(form(tmp_path, rows))] == [
        ("a New York", 2), ("b c", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("form", NESTED)
def test_a_translation_is_a_pair(tmp_path: Path, form: Callable[[Path, Rows], Any]) -> None:
    rows = [
        {"translation": {"en": "A dog", "fr": "Un chien"}, "n": 1},
        {"translation": {"en": "A cat", "fr": " "}, "n": 2},
        {"translation": {"en": "", "fr": "Un"}, "n": 3},
    ]
    with opened(form(tmp_path, rows)) as corpus:
        assert [(s.text, s.target, s.metadata) for s in corpus] == [
            ("A dog", "Un chien", {"n": "1"}), ("A cat", None, {"n": "2"}),
        ]  # fmt: skip
        assert corpus.files[0].blank == 1


@pytest.mark.parametrize("form", NESTED)
def test_the_first_of_several_columns_of_text_counts(
    tmp_path: Path, form: Callable[[Path, Rows], Any]
) -> None:
    row = {
        "source": "s", "target": "t", "translation": {"a": "b", "c": "d"}, "tokens": ["x", "y"],
        "sentence": "a sentence", "text": "a text", "messages": ["m"],
    }  # fmt: skip
    found = []
    for name in ("text", "sentence", "tokens", "translation", "source"):
        [sentence] = read(form(tmp_path, [row]))
        found.append((sentence.text, sentence.target))
        assert {*sentence.metadata} == {*row} - {name} - ({"target"} if name == "source" else set())
        del row[name]
    assert found == [
        ("a text", None), ("a sentence", None), ("x y", None), ("b", "d"), ("s", "t"),
    ]  # fmt: skip


@pytest.mark.parametrize("form", [*FLAT, *NESTED])
def test_header_names_match_without_case_and_blanks(
    tmp_path: Path, form: Callable[[Path, Rows], Any]
) -> None:
    [sentence] = read(form(tmp_path, [{"ID": 7, " Text ": "one", "LABEL": "x", "Genre X": "y"}]))
    assert (sentence.text, sentence.id) == ("one", "7")
    assert sentence.metadata == {"label": "x", "Genre X": "y"}
    [sentence] = read(form(tmp_path, [{"Body ": "one", "text": "two"}]), text_column="body")
    assert (sentence.text, sentence.metadata) == ("one", {"text": "two"})


def test_of_two_spellings_the_exact_one_counts() -> None:
    [sentence] = read([{"Text": "one", "text": "two"}])
    assert (sentence.text, sentence.metadata) == ("two", {"Text": "one"})
    with pytest.raises(InputError, match="column 'text' twice"):
        read([{"Text": "one", "TEXT": "two"}])
    assert matching_column("genre", ["Genre", "text"]) == "Genre"
    assert matching_column("genre", ["Genre", "GENRE"]) is None


@pytest.mark.parametrize("form", [*FLAT, *NESTED])
def test_an_index_of_pandas_is_no_data(tmp_path: Path, form: Callable[[Path, Rows], Any]) -> None:
    rows = [{"Unnamed: 0": 3, "text": "one", "n": 1, "Unnamed: 0.1": 2, "__index_level_0__": 7}]
    assert [s.metadata for s in read(form(tmp_path, rows))] == [{"n": "1"}]


def test_what_pandas_writes_is_read_without_its_index(tmp_path: Path) -> None:
    table = pd.DataFrame({"text": ["one", "two"], "n": [1, 2]}, index=[7, 8])
    table.to_csv(tmp_path / "a.csv")
    table.to_csv(tmp_path / "a.tsv", sep="\t")
    table.to_parquet(tmp_path / "a.parquet")
    table.to_excel(tmp_path / "a.xlsx")
    table.to_json(tmp_path / "a.json", orient="records")
    for name in ("a.csv", "a.tsv", "a.parquet", "a.xlsx", "a.json"):
        first, second = read(tmp_path / name)
        assert (first.text, first.metadata, second.metadata) == ("one", {"n": "1"}, {"n": "2"}), (
            name
        )


@pytest.mark.parametrize("form", [write_cells, write_tsv, write_semicolons, write_workbook])
def test_empty_columns_and_rows_are_left_out(
    tmp_path: Path, form: Callable[[Path, Rows], Any]
) -> None:
    rows: Rows = [
        {"text": "one", "n": "1", "": "", " ": None},
        {"text": None, "n": "", "": None, " ": ""},
        {"text": "", "n": "3", "": "", " ": ""},
        {"text": "two", "n": "", "": None, " ": " "},
    ]
    with opened(form(tmp_path, rows)) as corpus:
        assert [(s.text, s.metadata.get("n", "")) for s in corpus] == [("one", "1"), ("two", "")]
        assert {name for s in corpus for name in s.metadata} == {"n"}
        assert corpus.files[0].blank == 2


@pytest.mark.parametrize("form", [*FLAT, *NESTED])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("text", "Text_B"), ("text", "text_pair"), ("sentence", "sentence_b"), ("text_a", "text_b"),
        ("Premise", "Hypothesis"), ("sentence1", "sentence2"), ("question", "context"),
        ("query", "passage"),
    ],
)  # fmt: skip
def test_two_texts_are_a_pair_unless_one_is_chosen(
    tmp_path: Path, form: Callable[[Path, Rows], Any], first: str, second: str
) -> None:
    rows = [{first: "one", second: "two ", "n": "x"}, {first: "one", second: "", "n": "y"}]
    inputs = form(tmp_path, rows)
    with opened(inputs) as corpus:
        (pair,) = corpus
        assert (pair.text, pair.texts, pair.metadata) == ("one\ntwo", ("one", "two"), {"n": "x"})
        assert pair.regions == (Region("first text", 0, 3), Region("second text", 4, 7))
        assert pair.annotated_alone == ((0, 3), (4, 7))
        assert (pair.is_pair, pair.target, pair.words) == (True, None, None)
        assert (corpus.scheme.regions, corpus.files[0].blank) == (PAIR_REGIONS, 1)
    alone = read(inputs, text_column=first)
    assert [s.text for s in alone] == ["one", "one"]
    assert not any(s.is_pair or s.regions for s in alone)


@pytest.mark.parametrize("form", [*FLAT, *NESTED])
def test_the_second_text_may_be_any_column(
    tmp_path: Path, form: Callable[[Path, Rows], Any]
) -> None:
    inputs = form(tmp_path, [{"text": "one", "Answer ": "two", "text_b": "three"}])
    (pair,) = read(inputs, pair_column="answer")
    assert (pair.texts, pair.metadata) == (("one", "two"), {"text_b": "three"})
    (pair,) = read(inputs, text_column="Answer", pair_column="text_b")
    assert pair.texts == ("two", "three")
    for layout, words in {
        ("pair_column", "no"): "a column 'no', as --pair-column says",
        ("pair_column", "text"): "column 'text' for both texts of a pair",
    }.items():
        with pytest.raises(InputError, match=words):
            read(inputs, **dict([layout]))


@pytest.mark.parametrize("kind", [ModelKind.DECODER, ModelKind.ENCODER_DECODER])
def test_a_pair_for_an_encoder_is_one_line_with_another_model(kind: ModelKind) -> None:
    with opened([{"text": "one"}, {"premise": "a", "hypothesis": "b"}]) as corpus:
        corpus.read_by(ModelKind.ENCODER, "x")
        assert [s.is_pair for s in corpus] == [False, True]
        with pytest.raises(
            InputError, match=r"records:2: two texts, which only an encoder reads; "
        ):
            corpus.read_by(kind, "x")


def test_tuples_are_pairs_for_encoders_and_sources_with_targets_for_others() -> None:
    with opened([("one", "eins"), ("two", "zwei")]) as corpus:
        corpus.read_by(ModelKind.ENCODER, "x")
        assert [(s.texts, s.target) for s in corpus] == [
            (("one", "eins"), None), (("two", "zwei"), None),
        ]  # fmt: skip
        assert corpus.scheme.regions == PAIR_REGIONS
        corpus.read_by(ModelKind.ENCODER_DECODER, "x")
        assert [(s.texts, s.target) for s in corpus] == [(("one",), "eins"), (("two",), "zwei")]
        assert not corpus.scheme.regions


def test_more_than_eight_regions_are_one_line() -> None:
    regions = tuple(Region(f"r{k}", k, k + 1) for k in range(9))

    class Source:
        name, kind, label = "spans", "", "spans"

        def __init__(self, number: int) -> None:
            self.number = number

        def records(self) -> Iterator[Record]:
            yield Record(1, "nine words", regions=regions[: self.number])

        def rows(self) -> None: ...

        def sha256(self) -> None: ...

    with open_corpus([Source(8)]) as corpus:
        assert len(corpus.scheme.regions) == MAX_REGIONS
        assert len(corpus.scheme.region_pairs) == MAX_REGIONS**2
        assert [region.name for region in next(iter(corpus)).regions] == [*corpus.scheme.regions]
    with pytest.raises(InputError, match=r"9 names of regions: r0, .*; expected at most 8"):
        open_corpus([Source(9)])


@pytest.mark.parametrize("form", NESTED)
def test_chats_are_one_line(tmp_path: Path, form: Callable[[Path, Rows], Any]) -> None:
    inputs = form(tmp_path, [{"messages": [{"role": "user", "content": "Name a river."}]}])
    with pytest.raises(InputError, match=r":1: column 'messages'; .* chats are not read yet"):
        read(inputs)


@pytest.mark.parametrize("form", NESTED)
def test_another_column_may_hold_words(tmp_path: Path, form: Callable[[Path, Rows], Any]) -> None:
    [sentence] = read(form(tmp_path, [{"Words": ["a", "dog"], "text": "x"}]), text_column="words")
    assert (sentence.text, sentence.words) == ("a dog", (Word(0, 1), Word(2, 5)))


def test_missing_values_are_no_metadata() -> None:
    rows = [{"text": "one", "n": np.int64(3), "x": float("nan"), "d": pd.NaT, "a": pd.NA}]
    assert [s.metadata for s in read(rows)] == [{"n": "3"}]
    with opened([{"text": float("nan")}, {"text": "two"}]) as corpus:
        assert ([s.text for s in corpus], corpus.files[0].blank) == (["two"], 1)


def test_all_columns_with_a_meaning_are_known() -> None:
    used = {
        *FACETS, DOCUMENT_COLUMN, GOLD, PAIR_COLUMN, task_texts.ACCEPTABLE_COLUMN,
        task_texts.ANSWER_COLUMN, task_texts.WRONG_COLUMN, task_texts.CORRUPT_COLUMN,
    }  # fmt: skip
    assert used <= KNOWN_COLUMNS


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ('"Bonjour" dit-il', '"Bonjour" dit-il'),
        ('"Yes" or "No"', '"Yes" or "No"'),
        ('"Yes or No"', "Yes or No"),
        ('"He said ""no"" twice"', 'He said "no" twice'),
        ('"He said "no" twice"', '"He said "no" twice"'),
        ('"Yes', '"Yes'),
        ('No"', 'No"'),
        ('"', '"'),
        ('"""', '"""'),
        ('""""', '"'),
    ],
)
def test_quotes_between_tabs_are_text_unless_they_enclose_a_cell(
    tmp_path: Path, cell: str, text: str
) -> None:
    for name, content in (
        ("a.tsv", f"text\tn\n{cell}\t{cell}\nlast\t2\n"),
        ("b.tab", f"text\n{cell}\n"),
    ):
        (tmp_path / name).write_text(content)
        first, *_ = read(tmp_path / name)
        assert (first.text, first.metadata.get("n", text)) == (text, text)


def test_a_hundred_thousand_columns_are_compared_once_each(tmp_path: Path) -> None:
    """Two columns compared with each other, ten thousand million times, would take minutes."""
    names = [f"c{number}" for number in range(100_000)]
    (tmp_path / "a.csv").write_text(f"{','.join(names)}\n{','.join(names)}\n")
    with pytest.raises(InputError, match="'c19' and 99,980 more") as error:
        read(tmp_path / "a.csv")
    assert len(str(error.value)) < 1000
    (tmp_path / "a.csv").write_text(f"TEXT,{','.join(['TEXT'] * 100_000)}\n")
    with pytest.raises(InputError, match="column 'text' twice"):
        read(tmp_path / "a.csv")


def test_a_cell_beyond_the_limit_of_the_reader_has_a_line_of_its_own(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    (tmp_path / "a.csv").write_text(f"text\nshort\n{'a' * (limit + 1)}\n")
    with pytest.raises(InputError, match=rf"a\.csv:3: a cell of more than {limit:,} characters"):
        read(tmp_path / "a.csv")
