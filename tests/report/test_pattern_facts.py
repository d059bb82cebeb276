"""Facts on sinks and the diagonal: each rule with numbers for and against."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablation_results import ablation_results, around
from block_parts import every
from chosen_results import SENTENCES, Fake, fake_results
from headbook.charts.plots import PlotMark
from headbook.charts.sinks import change_plot, change_rows
from headbook.metrics.patterns.type_shares import EVEN, PARTS
from headbook.report.answers.overview.stripes import (
    ACROSS,
    main_stripes,
    striped_outputs,
    stripes_answer,
    stripes_matter,
)
from headbook.report.facts.outputs import OUTPUTS
from headbook.report.facts.patterns import (
    SELF,
    diagonal,
    not_measured,
)
from headbook.report.facts.sinks import (
    SINK,
    SINK_OUTPUT,
    dead,
    masked_note,
    random_sets_note,
    sink_answer,
    sink_heads,
    sink_threshold,
)
from headbook.report.facts.stripes import striped_together
from headbook.report.results import StackResults
from headbook.results.fact import Fact
from headbook.results.formats import interval_text
from headbook.results.number import Number
from headbook.results.sentence import Sentence
from headbook.schema import HeadKey, SinkView
from headbook.study.ablation.results import AblationResults
from headbook.study.ablation_tables import HEAD_GROUPS

SINKS = [[0.8, 0.6, 0.1, 0.2]]
TOKENS = "[CLS] … [SEP]"


def results_of(
    numbers: Mapping[HeadKey, Fake],
    *,
    causal: bool = False,
    tokens: str = TOKENS,
    sentences: int = SENTENCES,
) -> StackResults:
    """Results of a stack whose model has special tokens."""
    found = fake_results(numbers, causal=causal, sentences=sentences)
    manifest = found.study.manifest
    model = replace(manifest.model, special_tokens=tokens)
    return StackResults(replace(found.study, manifest=replace(manifest, model=model)), found.stack)


def sinks(output: Any = None, share: Any = None, **named: Any) -> StackResults:
    """Return a stack with shares of attention on the sink, and of the output from there."""
    numbers = {SINK: Fake(SINKS if share is None else share, uniform=0.1)}
    if output is not None:
        numbers[SINK_OUTPUT] = Fake(output)
    return results_of(numbers, **named)


def numbers(found: Fact | Sentence) -> list[Number]:
    """Return the numbers in the text of a fact, which is short."""
    text = found.text if isinstance(found, Fact) else found
    assert isinstance(text, Sentence)
    assert len(text.text.split()) <= 30, text.text
    return every(Number, text)


@pytest.mark.parametrize(
    ("output", "part", "values"),
    [
        ([[0.1, 0.2, 0.1, 0.1]], "yet mostly only a small part", [0.1, 0.2]),
        # Below the attention, but not below its half, in both heads; then only in one of them.
        ([[0.6, 0.4, 0.1, 0.1]], "in 2 of them, a smaller part", []),
        ([[0.1, 0.6, 0.1, 0.1]], "and no smaller part", []),
        (None, "attend mostly to [CLS] and [SEP].", []),
    ],
)
def test_the_answer_on_sinks_follows_their_part_of_the_output(
    output: Any, part: str, values: list[float]
) -> None:
    fact = sink_answer(sinks(output))
    assert fact.holds
    assert [(head.layer, head.head) for head in fact.heads] == [(0, 0), (0, 1)]
    assert part in fact.text.text
    assert [number.value for number in numbers(fact)] == pytest.approx(values)


def test_without_sink_heads_the_largest_share_is_named_with_its_row() -> None:
    assert len(sink_answer(sinks(share=[[0.8, 0.3, 0.1, 0.2]])).heads) == 1
    # A share of 0.54 is more than half, but not halfway from 0.1 to 1.
    fact = sink_answer(sinks(share=[[0.2, 0.54, 0.1, math.nan]]))
    assert not fact.holds
    assert not fact.heads
    (largest,) = numbers(fact)
    assert largest.value == pytest.approx(0.54)
    assert largest.row.table == "heads"
    assert dict(largest.row.key) == {
        "stack": "self", "layer": 0, "head": 1, "metric": "sink_share", "view": "raw", "label": "",
    }  # fmt: skip
    tied = sink_answer(sinks(share=[[0.2, 0.2, 0.1, 0.1]])).text.text
    assert "alike: L0·H1" in tied


def test_the_answer_names_the_sink_of_the_model() -> None:
    assert "to the first token." in sink_answer(sinks(causal=True, tokens="")).text.text
    long = sinks([[0.1, 0.2, 0.1, 0.1]], causal=True, tokens="<s> … </s>")
    assert "the first token, <s> and </s>" in sink_answer(long).text.text


def test_sink_heads_are_those_halfway_above_uniform_attention() -> None:
    found = sinks(share=[[0.56, 0.54, 0.9, 0.2]])
    assert sink_threshold(0.1) == pytest.approx(0.55)
    assert sink_heads(found) == [(0, 2), (0, 0)]
    assert math.isnan(sink_threshold(0.96))


# Sink heads that were replaced: together, and one at a time.


def together(mean: str, masked: str, zero: str = "", **more: float) -> pd.DataFrame:
    """Return rows of the group of sink heads with these verdicts; 60 sentences."""
    changed = {"changes": 0.9, "no_change": 0.05, "undecided": 0.2}
    rows = []
    verdicts = {"mean": mean, "without_sink": masked, "zero": zero}
    for replacement, verdict in verdicts.items():
        if verdict:
            numbers = dict.fromkeys(HEAD_GROUPS.columns, math.nan) | {"value": 1.0} | more
            rows.append(numbers | {
                "stack": "self", "group": "sink", "heads": 2, "metric": "group_effect",
                "replacement": replacement, "target": "loss", "n_sentences": 60,
                "share_changed": changed[verdict], "verdict": verdict, "random_sets": 20,
            })  # fmt: skip
    return pd.DataFrame(rows, columns=[*HEAD_GROUPS.columns])


def replaced(
    ablation: AblationResults | None, groups: pd.DataFrame | None, monkeypatch: pytest.MonkeyPatch
) -> StackResults:
    """Return a stack with two sink heads and these ablations."""
    found = sinks()
    study = replace(found.study, corpus_sums=replace(found.study.corpus_sums, ablation=ablation))
    rows = pd.DataFrame(columns=[*HEAD_GROUPS.columns]) if groups is None else groups
    monkeypatch.setattr(type(study), "head_groups", rows)
    return StackResults(study, found.stack)


def effects(*means: float) -> AblationResults:
    return ablation_results(around(*means, spread=0.003))


@pytest.mark.parametrize(
    ("groups", "verdict", "changed"),
    [
        (together("changes", "no_change"), "No: ", 54),
        (together("changes", "changes"), "No: ", 54),
        (together("changes", "undecided"), "No: ", 54),
        (together("no_change", "no_change", "no_change", random_low=0.5, random_high=1.5),
         "Yes: ", 3),
        (together("no_change", "no_change", "changes", random_low=0.1, random_high=0.5),
         "Only their mean matters: ", 3),
    ],
)  # fmt: skip
def test_all_sink_heads_together_decide(
    groups: pd.DataFrame, verdict: str, changed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = dead(replaced(effects(0.05, 0.0, 0.0, 0.0), groups, monkeypatch))
    assert fact.text.text.startswith(verdict)
    (number,) = numbers(fact)
    assert number.as_text() == f"{changed} of 60 sentences"
    assert (number.row.table, dict(number.row.key)["replacement"]) == ("head_groups", "mean")


@pytest.mark.parametrize(
    ("means", "groups", "parts"),
    [
        ((0.05, 0.0), None, ("No: one of 2 sink heads", " changes ")),
        ((0.05, 0.05), None, ("No: two of 2 sink heads", " change ")),
        ((0.0, 0.0, 0.05), None, ("Not known: two of 2", "all together were not replaced.")),
        ((0.0, 0.0), together("undecided", "no_change"),
         ("Not known: two of 2", "all together have no verdict.")),
        ((0.0075, 0.0075), together("no_change", "no_change"), ("Not known: of 2", "none has")),
    ],
)  # fmt: skip
def test_without_a_verdict_on_all_single_heads_answer(
    means: tuple[float, ...], groups: pd.DataFrame | None, parts: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fact = dead(replaced(effects(*means), groups, monkeypatch))
    assert numbers(fact) == []
    assert all(part in fact.text.text for part in parts)


def test_too_few_sentences_for_a_verdict_have_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares without a margin, and ranks without values, are NaN."""
    groups = together("undecided", "undecided").assign(
        verdict="", share_changed=math.nan, rank=math.nan
    )
    found = replaced(effects(0.0, 0.0), groups, monkeypatch)
    assert "all together have no verdict" in dead(found).text.text
    assert not masked_note(found)
    assert not random_sets_note(found)


def test_the_sink_is_named_if_its_estimates_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = effects(0.05, 0.0)
    key = ablation.columns[0]
    for guess, small in ((0.001, True), (0.05, False)):
        masked = replace(
            ablation_results(around(0.05, 0.0, spread=0.003), guess=np.array([guess, 0.0])),
            columns=(key._replace(replacement="without_sink"),),
        )
        text = dead(replaced(masked, None, monkeypatch)).text.text
        assert ("hardly through [CLS] and [SEP]" in text) == small


def test_no_question_without_ablation_or_sink_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replaced(None, None, monkeypatch)
    none = sinks(share=[[0.2, 0.1, 0.1, 0.1]])
    for each, is_open in ((found, True), (none, False)):
        assert not dead(each).holds
        assert not dead(each).text
        assert any("--importance auto" in text for text in not_measured(each)) == is_open


@pytest.mark.parametrize(
    ("rank", "sets", "parts", "p"),
    [
        (21, 20, ("No: ", "less than without any of 20 random sets."), "0.10"),
        (101, 100, ("No, but they matter less", "without any of 100 random sets."), "0.02"),
        (1, 100, ("No, and they matter more", "without any of 100 random sets."), "0.02"),
        (4, 20, ("No: ", "54 of 60 sentences change."), "4th"),
    ],
)
def test_random_sets_are_compared_by_rank(
    rank: int, sets: int, parts: tuple[str, str], p: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That sink heads matter less than others is said only if enough sets lie above them."""
    groups = together("changes", "no_change", rank=rank).assign(random_sets=sets)
    found = replaced(effects(0.0, 0.0), groups, monkeypatch)
    text = dead(found).text.text
    assert text.startswith(parts[0])
    assert text.endswith(parts[1])
    note = random_sets_note(found)
    assert [number.as_text() for number in numbers(note)] == [p]
    assert ("too few sets" in note.text) == (p == "0.10")
    assert [n.as_text() for n in numbers(masked_note(found))] == ["3 of 60 sentences"]
    without = replaced(effects(0.0, 0.0), None, monkeypatch)
    assert not random_sets_note(without)
    assert not masked_note(without)


# Key-driven heads.


def striped(
    columns: Any,
    verdicts: AblationResults | None = None,
    more: Mapping[HeadKey, Fake] | None = None,
) -> StackResults:
    """Return a stack by the parts of its heads' attention that the key does not explain."""
    shape = np.shape(columns)
    shares = {name: Fake(np.zeros(shape)) for name in (*PARTS, "same_token", "left_out")}
    shares["after"] = Fake(np.ones(shape))
    shares |= {EVEN[name]: Fake(np.full(shape, 0.05)) for name in (*PARTS, "same_token")}
    numbers = {
        SINK: Fake(np.full(shape, 0.1), uniform=0.1),
        HeadKey("relative_entropy", SinkView.RENORM, ""): Fake(np.full(shape, 0.5)),
        HeadKey("attention_parts", SinkView.RENORM, "key"): Fake(1 - np.array(columns)),
        **{HeadKey("type_shares", SinkView.RENORM, name): fake for name, fake in shares.items()},
    }
    found = results_of(numbers | {**(more or {})}, sentences=400)
    sums = replace(found.study.corpus_sums, ablation=verdicts)
    return StackResults(replace(found.study, corpus_sums=sums), found.stack)


def test_key_driven_heads_are_counted_by_layer() -> None:
    all_in_one = striped([[0.9, 0.9], [0.05, 0.1]])
    assert stripes_answer(all_in_one).text == (
        "Of 4 heads, 2 are key-driven: every query attends to the same few words. All are in layer "
        "1."
    )
    assert main_stripes(all_in_one) == [(1, 0), (1, 1)]
    spread = striped([[0.05, 0.9, 0.9], [0.05, 0.1, 0.9]])
    assert stripes_answer(spread).text.endswith(" Two are in layer 1.")
    one = striped([[0.05, 0.9]])
    assert stripes_answer(one).text == (
        "Of 2 heads, 1 is key-driven: every query attends to the same few words. It is in layer 0."
    )
    none = striped([[0.9, 0.9]])
    assert stripes_answer(none).text.startswith("From [CLS] and [SEP]: with them masked, no head")
    assert main_stripes(none) == []
    assert not stripes_matter(none)
    assert not stripes_answer(sinks())


@pytest.mark.parametrize(
    ("columns", "means", "wanted"),
    [
        ((0.05, 0.05), (0.05, 0.05),
         "In layer 0, 2 of 2 of these heads change the output when replaced alone; no other head "
         "of the layer was replaced."),
        ((0.05, 0.05), (0.05, 0.0),
         "In layer 0, 1 of 2 of these heads change the output when replaced alone; no other head "
         "of the layer was replaced."),
        ((0.05, 0.9), (0.05, 0.05),
         "In layer 0 nearly every head counts, striped or not: replaced alone, 1 of 1 of these "
         "and 1 of 1 others change the output."),
        ((0.05, 0.9), (0.05, 0.0),
         "In layer 0, 1 of 1 of these heads changes the output when replaced alone, and 0 of 1 "
         "others."),
        ((0.05, 0.05), (0.0, 0.0),
         "Replaced alone, each of the two can go; all together were not tested."),
        ((0.05, 0.05), (0.0075, 0.0),
         "Whether they matter is not known: of two replaced alone, none surely changes the "
         "output."),
        ((0.05, 0.05), None, ""),
    ],
)  # fmt: skip
def test_whether_key_driven_heads_matter_is_said_beside_other_heads_of_their_layer(
    columns: tuple[float, ...], means: tuple[float, ...] | None, wanted: str
) -> None:
    found = striped([columns], None if means is None else effects(*means))
    assert stripes_matter(found).text == wanted


@pytest.mark.parametrize(
    ("verdict", "sets", "rank", "holds", "clear"),
    [
        ("changes", 100, 1, True, True),
        ("changes", 20, 1, True, False),
        ("no_change", 100, 101, False, True),
        ("undecided", 100, 50, False, False),
    ],
)
def test_striped_heads_are_replaced_together_beside_matched_sets(
    *,
    verdict: str, sets: int, rank: int, holds: bool, clear: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    rows = together(verdict, "", random_low=0.5, random_high=1.5, rank=rank).assign(
        group="same_keys", random_sets=sets
    )
    found = replaced(effects(0.0, 0.0, 0.0, 0.0), rows, monkeypatch)
    fact = striped_together(found)
    assert fact.holds == holds
    (number,) = numbers(fact)
    assert (number.value, number.row.table) == (1.0, "head_groups")
    assert dict(number.row.key)["group"] == "same_keys"
    above = sets - rank + 1
    count = max(above, sets - above)
    assert f"{'all ' if count == sets else ''}{count} " in fact.text.text
    assert ("not clear" in fact.text.text) != clear


@pytest.mark.parametrize(
    ("within", "across", "holds", "part"),
    [
        (0.9, 0.1, True, "alike for words of one sentence"),
        (0.9, 0.8, True, "more alike for words of one sentence"),
        (0.3, 0.1, True, "more alike for words of one sentence"),
        (0.9, 0.9, False, "is not clear"),
        (0.5, 0.9, False, "is not clear"),
    ],
)
def test_outputs_of_striped_heads_are_compared_between_sentences(
    *, within: float, across: float, holds: bool, part: str
) -> None:
    """Two heads of layer 1 are striped; their numbers are means of both heads, with intervals."""
    found = striped(
        [[0.9, 0.9, 0.9], [0.05, 0.1, 0.9]],
        more={
            OUTPUTS: Fake([[0.2] * 3, [within - 0.02, within + 0.02, 0.2]], spread=0.05),
            ACROSS: Fake([[0.5] * 3, [across + 0.04, across - 0.04, 0.5]], spread=0.05),
        },
    )
    fact = striped_outputs(found)
    of_text, of_others = numbers(fact)
    assert of_text.value == pytest.approx(within)
    assert of_others.value == pytest.approx(across)
    assert fact.holds == holds
    assert part in fact.text.text
    assert [number.row for number in (of_text, of_others)] == [row.row for row in fact.evidence]
    row = fact.evidence[1].columns
    assert row["difference"] == pytest.approx(across - within)
    assert row["difference_low"] == pytest.approx(of_others.low - of_text.high)
    assert row["difference_high"] - row["difference"] > of_others.high - of_others.value
    assert (row["layer"], row["metric"]) == (1, "output_anisotropy")


def test_nothing_is_said_of_outputs_without_striped_heads_or_without_both_numbers() -> None:
    alike = Fake([[0.9, 0.9]])
    assert not striped_outputs(striped([[0.9, 0.9]], more={OUTPUTS: alike, ACROSS: alike})).text
    assert not striped_outputs(striped([[0.05, 0.1]], more={OUTPUTS: alike})).text


def test_without_ablation_or_with_one_striped_head_nothing_is_said_of_them_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = together("changes", "").assign(group="same_keys", heads=1)
    for ablation, groups in ((None, None), (effects(0.0), None), (effects(0.0), rows)):
        assert not striped_together(replaced(ablation, groups, monkeypatch)).text


def test_the_chart_of_changes_has_all_heads_together_before_single_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values are per cent of the loss, 2.0, and each mark leads to the row of its value."""
    groups = together("changes", "no_change").assign(value=[0.08, 0.002], low=0.001, high=0.1)
    found = replaced(effects(0.01, 0.05, 0.2), groups, monkeypatch)
    rows = change_rows(found)
    assert [*rows["heads"]] == ["all", "L0·H1", "L0·H0"]
    np.testing.assert_allclose(rows["change"], [4.0, 2.5, 0.5])
    np.testing.assert_allclose(rows["sink_masked"], [0.1, math.nan, math.nan])
    assert {*rows["change_method"]} == {"exact"}
    plot = change_plot(found, "name", "caption")
    assert plot.rows.equals(rows)
    linked = [mark for mark in plot.marks if isinstance(mark, PlotMark)]
    assert [mark.label for mark in linked] == [
        "Change without all sink heads together: 4.00 % of the loss [0.05, 5.00]",
        "Change with only the sink masked in all sink heads together: 0.10 % of the loss "
        "[0.05, 5.00]",
        f"Change without L0·H1: 2.50 % of the loss {interval(rows, 1)}",
        f"Change without L0·H0: 0.50 % of the loss {interval(rows, 2)}",
    ]
    table = found.study.importance.query("metric == 'ablation_effect' and replacement == 'mean'")
    wanted = 50 * table.set_index("head")["value"].loc[[1, 0]]
    np.testing.assert_allclose(rows["change"][1:], wanted)


def interval(rows: pd.DataFrame, line: int) -> str:
    return interval_text(rows["change_low"][line], rows["change_high"][line])


def test_a_change_of_nothing_is_drawn_at_the_lower_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    plot = change_plot(replaced(effects(0.0, -0.05), None, monkeypatch), "name", "caption")
    heights = [mark.y for mark in plot.marks if isinstance(mark, PlotMark)]
    assert [*heights] == [pytest.approx(plot.height - 40)] * 2


# The diagonal.


@pytest.mark.parametrize(("share", "holds"), [(0.15, False), (0.8, True)])
def test_the_diagonal_by_the_largest_share_of_the_token_itself(share: float, holds: bool) -> None:
    fact = diagonal(results_of({SELF: Fake([[0.1, share, 0.02]])}))
    assert fact.holds == holds
    (number,) = numbers(fact)
    assert number.value == pytest.approx(share)
    assert (number.place("layer"), number.place("head")) == (0, 1)
    assert not diagonal(results_of({SINK: Fake(SINKS)})).text
