"""Sentences of the page on how words travel, by numbers that support them and that do not."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from chosen_results import NO_ESTIMATES, fake_results
from headbook.analysis.accumulators import Estimates
from headbook.pages.parts.page import plain_text
from headbook.report import token_neighbours as module
from headbook.report.answers.geometry import (
    COSINE,
    HALF,
    KEPT,
    MIXING,
    RANK,
    cosine_title,
    identity_answer,
    kept_title,
    mixing_sentences,
    observations,
    own_title,
    rollout_title,
    word_classes,
)
from headbook.report.results import StackResults, stack_results
from headbook.report.token_neighbours import OwnTokens, own_tokens
from headbook.results.formats import whole_percent
from headbook.schema import EmbeddingSpace, ResidualPoint, Side, TokenKey
from headbook.study.sentence_data import SentenceData, StoredSentence, StoredText
from sites import Site

POST, MID = ResidualPoint.POST, ResidualPoint.MID
POSITIONAL = EmbeddingSpace.POSITIONAL


def estimates(values: list[float], half: float = 0.02) -> Estimates:
    """Values by layer with intervals of that half width."""
    value = np.array(values, float)
    ones = np.ones(len(values))
    return Estimates(
        value, value - half, value + half, ones.astype(int) * 40, ones * 100, ones * 40
    )


def with_shares(shares: dict[str, list[float]], half: float = 0.02, **tokens: Any) -> StackResults:
    """Results whose tokens are nearest to their own vocabulary token with these shares."""
    results = of_tokens(**tokens)
    by_class = {kind: estimates(values, half) for kind, values in shares.items()}
    results._made[module._own_tokens] = OwnTokens(POSITIONAL, by_class, 40)
    return results


def of_tokens(**numbers: Any) -> StackResults:
    """Results with averages over tokens: names are those of metrics, values by class of tokens."""
    columns = {}
    for name, by_class in numbers.items():
        state = MID if name == MIXING else POST
        space = POSITIONAL if name in {RANK, KEPT} else None
        for kind, values in by_class.items():
            columns[TokenKey(name, state, space, kind)] = (values, 0.01)
    return fake_results(NO_ESTIMATES, tokens=columns)


HIGH, LOW = [1.0, 0.9], [1.0, 0.5]
START = "after the last layer, "


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        (
            {"content": HIGH, "function": LOW, "punctuation": LOW},
            f"Content words do: {START}90\u202f% are still nearest to their own vocabulary token; "
            "function words and punctuation often are not.",
        ),
        (
            {"content": HIGH, "function": [1, 0.8], "punctuation": HIGH},
            f"Content words do: {START}90\u202f% are still nearest to their own vocabulary token; "
            "function words less often.",
        ),
        (
            {"content": HIGH, "function": HIGH, "punctuation": LOW},
            f"Most do: {START}90\u202f% of content words are still nearest to their own vocabulary "
            "token; punctuation less often.",
        ),
        (
            {"content": HIGH, "function": [1, 0.87]},
            f"Most do: {START}90\u202f% of content words are still nearest to their own vocabulary "
            "token.",
        ),
        (
            {"content": LOW, "function": [1, 0.3]},
            f"Some do: {START}50\u202f% of content words are still nearest to their own vocabulary "
            "token; function words less often.",
        ),
        (
            {"content": [1, 0.2]},
            f"Few do: {START}20\u202f% of content words are still nearest to their own vocabulary "
            "token.",
        ),
        (
            {"all": [0.1, 0.004]},
            f"Hardly any do: {START}<\u202f1\u202f% of all tokens are still nearest to their own "
            "vocabulary token.",
        ),
    ],
)
def test_the_answer_follows_from_shares_and_intervals(
    shares: dict[str, list[float]], expected: str
) -> None:
    found = plain_text(identity_answer(with_shares(shares)))
    assert found == expected
    assert len(found.split()) <= 30
    assert len(re.findall(r"\d+", found)) == 1


def test_without_intervals_classes_are_not_compared() -> None:
    shares = {"content": HIGH, "function": LOW}
    found = plain_text(identity_answer(with_shares(shares, half=math.nan)))
    assert found.startswith("Most do: after the last layer, 90\u202f% of content words")
    assert "function" not in found


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (
            {COSINE: {"all": [0.8, 0.3], "content": [0.9, 0.4]}},
            "Vocabulary tokens were not compared; after the last layer, content words have a "
            "cosine of 0.40 to their embedding.",
        ),
        (
            {COSINE: {"all": [0.8, 0.3]}},
            "Vocabulary tokens were not compared; after the last layer, all tokens have a cosine "
            "of 0.30 to their embedding.",
        ),
        (
            {HALF: {"all": [0.5, 0.25]}},
            "Vocabulary tokens were not compared; by attention rollout, 25\u202f% of a last state "
            "is its own input.",
        ),
        (
            {MIXING: {"all": [0.5, 0.25]}},
            "Vocabulary tokens were not compared; other tokens give 25\u202f% of the last "
            "attention block’s output.",
        ),
        ({}, "Not known here: only how similar the states of tokens are to each other."),
    ],
)
def test_without_ranks_the_answer_is_the_best_of_the_other_measures(
    numbers: dict[str, Any], expected: str
) -> None:
    assert plain_text(identity_answer(of_tokens(**numbers))) == expected


@pytest.mark.parametrize(
    ("values", "half", "expected"),
    [
        ([0.8, 0.6, 0.5, 0.45], 0.02, "They leave their embedding early"),
        ([0.98, 0.96, 0.8, 0.5], 0.02, "They leave their embedding late"),
        ([0.9, 0.5], 0.02, "They leave their embedding"),
        ([1.0, 1.0, 1.0, 0.99], 0.02, "How near they stay to their embedding"),
        ([0.8, 0.6, 0.5, 0.45], math.nan, "How near they stay to their embedding"),
    ],
)
def test_the_title_of_cosines(values: list[float], half: float, expected: str) -> None:
    assert cosine_title(estimates(values, half)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1, 0.95, 0.7], "Most stay nearest to themselves up to layer 2"),
        ([1, 0.7, 0.5, 0.4], "Most stay nearest to themselves up to layer 0"),
        ([1, 1, 0.99, 0.95], "Most stay nearest to themselves"),
        ([0.5, 0.4, 0.3, 0.2], "Many are not nearest to themselves"),
        ([1, 0.5, 0.95, 0.7], "How many are nearest to themselves"),
        ([1, math.nan, 0.95, 0.7], "How many are nearest to themselves"),
    ],
)
def test_the_title_of_own_tokens(values: list[float], expected: str) -> None:
    assert own_title(np.array(values), np.array([values])) == expected


@pytest.mark.parametrize(
    ("punctuation", "expected"),
    [
        ([1, 1, 0.95, 0.45], "Most stay nearest to themselves up to layer 2"),
        ([1, 0.8, 0.6, 0.45], "Most stay nearest to themselves up to layer 0"),
        ([0.8, 0.7, 0.6, 0.45], "How many are nearest to themselves"),
    ],
)
def test_the_title_of_own_tokens_holds_for_every_class(
    punctuation: list[float], expected: str
) -> None:
    shares = np.array([1, 1, 0.98, 0.95])
    assert own_title(shares, np.array([shares, punctuation])) == expected


@pytest.mark.parametrize(
    ("values", "half", "expected"),
    [
        ([0.7, 0.5], 0.02, "More neighbours are replaced at the end"),
        ([0.5, 0.7], 0.02, "Fewer neighbours are replaced at the end"),
        ([0.52, 0.5], 0.02, "How many neighbours stay"),
        ([0.7, 0.5], math.nan, "How many neighbours stay"),
    ],
)
def test_the_title_of_kept_neighbours(values: list[float], half: float, expected: str) -> None:
    assert kept_title(estimates(values, half)) == expected


def test_the_title_of_rollout_says_that_shares_fall_only_if_all_do() -> None:
    falling, rising = of_tokens(rollout_self={"all": [0.5, 0.3]}), of_tokens(
        rollout_self={"all": [0.3, 0.5]}
    )  # fmt: skip
    assert rollout_title(falling) == "A state is ever less its own input"
    assert rollout_title(rising) == "Share of its own input in a state"
    assert rollout_title(of_tokens()) == "Share of its own input in a state"


def test_function_and_content_words_differ_by_intervals_alone() -> None:
    def message(function: list[float], content: list[float]) -> list[str]:
        classes = {"all": [0.3, 0.2, 0.25], "function": function, "content": content}
        return [plain_text(each) for each in mixing_sentences(of_tokens(mixing_ratio=classes))]

    first, second = message([0.5, 0.1, 0.2], [0.2, 0.3, 0.2])
    assert first.startswith("Other tokens give 20.0\u202f% (layer 1) to 30.0\u202f% (layer 0);")
    assert second == (
        "Function words mix in more context than content words in one and less context than "
        "content words in one of 3 layers (95\u202f% intervals apart)."
    )
    assert "words in all 3 layers (95" in message([0.5, 0.5, 0.5], [0.2, 0.3, 0.2])[1]
    assert "do not clearly differ" in message([0.2, 0.2, 0.2], [0.2, 0.2, 0.2])[1]
    assert [*mixing_sentences(of_tokens())] == []


def test_observations_hold_or_not_by_their_numbers() -> None:
    def holds(**numbers: list[float]) -> list[bool]:
        found = of_tokens(**{name: {"all": values} for name, values in numbers.items()})
        return [each.holds for each in observations(found, POST)]

    assert holds(cosine_to_input=[0.7, 0.5, 0.45, 0.4]) == [True]
    assert holds(cosine_to_input=[0.95, 0.9, 0.6, 0.2]) == [False]
    assert holds(vocabulary_rank=[0.1, 0.1, 0.1, 0.9]) == [True]
    assert holds(vocabulary_rank=[0.1, 0.3, 0.6, 0.9]) == [False]
    assert holds(neighbour_overlap=[0.8, 0.4, 0.3, 0.7]) == [True]
    assert holds(neighbour_overlap=[0.8, 0.6, 0.4, 0.2]) == [False]
    assert holds(cosine_to_input=[0.7, 0.5]) == []  # too few layers to compare halves
    (found,) = observations(of_tokens(cosine_to_input={"all": [0.7, 0.5, 0.45, 0.4]}), POST)
    assert found.numbers == pytest.approx((0.25, 0.05), abs=1e-3)


def test_classes_of_words_are_drawn_only_with_annotation() -> None:
    assert word_classes(of_tokens(mixing_ratio={"all": [0.5], "content": [0.4]}))[0] == "content"
    assert word_classes(of_tokens(mixing_ratio={"all": [0.5]})) == ("all", "special")


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, "0\u202f%"), (0.001, "<\u202f1\u202f%"), (0.006, "1\u202f%"), (0.5, "50\u202f%"),
        (0.999, ">\u202f99\u202f%"), (1.0, "100\u202f%"), (math.nan, "–"),
    ],
)  # fmt: skip
def test_whole_shares_are_0_or_100_only_if_they_are(share: float, expected: str) -> None:
    assert whole_percent(share) == expected


def sentence(index: int, pieces: str, tags: str) -> StoredSentence:
    """A sentence between two special tokens, a word a token."""
    names, n = ("[CLS]", *pieces.split(), "[SEP]"), len(pieces.split())
    text = StoredText(
        text=pieces, pieces=names, spans=((0, 0),) * (n + 2), special=(True, *(False,) * n, True),
        words=(-1, *range(n), -1), tags=("", *tags.split(), ""), lost=0, generated=False,
    )  # fmt: skip
    return StoredSentence(index, "", {}, {Side.SOURCE: text}, listed=True)


def test_shares_of_own_tokens_are_counted_by_class() -> None:
    results = of_tokens(mixing_ratio={"all": [0.5, 0.5]})
    sentences = {n: sentence(n, "the cat sleeps .", "DET NOUN VERB PUNCT") for n in range(20)}
    ranks = {0: (0, 0, 0, 0, 0, 0), 1: (0, 7, 0, 1, 2, 0)}  # by layer, of each token
    rows = [
        {"sentence": n + 1, "position": position, "stack": "self", "layer": layer, "state": "out",
         "metric": RANK, "space": space, "value": rank if space == "positional" else 5}
        for n in sentences for layer in ranks for position, rank in enumerate(ranks[layer])
        for space in ("positional", "raw")
    ]  # fmt: skip
    data = SentenceData(sentences=sentences, tokens=pd.DataFrame(rows))
    found = own_tokens(StackResults(replace(results.study, sentence_data=data), results.stack))
    assert found is not None
    assert (found.space, found.sentences) == (POSITIONAL, 20)
    shares = {kind: each.value.tolist() for kind, each in found.shares.items()}
    assert shares == {
        "all": [1, 0.25], "content": [1, 0.5], "function": [1, 0], "punctuation": [1, 0],
        "special": [1, 1],
    }  # fmt: skip
    assert found.shares["all"].events.tolist() == [80, 80]


def test_shares_of_own_tokens_agree_with_plain_loops(encoder_site: Site) -> None:
    study = encoder_site.study
    found = own_tokens(stack_results(study)["self"])
    assert found is not None
    tokens = study.tokens[(study.tokens["metric"] == RANK) & (study.tokens["state"] == "out")]
    for layer in range(study.manifest.stacks[0].n_layers):
        own = counted = 0
        for row in tokens[tokens["layer"] == layer].to_dict("records"):
            text = study.sentence_data.sentences[row["sentence"] - 1].texts[Side.SOURCE]
            if row["space"] == found.space and not text.special[row["position"]]:
                own, counted = own + int(row["value"] == 0), counted + 1
        assert found.shares["all"].value[layer] == pytest.approx(own / counted)


def test_without_sentence_pages_there_are_no_shares() -> None:
    assert own_tokens(of_tokens()) is None
