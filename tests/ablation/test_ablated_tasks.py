"""Tasks and interactions that `headbook.ablate` measures, against plain hooks in float64."""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from test_task_targets import (
    ENDS,
    HEAD_WIDTH,
    LABELS,
    SMALL,
    classifier_loader,
    first_token,
    label_rows,
    log_probability,
    pair_rows,
    prompt_rows,
    pseudo_log_likelihood,
)
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import headbook
import tiny
from headbook.errors import ConfigError, HeadbookWarning
from headbook.study.ablation.effect_tests import effect_interval
from headbook.text.batch import token_hash

pytestmark = pytest.mark.usefixtures("of_any_number")
FIRST, SECOND = (0, 1), (1, 2)
SETS: list[Any] = ["L0-H1", [FIRST, SECOND]]  # the second head has no row of its own
Places = tuple[tuple[int, int], ...]
Row = dict[str, str]
Changes = np.ndarray[Any, Any]


class PlainModel:
    """A model without the package, some of whose heads have an output of zero."""

    def __init__(self, network: Any, tokenizer: Any, end: str) -> None:
        self.network, self.tokenizer, self._end = network, tokenizer, end

    def logits(self, text: str | Sequence[int], without: Places | None = None) -> Any:
        """Logits of one text."""
        ids = self.tokenizer(text)["input_ids"] if isinstance(text, str) else list(text)
        handles = []
        for layer, head in without or ():

            def silence(_: Any, given: tuple[Any, ...], head: int = head) -> Any:
                z = given[0].clone()
                z[..., head * HEAD_WIDTH : (head + 1) * HEAD_WIDTH] = 0
                return (z, *given[1:])

            module = self.network.get_submodule(self._end.format(layer))
            handles.append(module.register_forward_pre_hook(silence))
        try:
            with torch.no_grad():
                return self.network(input_ids=torch.tensor([ids])).logits[0]
        finally:
            for handle in handles:
                handle.remove()

    def key(self, *texts: str) -> int:
        """The hash by which sentences are ordered, and so are draws of the bootstrap."""
        rows = [np.array(self.tokenizer(text)["input_ids"], np.int64) for text in texts]
        content = b"|".join(row.tobytes() for row in rows)
        return token_hash(type("Item", (), {"content": content})())


Make = Callable[[str, str], tuple[Path, PlainModel]]


@pytest.fixture(scope="module")
def plain(
    tmp_path_factory: pytest.TempPathFactory,
) -> Make:
    @cache
    def make(family: str, task: str) -> tuple[Path, PlainModel]:
        path = tmp_path_factory.mktemp(f"{family}-{task}") / "model"
        loader = classifier_loader(task)
        tiny.write(family, path, head=loader is None)
        if loader is not None:
            torch.manual_seed(1)
            names = dict(enumerate(LABELS))
            made: Any = loader.from_pretrained(path, num_labels=len(LABELS), id2label=names)
            with torch.no_grad():
                made.classifier.weight.normal_()
            made.save_pretrained(path)
        lm_loader: Any = AutoModelForMaskedLM if family == "bert" else AutoModelForCausalLM
        network = (loader or lm_loader).from_pretrained(path, dtype=torch.float64).eval()
        return path, PlainModel(network, AutoTokenizer.from_pretrained(path), ENDS[family])

    return make


def penalty(it: PlainModel, target: str, row: Row, other: Row | None, places: Places) -> float:
    """The number of one text, pair or prompt that is high if the model does badly."""
    if target in {"label", "accuracy"}:
        logits, label = it.logits(row["text"], places), LABELS.index(row["label"])
        right = float(int(logits.argmax()) == label)
        return -right if target == "accuracy" else -float(logits.log_softmax(-1)[label])
    if target == "preference":
        assert other is not None
        score: Any = pseudo_log_likelihood if it.tokenizer.mask_token else log_probability
        return float(score(it, other["text"], places) - score(it, row["text"], places))
    ids, mask = it.tokenizer(row["text"])["input_ids"], it.tokenizer.mask_token_id
    position = ids.index(mask) if mask is not None else len(ids) - 1
    known: Any = it
    answer, wrong = (first_token(known, row["text"], row[name]) for name in ("answer", "wrong"))
    logits = it.logits(ids, places)[position]
    return float(logits[wrong] - logits[answer])


def naive_changes(it: PlainModel, target: str, rows: list[Row]) -> dict[Places, Changes]:
    """Changes of each text by removing heads, in the order of hashes; without heads the penalty."""
    items = [(row, None) for row in rows]
    if target == "preference":
        pairs = zip(rows[::2], rows[1::2], strict=True)
        items = [(row, other) for row, other in pairs]  # type: ignore[misc]
    items.sort(key=lambda pair: it.key(*(row["text"] for row in pair if row)))
    sets: list[Places] = [(), (FIRST,), (SECOND,), (FIRST, SECOND)]
    numbers = {
        places: np.array([penalty(it, target, *item, places) for item in items]) for places in sets
    }
    return {
        places: each - (numbers[()] if places else 0) for places, each in numbers.items()
    }  # fmt: skip


def rows_of(frame: pd.DataFrame, target: str) -> list[Any]:
    """The rows of one target, in order."""
    return [*frame[frame["target"] == target].itertuples()]


CASES = [
    ("bert", "label", "label"), ("bert", "label", "accuracy"), ("gpt2", "preference", "preference"),
    ("bert", "preference", "preference"), ("gpt2", "answer", "answer"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "task", "target"), CASES)
def test_targets_of_tasks_are_those_of_plain_hooks(
    family: str, task: str, target: str, plain: Make
) -> None:
    path, it = plain(family, task)
    rows = {"label": label_rows, "preference": pair_rows, "answer": prompt_rows}[task]()
    frame = headbook.ablate(rows, str(path), heads=SETS, replacement="zero", dtype="float64")
    changes = naive_changes(it, target, rows)
    sign = 1 if target == "label" else -1  # printed as it is, and not as a penalty
    single, both = rows_of(frame, target)
    for row, places in ((single, (FIRST,)), (both, (FIRST, SECOND))):
        expected = changes[places]
        assert row.value == pytest.approx(expected.mean(), rel=SMALL, abs=SMALL)
        low, high = effect_interval(expected[:, None], np.ones(len(expected)), target)
        assert [row.low, row.high] == pytest.approx(
            [low[0], high[0]], rel=1e-3, abs=SMALL, nan_ok=True
        )
        assert row.full == pytest.approx(sign * changes[()].mean(), rel=SMALL)
        assert row.n_sentences == row.n_observations == len(expected)
    assert np.isnan([single.interaction, single.interaction_low, single.interaction_high]).all()
    beyond = changes[FIRST, SECOND] - changes[FIRST,] - changes[SECOND,]
    assert both.interaction == pytest.approx(beyond.mean(), rel=SMALL, abs=SMALL)
    low, high = effect_interval(beyond[:, None], np.ones(len(beyond)), "")
    found = [both.interaction_low, both.interaction_high]
    assert found == pytest.approx([low[0], high[0]], rel=1e-3, abs=SMALL, nan_ok=True)


def test_the_interaction_of_a_loss_is_by_token(
    plain: Make,
) -> None:
    """And may be below 0 for a divergence, which itself cannot."""
    path, it = plain("gpt2", "answer")
    texts = [row["text"] for row in pair_rows()]
    frame = headbook.ablate(texts, str(path), heads=SETS, replacement="zero", dtype="float64")
    assert {*frame["target"]} == {"loss", "kl"}
    sums, tokens = dict[Places, float](), 0
    sets: list[Places] = [(), (FIRST,), (SECOND,), (FIRST, SECOND)]
    for places in sets:
        known: Any = it
        log: Callable[..., float] = log_probability
        sums[places] = -sum(log(known, text, places) for text in texts)
    tokens = sum(len(it.tokenizer(text)["input_ids"]) - 1 for text in texts)
    _, both = rows_of(frame, "loss")
    expected = sums[FIRST, SECOND] - sums[FIRST,] - sums[SECOND,] + sums[()]
    assert both.n_observations == tokens
    assert both.interaction == pytest.approx(expected / tokens, rel=SMALL, abs=1e-9)
    assert both.interaction_low < both.interaction < both.interaction_high
    alone = headbook.ablate(
        texts, str(path), heads=[FIRST, SECOND], replacement="zero", dtype="float64"
    )
    for target in ("loss", "kl"):
        _, both = rows_of(frame, target)
        parts = alone[alone["target"] == target]["value"].sum()
        assert both.interaction == pytest.approx(both.value - parts, rel=1e-6)


def test_a_head_twice_is_one_head(plain: Make) -> None:
    path, _ = plain("gpt2", "answer")
    texts = [row["text"] for row in pair_rows()]
    sets: list[Any] = [["L0-H1", FIRST], FIRST]
    frame = headbook.ablate(texts, str(path), heads=sets, replacement="zero", dtype="float64")
    twice, once = rows_of(frame, "loss")
    assert twice.value == once.value
    assert np.isnan(twice.interaction)


@pytest.mark.parametrize("task", ["label", "preference"])
def test_outputs_of_other_texts_replace_those_of_a_task(task: str, plain: Make) -> None:
    """Also if the model reads a pair in several rows."""
    path, _ = plain("bert", task)
    rows = {"label": label_rows, "preference": pair_rows}[task]()
    frame = headbook.ablate(rows, str(path), heads=SETS, replacement="resample", dtype="float64")
    for row in rows_of(frame, task):
        assert row.low <= row.value <= row.high
        assert abs(row.value) > 0


def test_which_tasks_are_measured(plain: Make) -> None:
    path, _ = plain("bert", "label")
    rows = label_rows()
    model, heads = str(path), ["L0-H1"]

    def targets(given: Any, **options: Any) -> list[str]:
        return [
            *headbook.ablate(given, model, heads=heads, replacement="zero", **options)["target"]
        ]

    own = ["state", "embedding"]
    assert targets(rows) == targets(rows, task="label") == [*own, "label", "accuracy"]
    assert targets(rows, task="none") == targets([row["text"] for row in rows]) == own
    renamed = [{"text": row["text"], "kind": row["label"]} for row in rows]
    assert targets(renamed) == own
    assert targets(renamed, label_column="kind") == [*own, "label", "accuracy"]
    for task, missing in (("answer", "'answer'"), ("patching", "'patching'")):
        with pytest.raises(ConfigError, match=f"task: got '{task}'.*{missing}") as error:
            targets(rows, task=task)
        assert "\n" not in str(error.value)


def test_as_many_texts_of_a_task_as_sentences(
    plain: Make,
) -> None:
    path, _ = plain("bert", "label")
    frame = headbook.ablate(
        label_rows(), str(path), heads=["L0-H1"], replacement="zero", sentences=4
    )
    assert {*frame["n_sentences"]} == {4}


def test_a_task_that_cannot_be_measured_is_a_warning(
    plain: Make,
) -> None:
    path, _ = plain("bert", "label")
    rows = [row | {"label": "stone"} for row in label_rows()]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        frame = headbook.ablate(rows, str(path), heads=["L0-H1"], replacement="zero")
    (line,) = [str(each.message) for each in found if each.category is HeadbookWarning]
    assert "task label" in line
    assert "'stone'" in line
    assert {*frame["target"]} == {"state", "embedding"}
