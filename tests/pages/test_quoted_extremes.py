"""What pages quote as highest or lowest is so, and ties are said."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.analysis.arrays import Floats
from headbook.metrics import ids
from headbook.pages.comparison.parts import DriftMeasure, moved_lead
from headbook.pages.head_parts.standing import strips
from headbook.pages.heads import rankings
from headbook.pages.parts.head_list import number_columns
from headbook.report.leaders import chosen_head
from headbook.report.results import StackResults
from headbook.report.wording import tie_note, tied_places
from headbook.results.formats import percent
from headbook.schema import HeadKey, HeadName, SinkView
from sites import Site


def named(layer: int, head: int) -> str:
    return f"L{layer}·H{head}"


@pytest.mark.parametrize(
    ("values", "lowest", "wanted"),
    [
        ([[0.1, 0.3], [0.2, np.nan]], False, "L0·H1, 30.0\u202f%"),
        ([[0.1, 0.3], [0.2, np.nan]], True, "L0·H0, 10.0\u202f%"),
        ([[0.3, 0.1], [0.3, 0.3]], False, "L0·H0 (tied with L1·H0 and L1·H1), 30.0\u202f%"),
        ([[0.3001, 0.3004], [0.1, 0.2]], False, "L0·H1 (tied with L0·H0), 30.0\u202f%"),
        ([[0.3001, 0.3006], [0.1, 0.2]], False, "L0·H1, 30.1\u202f%"),
        ([[0.99951, 0.99999], [1.0, 0.2]], False, "L1·H0, 100.0\u202f%"),
        (np.zeros((1, 6)), True,
         "L0·H0 (tied with L0·H1, L0·H2, L0·H3 and two more), 0.0\u202f%"),
    ],
)  # fmt: skip
def test_ties_are_values_that_are_equal_or_printed_alike(
    values: object, lowest: bool, wanted: str
) -> None:
    array = np.array(values)
    first, *others = tied_places(array, percent, lowest=lowest)
    note = tie_note([named(*place) for place in others])
    assert f"{named(*first)}{note}, {percent(float(array[first]))}" == wanted


def test_without_values_there_is_no_place() -> None:
    assert tied_places(np.full((2, 2), np.nan), percent) == []
    assert tie_note([]) == ""


@pytest.fixture(scope="module")
def own(encoder_site: Site) -> StackResults:
    return encoder_site.results["self"]


def test_answers_and_questions_say_which_heads_are_not_told_apart() -> None:
    even = HeadKey(ids.ATTENTION_TO, SinkView.RAW, "previous")
    spread = HeadKey(ids.VARIABILITY, SinkView.RAW, "")
    found = fake_results(
        {
            even: Fake([[0.8, 0.8, 0.1]], uniform=0.1, spread=0.001),
            spread: Fake([[0.5, 0.1, 0.1]], uniform=0.2, spread=0.001),
        }
    )
    best = chosen_head(found, even)
    assert best is not None
    assert (best.head.head, best.note) == (0, " (alike: L0·H1)")
    for lowest, head, note in ((True, 1, " (alike: L0·H2)"), (False, 0, "")):
        end = chosen_head(found, spread, lowest=lowest)
        assert end is not None
        assert (end.head.head, end.note) == (head, note)
    of = {"self": found}
    (ranking,) = rankings(of, number_columns(of), ())
    expected = "uniform attention: 10.0\u202f% (alike: L0·H1)"
    assert ranking.heads[0].behind == expected


class FirstHeadRarely(Fake):
    """Numbers of which the first head has three sentences only."""

    def each(self, sentences: int) -> Floats:
        """Values of every sentence. *Shape:* ``(sentence, layer, head)``."""
        values = super().each(sentences)
        values[3:, :, 0] = np.nan
        return values


def test_heads_of_too_few_sentences_do_not_lead_and_are_counted() -> None:
    key = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
    found = fake_results({key: FirstHeadRarely([[0.9, 0.5, 0.1]])})
    best = chosen_head(found, key)
    assert best is not None
    assert best.head.head == 1
    assert best.note == " (without 1 head measured on too few sentences)"


def test_the_rank_of_a_head_is_a_range_where_a_test_does_not_tell_heads_apart() -> None:
    """The second half of the sentences turns the order of heads 5 and 6, and that of 2 and 3."""
    values = [[0.3, 0.3, 0.25, 0.2, 0.15, 0.1, 0.11, 0.05]]
    second = [[0.3, 0.3, 0.205, 0.247, 0.15, 0.11, 0.102, 0.05]]
    key = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
    found = fake_results({key: Fake(values, second=second)})
    places = [
        [strip.place for strip in strips(found, HeadName("self", 0, head))] for head in range(8)
    ]
    assert places == [
        ["among the 2 highest of 8"],
        ["among the 2 highest of 8"],
        ["3rd to 4th highest of 8"],
        [],
        [],
        ["2nd to 3rd lowest of 8"],
        ["2nd to 3rd lowest of 8"],
        ["lowest of 8"],
    ]


def test_the_metrics_of_which_a_head_is_first_come_first() -> None:
    others = [0.5, 0.4, 0.3, 0.6]
    shares = {ids.SINK_SHARE: [0.2, 0.1], ids.VARIABILITY: [0.1, 0.7], ids.CONFIDENCE: [0.7, 0.8]}
    found = fake_results(
        {
            HeadKey(metric, SinkView.RAW, ""): Fake([[*first, *others]])
            for metric, first in shares.items()
        }
    )
    places = [strip.place for strip in strips(found, HeadName("self", 0, 0))]
    assert places == ["lowest of 6", "2nd highest of 6", "2nd lowest of 6"]


def test_a_comparison_says_which_largest_changes_are_tied() -> None:
    both: Any = SimpleNamespace(pair=SimpleNamespace(a=SimpleNamespace(name="self")))
    moves = DriftMeasure("weights", np.array([[0.1, 0.3001], [0.3004, np.nan]]), None, percent)
    (parts,) = moved_lead(both, [moves])
    text = "".join(part if isinstance(part, str) else part.text for part in parts)
    assert text.endswith("outputs: weights in L1·H0 (tied with L0·H1) by 30.0\u202f%.")
