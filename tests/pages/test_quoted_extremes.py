"""What pages quote as highest or lowest is so, and ties are said."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.metrics import ids
from headbook.pages.comparison.parts import DriftMeasure, moved_lead
from headbook.pages.flow import outputs
from headbook.pages.head_parts.standing import strips
from headbook.pages.heads import number_columns, questions
from headbook.pages.index import functions
from headbook.pages.parts.table import NumberCell
from headbook.report.findings.attention import variability
from headbook.report.findings.finding import choose_head
from headbook.report.results import StackResults, stack_results
from headbook.report.wording import head_name, highest_text, percent, tie_note, tied_places
from headbook.schema import HeadKey, SinkView
from headbook.study.sentence_data import HeadName
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
    assert highest_text(np.array(values), percent, named, lowest=lowest) == wanted


def test_without_values_there_is_no_place() -> None:
    assert tied_places(np.full((2, 2), np.nan), percent) == []
    assert tie_note([]) == ""


def test_flow_names_the_heads_that_its_picture_and_the_files_have_as_extremes() -> None:
    """Half of the sentences has another head as the lowest."""
    first, second = [[0.10, 0.30, 0.60]], [[0.20, 0.08, 0.72]]
    of = {HeadKey(ids.OUTPUT_NORM_SHARE, SinkView.RAW, ""): Fake(first, second=second)}
    found = outputs(fake_results(of))
    assert found is not None
    # All sentences: 0.15, 0.19 and 0.66.
    assert "output norm: L0·H2, 66.0\u202f%; smallest: L0·H0, 15.0\u202f%;" in found.sentences[1]
    _, _, most, _, least = found.table.rows[0].cells
    assert isinstance(most, NumberCell)
    assert isinstance(least, NumberCell)
    assert (most.text, least.text) == ("66.0\u202f%", "15.0\u202f%")


def test_flow_says_what_is_tied() -> None:
    of = {HeadKey(ids.OUTPUT_NORM_SHARE, SinkView.RAW, ""): Fake([[0.2, 0.2, 0.6]] * 2)}
    found = outputs(fake_results(of))
    assert found is not None
    assert "fewest in layer 0 (tied with layer 1), " in found.sentences[0]
    assert "smallest: L0·H0 (tied with L0·H1, L1·H0 and L1·H1), 20.0" in found.sentences[1]


@pytest.fixture(scope="module")
def own(encoder_site: Site) -> StackResults:
    return stack_results(encoder_site.study)["self"]


def test_flow_quotes_the_files_extremes(own: StackResults) -> None:
    """By a plain loop over the table of heads."""
    table = own.study.heads
    rows = table[(table["metric"] == ids.OUTPUT_NORM_SHARE) & (table["view"] == "raw")]
    places = [
        HeadName(*each) for each in zip(rows["stack"], rows["layer"], rows["head"], strict=True)
    ]
    value = dict(zip(places, rows["value"].tolist(), strict=True))
    found = outputs(own)
    assert found is not None
    most, least = re.findall(r"(?:norm|smallest): (L\d+·H\d+)[^;]*?, ([\d.]+\u202f%)",
                             found.sentences[1])  # fmt: skip
    for (name, text), head in ((most, max(value, key=value.__getitem__)),
                               (least, min(value, key=value.__getitem__))):  # fmt: skip
        assert name == head_name(head)
        assert text == percent(value[head])


def test_findings_questions_and_functions_say_what_is_tied() -> None:
    even = HeadKey(ids.ATTENTION_TO, SinkView.RAW, "previous")
    spread = HeadKey(ids.VARIABILITY, SinkView.RAW, "")
    found = fake_results(
        {
            even: Fake([[0.8, 0.8, 0.1]], uniform=0.1, spread=0.001),
            spread: Fake([[0.5, 0.1, 0.1]], uniform=0.2, spread=0.001),
        }
    )
    best = choose_head(found, ids.ATTENTION_TO, SinkView.RAW, "previous")
    assert best is not None
    assert (best.head.head, best.tied) == (0, " (tied with L0·H1)")
    (finding,) = variability(found)
    assert "lowest in L0·H1 (tied with L0·H2), 10.0" in finding.text
    assert "highest in L0·H0, 50.0" in finding.text
    (measured,) = functions(found)
    assert measured.baseline == "uniform attention: 10.0\u202f% (tied with L0·H1)"
    of = {"self": found}
    (question,) = questions(of, number_columns(of), ())
    assert question.heads[0].behind == "uniform attention: 10.0\u202f% (tied with L0·H1)"


def test_the_place_of_a_head_says_that_it_is_tied() -> None:
    values = [[0.3, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1002, 0.05]]
    found = fake_results({HeadKey(ids.SINK_SHARE, SinkView.RAW, ""): Fake(values)})
    places = [strips(found, HeadName("self", 0, head))[0].place for head in range(8)]
    assert places == [
        "highest of 8 (tied with one other)",
        "highest of 8 (tied with one other)",
        "3rd highest of 8",
        *["2nd lowest of 8 (tied with three others)"] * 4,
        "lowest of 8",
    ]


def test_a_comparison_says_which_largest_changes_are_tied() -> None:
    both: Any = SimpleNamespace(pair=SimpleNamespace(a=SimpleNamespace(name="self")))
    moves = DriftMeasure("weights", np.array([[0.1, 0.3001], [0.3004, np.nan]]), None, percent)
    (parts,) = moved_lead(both, [moves])
    text = "".join(part if isinstance(part, str) else part.text for part in parts)
    assert text.endswith("outputs: weights in L1·H0 (tied with L0·H1) by 30.0\u202f%.")
