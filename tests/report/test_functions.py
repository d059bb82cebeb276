"""The function of each head: each rule on hand-built heads, thresholds, and untrained models."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import tiny
from chosen_relations import chosen_tests, estimates
from chosen_results import Fake, fake_results, up_and_down
from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate
from headbook.attention.surface_rules import OFFSETS, SIDES
from headbook.attention.word_pairs import HAS_OTHERS, SEEN
from headbook.metrics.patterns.type_shares import EVEN, PARTS
from headbook.report import alignment, class_flows, relation_tests, thresholds
from headbook.report.answers.overview.family_claim import family_heads, function_heads
from headbook.report.facts import function_rules, functions, word_rules
from headbook.report.facts.functions import (
    FUNCTION_COLUMNS,
    RULES,
    FunctionFamily,
    HeadFunction,
    families_of,
    functions_of,
    functions_table,
)
from headbook.report.facts.word_rules import WordRule
from headbook.report.function_numbers import ShareOverEven
from headbook.report.results import StackResults, stack_results
from headbook.report.thresholds import HALF, OWN_SENTENCE_ODDS
from headbook.results.number import SHARE, Number, RowAddress
from headbook.run.collect import collect
from headbook.schema import UPOS, HeadKey, HeadName, SinkView, heads_of
from headbook.study.sums.word_samples import FLOW_CELLS, FlowEstimates, StrongestWords
from headbook.text.aligned_words import AlignmentRow
from layers import Marks
from map_results import Mapped, results_of_maps
from sites import Site
from untrained_models import LENGTHS, sentences_of, untrained

HEAD = HeadName("self", 0, 0)
RENORM, RAW, NOSINK = SinkView.RENORM, SinkView.RAW, SinkView.NOSINK
SENTENCES = 400  # with one query each
MIXED = dict.fromkeys(PARTS, 0.05) | {"next": 0.3, "near": 0.15, "before": 0.2, "after": 0.15}
Map = NDArray[np.float64]


def share(label: str) -> HeadKey:
    return HeadKey("type_shares", RENORM, label)


def shares(values: Mapping[str, float], even: float = 0.08) -> dict[HeadKey, Fake]:
    """Shares of a head beside others, and those of uniform attention."""
    found = {share(label): beside(value, even) for label, value in values.items()}
    return found | {share(EVEN[label]): beside(even, even) for label in values}


def beside(value: float, others: float, uniform: float = 0.0, spread: float = 0.01) -> Fake:
    """A number of the first head, beside three others."""
    return Fake([[value, others, others, others]], uniform, spread)


def studied(
    more: Mapping[HeadKey, Fake] | None = None,
    *,
    sink: float = 0.1,
    entropy: float = 0.6,
    causal: bool = False,
    sentences: int = SENTENCES,
) -> StackResults:
    """A mixed head beside three even ones, unless other numbers are given."""
    numbers = {
        HeadKey("sink_share", RAW, ""): beside(sink, 0.1, 0.1),
        HeadKey("relative_entropy", RENORM, ""): beside(entropy, 0.9, 1.0),
        **shares(MIXED),
        **(more or {}),
    }
    return fake_results(numbers, causal=causal, sentences=sentences)


def function_of(results: StackResults) -> HeadFunction:
    return functions_of(results)[HEAD]


def noisy(key: HeadKey, value: float, spread: float) -> dict[HeadKey, Fake]:
    return {key: beside(value, 0.0, 0.05, spread=spread)}


INDUCTION, DUPLICATE = HeadKey("induction_score", RAW, ""), HeadKey("duplicate_score", RAW, "")
VARIABILITY, PUNCT = HeadKey("variability", RAW, ""), HeadKey("pos_received", RENORM, "PUNCT")
PARTS_KEY, PARTS_DISTANCE = (
    HeadKey("attention_parts", RENORM, label) for label in ("key", "distance")
)
PREVIOUS = shares({"previous": 0.7})


@pytest.mark.parametrize(
    ("results", "function", "noun"),
    [
        (studied(shares({"same_token": 0.7})), "same_token", "same token elsewhere"),
        (studied(noisy(INDUCTION, 0.4, 0.01)), "induction", "induction"),
        (studied(noisy(DUPLICATE, 0.4, 0.01)), "duplicate", "earlier occurrence"),
        (studied(sink=0.95), "sink_only", "special tokens only"),
        (studied(sink=0.95, causal=True), "sink_only", "the first token only"),
        (studied(PREVIOUS), "offset", "previous token"),
        (studied(shares({"next": 0.7})), "offset", "next token"),
        (studied(shares({"self": 0.7})), "offset", "the token itself"),
        (studied(shares({"-2": 0.7})), "offset", "token two before"),
        (studied(shares({"8": 0.7})), "offset", "token eight after"),
        (studied(noisy(PUNCT, 0.6, 0.01)), "punctuation", "punctuation"),
        (studied(entropy=0.85), "even", "spread evenly"),
        (studied(shares({"within_3": 0.7}, 0.3)), "nearby", "nearby words"),
        (studied(shares({"own_sentence": 0.75}, 0.5)), "own_sentence", "own sentence"),
        (studied(sink=0.7), "sink_mostly", "mostly special tokens"),
        (studied(), "mixed", "mixed"),
        (studied(sentences=18), "too_few", "not known"),
        (studied(sentences=198), "too_few", "not known"),  # each with one query
        (studied(sentences=202), "mixed", "mixed"),
    ],
)
def test_the_first_rule_that_holds_is_the_function(
    results: StackResults, function: str, noun: str
) -> None:
    found = function_of(results)
    assert (found.id, found.noun) == (function, noun)
    assert found.family == next(rule.family for rule in RULES if rule.id == function)
    assert bool(found.number) == (function not in {"mixed", "too_few"})
    if found.number:
        assert found.number.low >= found.threshold


@pytest.mark.parametrize(
    ("key", "value", "most", "function"),
    [
        (INDUCTION, 0.32, 0.5, "induction"),
        (DUPLICATE, 0.32, 0.5, "duplicate"),
        (HeadKey("sink_share", RAW, ""), 0.92, 0.5, "sink_only"),
        (share("previous"), 0.56, 0.5, "offset"),
        (HeadKey("relative_entropy", RENORM, ""), 0.82, 0.5, "even"),
        (share("within_3"), 0.56, 0.5, "nearby"),
        (PUNCT, 0.56, 0.5, "punctuation"),
    ],
)
def test_the_lower_end_decides(key: HeadKey, value: float, most: float, function: str) -> None:
    """The value reaches the threshold in both, the lower end in one alone."""
    even = {share(EVEN[key.label]): beside(0.05, 0.05)} if key.metric == "type_shares" else {}
    clear, unclear = (studied(noisy(key, value, spread) | even) for spread in (0.01, most))
    assert function_of(clear).id == function
    assert function_of(unclear).id != function
    number = clear.number(key, 0, 0)
    assert number.value == pytest.approx(unclear.number(key, 0, 0).value)


def test_a_share_of_rare_tokens_needs_more() -> None:
    """Its interval is that of one observation a sentence, however little sentences vary."""
    key = share("same_token")
    even = {share(EVEN[key.label]): beside(0.05, 0.05)}
    found = [function_of(studied(noisy(key, value, 0.01) | even)).id for value in (0.56, 0.62)]
    assert found == ["mixed", "same_token"]


def test_shares_are_corrected_for_chance() -> None:
    """0.6 of 0.3 is 0.43 corrected, 0.7 is 0.57; the threshold is printed as a share."""
    assert function_of(studied(shares({"within_3": 0.6}, 0.3))).id == "mixed"
    found = function_of(studied(shares({"within_3": 0.7}, 0.3)))
    assert found.threshold == pytest.approx(0.65)
    assert found.even is not None
    assert found.even.value == pytest.approx(0.3)
    # Within three tokens is nearly everything: the share decides nothing.
    assert function_of(studied(shares({"within_3": 0.999}, 0.96))).id == "mixed"


def number(value: float, **more: float) -> Number:
    return Number(value, SHARE, RowAddress("heads", ()), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("even", [0.0, 0.05, 0.3, 0.7, 0.94])
@pytest.mark.parametrize("value", [0.0, 0.4, 0.52, 0.8, 1.0])
def test_the_least_share_is_that_of_the_corrected_threshold(value: float, even: float) -> None:
    found = ShareOverEven(number(value), number(even))
    assert found.corrected == pytest.approx((value - even) / (1 - even))
    assert (value >= found.least()) == (found.corrected >= HALF.value)
    odds = math.inf if value == 1 else value / (1 - value)
    if even:
        holds = odds >= OWN_SENTENCE_ODDS.value * even / (1 - even)
        assert (value >= found.least_by_odds(OWN_SENTENCE_ODDS)) == holds


def test_a_share_near_that_of_uniform_attention_is_missing() -> None:
    found = ShareOverEven(number(1.0), number(0.96))
    assert math.isnan(found.corrected)
    assert math.isnan(found.least())


def some(value: float, n: int) -> list[list[list[float]]]:
    """A value in the first sentences alone."""
    return [[[value if k < n else math.nan, *[math.nan] * 3]] for k in range(SENTENCES)]


class Sometimes(Fake):
    """A number that only some sentences have."""

    def each(self, sentences: int) -> Map:
        """Return the values of every sentence. *Shape:* ``(sentence, layer, head)``."""
        values: Map = np.array(self.heads) + self.spread * up_and_down(sentences)[:, None, None]
        return values


@pytest.mark.parametrize(("queries", "function"), [(198, "mixed"), (202, "same_token")])
def test_a_share_of_few_queries_is_no_function(queries: int, function: str) -> None:
    more = {
        share("same_token"): Sometimes(some(0.9, queries)),
        share("even_same_token"): Sometimes(some(0.05, queries), spread=0.0),
    }
    assert function_of(studied(more)).id == function
    # Nor does it keep a head from attending evenly.
    expected = "even" if function == "mixed" else function
    assert function_of(studied(more, entropy=0.9)).id == expected


@pytest.mark.parametrize(
    ("more", "function"),
    [
        (shares({"within_3": 0.7}, 0.3), "nearby"),
        (noisy(share("within_3"), 0.72, 2.0) | shares({"before": 0.1}), "mixed"),
        (shares({"within_3": 0.62}, 0.3), "even"),
        (PREVIOUS, "offset"),
    ],
)
def test_a_head_with_half_at_one_place_is_not_even(
    more: Mapping[HeadKey, Fake], function: str
) -> None:
    """Its value keeps it from that, even where its lower end gives no function."""
    even = {share(EVEN["within_3"]): beside(0.3, 0.3)}
    assert function_of(studied(even | dict(more), entropy=0.85)).id == function


def test_rules_hold_in_their_order() -> None:
    """From the first to the last, each head loses what made its function."""
    everything = [
        ("same_token", shares({"same_token": 0.7})),
        ("induction", noisy(INDUCTION, 0.4, 0.01)),
        ("duplicate", noisy(DUPLICATE, 0.4, 0.01)),
        ("offset", PREVIOUS),
        ("punctuation", noisy(PUNCT, 0.6, 0.01)),
        ("nearby", shares({"within_3": 0.7}, 0.3)),
        ("own_sentence", shares({"own_sentence": 0.75}, 0.5)),
        ("sink_mostly", {}),
    ]
    for place, (function, _) in enumerate(everything):
        left = {key: fake for _, each in everything[place:] for key, fake in each.items()}
        assert function_of(studied(left, sink=0.7)).id == function
    order = [rule.id for rule in RULES]
    assert order.index("even") < order.index("same_keys") < order.index("nearby")
    assert order[:4] == ["not_measured", "too_few", "alignment", "same_token"]
    assert len(order) == 18  # seventeen, and alignment of cross-attention


@pytest.mark.parametrize(
    ("sink", "function", "clause"),
    [(0.5, "offset", False), (0.7, "offset", True), (0.95, "sink_only", True)],
)
def test_a_sink_of_half_is_said_beside_the_function(
    sink: float, function: str, clause: bool
) -> None:
    found = function_of(studied(PREVIOUS, sink=sink))
    assert (found.id, found.mostly_sink) == (function, clause)
    assert found.sink is not None
    assert found.sink.value == pytest.approx(sink)
    assert ("special tokens" in found.text.text) == clause
    assert ("previous token" in found.text.text) == (function == "offset")


def test_variability_says_whether_the_position_alone_decides() -> None:
    texts = [
        function_of(studied(PREVIOUS | {VARIABILITY: beside(value, 0.4)})).text.text
        for value in (0.01, 0.2)
    ]
    assert ["whatever" in text for text in texts] == [True, False]


@pytest.mark.parametrize(("others", "function"), [(0.15, "punctuation"), (0.25, "mixed")])
def test_punctuation_needs_twice_the_mean_head(others: float, function: str) -> None:
    assert function_of(studied({PUNCT: beside(0.6, others, 0.1)})).id == function


KEYS = HeadKey("relation_accuracy", NOSINK, "obj:to_head")


@pytest.mark.parametrize(
    ("p", "margin", "others", "words", "function"),
    [
        (0.005, 0.4, 100, 400, "relation"),
        (0.2, 0.4, 100, 400, "mixed"),
        (0.005, -0.1, 100, 400, "mixed"),
        (0.005, 0.4, 10, 400, "mixed"),  # may be no more than a preference for a class
        (0.005, 0.4, 100, 150, "mixed"),
    ],
)
def test_a_relation_needs_its_claim(
    p: float, margin: float, others: int, words: int, function: str
) -> None:
    results = studied({KEYS: Sometimes(some(0.84, words))})
    tests = chosen_tests(
        ["obj:to_head"], [(0, 0)], [0.8], [margin], [p], shape=(1, 4), others=others
    )
    results._made[relation_tests.tests_of_stack] = tests
    found = function_of(results)
    assert found.id == function
    if function == "relation":
        assert found.noun == "direct object → verb"
        assert found.number is not None
        assert found.number.value == pytest.approx(0.84)  # over all sentences


def rule(*, supported: bool = True) -> WordRule:
    margin = Estimate(0.2, 0.1, 0.3, 36, 400, 30)
    return WordRule("next:NOUN_PRON_PROPN", 1, margin, 0.001, supported)


@pytest.mark.parametrize(
    ("value", "supported", "function"),
    [(0.6, True, "next_word"), (0.6, False, "mixed"), (0.49, True, "mixed")],
)
def test_the_next_word_of_a_class_needs_its_test(
    value: float, supported: bool, function: str
) -> None:
    key = HeadKey("surface_rule", NOSINK, "next:NOUN_PRON_PROPN")
    results = studied({key: beside(value, 0.1)})
    results._made[word_rules._word_rules] = {(0, 0): rule(supported=supported)}
    found = function_of(results)
    assert found.id == function
    if function == "next_word":
        assert found.noun == "next noun or pronoun"
        assert found.family == FunctionFamily.WORDS


@pytest.mark.parametrize(
    ("key", "flows", "function", "classes"),
    [
        (0.6, {}, "same_keys", "words"),
        (0.6, {("", "NOUN"): (0.55, 1.2)}, "same_keys", "nouns"),
        (0.6, {("", "NOUN"): (0.55, 0.9)}, "same_keys", "words"),
        (0.6, {("", "NOUN"): (0.4, 1.2), ("", "VERB"): (0.2, 1.1)}, "same_keys", "words"),
        (0.45, {}, "mixed", ""),
        (-0.1, {}, "mixed", ""),
    ],
)
def test_the_same_keys_from_everywhere(
    key: float, flows: Mapping[tuple[str, str], tuple[float, float]], function: str, classes: str
) -> None:
    """Verbs are received by 100 words alone, too few for a class."""
    noun, verb = (HeadKey("pos_received", RENORM, tag) for tag in ("NOUN", "VERB"))
    results = studied(
        {
            PARTS_KEY: beside(key, 0.0),
            PARTS_DISTANCE: beside(0.2, 0.1),
            noun: beside(0.5, 0.2),
            verb: Sometimes(some(0.3, 100)),
        }
    )
    results._made[class_flows._flows] = flow_of(flows)
    found = function_of(results)
    assert found.id == function
    assert classes in found.text.text


def flow_of(flows: Mapping[tuple[str, str], tuple[float, float]]) -> FlowEstimates:
    """Shares and lower ends of ratios of the first of four heads; the ratio is 2."""
    value, low = np.full((2, 1, 4, len(FLOW_CELLS)), np.nan)
    for cell, (of_cell, end) in flows.items():
        value[0, 0, FLOW_CELLS.index(cell)] = of_cell
        low[0, 0, FLOW_CELLS.index(cell)] = end
    ratio = np.where(np.isnan(value), np.nan, 2.0)
    return FlowEstimates(value, value / 2, ratio, low, low + 1, np.full(value.shape, 30))


def test_a_mixed_head_names_its_two_largest_corrected_shares() -> None:
    found = function_of(studied())
    numbers = [part.number for part in found.text.parts if not isinstance(part, str)]
    assert [dict(each.row.key)["label"] for each in numbers] == ["next", "before"]


def test_a_mixed_head_says_what_distance_and_key_explain() -> None:
    parts = {PARTS_KEY: beside(0.3, 0.0), PARTS_DISTANCE: beside(0.2, 0.1)}
    found = function_of(studied(parts))
    numbers = [part.number for part in found.text.parts if not isinstance(part, str)]
    assert [dict(each.row.key)["label"] for each in numbers[2:]] == ["distance", "key"]


@pytest.mark.parametrize("missing", function_rules.NEEDED)
def test_what_was_not_measured_has_no_function(missing: str) -> None:
    numbers = {
        HeadKey("sink_share", RAW, ""): beside(0.1, 0.1, 0.1),
        HeadKey("relative_entropy", RENORM, ""): beside(0.6, 0.9),
        **shares(MIXED | {"previous": 0.9}),
    }
    kept = {key: fake for key, fake in numbers.items() if key.metric != missing}
    found = functions_of(fake_results(kept, sentences=SENTENCES))
    assert {(each.id, each.family, each.text.text) for each in found.values()} == {
        ("not_measured", None, "")
    }


def test_every_threshold_has_a_reason_and_stands_in_one_module() -> None:
    known = [each for each in vars(thresholds).values() if isinstance(each, thresholds.Threshold)]
    assert all(each.reason.endswith(".") for each in known)
    assert {rule.threshold for rule in RULES} <= {*known}
    for module in (functions, function_rules, word_rules):
        assert module.__file__
        code = Path(module.__file__).read_text(encoding="utf-8")
        assert not re.findall(r"[<>]=? ?0?\.\d", code)


def test_the_table_has_a_row_for_each_head() -> None:
    results = studied(PREVIOUS, sink=0.7)
    table = functions_table({"self": results})
    assert [*table.columns] == [*FUNCTION_COLUMNS]
    assert [*table["function"]] == ["offset", *["even"] * 3]
    assert [*table["family"]] == ["position", *["even"] * 3]
    assert [*table["metric"]] == ["type_shares", *["relative_entropy"] * 3]
    assert (table["low"] >= table["threshold"]).all()
    assert [*families_of(results)] == [FunctionFamily.POSITION, FunctionFamily.EVEN]


# Heads from attention maps.


def at(n: int, offset: int, amount: float = 1.0) -> Map:
    """So much at one offset, the rest even over words; at the ends on the nearest word."""
    found = np.zeros((n, n))
    found[:, 1:-1] = (1 - amount) / (n - 2)
    for i in range(n):
        found[i, min(max(i + offset, 1), n - 2)] += amount
    return found


def with_sink(maps: Map, amount: float) -> Map:
    """So much on the first token, a little more in some sentences."""
    amount += 0.01 * (len(maps) % 3 - 1)
    found = maps * (1 - amount)
    found[:, 0] += amount
    return found


def random(n: int) -> Map:
    """Scores of no pattern, in words alone."""
    scores = np.random.default_rng(n).normal(size=(n, n)) * 4
    scores[:, [0, n - 1]] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    found: Map = weights / weights.sum(1, keepdims=True)
    return found


def same(n: int) -> Map:
    """Two tokens take turns; each attends to those like it, four and more away."""
    found = np.zeros((n, n))
    for i in range(n):
        like = [j for j in range(1, n - 1) if j != i and (i - j) % 2 == 0 and abs(i - j) > 3]
        found[i, like] = 1 / len(like)
    return found


def own(n: int) -> Map:
    """Random weights within each half."""
    scores = np.exp(np.random.default_rng(n).normal(size=(n, n)) * 3)
    part = np.arange(n) > n // 2
    scores *= part[:, None] == part
    scores[:, [0, n // 2, n - 1]] = 0
    found: Map = scores / scores.sum(1, keepdims=True)
    return found


def to_punctuation(n: int) -> Map:
    """All on one token."""
    found = np.zeros((n, n))
    found[:, 8] = 1
    return found


def same_keys(n: int) -> Map:
    """One weight per key, the same for every query."""
    weights = np.exp(np.random.default_rng(n).normal(size=n) * 2)
    weights[[0, n - 1]] = 0
    found: Map = np.tile(weights / weights.sum(), (n, 1))
    return found


def nearby(n: int) -> Map:
    found: Map = np.mean([at(n, offset) for offset in (-2, -1, 1, 2)], axis=0)
    return found


@pytest.mark.parametrize(
    ("maps", "function", "clause"),
    [
        (lambda n: at(n, -1), "offset", False),
        (lambda n: at(n, 0), "offset", False),
        (lambda n: at(n, 5), "offset", False),
        (lambda n: with_sink(at(n, -1), 0.7), "offset", True),
        (nearby, "nearby", False),
        (lambda n: np.full((n, n), 1 / n), "even", False),
        (same, "same_token", False),
        (to_punctuation, "punctuation", False),
        (same_keys, "same_keys", False),
        (lambda n: with_sink(same_keys(n), 0.7), "same_keys", True),
        (own, "own_sentence", False),
        (random, "mixed", False),
        (lambda n: with_sink(random(n), 0.8), "sink_mostly", True),
        (lambda n: with_sink(random(n), 0.97), "sink_only", True),
    ],
)
def test_a_head_built_by_hand_has_its_function(
    maps: Callable[[int], Map], function: str, clause: bool
) -> None:
    """Beside three even heads, in 30 sentences of 20 to 28 tokens."""
    sentences = []
    for n in (20 + k % 9 for k in range(30)):
        four = np.stack([maps(n), *[np.full((n, n), 1 / n)] * 3])
        middle = (n // 2,) * (function == "own_sentence")
        marks = Marks(
            n,
            ids=[k % 2 for k in range(n)] if function == "same_token" else [],
            special=(0, *middle, n - 1),
            separator=(*middle, n - 1) if middle else (),
            tags=["PUNCT" if k == 8 else "NOUN" for k in range(n)],
        )
        sentences.append(Mapped(torch.tensor(four), marks))
    found = functions_of(results_of_maps(sentences))
    assert [each.id for each in found.values()] == [function, *["even"] * 3]
    assert found[HEAD].mostly_sink is clause


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 10))]
)
@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_heads_of_untrained_models_attend_evenly_and_to_no_sink(family: str, seed: int) -> None:
    model = untrained(family, seed)
    for length in LENGTHS:
        amount = max(24, 240 // (length - 2) + 1)
        for stack, sentences in sentences_of(model, length, amount, seed).items():
            causal = stack == "decoder" or family == "gpt2"
            for each in functions_of(results_of_maps(sentences, causal=causal)).values():
                assert (each.id, each.mostly_sink) == ("even", False), (stack, length, each)
                assert each.number is not None
                assert each.number.value >= (0.9 if length == 5 else 0.95)


@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
@pytest.mark.parametrize(("amount", "function"), [(48, "even"), (12, "too_few")])
def test_a_study_of_an_untrained_model_has_even_heads_alone(
    family: str, amount: int, function: str, tmp_path: Path
) -> None:
    """From sentences to functions, with every rule that needs no tree."""
    drawn = np.random.default_rng(0)
    words = ("the", "cat", "sees", "a", "small", "red", "bird", "in", "garden", "and")
    texts = [" ".join(drawn.choice(words, length)) for length in (3, 5, 8) * (amount // 3)]
    file = tmp_path / "texts.jsonl"
    fields = ("source", "target") if family == "marian" else ("text",)
    file.write_text("\n".join(json.dumps(dict.fromkeys(fields, text)) for text in texts))
    study = collect(
        file,
        model=str(tiny.write(family, tmp_path / family, untrained=True)),
        annotator="none",
        metrics="type_shares,sink_share,relative_entropy,variability,induction_score,"
        "duplicate_score",
        importance="off",
        circuits="off",
    )
    for stack in stack_results(study).values():
        found = functions_of(stack)
        assert [*found] == heads_of(stack.stack)
        assert {(each.id, each.mostly_sink) for each in found.values()} == {(function, False)}


def test_every_head_of_a_study_has_one_function(any_site: Site) -> None:
    results = any_site.results
    table = functions_table(results)
    heads = [head for each in results.values() for head in heads_of(each.stack)]
    assert [*table[["stack", "layer", "head"]].itertuples(index=False, name=None)] == [*heads]
    ids = {rule.id for rule in RULES}
    assert {*table["function"]} <= ids
    for each in results.values():
        assert functions_of(each) is functions_of(each)


READ, WRITTEN = AlignmentRow


def aligning(site: StackResults, measure: str, values: Mapping[AlignmentRow, float]) -> Any:
    """Alignments of all heads with one number by row, the same on both halves."""
    shape = (site.stack.n_layers, site.stack.n_heads)
    numbers = {row: np.full(shape, value) for row, value in values.items()}
    return {
        row: replace(
            known,
            estimates={**known.estimates, measure: estimates(numbers[row], words=400)},
            chosen={**known.chosen, measure: numbers[row]},
        )
        for row, known in site.cached(alignment.alignments).items()
    }


@pytest.mark.parametrize(
    ("measure", "read", "written", "row"),
    [
        ("same_form", 0.65, 0.2, READ),
        ("same_form", 0.65, 0.7, WRITTEN),
        ("same_form", 0.55, 0.2, None),  # its lower end is below one half
        ("same_form", 0.3, 0.2, None),
        ("aer", 0.2, 0.9, READ),
        ("aer", 0.3, 0.2, WRITTEN),
        ("aer", 0.45, 0.9, None),
    ],
)
def test_a_head_of_cross_attention_aligns_words_by_the_better_row(
    pair_site: Site, measure: str, read: float, written: float, row: AlignmentRow | None
) -> None:
    site = next(each for each in pair_site.results.values() if each.stack.crosses)
    results = StackResults(site.study, site.stack)
    values = {READ: read, WRITTEN: written}
    results._made[alignment.alignments] = aligning(site, measure, values)
    found = function_rules.alignment(results, HeadName(site.stack.name, 0, 0), HALF)
    if row is None:
        assert found is None
        return
    assert found is not None
    assert found.number is not None
    key = dict(found.number.row.key)
    assert (key["measure"], key["row"]) == (measure, str(row))
    expected = 1 - values[row] if measure == "aer" else values[row]
    assert found.number.value == pytest.approx(expected)
    assert found.number.low < found.number.value < found.number.high
    assert (found.noun, found.where) == function_rules.ALIGNED[row]


def shares_of_rules(words: StrongestWords, half: int, layer: int, head: int) -> dict[str, float]:
    """Share of words whose strongest word a class rule names or an offset takes, word by word."""
    of_half = words.of(half)
    named, taken = of_half.named(), of_half.taken()
    counted = [word for word in range(len(of_half.first)) if of_half.has_others[word]]
    hits = dict.fromkeys(words.rules, 0)
    for word in counted:
        for place, rule in enumerate(words.rules):
            target = (taken if rule.startswith("offset") else named)[place, word]
            hits[rule] += target >= 0 and of_half.strongest[word, layer, head] == target
    return {rule: amount / len(counted) for rule, amount in hits.items()}


def test_class_rules_are_chosen_on_one_half_and_compared_on_the_other(encoder_site: Site) -> None:
    words = encoder_site.study.corpus_sums.heads["self"].strongest_words
    assert words is not None
    found = word_rules.word_rules(encoder_site.results["self"])
    assert len(found) == 8
    for (layer, head), test in found.items():
        chosen = shares_of_rules(words, SELECTION, layer, head)
        classes = [rule for rule in words.rules if rule.partition(":")[0] in SIDES]
        assert chosen[test.rule] == max(chosen[rule] for rule in classes)
        compared = shares_of_rules(words, HELD_OUT, layer, head)
        margins = [compared[test.rule] - compared[f"offset:{offset}"] for offset in OFFSETS]
        assert test.margin.value == pytest.approx(min(margins))
        assert margins[OFFSETS.index(test.offset)] == min(margins)


@pytest.mark.parametrize(
    ("content", "supported"), [(0.9, True), (0.0, False)], ids=["class", "offset"]
)
def test_a_class_rule_is_supported_if_no_offset_says_as_much(
    content: float, supported: bool
) -> None:
    """A head that attends to the next noun, or else always to the next word."""
    words = drawn_words(content)
    found = word_rules.tested_rules(words, np.ones((1, 1), bool))[0, 0]
    assert found.supported is supported
    if supported:
        assert found.rule.partition(":")[2] in {"NOUN", "NOUN_PRON_PROPN"}


def drawn_words(content: float) -> StrongestWords:
    """80 sentences of 12 words, each word a noun or a determiner by chance."""
    drawn, n, length = np.random.default_rng(0), 80, 12
    tags = drawn.integers(0, 2, (n, length))
    noun, other = (UPOS.index(tag) for tag in ("NOUN", "DET"))
    strongest = np.zeros((n, length), np.int16)
    for sentence, word in np.ndindex(n, length):
        nouns = [k for k in range(word + 1, length) if tags[sentence, k]]
        takes_noun = nouns and drawn.random() < content
        strongest[sentence, word] = nouns[0] if takes_noun else min(word + 1, length - 2)
    seen = np.full(n * length, HAS_OTHERS | SEEN, np.uint8)
    nothing = np.full(n * length, -1, np.int16)
    return StrongestWords(
        size=n * length,
        causal=False,
        content_hash=np.arange(n, dtype=np.uint64),
        index=np.arange(n),
        lengths=np.full(n, length),
        strongest=strongest.reshape(-1, 1, 1),
        tag=np.where(tags.ravel(), noun, other).astype(np.int16),
        relation=nothing,
        head=nothing,
        asked=seen,
    )


def test_heads_of_too_few_sentences_are_not_called_mixed() -> None:
    """Their family has the name of the rule, and the overview counts no function."""
    few, enough = studied(sentences=18), studied()
    assert families_of(few) == {FunctionFamily.MIXED: "Not known"}
    assert not any(function.is_known for function in functions_of(few).values())
    assert function_heads(few) == []
    assert family_heads({"self": few}) == []
    assert "Not known" not in families_of(enough).values()
    assert {head for group in function_heads(enough) for head in group.heads} == {
        head for head, function in functions_of(enough).items() if function.is_known
    }
