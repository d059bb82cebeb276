"""Sentences about sinks and positions, from types of heads whose numbers are chosen."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from headbook.report.findings.patterns import Discussion, discussions

import tiny
import treebank
from ablation_results import ablation_results, around
from headbook.analysis.accumulators import Estimates
from headbook.metrics.patterns.type_shares import EVEN, PARTS
from headbook.pages.patterns import without_them
from headbook.report.head_types import head_types
from headbook.report.results import StackResults
from headbook.schema import SinkView
from headbook.study.study import Study
from sites import make_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Any study with as many heads."""
    folder = tmp_path_factory.mktemp("answers")
    inputs = treebank.write_trees(folder / "trees.conllu", treebank.TREES[:2])
    model = tiny.write("bert", folder / "model")
    return make_study(inputs, model, metrics="sink_share", sentence_pages="0")


class Chosen(StackResults):
    """Results whose numbers are chosen; uniform attention gives everything 0.1."""

    def __init__(self, study: Study, numbers: dict[tuple[str, str], list[float]]) -> None:
        super().__init__(study, study.manifest.stacks[0])
        object.__setattr__(self, "_chosen", numbers)

    def has_value(self, metric: str, view: SinkView, label: str = "") -> bool:
        """Whether it was chosen."""
        return (metric, label) in self._numbers_chosen

    def heads(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """What was chosen; NaN for other heads."""
        values = np.full((tiny.LAYERS, tiny.HEADS), math.nan)
        chosen = self._numbers_chosen[metric, label]
        values.ravel()[: len(chosen)] = chosen
        return numbers_of(values)

    def uniform(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """The same everywhere."""
        return numbers_of(np.full(tiny.LAYERS, 0.1))

    def layers(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """The mean over the heads of layer 0."""
        return numbers_of(
            np.nanmean(self.heads(metric, view, label).value[:1], 1, keepdims=False).repeat(
                tiny.LAYERS
            )
        )

    @property
    def _numbers_chosen(self) -> dict[tuple[str, str], list[float]]:
        found: dict[tuple[str, str], list[float]] = self.__dict__["_chosen"]
        return found


def numbers_of(values: "np.ndarray[Any, np.dtype[np.float64]]") -> Estimates:
    """Values with an interval of 0.01 to either side, from 50 sentences."""
    behind = np.full(values.shape, 50)
    return Estimates(values, values - 0.01, values + 0.01, behind, behind * 10.0, behind * 1.0)


@pytest.fixture
def chosen(study: Study) -> Callable[..., StackResults]:
    """Four heads: two sinks, a previous-token head, a mixed one; of the rest no type is known."""

    def of(**more: list[float]) -> StackResults:
        shares = dict.fromkeys(PARTS, [0.0] * 4) | {
            "previous": [0.2, 0.2, 0.9, 0.2],
            "before": [0.4, 0.4, 0.1, 0.4],
            "after": [0.4, 0.4, 0.0, 0.4],
        }
        numbers = {("type_shares", part): share for part, share in shares.items()}
        numbers |= {("type_shares", EVEN[part]): [0.1] * 4 for part in PARTS}
        numbers["relative_entropy", ""] = [0.5] * 4
        numbers |= {("pattern", label): [0.2] * 4 for label in ("spread", "column", "offset")}
        numbers["attention_to", "first"] = [0.6, 0.1, 0.1, 0.1]
        numbers["attention_to", "separator"] = [0.1, 0.5, 0.0, 0.1]
        numbers |= {(name, ""): values for name, values in more.items()}
        return Chosen(study, numbers)

    return of


def message(found: Discussion) -> str:
    return " ".join(finding.text for finding in found.findings)


def test_answers_name_their_numbers_of_heads(chosen: Callable[..., StackResults]) -> None:
    own = chosen(
        sink_share=[0.8, 0.6, 0.1, 0.2],
        sink_norm_share=[0.1, 0.55, 0.1, 0.3],
        confidence=[0.5, 0.5, 0.9, 0.6],
    )
    sinks, positions, largest = map(message, discussions(own, head_types(own)))
    assert "Sink heads: 2 of 4, most of them in layer 0 (2 of 4 heads)." in sinks
    assert "over 2 sink heads: the first token (1), separators (1)." in sinks
    assert (
        "special tokens in 2 sink heads: 70.0\u202f% (range over heads 60.0 to 80.0\u202f%); the "
        "other 2: 15.0\u202f% (range over heads 10.0 to 20.0\u202f%); "
        "uniform attention: 10.0\u202f%."
    ) in sinks
    assert "contribute 32.5\u202f% (range over heads 10.0 to 55.0\u202f%) of the value" in sinks
    assert "intervals apart: in one of these heads." in sinks
    assert positions == "Positional heads: 1 of 4, by type previous-token (1): L0·H2."
    assert "Mean maximum weight: 90.0\u202f% in 1 positional head, 53.3\u202f%" in largest
    for discussion in discussions(own, head_types(own)):
        described = [f for f in discussion.findings if "replaced" not in f.text]
        assert {finding.sentences for finding in described} == {50}


def test_positional_heads_have_verdicts_where_they_were_replaced(
    chosen: Callable[..., StackResults],
) -> None:
    own = chosen(sink_share=[0.8, 0.6, 0.1, 0.2], confidence=[0.5, 0.5, 0.9, 0.6])
    types = head_types(own)
    whole = without_ablation(own)

    def last(changes: list[float] | None) -> Discussion:
        given = None if changes is None else ablation_results(around(*changes, spread=0.003))
        sums = replace(whole.corpus_sums, ablation=given)
        object.__setattr__(own, "study", replace(whole, corpus_sums=sums))
        return [*discussions(own, types)][-1]

    assert "Of 1 positional head replaced one at a time, one changes the output." in message(
        last([0.0, 0.0, 0.05])
    )
    assert "one can go alone." in message(last([0.05, 0.05, 0.0]))
    assert "measured" not in last([0.0, 0.0, 0.05]).argument
    assert "replaced" not in message(last([0.0, 0.05]))  # the head was not replaced
    assert last(None).argument.endswith("it is not measured.")
    found = without_them(own, types)
    assert (found.measured, found.findings, found.table) == (False, (), None)


def without_ablation(of: StackResults) -> Study:
    return replace(of.study, corpus_sums=replace(of.study.corpus_sums, ablation=None))


def test_without_the_numbers_there_are_no_sentences(chosen: Callable[..., StackResults]) -> None:
    own = chosen()
    assert set(head_types(own).values()) == {None}
    assert [*discussions(own, head_types(own))] == []


def test_a_family_and_its_detail_say_what_the_name_says(
    chosen: Callable[..., StackResults],
) -> None:
    types = head_types(chosen(sink_share=[0.8, 0.35, 0.1, 0.2]))
    found = [types[0, head] for head in range(4)]
    assert [(head_type.family, head_type.detail) for head_type in found if head_type] == [
        ("sink", "80.0\u202f%"),
        ("mixed", "sink + distant earlier tokens"),
        ("previous-token", ""),
        ("mixed", "distant earlier tokens + distant later tokens"),
    ]
