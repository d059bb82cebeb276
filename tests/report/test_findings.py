"""Findings: what is said of a whole stack, of tokens and of twins, and how much of all that."""

import re

import numpy as np
import pytest

from chosen_results import NO_ESTIMATES, Fake, fake_results, finding_texts
from headbook.metrics import all_metrics
from headbook.report import findings
from headbook.report.findings import attention, findings_of, language, states
from headbook.report.results import StackResults
from headbook.report.trees import TREES
from headbook.schema import (
    Baseline,
    BaselineRun,
    EmbeddingSpace,
    HeadKey,
    ResidualPoint,
    SinkView,
    TokenKey,
)
from sites import Site

FIRST, SECOND = (BaselineRun(Baseline.UNTRAINED, seed) for seed in range(2))
DISTANCE = HeadKey("attention_distance", SinkView.RAW, "")
SHARE = HeadKey("sink_share", SinkView.RAW, "")
VARIABILITY = HeadKey("variability", SinkView.RAW, "")


def test_metrics_in_which_no_layer_differs_from_the_untrained_twin_are_listed() -> None:
    model = {
        DISTANCE: Fake([[5.0], [5.2]]),
        SHARE: Fake([[0.5], [0.1]]),
        VARIABILITY: Fake([[0.2]] * 2),
    }
    same = {
        DISTANCE: Fake([[4.0], [5.1]]),
        SHARE: Fake([[0.1], [0.1]]),
        VARIABILITY: Fake([[0.2]] * 2),
    }
    other = {
        DISTANCE: Fake([[6.0], [5.3]]),
        SHARE: Fake([[0.2], [0.1]]),
        VARIABILITY: Fake([[0.2]] * 2),
    }
    of = fake_results(model, baseline_runs={FIRST: same, SECOND: other})
    (text,) = finding_texts(attention.like_untrained, of)
    assert text == (
        "No clear difference from the same architecture with random weights (2 seeds), in any "
        "layer: attention distance, attention variability (sample of 40)."
    )
    one = fake_results({SHARE: Fake([[0.5], [0.1]])}, baseline_runs={FIRST: {SHARE: same[SHARE]}})
    assert not finding_texts(attention.like_untrained, one)
    assert not finding_texts(attention.like_untrained, fake_results(model))


def test_with_one_seed_the_band_is_the_interval_of_the_twin() -> None:
    def of(spread: float) -> list[str]:
        baseline_run = {DISTANCE: Fake([[5.5]], spread=spread)}
        model = {DISTANCE: Fake([[5.0]], spread=0.01)}
        return finding_texts(
            attention.like_untrained, fake_results(model, baseline_runs={FIRST: baseline_run})
        )

    assert of(5.0)
    assert not of(0.01)


def cosines(values: list[float], spread: float = 0.01) -> StackResults:
    column = TokenKey("cosine_to_input", ResidualPoint.POST, None, "all")
    return fake_results(NO_ESTIMATES, tokens={column: (values, spread)})


def test_tokens_drift_only_if_the_ends_are_apart() -> None:
    (text,) = finding_texts(states.drift_from_input, cosines([0.9, 0.7, 0.4]))
    assert "falls from 0.90 [" in text
    assert "] after layer 2." in text
    assert "rises" in finding_texts(states.drift_from_input, cosines([0.2, 0.4]))[0]
    (small,) = finding_texts(states.drift_from_input, cosines([-0.003, 0.4]))
    assert "rises from −0.003 [" in small
    assert not finding_texts(states.drift_from_input, cosines([0.9, 0.4], spread=3))
    assert not finding_texts(states.drift_from_input, cosines([0.9]))


def test_tokens_lose_their_own_word_only_if_the_last_interval_says_so() -> None:
    def of(values: list[float]) -> list[str]:
        column = TokenKey("vocabulary_rank", ResidualPoint.POST, EmbeddingSpace.RAW, "all")
        return finding_texts(
            states.own_word, fake_results(NO_ESTIMATES, tokens={column: (values, 0.01)})
        )

    (text,) = of([0.0, 0.1, 2.0])
    assert text.startswith("Up to layer 1, a typical token is nearest to its own vocabulary ")
    assert "others are nearer: 99.0 [" in text
    assert not of([0.0, 0.1, 0.2])
    assert not of([1.0, 1.0, 2.0])


def everything(stack: str = "self") -> StackResults:
    """A stack in which nearly every rule has something to say."""
    labels = {name: metric.labels for name, metric in all_metrics().items()}
    rising = np.linspace(0.05, 0.98, 12).reshape(4, 3)
    numbers = {
        HeadKey(name, view, label): Fake(rising + (name == "pos_received_ratio"), uniform=0.01)
        for name in (
            "attention_distance", "sink_share", "positional_argmax", "dependency_excess",
            "pos_received_ratio", "pos_received", "variability", "rare_word_focus",
            "induction_score", "duplicate_score", "previous_score", "attention_to",
            "dependency_alignment",
        )
        for view in SinkView
        for label in labels[name]
    }  # fmt: skip
    plain = TREES["phrase_trees"].plain
    trees = {"f1": rising} | dict.fromkeys(plain, 0.1 + 0 * rising)
    numbers |= {HeadKey("phrase_trees", SinkView.NOSINK, x): Fake(v) for x, v in trees.items()}
    return fake_results(numbers, stack=stack)


def test_general_findings_come_first() -> None:
    of = everything()
    rules = (*findings.GENERAL, *findings.SPECIAL)
    found = [finding.text for finding in findings_of(of)]
    assert found == [text for rule in rules for text in finding_texts(rule, of)]
    assert found[0] == finding_texts(attention.distance_trend, of)[0]
    assert found[1] == finding_texts(attention.sink_layers, of)[0]


def test_where_a_model_has_several_stacks_every_finding_names_its_own() -> None:
    for stack in ("encoder", "decoder", "cross"):
        for finding in findings_of(everything(stack)):
            assert stack in finding.text


@pytest.mark.parametrize("stack", ["self", "cross"])
def test_a_sentence_has_at_most_thirty_words_and_begins_with_none_of_its_numbers(
    stack: str,
) -> None:
    for finding in findings_of(everything(stack)):
        for sentence in re.split(r"(?<=[a-z\])%])[.] (?=[A-Z])", finding.text):
            assert len(sentence.split()) <= 30, sentence
            assert not sentence[0].isdigit()


def test_what_rests_on_few_observations_is_not_said() -> None:
    """Each half of the sentences must have ten that tell as much as each other."""
    column = HeadKey("dependency_alignment", SinkView.RAW, "either")
    for sentences, amount in ((18, 0), (20, 1)):
        of = fake_results({column: Fake([[0.9]])}, sentences=sentences)
        assert len(finding_texts(language.dependencies, of)) == amount


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert not findings_of(fake_results(NO_ESTIMATES))


def test_findings_of_a_site_have_numbers_intervals_and_pages(any_site: Site) -> None:
    for of in any_site.results.values():
        for finding in findings_of(of):
            assert re.search(r"\[.+, .+\]", finding.text)
            assert finding.sentences > 1
            for part in finding.parts:
                if not isinstance(part, str):
                    assert (any_site.folder / part.href).is_file()
