"""Answers on parts of speech: each rule with numbers that support it and numbers that do not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from headbook.report.answers.speech import best_head, speech_answer, word_class

from chosen_results import Fake, fake_results
from headbook.report.findings.finding import Parts
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults
from headbook.schema import HeadKey, SinkView

MAX_WORDS = 30


def results(
    ratios: Mapping[str, Any],
    *,
    words: Mapping[str, int] | None = None,
    spread: float = 0.01,
    second: Mapping[str, Any] | None = None,
    stack: str = "self",
) -> StackResults:
    """Ratios by layer of words of some tags; both heads of a layer have the same."""
    counts = dict.fromkeys(ratios, 40) | dict(words or {})
    numbers = {}
    for tag, values in ratios.items():
        heads, later = (
            np.repeat(np.array(each, float)[:, None], 2, axis=1)
            for each in (values, (second or {}).get(tag, values))
        )
        ratio, share = (
            HeadKey(metric, SinkView.RENORM, tag)
            for metric in ("pos_received_ratio", "pos_received")
        )
        numbers[ratio] = Fake(heads, spread=spread, second=later)
        numbers[share] = Fake(heads / 10)
    return with_words(fake_results(numbers, stack=stack), counts)


def with_words(found: StackResults, counts: Mapping[str, int]) -> StackResults:
    """The results of a study whose texts have so many words of each tag."""
    manifest = found.study.manifest
    tags = {f"source.tag.{tag}": n for tag, n in counts.items()}
    changed = replace(manifest, counts={**manifest.counts, **tags})
    return StackResults(replace(found.study, manifest=changed), found.stack)


def answer(found: StackResults) -> str:
    text = words_of(speech_answer(found))
    assert len(text.split()) <= MAX_WORDS
    assert text.endswith(".")
    return text


def words_of(parts: Parts) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def test_the_kind_with_the_largest_ratio_is_named_with_its_layer() -> None:
    found = results({"NOUN": [1.2, 1.1, 1.7], "VERB": [1.0, 1.3, 0.9], "DET": [0.5, 0.6, 0.7]})
    assert answer(found) == (
        "Nouns, in the last layer: they receive 1.70 times what uniform attention would give them."
    )
    (number,) = [part for part in speech_answer(found) if isinstance(part, LinkedNumber)]
    assert (number.text, number.table) == ("1.70 times", "layers")
    assert dict(number.row) == {
        "stack": "self", "layer": 2, "metric": "pos_received_ratio", "view": "renorm",
        "label": "NOUN",
    }  # fmt: skip


def test_layers_are_named_by_their_place() -> None:
    assert answer(results({"ADV": [1.5, 1.0, 1.0]})).startswith("Adverbs, in the first layer: ")
    assert answer(results({"ADV": [1.0, 1.5, 1.0]})).startswith("Adverbs, in layer 1: ")
    assert answer(results({"ADV": [1.5]})).startswith("Adverbs: they receive 1.50 times")
    encoder = results({"ADV": [1.0, 1.5]}, stack="encoder")
    assert answer(encoder).startswith("Adverbs, in the last layer of the encoder: ")


def test_the_kind_is_chosen_on_one_half_of_the_sentences() -> None:
    """The printed number is that of all, as in the figure."""
    found = results(
        {"NOUN": [1.0, 1.6], "VERB": [1.0, 1.5]}, second={"NOUN": [1.0, 1.2], "VERB": [1.0, 2.5]}
    )
    assert answer(found).startswith("Nouns, in the last layer: they receive 1.40 times")


def test_kinds_of_few_words_are_not_named() -> None:
    ratios = {"NOUN": [1.0, 1.3], "INTJ": [1.0, 4.0]}
    assert answer(results(ratios, words={"INTJ": 29})).startswith("Nouns, ")
    assert answer(results(ratios, words={"INTJ": 30})).startswith("Interjections, ")
    few = results(ratios, words={"INTJ": 3, "NOUN": 2})
    assert answer(few) == "Not known: no part of speech has 30 words."


def test_nothing_is_claimed_where_no_interval_clears_uniform_attention() -> None:
    wide = results({"NOUN": [1.0, 1.3], "DET": [0.5, 0.6]}, spread=4)
    assert answer(wide) == (
        "No kind of word clearly receives more than uniform attention would give it; the most: "
        "1.30 times as much (nouns, in the last layer)."
    )
    below = results({"NOUN": [0.9, 0.95], "DET": [0.5, 0.6]})
    assert answer(below).startswith("No kind of word clearly receives more ")


def test_what_was_not_measured_is_not_answered() -> None:
    lacking = results({"NOUN": [1.0, 1.3]}, words={"NOUN": 0})
    assert answer(lacking) == "Not measured here: the texts have no parts of speech."


def test_the_head_of_a_kind_is_chosen_on_one_half() -> None:
    heads = np.array([[1.0, 2.0], [1.5, 1.0]])
    name = HeadKey("pos_received_ratio", SinkView.RENORM, "NOUN")
    found = fake_results({name: Fake(heads, second=heads[::-1])})
    assert best_head(with_words(found, {"NOUN": 40}), "NOUN") == (0, 1)
    assert best_head(found, "NOUN") is None


def test_classes_of_words_follow_their_tags() -> None:
    assert [word_class(tag) for tag in ("NOUN", "PRON", "PUNCT", "SYM", "$,")] == [
        "content", "function", "punctuation", "other", "other",
    ]  # fmt: skip
