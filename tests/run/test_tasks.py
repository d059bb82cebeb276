"""Tasks of a run: which ones, and what is printed of columns and texts that do not fit."""

import importlib
import json
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import pytest
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

import headbook
import tiny
from classifier import MARKERS
from headbook.errors import ConfigError, HeadbookWarning
from headbook.model.checkpoint import find_model_files
from headbook.model.load import load_model
from headbook.study.ablation.tasks import success
from headbook.study.study import Study
from machine import Lines

FEW: dict[str, Any] = {
    "annotator": "none", "language": "none", "sentence_pages": "0", "metrics": "type_shares",
    "importance_sentences": 20, "circuits": "off", "control": "none",
}  # fmt: skip
ROOT = Path(__file__).parents[2]
Row = dict[str, Any]
LABELS = ("warm", "cold")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny models by name: language models, and classifiers of texts and tokens."""
    path = tmp_path_factory.mktemp("models")
    found = {"causal": tiny.write("gpt2", path / "causal", head=True)}
    found["masked"] = tiny.write("bert", path / "masked", head=True)
    found["bare"] = tiny.write("bert", path / "bare")
    found["pairs"] = tiny.write("t5", path / "pairs")
    classes: dict[str, Any] = {
        "texts": AutoModelForSequenceClassification, "tokens": AutoModelForTokenClassification,
    }  # fmt: skip
    for name, loader in classes.items():
        for number, folder in ((2, name), (1, f"{name}-1")):
            found[folder] = tiny.write("bert", path / folder)
            labels = {"id2label": dict(enumerate(LABELS))} if number == 2 else {}
            made = loader.from_pretrained(path / folder, num_labels=number, **labels)
            made.save_pretrained(path / folder)
    found["unnamed"] = tiny.write("bert", path / "unnamed")
    made = classes["texts"].from_pretrained(path / "unnamed", num_labels=2)
    made.save_pretrained(path / "unnamed")
    return found


@pytest.fixture
def collected(models: dict[str, Path], tmp_path: Path) -> Callable[..., Study]:
    def collect(model: str, rows: Sequence[Row], **options: Any) -> Study:
        file = tmp_path / "texts.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return headbook.collect([file], model=str(models[model]), **(FEW | options))

    return collect


def labelled(*labels: str) -> list[Row]:
    words = ("cat", "dog", "bird", "house", "garden", "fisher")
    return [
        {"text": f"the old {word} sees {other}", "label": label}
        for label, (word, other) in zip(
            labels, ((one, two) for one in words for two in words), strict=False
        )
    ]


def pair(name: str, *labels: Any, column: str = "label") -> list[Row]:
    endings = ("near", "in", "and")
    return [
        {"text": f"the {name} sleeps {ending}", "pair_id": name, column: label}
        for label, ending in zip(labels, endings, strict=False)
    ]


def pairs(*labels: Any, column: str = "label") -> list[Row]:
    names = ("cat", "dog", "bird", "house", "garden", "fisher")
    return [row for name in names for row in pair(name, *labels, column=column)]


PROMPTS: list[Row] = [
    {"text": f"the old {word}", "answer": "sees", "wrong": "small", "corrupt": f"the sees {word}"}
    for word in ("fisher", "small", "sees", "old")
]
CLEAN: list[Row] = [{name: row[name] for name in ("text", "answer", "wrong")} for row in PROMPTS]
BOTH = [*pairs("grammatical", "ungrammatical"), *PROMPTS]


@pytest.mark.parametrize(
    ("model", "rows", "options", "message"),
    [
        ("causal", BOTH, {"task": "some"}, "task: got 'some', expected 'auto', 'none' or some"),
        ("causal", BOTH, {"task": "auto,label"}, "task: got 'auto,label', expected 'auto'"),
        ("causal", BOTH, {"task": "answer", "importance": "off"}, "beside importance='off'"),
        ("texts", PROMPTS, {"task": "label"}, "'label', which needs a column 'label' in the input"),
        ("texts", BOTH, {"task": "label", "label_column": "kind"}, "needs a column 'kind'"),
        ("bare", labelled(*LABELS), {"task": "label"}, "a checkpoint with a classification head"),
        ("causal", PROMPTS, {"task": "preference"}, "needs a column 'pair_id' in the input"),
        ("bare", BOTH, {"task": "preference"}, "needs a language-model head: the checkpoint"),
        ("texts", BOTH, {"task": "answer"}, "a language-model head: the checkpoint has a classif"),
        ("causal", pairs("1", "0"), {"task": "answer"}, "needs a column 'answer' in the input"),
        ("causal", CLEAN, {"task": "patching"}, "needs a column 'corrupt' in the input"),
        ("pairs", BOTH, {"task": "preference"}, "needs a model that is not an encoder-decoder"),
        ("causal", BOTH, {"task": "answer", "pack": 30}, "single sentences, which pack= joins"),
        ("causal", BOTH, {"acceptable": "good"}, "acceptable: got 'good', which no sentence of a "
         "pair has in column 'label'; expected one of grammatical, ungrammatical"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_be_is_one_line(
    model: str, rows: list[Row], options: Any, message: str, collected: Callable[..., Study]
) -> None:
    with pytest.raises(ConfigError) as error:
        collected(model, rows, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "rows", "tasks"),
    [
        ("causal", BOTH, ["preference", "answer", "patching"]),
        ("masked", BOTH, ["preference"]),  # no prompt has a mask token
        ("bare", BOTH, []),
        ("pairs", [*BOTH[:2], *BOTH[-2:]], []),  # few: targets are written, which takes long
        ("texts", [*labelled(*LABELS * 4), *BOTH], ["label"]),
        ("texts-1", labelled(*LABELS * 4), []),
        ("causal", labelled(*LABELS * 4), []),
    ],
)
def test_auto_takes_what_there_are_columns_and_a_head_for(
    model: str, rows: list[Row], tasks: list[str], collected: Callable[..., Study]
) -> None:
    reported = Lines()
    study = collected(model, rows, progress=reported)
    assert [*study.corpus_sums.tasks] == tasks
    messages = [line for line in reported.lines if line.startswith("task ")]
    assert [line.split(",")[0] for line in messages] == [f"task {name}" for name in tasks]
    assert all("forward passes over" in line for line in messages)
    assert {*study.importance["target"]} >= {*tasks}


def test_none_takes_none_and_a_name_only_that(collected: Callable[..., Study]) -> None:
    assert not collected("causal", BOTH, task="none").corpus_sums.tasks
    assert not collected("causal", BOTH, importance="off").corpus_sums.tasks
    assert [*collected("causal", BOTH, task="preference").corpus_sums.tasks] == ["preference"]
    patched = collected("causal", BOTH, task=["patching"])  # which are patched, answers tell
    assert [*patched.corpus_sums.tasks] == ["answer", "patching"]


def why(study: Study, task: str) -> str:
    """What the study says of a task that it could not measure."""
    (gap,) = (gap for gap in study.manifest.gaps if gap.what == f"task {task}")
    assert task not in study.corpus_sums.tasks
    return gap.why


def test_labels_that_the_model_does_not_know(collected: Callable[..., Study]) -> None:
    study = collected("texts", labelled(*("WARM", "1", "hot") * 4))
    task = study.corpus_sums.tasks["label"]
    assert task.notes == (
        "4 texts left out: column 'label' has 'hot'; the model's labels are "
        "warm, cold (id2label of its configuration)",
    )
    assert {name: counts.sum() for name, counts in task.truth.items()} == {"warm": 4, "cold": 4}
    study = collected("texts", labelled(*("hot", "icy") * 4))
    assert why(study, "label") == (
        "8 texts left out: column 'label' has 'hot', 'icy'; the model's labels are "
        "warm, cold (id2label of its configuration)"
    )


NUMBERS = [1.0, 0.0, 1, 0, "1", "0.0", True, False, "True", "false", " 1.00 ", "COLD"]


def test_one_label_has_many_spellings(collected: Callable[..., Study]) -> None:
    rows = [
        row | {"label": label} for row, label in zip(labelled(*LABELS * 6), NUMBERS, strict=True)
    ]
    task = collected("texts", rows).corpus_sums.tasks["label"]
    assert not task.notes
    # 1, 1, "1", True, "True", "1.00" and "COLD" are the class of number 1.
    assert {name: counts.sum() for name, counts in task.truth.items()} == {"warm": 5, "cold": 7}


def test_a_missing_label_is_counted_and_left_out(collected: Callable[..., Study]) -> None:
    rows = labelled(*LABELS * 4)
    for row, label in zip(rows, ("", "nan", math.nan, None, " "), strict=False):
        row["label"] = label
    with pytest.warns(HeadbookWarning, match="task label: 5 texts left out: no label in column"):
        task = collected("texts", rows).corpus_sums.tasks["label"]
    assert sum(counts.sum() for counts in task.truth.values()) == 3


@pytest.mark.parametrize(
    ("name", "missing"), [("labels-float.jsonl", 0), ("labels-float-missing.csv", 1)]
)
def test_labels_that_tables_write_as_numbers(
    name: str, missing: int, models: dict[str, Path]
) -> None:
    file = ROOT / "tests" / "inputs" / "files" / name
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HeadbookWarning)
        study = headbook.collect([file], model=str(models["texts"]), **FEW)
    task = study.corpus_sums.tasks["label"]
    assert {name: counts.sum() for name, counts in task.truth.items()} == {
        "warm": 2 - missing,
        "cold": 2,
    }
    found = [str(w.message) for w in caught if w.category is HeadbookWarning]
    assert found == [f"task label: {note}" for note in task.notes]
    assert [note.split(" left")[0] for note in task.notes] == ["1 text"] * missing


def test_tokens_without_a_label_do_not_count(collected: Callable[..., Study]) -> None:
    rows = labelled(
        "[1.0, -100, 0, null, NaN]",
        "warm cold warm cold cold",
        "-100 -100 -100 -100 -100",
        "0 0 0 0 0",
    )
    task = collected("tokens", rows).corpus_sums.tasks["label"]
    assert {name: counts.sum() for name, counts in task.truth.items()} == {"warm": 8, "cold": 4}
    assert task.notes == ("1 text left out: no label in column 'label'",)


@pytest.mark.parametrize("names", [("neg", "pos"), ("LABEL_1", "LABEL_0"), ("neg", "LABEL_0")])
def test_classes_of_a_dataset_have_numbers_beside_their_names(
    names: tuple[str, str], models: dict[str, Path]
) -> None:
    """Numbers count if the model has no names, and knows none of the dataset's."""
    rows = labelled(*LABELS * 4)
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=[*names])
    )
    classes = [0, 1, 1, 1, -1, 0, 0, 1]
    data = datasets.Dataset.from_dict(
        {"text": [row["text"] for row in rows], "label": classes}, features=features
    )
    study = headbook.collect(data, model=str(models["unnamed"]), **FEW)
    task = study.corpus_sums.tasks["label"]
    found = {name: counts.sum() for name, counts in task.truth.items()}
    expected = {
        ("neg", "pos"): {"LABEL_0": 3, "LABEL_1": 4},
        ("LABEL_1", "LABEL_0"): {"LABEL_0": 4, "LABEL_1": 3},
        ("neg", "LABEL_0"): {"LABEL_0": 4, "LABEL_1": 0},
    }
    assert found == expected[names]
    stream = data.to_iterable_dataset()  # which is copied to the disk
    again = headbook.collect(stream, model=str(models["unnamed"]), **FEW)
    assert {
        name: counts.sum() for name, counts in again.corpus_sums.tasks["label"].truth.items()
    } == found


def test_classes_by_name_are_not_read_by_number(
    collected: Callable[..., Study], models: dict[str, Path]
) -> None:
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["neg", "pos"])
    )
    texts = [row["text"] for row in labelled(*LABELS * 2)]
    data = datasets.Dataset.from_dict({"text": texts, "label": [0, 1, 0, 1]}, features=features)
    study = headbook.collect(data, model=str(models["texts"]), **FEW)
    assert "'neg', 'pos'" in why(study, "label")


@pytest.mark.parametrize(
    ("model", "task", "rows", "reason"),
    [
        ("texts", "label", labelled(*("hot", "icy") * 4), "'hot', 'icy'"),
        ("texts", "label", labelled("warm", "nan", "nan"), "2 texts left out: no label"),
        ("texts-1", "label", labelled(*LABELS * 4), "does not choose one of several labels"),
        ("tokens", "label", labelled("warm cold", "warm"), "2 texts left out: not one label"),
        ("causal", "preference", pairs("1", "1"), "6 pairs left out"),
        ("masked", "answer", PROMPTS, "4 prompts left out: no [MASK]"),
        ("causal", "patching", [row | {"corrupt": "the"} for row in PROMPTS], "4 prompts left out"),
    ],
)
@pytest.mark.usefixtures("unmeasured")
def test_a_named_task_that_measures_nothing_is_one_line(
    model: str, task: str, rows: list[Row], reason: str, collected: Callable[..., Study]
) -> None:
    with pytest.raises(ConfigError) as error:
        collected(model, rows, task=task)
    assert str(error.value).startswith(f"task: got '{task}'")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let measuring fail, for errors that come before."""
    monkeypatch.setattr(importlib.import_module("headbook.run.collect"), "measure_study", None)


def test_a_task_that_is_not_measured_is_known(collected: Callable[..., Study]) -> None:
    with pytest.warns(HeadbookWarning, match="task label is not measured: 8 texts left out"):
        collected("texts", labelled(*("hot", "icy") * 4))


def test_a_head_that_does_not_choose(collected: Callable[..., Study]) -> None:
    study = collected("texts-1", labelled(*LABELS * 4))
    assert why(study, "label").endswith("does not choose one of several labels")


def test_labels_of_tokens_need_one_for_each_word(collected: Callable[..., Study]) -> None:
    rows = labelled("warm cold warm cold warm", '["cold", "cold", "warm", "warm", "cold"]',
                    "warm cold", "warm cold warm cold cold")  # fmt: skip
    task = collected("tokens", rows).corpus_sums.tasks["label"]
    assert task.notes == ("1 text left out: not one label in column 'label' for each word",)
    assert sum(counts.sum() for counts in task.truth.values()) == 15
    assert {*task.counts["label"]} == {5}


@pytest.mark.parametrize(
    ("name", "options"),
    [("ner_tags", {}), ("labels", {}), ("Tags", {"label_column": "tags"})],
)
def test_lists_of_words_have_lists_of_labels(
    collected: Callable[..., Study], name: str, options: dict[str, str]
) -> None:
    """A word with a blank inside is one word, with one label."""
    rows = [
        {"tokens": ["the old", word, "sees", "dogs"], name: [0, 1, 1, 0]}
        for word in ("cat", "dog", "bird", "house")
    ]
    task = collected("tokens", rows, **options).corpus_sums.tasks["label"]
    assert {*task.counts["label"]} == {4}
    assert sum(counts.sum() for counts in task.truth.values()) == 16


def test_a_target_beside_a_text_is_its_label(collected: Callable[..., Study]) -> None:
    """And no text of a pair, which a model of one text would leave unread."""
    rows = [
        {"text": row["text"], "target": number % 2}
        for number, row in enumerate(labelled(*LABELS * 4))
    ]
    study = collected("texts", rows, label_column="target", facet="target")
    assert {*study.corpus_sums.tasks["label"].counts["label"]} == {1}
    assert "unread_targets" not in study.manifest.counts
    kept = study.sentence_data.sentences.values()
    assert kept
    assert all(s.metadata["target"] == str(s.index % 2) for s in kept)
    written = collected("pairs", rows[:3], facet="target", importance="off")
    assert written.manifest.counts["target.generated"] == 3


def test_pairs_that_are_incomplete(collected: Callable[..., Study]) -> None:
    rows = [
        *pairs("1", "0"), *pair("water", "1"), *pair("red", "1", "1"), *pair("un", "1", "0", "0"),
    ]  # fmt: skip
    task = collected("causal", rows).corpus_sums.tasks["preference"]
    assert len(task.content_hash) == 6
    assert task.notes == (
        "3 pairs left out: not two sentences, of which column 'label' calls one acceptable",
    )
    study = collected("causal", [*pairs("1", "1")])
    assert why(study, "preference").startswith("6 pairs left out")


@pytest.mark.parametrize(
    ("labels", "column", "options"),
    [
        (("grammatical", "ungrammatical"), "label", {}),
        (("True", "False"), "acceptable", {}),
        ((1, 0), "acceptable", {}),
        ((True, False), "acceptable", {}),
        (("gut", "schlecht"), "urteil", {"label_column": "urteil", "acceptable": "GUT"}),
    ],
)
def test_the_acceptable_member_of_a_pair(
    labels: tuple[Any, Any], column: str, options: Any, collected: Callable[..., Study]
) -> None:
    preferences = []
    for values in (labels, labels[::-1]):
        study = collected("causal", pairs(*values, column=column), **options)
        preferences.append(study.corpus_sums.tasks["preference"].unablated["preference"].sum())
    assert preferences[0] == pytest.approx(-preferences[1])


def test_answers_of_several_tokens_and_equal_ones(collected: Callable[..., Study]) -> None:
    rows = [
        *PROMPTS,
        {"text": "the old sees", "answer": "seesaw", "wrong": "old"},
        {"text": "the small sees", "answer": "sees", "wrong": "seesaw"},
    ]
    task = collected("causal", rows).corpus_sums.tasks["answer"]
    assert task.notes == (
        "1 prompt with an answer of several tokens: the first is used",
        "1 prompt left out: both answers begin with one token",
    )
    assert len(task.content_hash) == 5


def test_prompts_of_masked_models_need_the_mask(collected: Callable[..., Study]) -> None:
    masked = [
        row
        | {"text": f"{row['text']} [MASK] in water", "corrupt": f"[MASK] {row['text']} in water"}
        for row in PROMPTS
    ]
    study = collected("masked", [*masked, *PROMPTS])
    task = study.corpus_sums.tasks["answer"]
    assert task.notes == ("4 prompts left out: no [MASK] in the text",)
    assert why(study, "patching").endswith("in the corrupt text as in the clean one")
    assert why(collected("masked", PROMPTS), "answer") == task.notes[0]


def test_a_sample_of_a_task_has_at_most_the_sentences_asked(
    collected: Callable[..., Study],
) -> None:
    study = collected("causal", BOTH, importance_sentences=3)
    assert {len(task.content_hash) for task in study.corpus_sums.tasks.values()} == {3}


@pytest.mark.parametrize("name", ["texts", "tokens"])
def test_classifiers_are_loaded_with_their_head(name: str, models: dict[str, Path]) -> None:
    model = load_model(str(models[name]))
    kind = {"texts": "BertForSequenceClassification", "tokens": "BertForTokenClassification"}[name]
    assert type(model.network).__name__ == kind
    assert type(model.base_model).__name__ == "BertModel"
    assert model.headless == f"the checkpoint has a classification head ({kind})"
    assert model.weights.missing == ()


def test_a_classifier_without_the_weights_of_its_head_is_bare(tmp_path: Path) -> None:
    tiny.write("bert", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load_model(str(tmp_path))
    assert type(model.network).__name__ == "BertModel"


def test_sample_prompts_fit_the_tokenizer_of_the_causal_demo() -> None:
    gguf = find_model_files("demo-causal", None).gguf
    assert gguf is not None
    tokenizer = gguf.tokenizer()
    lines = (ROOT / "sample_inputs" / "prompts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) >= 40
    for row in rows:
        text, corrupt = (tokenizer(row[name])["input_ids"] for name in ("text", "corrupt"))
        assert len(text) == len(corrupt)
        assert text != corrupt
        answer, wrong = (
            tokenizer(f"{row['text']} {row[name]}")["input_ids"] for name in ("answer", "wrong")
        )
        assert len(answer) == len(wrong) == len(text) + 1
        assert answer[:-1] == wrong[:-1] == text
        assert answer != wrong


def test_chance_is_the_share_of_the_most_frequent_label(collected: Callable[..., Study]) -> None:
    study = collected("texts", labelled(*("warm", "warm", "cold") * 4))
    found = success(study.corpus_sums.tasks["label"])
    assert found.chance == pytest.approx(2 / 3)
    assert not found.beats_chance
    assert {*MARKERS.values()} == {*LABELS}
