"""Facts on kinds of words: by numbers, not by their English."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from chosen_results import Fake, fake_results
from headbook.report.facts.words import most_attending_head, most_received
from headbook.report.results import StackResults
from headbook.report.token_neighbours import class_of_tag
from headbook.results.number import Printed
from headbook.results.sentence import Sentence
from headbook.schema import HeadKey, SinkView


def results(
    ratios: Mapping[str, Any], *, spread: float = 0.01, second: Mapping[str, Any] | None = None,
    words: int = 40,
) -> StackResults:  # fmt: skip
    """Ratios by layer of words of some tags; both heads of a layer have the same."""
    numbers = {}
    for tag, values in ratios.items():
        heads, later = (
            np.repeat(np.array(each, float)[:, None], 2, axis=1)
            for each in (values, (second or {}).get(tag, values))
        )
        for metric, scale in (("pos_received_ratio", 1), ("pos_received", 10)):
            key = HeadKey(metric, SinkView.RENORM, tag)
            numbers[key] = Fake(heads / scale, spread=spread, second=later / scale)
    found = fake_results(numbers)
    counts = {**found.study.manifest.counts, **{f"source.tag.{tag}": words for tag in ratios}}
    manifest = replace(found.study.manifest, counts=counts)
    return StackResults(replace(found.study, manifest=manifest), found.stack)


def printed(sentence: Sentence) -> Printed:
    (number,) = [part for part in sentence.parts if isinstance(part, Printed)]
    return number


def test_the_kind_with_the_largest_number_is_named_with_its_row() -> None:
    fact = most_received(results({"NOUN": [1.2, 1.1, 1.7], "DET": [0.5, 0.6, 0.7]}))
    assert fact.holds
    number = printed(fact.text).number
    assert round(number.value, 6) == 1.7
    assert (number.row.table, dict(number.row.key)["label"], number.place("layer")) == (
        "layers", "NOUN", 2,
    )  # fmt: skip


def test_the_kind_is_chosen_on_one_half_and_reported_on_all_sentences() -> None:
    found = results(
        {"NOUN": [1.0, 1.6], "VERB": [1.0, 1.5]}, second={"NOUN": [1.0, 1.2], "VERB": [1.0, 2.5]}
    )
    assert round(printed(most_received(found).text).number.value, 6) == 1.4


def test_nothing_holds_where_the_other_half_does_not_confirm_the_choice() -> None:
    assert not most_received(results({"NOUN": [1.0, 1.3]}, spread=4)).holds
    assert not most_received(results({"NOUN": [0.9, 0.95]})).holds
    assert not most_received(results({"NOUN": [1.0, 1.2]})).holds
    lucky = results({"NOUN": [1.0, 1.9]}, second={"NOUN": [1.0, 1.2]})
    assert not most_received(lucky).holds
    assert round(printed(most_received(lucky).text).number.value, 6) == 1.55


def test_after_a_miss_nothing_else_is_tested() -> None:
    """The second kind would pass, but was not chosen."""
    found = results({"NOUN": [1.9], "VERB": [1.8]}, second={"NOUN": [1.0], "VERB": [1.8]})
    assert not most_received(found).holds


def test_without_words_of_a_kind_there_is_no_number() -> None:
    for few in (0, 29):
        fact = most_received(results({"NOUN": [1.0, 4.0]}, words=few))
        assert all(isinstance(part, str) for part in fact.text.parts)
    assert most_received(results({"NOUN": [1.0, 4.0]}, words=30)).holds


def test_the_head_of_a_kind_is_that_of_all_sentences() -> None:
    heads = np.array([[1.0, 2.0], [1.5, 1.0]])
    key = HeadKey("pos_received_ratio", SinkView.RENORM, "NOUN")
    chosen = most_attending_head(fake_results({key: Fake(heads, second=heads[::-1])}), "NOUN")
    assert chosen is not None
    assert (chosen.head.layer, chosen.head.head) == (0, 1)
    assert (chosen.value.value, chosen.held_out.value) == (1.5, 1.0)
    few = fake_results({key: Fake(heads)}, sentences=40)  # 20 observations in each half
    assert most_attending_head(few, "NOUN") is None


def test_classes_of_words_follow_their_tags() -> None:
    assert [class_of_tag(tag) for tag in ("NOUN", "PRON", "PUNCT", "SYM", "$,")] == [
        "content", "function", "punctuation", "other", "other",
    ]  # fmt: skip
