"""Classes of heads and sentences about them, from numbers that are chosen."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tiny
import treebank
from headbook.measures.classify import Label
from headbook.numbers.classes import HeadClass, head_classes
from headbook.numbers.results import Numbers, StackResults
from headbook.stored.study import Study
from headbook.terms import View
from headbook.views.answers import Answer, answers
from headbook.views.plain import looks_like, parks, plain
from sites import make_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Any study with as many heads."""
    folder = tmp_path_factory.mktemp("classes")
    inputs = treebank.write_trees(folder / "trees.conllu", treebank.TREES[:2])
    model = tiny.write("bert", folder / "model")
    return make_study(inputs, model, metrics="sink_share", sentence_pages="0")


class Chosen(StackResults):
    """Results whose numbers are chosen; uniform attention gives each kind of key 0.1."""

    def __init__(self, study: Study, numbers: dict[tuple[str, str], list[float]]) -> None:
        super().__init__(study, study.manifest.stacks[0])
        object.__setattr__(self, "_chosen", numbers)

    def has(self, metric: str, view: View, label: str = "") -> bool:
        """Whether it was chosen."""
        return (metric, label) in self._numbers_chosen

    def heads(self, metric: str, view: View, label: str = "") -> Numbers:
        """What was chosen; NaN for other heads."""
        values = np.full((tiny.LAYERS, tiny.HEADS), math.nan)
        chosen = self._numbers_chosen[metric, label]
        values.ravel()[: len(chosen)] = chosen
        return numbers_of(values)

    def uniform(self, metric: str, view: View, label: str = "") -> Numbers:
        """The same everywhere."""
        return numbers_of(np.full(tiny.LAYERS, 0.1))

    def layers(self, metric: str, view: View, label: str = "") -> Numbers:
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


def numbers_of(values: "np.ndarray[Any, np.dtype[np.float64]]") -> Numbers:
    """Values with an interval of 0.01 to either side, from 50 sentences."""
    behind = np.full(values.shape, 50)
    return Numbers(values, values - 0.01, values + 0.01, behind, behind * 10.0, behind * 1.0)


@pytest.fixture
def chosen(study: Study) -> Callable[..., StackResults]:
    """Four heads: a line on the first token, one on words, a diagonal, a head on content."""

    def of(**more: list[float]) -> StackResults:
        given = {
            "spread": [0.1, 0.1, 0.1, 0.1],
            "column": [0.0, 0.0, 0.9, 0.9],
            "offset": [0.2, 0.2, 0.0, 0.9],
            "vertical": [0.9, 0.9, 0.1, 0.1],
        }
        numbers = {("pattern", label): values for label, values in given.items()}
        numbers |= {("attention_to", kind): [0.3, 0.1, 0.1, 0.1] for kind in ("separator",)}
        numbers["attention_to", "first"] = [0.6, 0.1, 0.1, 0.1]
        numbers["attention_to", "special"] = [0.9, 0.2, 0.2, 0.2]
        for offset in range(-32, 33):
            numbers["offset_profile", str(offset)] = [0.0, 0.0, 0.9 * (offset == -1), 0.0]
        numbers |= {(name, ""): values for name, values in more.items()}
        return Chosen(study, numbers)

    return of


def test_stripes_and_diagonals_are_told_apart_by_what_they_stand_on(
    chosen: Callable[..., StackResults],
) -> None:
    found = head_classes(chosen())
    assert [found[0, head] for head in range(4)] == [
        HeadClass(Label.VERTICAL, keys="first"),
        HeadClass(Label.VERTICAL, keys="other"),
        HeadClass(Label.DIAGONAL, offset=-1),
        HeadClass(Label.CONTENT),
    ]
    assert {found[1, head] for head in range(tiny.HEADS)} == {None}


def test_a_block_ratio_makes_a_block_where_there_is_one(
    chosen: Callable[..., StackResults],
) -> None:
    found = head_classes(chosen(block_ratio=[3.0, 3.0, 3.0, 3.0]))
    assert [found[0, head].label for head in range(4) if found[0, head]] == [  # type: ignore[union-attr]
        Label.VERTICAL,
        Label.VERTICAL,
        Label.DIAGONAL,
        Label.BLOCK,
    ]


def said(found: Answer) -> str:
    return " ".join(finding.text for finding in found.findings)


def test_answers_name_their_numbers_of_heads(chosen: Callable[..., StackResults]) -> None:
    own = chosen(
        sink_share=[0.8, 0.6, 0.1, 0.3],
        sink_norm_share=[0.1, 0.55, 0.1, 0.3],
        confidence=[0.5, 0.5, 0.9, 0.6],
    )
    stripes, diagonals, dead = map(said, answers(own, head_classes(own)))
    assert "2 of 4 heads are vertical; layer 0 has most of them, 2 of 4" in stripes
    assert "2 vertical heads stand on: first token (1), other tokens (1)" in stripes
    assert "Stripes on punctuation or on words: L0·H1" in stripes
    assert "give 70.0\u202f% (60.0\u202f% to 80.0\u202f%) of their attention" in stripes
    assert "the other 2 give 20.0\u202f% (10.0\u202f% to 30.0\u202f%)" in stripes
    assert "In 1 of them that is less than half" in stripes
    assert "1 of 4 heads go by distance" in diagonals
    assert "−1 (1); 0 of 1 look at the token itself most" in diagonals
    assert "90.0\u202f% in the 1 head by distance" in dead
    for answer in answers(own, head_classes(own)):
        assert {finding.sentences for finding in answer.findings} == {50}


def test_without_the_numbers_there_are_no_sentences(chosen: Callable[..., StackResults]) -> None:
    own = chosen()
    assert [each.question for each in answers(own, head_classes(own))] == [
        "Why do whole layers collapse into vertical lines?",
        "And why not into diagonals?",
    ]
    assert parks(own, (0, 0)) == ""
    assert looks_like(None) == ""


def test_a_head_in_plain_words(chosen: Callable[..., StackResults]) -> None:
    own = chosen(sink_share=[0.78, 0.05], sink_norm_share=[0.06, 0.07])
    assert plain(own, (0, 0)) == (
        "Its maps are vertical (first token): all tokens look at the same few keys. "
        "78.0\u202f% of its attention goes to special tokens, but that carries 6.0\u202f% of its "
        "output, by length."
    )
    assert " and that carries 7.0" in parks(own, (0, 1))
    assert parks(own, (0, 2)) == ""
