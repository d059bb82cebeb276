"""Heads against the best surface rule: choice on one half, report on the other, all at once."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from headbook.analysis.accumulators import HELD_OUT, Estimates
from headbook.analysis.multiple_testing import FLIPS, sign_flip_p
from headbook.attention.surface_rules import OFFSETS, RULES, neighbours
from headbook.inputs import open_corpus
from headbook.report import relation_tests as inference
from headbook.report.relation_counts import best_rule, count_relation
from headbook.report.relation_tests import relation_tests
from headbook.report.relations import MIN_RULE_AGREEMENT, rules_of
from headbook.schema import RELATIONS, IntervalRule
from headbook.study.sums.word_samples import StrongestWords
from naive_ratios import Part, _wilson_end, ratio, widening
from naive_relations import (
    Annotated,
    Place,
    chosen,
    drawn,
    grammatical,
    half,
    head_hits,
    influences,
    looking,
    n_others,
    preference,
    rule_hits,
    signs_of,
    statistic,
    stored,
    where_wrong,
)

SHAPE = (2, 3)
PLACES = [(layer, head) for layer in range(SHAPE[0]) for head in range(SHAPE[1])]
ALL = np.ones(SHAPE, dtype=bool)
LABELS = [f"{r}:{way}" for way in ("to_head", "to_dependent") for r in ("amod", "nsubj", "obj")]
TREEBANK = Path(__file__).parents[2] / "sample_inputs/sentences.conllu"


def same(numbers: Estimates, place: Any, parts: list[Part], limits: tuple[float, float]) -> None:
    wanted = ratio(parts, limits)
    found = [array[place] for array in numbers]
    np.testing.assert_allclose(np.array(found, float), np.array(wanted, float), rtol=1e-9)


@pytest.mark.parametrize(("seed", "causal"), [(0, False), (1, False), (2, True)])
def test_numbers_are_those_of_plain_loops(seed: int, *, causal: bool) -> None:
    sentences = drawn(seed, causal=causal)
    tests = relation_tests(stored(sentences), ALL)
    assert sorted(tests.labels) == sorted(LABELS)
    for n, label in enumerate(tests.labels):
        head, rule = chosen(sentences, label)
        assert (tuple(tests.head[n]), tests.rule[n]) == (head, rule)
        report = half(sentences, 1)
        for halves, scores in (
            (half(sentences, 0), tests.selection),
            (report, tests.held_out),
            (sentences, tests.scores),
        ):
            numbers = (scores.accuracy, scores.at_rule, scores.margin)
            words = [len([*s.cases(label)]) for s in halves]
            hits = [
                [Part(head_hits(s, label, head), w, w) for s, w in zip(halves, words, strict=True)],
                [Part(rule_hits(s, label, rule), w, w) for s, w in zip(halves, words, strict=True)],
            ]
            ahead = [Part(a.n - b.n, a.d, a.d) for a, b in zip(*hits, strict=True)]
            for number, parts, limits in zip(
                numbers, (*hits, ahead), ((0, 1), (0, 1), (-1, 1)), strict=True
            ):
                same(number, n, parts, limits)
        same(tests.accuracy_where_rule_fails, n, where_wrong(sentences, label, head, rule), (0, 1))
        first = half(sentences, 0)
        for layer in range(SHAPE[0]):
            totals = {
                p: sum(head_hits(s, label, p) for s in first) for p in PLACES if p[0] == layer
            }
            best = max(totals, key=lambda p: totals[p])
            assert tests.layer_head[layer, n] == best[1]
            for halves, margins in (
                (report, tests.held_out_layer_margin),
                (sentences, tests.layer_margin),
            ):
                parts = [
                    Part(head_hits(s, label, best) - rule_hits(s, label, rule), w, w)
                    for s, w in ((s, len([*s.cases(label)])) for s in halves)
                ]
                same(margins, (layer, n), parts, (-1, 1))


def test_a_rule_without_a_word_takes_the_next_word_and_at_the_end_the_previous() -> None:
    """Among words that can be selected: the sink's words cannot."""
    selectable = np.array([True, True, False, True, False, True, True, False, True])
    lengths = np.array([5, 1, 3])
    bidirectional = neighbours(selectable, lengths, causal=False)
    assert bidirectional.tolist() == [1, 3, 3, 1, 3, -1, 2, 2, 0]
    assert neighbours(selectable, lengths, causal=True).tolist() == [-1, 0, 1, 1, 3, -1, -1, 0, 0]


@pytest.mark.parametrize(("seed", "causal"), [(0, False), (2, True)])
def test_every_rule_takes_the_word_of_plain_loops(seed: int, *, causal: bool) -> None:
    sentences = drawn(seed, causal=causal)
    words = stored(sentences)
    by_hash = sorted(sentences, key=lambda s: s.key)
    for place, rule in enumerate(words.rules):
        wanted = [s.taken(rule, w) for s in by_hash for w in range(len(s.tags))]
        assert words.taken()[place].tolist() == [-1 if w is None else w for w in wanted]


@pytest.mark.parametrize(("seed", "causal"), [(3, False), (4, True)])
def test_preferences_are_those_of_plain_loops(seed: int, *, causal: bool) -> None:
    """The interval by the influence of each sentence on the difference, found by weighting it."""
    sentences = drawn(seed, causal=causal)
    tests, report = relation_tests(stored(sentences), ALL), half(sentences, 1)
    for n, label in enumerate(tests.labels):
        head: Place = tuple(tests.head[n].tolist())
        inside, outside = preference(report, [1] * len(report), label, head)
        found = tests.held_out_preference
        assert found.share[n] == pytest.approx(inside)
        assert found.elsewhere[n] == pytest.approx(outside)
        assert found.difference.value[n] == pytest.approx(inside - outside)
        assert found.others[n] == n_others(report, label)
        words = [len([*s.cases(label)]) for s in report]
        moves = [e * sum(words) for e in influences(report, label, head)]
        there = sum(w > 0 for w in words)
        effective = sum(words) ** 2 / sum(w * w for w in words)
        error = math.sqrt(there / (there - 1) * sum(e * e for e in moves)) / sum(words)
        parts = [Part((inside - outside) * w, w, w) for w in words if w]
        error *= widening(parts, effective, error, (-1, 1), IntervalRule.USUAL)
        share = (1 + inside - outside) / 2
        number = share * (1 - share) / (error / 2) ** 2
        reach = float(stats.t.ppf(0.975, effective - 1))
        ends = [2 * _wilson_end(share, number, sign * reach) - 1 for sign in (-1, 1)]
        assert [found.difference.low[n], found.difference.high[n]] == pytest.approx(ends, abs=1e-6)


@pytest.mark.parametrize("grouped", [False, True])
def test_p_is_that_of_plain_loops(monkeypatch: pytest.MonkeyPatch, *, grouped: bool) -> None:
    """Of sentences one by one, and of groups of sentences where there are enough."""
    monkeypatch.setattr(inference, "MIN_SENTENCES_FOR_BUCKETS", 60 if grouped else 61)
    monkeypatch.setattr(inference, "N_BUCKETS", 16)
    sentences = drawn(4)
    tests, report = relation_tests(stored(sentences), ALL), half(sentences, 1)
    keys = sorted({s.key % 16 for s in report}) if grouped else [s.key for s in report]
    assert len(keys) == (8 if grouped else len(report))

    def ahead(label: str, head: Place) -> list[int]:
        rule = chosen(sentences, label)[1]
        return [
            sum(
                head_hits(s, label, head) - rule_hits(s, label, rule)
                for s in report
                if (s.key % 16 if grouped else s.key) == key
            )
            for key in keys
        ]

    cells = {(label, p): ahead(label, p) for label in tests.labels for p in PLACES}
    flips = [*zip(*map(signs_of, keys), strict=True)]
    most = [max(statistic(cell, flip) for cell in cells.values()) for flip in flips]
    for n, label in enumerate(tests.labels):
        own = statistic(cells[label, chosen(sentences, label)[0]], [1] * len(keys))
        reach = sum(m >= own - 1e-9 for m in most)
        assert tests.p[n] == pytest.approx((1 + reach) / (1 + FLIPS), abs=1e-12)


def treebank() -> list[Annotated]:
    """Trees of the sample's sentences, in the halves of their order."""
    with open_corpus([TREEBANK]) as corpus:
        return [
            Annotated(
                number * 0x9E3779B97F4A7C15 % 2**64,
                [w.upos for w in item.words or ()],
                [w.head if w.head >= 0 else None for w in item.words or ()],
                [w.relation for w in item.words or ()],
                {},
            )
            for number, item in enumerate(corpus)
        ]


def gold(sentence: Annotated, word: int) -> int | None:
    """Follows the tree: from each word to its head."""
    return sentence.heads[word]


def follows(rule: str) -> Callable[[Annotated, int], int | None]:
    """Follows a surface rule, and looks at the previous word if the rule names none."""

    def head(sentence: Annotated, word: int) -> int | None:
        found = sentence.named(rule, word)
        return found if found is not None else word - 1 if word else None

    return head


RULE_HEADS = ("offset:-1", "offset:1", "next:NOUN_PRON_PROPN", "nearest:PUNCT", "previous:VERB")


def test_a_head_that_follows_the_tree_is_claimed() -> None:
    """Beside heads that follow rules, which are not."""
    heads = (gold, *map(follows, RULE_HEADS))
    sentences = looking(grammatical(1, 300), *heads)
    tests = relation_tests(stored(sentences), np.ones((1, len(heads)), bool))
    claimed = {label for label, sure in zip(tests.labels, tests.claimed, strict=True) if sure}
    assert {"nsubj:to_head", "obl:to_head", "nmod:to_head", "acl:relcl:to_head"} <= claimed
    for n, label in enumerate(tests.labels):
        if label in claimed:
            assert tuple(tests.head[n]) == (0, 0)
            assert tests.held_out.accuracy.value[n] == tests.accuracy_where_rule_fails.value[n] == 1
            assert tests.held_out.margin.low[n] > 0
            assert tests.p[n] < 0.05
        elif label.endswith("to_head") and tests.held_out.margin.low[n] > 0 and tests.p[n] < 0.05:
            # All words of a class are in the relation.
            assert not tests.held_out_preference.comparable[n]


@pytest.mark.parametrize("sentences", [treebank(), grammatical(2, 300)], ids=["sample", "grammar"])
def test_no_head_that_follows_a_rule_is_claimed(sentences: list[Annotated]) -> None:
    """The next noun finds most prepositions' nouns, and punctuation from everywhere its own."""
    made = stored(looking(sentences, *map(follows, RULE_HEADS)))
    tests = relation_tests(made, np.ones((1, len(RULE_HEADS)), bool))
    assert len(tests.labels) > 10
    assert not tests.claimed.any()
    assert (tests.p > 0.5).all()


def test_punctuation_from_everywhere_is_no_relation_even_if_it_beats_every_rule() -> None:
    """A head which attends to its own punctuation mark from each word, be it a head or not."""

    def marks(sentence: Annotated, word: int) -> int | None:
        own = [w for w, head in enumerate(sentence.heads) if head == word]
        mine = [w for w in own if sentence.tags[w] == "PUNCT"]
        any_mark = [w for w, tag in enumerate(sentence.tags) if tag == "PUNCT" and w != word]
        found = [*any_mark, *mine]
        return found[-1] if found else None

    sentences = looking(treebank(), marks)
    tests = relation_tests(stored(sentences), np.ones((1, 1), bool))
    n = tests.labels.index("punct:to_dependent")
    held_out = tests.held_out._replace(margin=tests.held_out.accuracy)
    beaten = replace(tests, p=np.full(len(tests.labels), 0.001), held_out=held_out)
    assert beaten.above_rule[n]  # whatever the rules find
    assert tests.held_out_preference.elsewhere[n] > 0.9
    assert not tests.held_out_preference.clear[n]
    assert not beaten.claimed[n]


def test_a_head_is_named_by_the_rule_that_it_follows() -> None:
    rules = ["next:NOUN_PRON_PROPN", "offset:-2", "nearest:VERB", "last:nouns"]
    sentences = looking(treebank(), *map(follows, rules), gold)
    found = rules_of(stored(sentences), np.ones((1, 5), bool))
    assert [found[0, n].rule for n in range(4)] == rules
    report = half(sentences, 1)
    for (_, n), rule in found.items():
        words, hits = [], []
        for s in report:
            named = {w: s.named(rule.rule, w) for w in range(len(s.tags)) if s.looks(w)}
            agree = [
                [word is not None and word == row[w] for row in s.strongest.values()]
                for w, word in named.items()
            ]
            words.append(len(agree))
            hits.append([sum(column) for column in zip(*agree, strict=True)] if agree else [0] * 5)
        own = [Part(h[n], w, w) for h, w in zip(hits, words, strict=True)]
        ahead = [Part(h[n] - sum(h) / 5, w, w) for h, w in zip(hits, words, strict=True)]
        assert rule.agreement == pytest.approx(ratio(own, (0, 1)))
        assert rule.margin == pytest.approx(ratio(ahead, (-1, 1)))
        assert rule.mean.value == pytest.approx(rule.agreement.value - rule.margin.value)
        assert rule.names == (rule.agreement.value >= MIN_RULE_AGREEMENT and rule.margin.low > 0)
    assert all(found[0, n].names for n in range(4))


def test_a_rule_of_all_heads_names_none() -> None:
    """If every head follows a rule, no head is above the mean one."""
    made = stored(looking(treebank(), follows("offset:1"), follows("offset:1")))
    found = rules_of(made, np.ones((1, 2), bool))
    assert {rule.agreement.value > 0.9 for rule in found.values()} == {True}
    assert not any(rule.names for rule in found.values())


def test_the_headline_is_chosen_on_the_choice_half() -> None:
    tests = relation_tests(stored(drawn(0)), ALL)
    everywhere = np.ones(len(tests.labels), bool)
    first = tests.best_label(everywhere)
    assert first == int(tests.selection.margin.value.argmax())
    fewer = everywhere.copy()
    fewer[first] = False
    assert tests.best_label(fewer) != first
    assert tests.best_label(~everywhere) is None


def test_under_the_null_one_family_in_twenty_has_a_p_below_five_per_cent() -> None:
    """Heads and the rule toss coins: a sentence's differences are as likely as the opposite."""
    draw, families, wrong = np.random.default_rng(11), 400, 0
    for _ in range(families):
        heads = draw.binomial(6, 0.5, (30, 2, 3, 4))
        rule = draw.binomial(6, 0.5, (30, 1, 1, 4))
        keys = draw.integers(0, 2**63, 30, dtype=np.uint64)
        p = sign_flip_p((heads - rule).astype(np.float32), np.ones((2, 3), dtype=bool), keys)
        wrong += bool(p.min() <= 0.05)
    low, high = stats.binom.interval(0.999, families, 0.05)
    assert low <= wrong <= high


def equal(one: object, other: object) -> None:
    np.testing.assert_array_equal(np.array(one, float), np.array(other, float))


@pytest.mark.parametrize("size", [10**6, 150])
def test_order_and_parts_of_the_corpus_change_nothing(size: int) -> None:
    """All words of a sample that is cut off, too: the sample of two parts is that of the whole."""
    sentences = drawn(5)
    whole = stored(sentences, size)
    parts = [stored(sentences[a:b], size) for a, b in ((0, 7), (7, 31), (31, 60))]
    firsts = (0, 7, 31)
    first, second, third = (p.shifted(by) for p, by in zip(parts, firsts, strict=True))
    for other in ((first + second) + third, third + (second + first)):
        for name in ("content_hash", "index", "lengths", "strongest", "tag", "head", "asked"):
            np.testing.assert_array_equal(getattr(other, name), getattr(whole, name))
    assert whole.lengths.sum() >= min(size, sum(len(s.tags) for s in sentences))
    assert whole.lengths[:-1].sum() < size
    equal(relation_tests(stored(sentences[::-1], size), ALL).p, relation_tests(whole, ALL).p)


def test_heads_that_are_not_there_take_no_part() -> None:
    there = ALL.copy()
    there[0] = there[1, 0] = False
    found = stored(drawn(6))
    tests = relation_tests(found, there)
    assert {tuple(head) for head in tests.head.tolist()} <= {(1, 1), (1, 2)}
    assert np.isnan(tests.layer_margin.value[0]).all()
    assert not np.isnan(tests.layer_margin.value[1]).any()
    assert tests.family == 2 * len(tests.labels)
    fewer = replace(found, strongest=found.strongest[:, 1:, 1:])
    equal(relation_tests(fewer, np.ones((1, 2), dtype=bool)).p, tests.p)
    assert {*rules_of(found, there)} == {(1, 1), (1, 2)}


def one_relation(sentences: int, cases: int = 2, extra: int = 0) -> StrongestWords:
    """Objects in some sentences of each half, in the first one of each more of them."""
    found = []
    for n in range(2 * sentences):
        objects = cases + extra * (n < 2)
        tags, heads = ["VERB"] + ["NOUN"] * objects, [None, *[0] * objects]
        rows: dict[Place, list[int | None]] = {p: [1, *[0] * objects] for p in PLACES}
        found.append(Annotated(n, tags, heads, ["root", *["obj"] * objects], rows))
    return stored(found)


def test_labels_of_fewer_than_ten_effective_sentences_to_report_are_left_out() -> None:
    for sentences, extra, ranked in ((9, 0, False), (10, 0, True), (10, 1, False)):
        found = one_relation(sentences, extra=extra)
        assert ("obj:to_head" in relation_tests(found, ALL).labels) == ranked


@pytest.mark.usefixtures("of_any_number")
def test_one_sentence_has_no_interval_and_no_p(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "MIN_EFFECTIVE", 1)
    tests = relation_tests(one_relation(1), ALL)
    assert len(tests.labels) == 2
    assert np.isnan([*tests.held_out.margin.low, *tests.held_out.margin.high, *tests.p]).all()
    assert not np.isnan(tests.held_out.margin.value).any()
    assert not tests.claimed.any()


def test_without_sentences_nothing_is_tested() -> None:
    empty = stored(drawn(0)).of(HELD_OUT)
    empty = replace(empty, size=0).smallest()
    empty = replace(empty, strongest=np.zeros((0, *SHAPE), np.int16))
    tests = relation_tests(empty, ALL)
    assert tests.labels == ()
    assert tests.p.shape == (0,)
    taken = empty.taken()
    assert not any(count_relation(empty, taken, x).words.sum() for x in range(len(empty.labels)))
    assert rules_of(empty, ALL) == {}


def test_the_best_offset_finds_most_words_of_all_sentences() -> None:
    sentences = drawn(3)
    found = stored(sentences)
    taken = found.taken()
    for n, label in enumerate(found.labels):
        words = sum(len([*s.cases(label)]) for s in sentences)
        counts = count_relation(found, taken, n)
        assert counts.words.sum() == words
        if label not in LABELS:
            assert words == 0
            continue
        hits = counts.rules[:, : len(OFFSETS)].sum(0)
        at = [sum(rule_hits(s, label, f"offset:{o}") for s in sentences) for o in OFFSETS]
        assert hits.max() == max(at)
        ends = [o for o, count in zip(OFFSETS, at, strict=True) if count == max(at)]
        assert OFFSETS[best_rule(hits)] == min(ends, key=abs)


def test_of_equal_rules_the_simplest_counts() -> None:
    """The nearest offset, so that a direction and its mirror image have the same one."""
    counts = np.zeros(len(RULES), np.int64)
    counts[[OFFSETS.index(-3), OFFSETS.index(-2), RULES.index("next:NOUN")]] = 7
    assert RULES[best_rule(counts)] == "offset:-2"
    counts[: len(OFFSETS)] = counts[: len(OFFSETS)][::-1].copy()
    assert RULES[best_rule(counts)] == "offset:2"
    counts[RULES.index("next:NOUN")] = 8
    assert RULES[best_rule(counts)] == "next:NOUN"


def test_relations_of_the_scheme_are_found_by_number() -> None:
    found = stored(drawn(1))
    labels = [found.labels[label] for label in found.labels_asked()]
    assert sorted(labels) == sorted(LABELS)
    assert found.scheme.relations == RELATIONS
