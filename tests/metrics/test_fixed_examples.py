"""What exists several times gives the same answers: those of ``metrics/fixed_examples.json``.

How numbers are written: in Python and in ``numbers.js``. Attention between words: as tensor
operations and as compiled loops (both while a model runs), of stored maps without torch, for
figures, and in ``view_math.js``.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from browser import Open
from headbook.analysis.arrays import Floats
from headbook.attention import map_sums
from headbook.attention.masks import BatchMask, ViewMask
from headbook.pages.parts.sentence_maps import text_data
from headbook.report.word_attention import word_attention
from headbook.results import formats
from headbook.schema import SinkView
from headbook.site.attention_figures import MapAxis, StoredMap, Weighting
from headbook.study.sentence_data import UINT8_STEPS, StoredText
from headbook.text.batch import PaddedTexts
from layers import SELF, Marks
from sites import Site

FIXTURE = Path(__file__).with_name("fixed_examples.json")
GIVEN = json.loads(FIXTURE.read_text(encoding="utf-8"))
IN_PAGE = {
    "numbers": """(cases) => cases.map(({ value, share, like }) => {
        const given = (each) => (each === null ? NaN : each);
        const { number } = window.headbook.numbers;
        return number(given(value), Boolean(share), like === undefined ? undefined : given(like));
    })""",
    "intervals": """(cases) => cases.map(({ low, high, share }) => {
        const ends = [low, high].map((end) => (end === null ? NaN : end));
        return window.headbook.numbers.interval(...ends, Boolean(share));
    })""",
    "words": """(data) => {
        const { mapOf, seen } = window.headbook.weights;
        data.weights = Uint8Array.from(data.weights);
        const { columns, values } = seen(mapOf(data), "nosink", "words");
        return [columns.length, [...values].map((value) => (Number.isNaN(value) ? 0 : value))];
    }""",
}


class Case(NamedTuple):
    """One text with a map, and attention between its words."""

    displayed: StoredText
    causal: bool
    steps: np.ndarray[Any, np.dtype[np.uint8]]
    answer: Floats

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Case":
        """From the file, where weights are in steps of 1/255."""
        words = tuple(given["words"])
        n = len(words)
        displayed = StoredText(
            text=given["text"],
            pieces=tuple(given["pieces"]),
            spans=tuple(map(tuple, given["spans"])),
            special=tuple(word < 0 for word in words),
            words=words,
            tags=("",) * n,
            lost=0,
            generated=False,
            heads=(),
            relations=(),
        )
        steps = np.array(given["steps"], np.uint8)
        return cls(displayed, given["causal"], steps, np.array(given["answer"]) / UINT8_STEPS)

    @property
    def scope(self) -> ViewMask:
        """The text as a model reads it, the sink left out."""
        words = self.displayed.words
        special = [index for index, word in enumerate(words) if word < 0]
        tokens = Marks(len(words), special=special, word=words).tokens()
        texts = PaddedTexts.of([tokens], torch.device("cpu"), torch.float64)
        seen = texts.valid[:, :, None] & texts.valid[:, None, :]
        stack = replace(SELF, causal=self.causal)
        return ViewMask(
            BatchMask(stack, texts, texts, seen.tril() if self.causal else seen), SinkView.NOSINK
        )

    @property
    def attention(self) -> torch.Tensor:
        """The map as one head of one sentence."""
        return torch.from_numpy(self.steps / np.float64(UINT8_STEPS))[None, None]

    def of_words(self, values: Floats) -> Floats:
        """A table whose special tokens are words, too, without these."""
        units = text_data(self.displayed)["units"]
        kept = sorted(
            {unit for unit, word in zip(units, self.displayed.words, strict=True) if word >= 0}
        )
        of_words: Floats = np.nan_to_num(values)[np.ix_(kept, kept)]
        return of_words


CASES = [Case.of(given) for given in GIVEN["words"]]
BOTH = pytest.mark.parametrize("case", CASES, ids=["both ways", "causal"])


def given(value: float | None) -> float:
    return math.nan if value is None else value


@pytest.mark.parametrize("case", GIVEN["numbers"], ids=lambda case: case["text"])
def test_numbers_are_written_in_python(case: dict[str, Any]) -> None:
    like = {"like": given(case["like"])} if "like" in case else {}
    text = formats.number(given(case["value"]), share=case.get("share", False), **like)
    assert text == case["text"]


@pytest.mark.parametrize("case", GIVEN["intervals"], ids=lambda case: case["text"])
def test_intervals_are_written_in_python(case: dict[str, Any]) -> None:
    ends = given(case["low"]), given(case["high"])
    assert formats.interval_text(*ends, share=case.get("share", False)) == case["text"]


@BOTH
def test_words_by_tensor_operations(case: Case) -> None:
    found = map_sums.by_word(case.attention, case.scope)[0, 0].numpy()
    np.testing.assert_allclose(found, case.answer)


@BOTH
def test_words_by_compiled_loops(case: Case) -> None:
    """Which keep the weight of each word to itself and the strongest of the others."""
    word_sums = map_sums.numba_word_sums(case.attention, case.scope)
    others = case.answer.copy()
    np.fill_diagonal(others, 0)
    np.testing.assert_allclose(word_sums.own[0, 0].numpy(), case.answer.diagonal())
    np.testing.assert_allclose(word_sums.best[0, 0].numpy(), others.max(axis=1))
    assert word_sums.best_word[0, 0].tolist() == others.argmax(axis=1).tolist()


@BOTH
def test_words_of_stored_maps(case: Case) -> None:
    found = word_attention(case.steps, case.displayed, causal=case.causal)
    np.testing.assert_allclose(found, case.answer)


@BOTH
def test_words_of_figures(case: Case) -> None:
    axis = MapAxis.of(case.displayed, causal=case.causal)
    stored = StoredMap(case.steps, axis, axis, case.causal, np.zeros(0, np.float32))
    found = case.of_words(stored.weights(Weighting.NOSINK, words=True))
    np.testing.assert_allclose(found, case.answer)


@pytest.mark.browser
@pytest.mark.slow
def test_pages_write_the_same_numbers_and_add_up_the_same_words(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "heads.html")
    for kind in ("numbers", "intervals"):
        found = page.evaluate(IN_PAGE[kind], GIVEN[kind])
        assert found == [case["text"] for case in GIVEN[kind]]
    page = open_page(next((encoder_site.folder / "heads").glob("*.html")))
    for case in CASES:
        data = {"keys": text_data(case.displayed), "causal": case.causal, "norms": []}
        data["weights"] = case.steps.ravel().tolist()
        columns, values = page.evaluate(IN_PAGE["words"], data)
        np.testing.assert_allclose(
            case.of_words(np.array(values).reshape(-1, columns)), case.answer
        )
