"""Exemplars of heads whose every word attends to the same words show a key that others favour."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from headbook.pages.parts.exemplars import received_pair, received_picture
from headbook.report.answers import received_attention
from headbook.report.answers.received_attention import (
    MIN_QUERIES,
    most_received,
    received_exemplars,
    strongest_received,
)
from headbook.report.facts.functions import HeadFunction
from headbook.report.results import StackResults
from headbook.report.wording import visible
from headbook.results.sentence import NOTHING
from headbook.study.sentence_data import UINT8_STEPS, Exemplar
from sites import Site


@pytest.fixture(scope="module")
def results(encoder_site: Site) -> StackResults:
    return encoder_site.results["self"]


def long_exemplar(results: StackResults) -> tuple[Exemplar, NDArray[np.intp]]:
    """Return an exemplar of a sentence with many words, and the positions of these."""
    data = results.study.sentence_data
    longest = max(data.exemplars, key=lambda each: each.attention.size)
    special = np.array(data.sentences[longest.index].texts[results.stack.keys].special)
    words = np.flatnonzero(~special)
    assert len(words) > MIN_QUERIES
    return longest, words


def with_weights(exemplar: Exemplar, weights: NDArray[np.float64]) -> Exemplar:
    return replace(exemplar, attention=np.rint(weights * UINT8_STEPS).astype(np.uint8))


def test_the_key_that_all_other_words_favour_is_named(results: StackResults) -> None:
    exemplar, words = long_exemplar(results)
    weights = np.zeros(exemplar.attention.shape)
    weights[:, 0] = 0.5  # of the sink
    weights[:, words[2]] = 0.4
    weights[words[2], words[2]] = 1.0  # of the key itself: does not count
    received = strongest_received(results, with_weights(exemplar, weights))
    assert received
    assert received.key == words[2]
    assert received.mean == pytest.approx(0.4)
    assert received.strongest == received.queries == len(words) - 1
    assert received.is_favoured
    assert received.weights[0] == 0


def test_words_that_attend_to_themselves_favour_no_key(results: StackResults) -> None:
    """Though the largest single weight is 1."""
    exemplar, _ = long_exemplar(results)
    selfish = with_weights(exemplar, np.eye(len(exemplar.attention)))
    assert not received_exemplars(results, [selfish])


def test_half_of_the_words_are_too_few(results: StackResults) -> None:
    exemplar, words = long_exemplar(results)
    half = (len(words) - 1) // 2
    for n_attending, favoured in ((half, False), (half + 1, True)):
        weights = np.zeros(exemplar.attention.shape)
        weights[words[:n_attending], words[-1]] = 0.9
        weights[words[n_attending:-1], words[:-1][n_attending:]] = 0.9
        found = received_exemplars(results, [with_weights(exemplar, weights)])
        assert bool(found) == favoured


def test_a_sentence_counts_once_and_the_largest_mean_comes_first(results: StackResults) -> None:
    exemplar, words = long_exemplar(results)
    others = [e for e in results.study.sentence_data.exemplars if e.index != exemplar.index]
    other = max(others, key=lambda each: each.attention.size)
    first, second = (np.zeros(each.attention.shape) for each in (exemplar, other))
    first[:, words[1]], second[:, 2] = 0.3, 0.6
    found = received_exemplars(
        results, [with_weights(exemplar, first), with_weights(exemplar, first),
                  with_weights(other, second)]
    )  # fmt: skip
    assert [each.exemplar.index for each in found] == [other.index, exemplar.index]


def test_in_causal_attention_only_later_words_count(decoder_site: Site) -> None:
    results = decoder_site.results["self"]
    exemplar, _ = long_exemplar(results)
    n = len(exemplar.attention)
    weights = np.tril(np.zeros((n, n)))
    weights[2:, 1] = 0.5
    received = strongest_received(results, with_weights(exemplar, weights))
    assert received
    assert (received.key, received.queries) == (1, n - 2)


def test_only_heads_of_that_function_have_a_sentence_that_shows_it(
    results: StackResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture of the sentence leaves out the sink, whose column would hide the others."""
    exemplar, words = long_exemplar(results)
    weights = np.zeros(exemplar.attention.shape)
    weights[:, words[2]] = 0.4
    favoured = with_weights(exemplar, weights)
    data = replace(results.study.sentence_data, exemplars=(favoured,))
    study = replace(results.study, sentence_data=data)
    for kind in ("same_keys", "even"):
        own = StackResults(study, results.stack)
        function = HeadFunction(exemplar.head, kind, "", NOTHING, None)
        by_head = {exemplar.head: function}
        monkeypatch.setattr(received_attention, "functions_of", lambda _, known=by_head: known)
        assert [*most_received(own)] == ([exemplar.head] if kind == "same_keys" else [])
    received = strongest_received(results, favoured)
    assert received
    piece = data.sentences[exemplar.index].texts[results.stack.keys].pieces[words[2]]
    assert received_pair(results, received) == f"other words → {visible(piece)}"
    weights[:, 0] = 0.6  # of the sink
    with_sink = strongest_received(results, with_weights(exemplar, weights))
    assert with_sink
    assert received_picture(results, with_sink) == received_picture(results, received)
