"""Findings about language: sentences that their numbers support, and none otherwise."""

from dataclasses import replace
from typing import Any

import pytest

from chosen_relations import chosen_tests
from chosen_results import NO_ESTIMATES, Fake, fake_results, finding_texts
from headbook.metrics.base import Source
from headbook.report import trees
from headbook.report.findings import findings_of, language
from headbook.report.findings.language import relations
from headbook.report.relation_tests import RelationTests
from headbook.report.results import StackResults
from headbook.schema import HeadKey, SinkView

NAN = float("nan")
EXCESS = HeadKey("dependency_excess", SinkView.NOSINK, "")
RARE = HeadKey("rare_word_focus", SinkView.NOSINK, "")


def test_a_part_of_speech_is_preferred_only_above_chance() -> None:
    def of(top: float) -> StackResults:
        ratios = {"NOUN": [[0.9, 1.4]], "VERB": [[top, 0.7]]}
        return fake_results(
            {HeadKey("pos_received_ratio", SinkView.RENORM, t): Fake(v) for t, v in ratios.items()}
            | {HeadKey("pos_received", SinkView.RENORM, t): Fake([[0.2, 0.3]]) for t in ratios}
            | {HeadKey("sink_share", SinkView.RAW, ""): Fake([[0.6, 0.3]], 0.1)}
        )

    (text,) = finding_texts(language.parts_of_speech, of(2.5))
    assert text.startswith("L0·H0 attends most to verbs (VERB): 20.0")
    assert "of its attention outside the sink, 2.50 times [" in text
    assert text.endswith("uniform attention (sink: 60.0\u202f%).")
    (text,) = finding_texts(language.parts_of_speech, of(0.5))
    assert "L0·H1 attends most to nouns (NOUN)" in text
    assert text.endswith("uniform attention (sink: 30.0\u202f%).")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language, "MIN_SENTENCES", 1_000)
        assert not finding_texts(language.parts_of_speech, of(2.5))  # too few have it
    low = Fake([[0.9, 1.0]])
    assert not finding_texts(
        language.parts_of_speech,
        fake_results({HeadKey("pos_received_ratio", SinkView.RENORM, "NOUN"): low}),
    )


def test_dependencies_are_followed_only_above_uniform_attention() -> None:
    column = HeadKey("dependency_alignment", SinkView.RAW, "either")
    near = {
        HeadKey("attention_to", SinkView.RAW, label): Fake([[0.1, share]])
        for label, share in (("previous", 0.5), ("next", 0.2))
    }
    numbers = {column: Fake([[0.2, 0.4]], uniform=0.1), **near}
    (text,) = finding_texts(language.dependencies, fake_results(numbers))
    assert text.startswith("L0·H1 gives most attention along dependencies: 40.0")
    assert text.endswith("where most dependencies are, receive 70.0\u202f%.")
    numbers = {column: Fake([[0.2, 0.4]], uniform=0.4)}
    assert not finding_texts(language.dependencies, fake_results(numbers))


def test_syntax_beyond_distance_is_claimed_only_above_nothing() -> None:
    fake = Fake([[0.01, 0.08]])
    (finding,) = language.beyond_distance(fake_results({EXCESS: fake}))
    assert finding.text.startswith("L0·H1 aligns most with dependencies: +8.0 points [")
    assert finding.source is Source.SAMPLE
    for changed in (replace(fake, spread=1.0), replace(fake, second=[[0.0, -0.05]])):
        assert not finding_texts(language.beyond_distance, fake_results({EXCESS: changed}))


TREES = [
    (language.phrase_trees, "phrase_trees", "f1", "right_branching", "right-branching trees"),
    (language.phrase_trees, "phrase_trees", "f1", "balanced", "balanced trees"),
    (language.dependency_trees, "dependency_trees", "uas", "chain", "linking neighbours"),
]


@pytest.mark.parametrize(("rule", "metric", "label", "baseline", "name"), TREES)
def test_trees_beat_their_baseline_or_do_not_or_nothing_is_said(
    rule: Any, metric: str, label: str, baseline: str, name: str
) -> None:
    def of(heads: list[float], spread: float = 0.01) -> list[str]:
        numbers = {tree: Fake([[0.25, 0.25]], spread=0.01) for tree in trees.TREES[metric].plain}
        numbers |= {
            label: Fake([heads], spread=spread),
            baseline: Fake([[0.4, 0.4]], spread=spread),
        }
        columns = {HeadKey(metric, SinkView.NOSINK, x): fake for x, fake in numbers.items()}
        return finding_texts(rule, fake_results(columns))

    (above,) = of([0.3, 0.5])
    assert " induced from L0·H1 reach " in above
    assert f"; {name}: 40.0" in above
    (below,) = of([0.3, 0.2])
    assert below.startswith(f"No head beats {name} in ")
    assert "the best, L0·H0: " in below
    assert not of([0.3, 0.4])
    assert not of([0.3, 0.5], spread=0.5)
    assert not of([0.3, 0.2], spread=0.5)


def test_the_rarest_word_is_looked_at_only_above_chance() -> None:
    (text,) = finding_texts(
        language.rare_words, fake_results({RARE: Fake([[0.1, 0.3]], uniform=0.08)})
    )
    assert text.startswith("In L0·H1, the rarest word of the sentence is the strongest key of 30.0")
    assert text.endswith("(random choice: 8.0\u202f%).")
    for fake in (Fake([[0.1, 0.3]], uniform=0.3), Fake([[0.3]], uniform=0.1, spread=3)):
        assert not finding_texts(language.rare_words, fake_results({RARE: fake}))


LABELS, HEADS = ("obj:to_head", "nsubj:to_dependent"), ((0, 1), (1, 0))


def outcomes(margins: list[float], p: list[float], **more: Any) -> RelationTests:
    """Two relations with their best heads."""
    return chosen_tests(LABELS, HEADS, [0.9, 0.8], margins, p, **more)


def test_the_relation_is_named_that_beat_its_rule_most_on_the_choice_half() -> None:
    """Not the one with the largest reported margin."""
    of = fake_results(NO_ESTIMATES)
    tests = outcomes([0.6, 0.5], [0.001, 0.0005], chosen=[0.4, 0.5])
    (finding,) = relations(of, tests)
    assert finding.text.startswith("In two of 2 pairs of relation and direction, a head beats ")
    assert "and does more than prefer a class of words. L1·H0" in finding.text
    assert "L1·H0 attends from a verb to its subject in 80.0" in finding.text
    assert "+50.0 points [+40.0, +60.0] over the best surface rule (the next noun" in finding.text
    assert finding.text.endswith("p < 0.001 family-wise.")
    assert finding.behind == "40 sentences of a sample of 100"
    assert findings_of(of, tests) == [finding]


@pytest.mark.parametrize(
    ("margins", "p", "more"),
    [([0.4, 0.5], [0.06, 0.2], {}), ([0.05, 0.0], [0.01, 0.01], {}),
     ([0.4, 0.5], [NAN, NAN], {}), ([0.4, 0.5], [0.001, 0.001], {"effective": 9}),
     ([0.4, 0.5], [0.001, 0.001], {"preference": [0.05, 0.0]}),
     ([0.4, 0.5], [0.001, 0.001], {"others": 29})],
)  # fmt: skip
def test_a_relation_needs_a_small_p_margins_above_nothing_and_enough_words(
    margins: list[float], p: list[float], more: dict[str, Any]
) -> None:
    """A margin over the rule, and a preference for the right class of words in the relation."""
    assert not [*relations(fake_results(NO_ESTIMATES), outcomes(margins, p, **more))]
