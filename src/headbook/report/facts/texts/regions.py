"""Facts about the regions of texts, such as the two texts of a pair: which heads seek another one.

A head *seeks* a region from another one if it gives more attention than distance alone explains
(`headbook.metrics.targets.region_excess`) on the held-out half: family-wise over all heads and
ordered pairs of regions, and by at least `thresholds.REGION_EXCESS`.

*Null hypothesis:* the vector of differences of a text (attention between regions minus the expected
one), over all heads and pairs, is as likely as the vector with the opposite sign. The expected
weights come from the other half.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate
from headbook.analysis.multiple_testing import sign_flip_p
from headbook.metrics import ids
from headbook.metrics.base import SampledMetric
from headbook.report.leaders import highest
from headbook.report.relation_tests import is_supported
from headbook.report.results import StackResults
from headbook.report.thresholds import REGION_EXCESS
from headbook.report.wording import count_text
from headbook.results.fact import Fact, Tested
from headbook.results.number import Number, difference
from headbook.results.sentence import Sentence, listed, say
from headbook.schema import (
    HELD_OUT_SPLIT,
    PAIR_REGIONS,
    HeadKey,
    HeadName,
    Place,
    SinkView,
    regions_of,
)
from headbook.study.corpus_sums import sampled_ratios
from headbook.study.sentence_data import Exemplar

SEEKS = "attention from one region to another beyond distance"  # claim
BY_DISTANCE = "the head's weights by distance"
VIEW = SinkView.RENORM


def share_key(label: str) -> HeadKey:
    """Return the key of attention between two regions, off the sink."""
    return HeadKey(ids.REGION_ATTENTION, VIEW, label)


def excess_key(label: str) -> HeadKey:
    """Return the key of attention between two regions beyond distance."""
    return HeadKey(ids.REGION_EXCESS, VIEW, label)


def phrase(label: str) -> str:
    """Return an ordered pair of regions in words.

    Examples:
        >>> phrase("second text→first text")
        'from the second text to the first'
        >>> phrase("assistant→user")
        'from the assistant to the user'
    """
    queries, keys = regions_of(label)
    noun = " text"
    if queries.endswith(noun) and keys.endswith(noun):
        keys = keys.removesuffix(noun)
    return f"from the {queries} to the {keys}"


def arrow(label: str) -> str:
    """Return an ordered pair of regions in few words.

    Examples:
        >>> arrow("second text→first text")
        'second text → first'
    """
    return phrase(label).removeprefix("from the ").replace(" to the ", " → ")


def labels(results: StackResults) -> list[str]:
    """Return the ordered pairs of regions that have numbers, those within a region included."""
    pairs = results.labels(ids.REGION_ATTENTION)
    return [label for label in pairs if results.has_value(*share_key(label))]


def crossing(results: StackResults) -> list[str]:
    """Return the ordered pairs of two different regions with attention beyond distance."""
    return [
        label
        for label in results.labels(ids.REGION_EXCESS)
        if len({*regions_of(label)}) > 1 and results.has_value(*excess_key(label))
    ]


class RegionTest(NamedTuple):
    """Test of a head on the held-out half.

    Attributes:
        held_out: attention beyond distance.
        p: family-wise p value.
        supported: whether the head seeks the region: by the test, by its number on all sentences,
            and by the lower end of the interval of ``held_out``.
    """

    held_out: Estimate
    p: float
    supported: bool


def region_tests(results: StackResults) -> Mapping[tuple[Place, str], RegionTest]:
    """Return the tests of all heads and ordered pairs of two regions; empty if not measured."""
    return results.cached(_region_tests)


def _region_tests(results: StackResults) -> dict[tuple[Place, str], RegionTest]:
    pairs, metric = crossing(results), results.by_id.get(ids.REGION_EXCESS)
    if results.baseline or not pairs or not isinstance(metric, SampledMetric):
        return {}
    sampled = results.study.corpus_sums.sampled.get(results.stack.name)
    if sampled is None:
        return {}
    sums = sampled_ratios(sampled, metric, VIEW)
    if sums is None:
        return {}
    columns = [metric.listed.index(label) for label in pairs]
    texts = sampled.stats.half == HELD_OUT
    present = ~np.isnan(results.heads(*excess_key(pairs[0])).value)
    p = sign_flip_p(sums.n[texts][..., columns], present, sampled.stats.content_hash[texts])
    tests = {}
    for number, label in enumerate(pairs):
        held_out = results.split(HELD_OUT, *excess_key(label))
        of_all = results.heads(*excess_key(label)).value  # what pages print
        is_large = np.minimum(held_out.low, of_all) >= REGION_EXCESS.value
        supported = is_supported(p[..., number], held_out) & is_large
        for layer, head in np.argwhere(present).tolist():
            place = layer, head
            tests[place, label] = RegionTest(
                held_out.at(*place), float(p[(*place, number)]), bool(supported[place])
            )
    return tests


def sought(results: StackResults, place: Place) -> str | None:
    """Return the ordered pair that a head seeks most beyond distance; None if it seeks none."""
    tests = region_tests(results).items()
    supported = [label for (at, label), test in tests if at == place and test.supported]
    values = {label: results.heads(*excess_key(label)).value[place] for label in supported}
    return max(values, key=lambda label: values[label], default=None)


def seeking(results: StackResults, label: str) -> list[HeadName]:
    """Return the heads that seek a region from another one, the largest excess first."""
    values = results.heads(*excess_key(label)).value
    tests = region_tests(results).items()
    places = [at for (at, pair), test in tests if pair == label and test.supported]
    places.sort(key=lambda place: -values[place])
    return [HeadName(results.stack.name, *place) for place in places]


def share(results: StackResults, label: str, head: HeadName) -> Number:
    """Return the share of a head's attention that goes from one region to another."""
    return results.number(share_key(label), head.layer, head.head)


def beyond(results: StackResults, label: str, head: HeadName) -> Number:
    """Return attention beyond distance, in points with a sign."""
    found = results.number(excess_key(label), head.layer, head.head)
    return difference(
        found.value, found.low, found.high, found.row, share=True, sentences=found.sentences
    )


def tested(results: StackResults, label: str, head: HeadName) -> Tested:
    """Return the row of the table ``tests`` of a head and an ordered pair."""
    test, key = region_tests(results)[(head.layer, head.head), label], excess_key(label)
    return Tested(
        SEEKS, head.stack, key.metric, str(key.view), label, test.held_out, head.layer, head.head,
        HELD_OUT_SPLIT, BY_DISTANCE, 0.0, test.held_out, p=test.p,
    )  # fmt: skip


def between_regions(results: StackResults) -> Fact:
    """Return which heads seek another region, those with the largest excess by name.

    The half that gave no expected weights tests all heads and ordered pairs, family-wise; printed
    numbers are those of all texts.
    """
    pairs = crossing(results)
    if not pairs or not region_tests(results):
        return Fact("regions", say("Not measured here: the texts have no regions."), holds=False)
    by_pair = {label: heads for label in pairs if (heads := seeking(results, label))}
    order = sorted(by_pair, key=lambda label: -beyond(results, label, by_pair[label][0]).value)
    most = MOST_NAMED if len(order) == 1 else 1
    named = {label: by_pair[label][:most] for label in order[:MOST_NAMED]}
    return Fact(
        "regions",
        _seeking_text(results, by_pair, named),
        tuple(tested(results, *each) for each in _tested_heads(results, by_pair)),
        tuple(head for heads in named.values() for head in heads),
        holds=bool(named),
    )


def _seeking_text(
    results: StackResults,
    by_pair: Mapping[str, Sequence[HeadName]],
    named: Mapping[str, Sequence[HeadName]],
) -> Sentence:
    """Return how many heads seek another region, and some of them with excess and region."""
    known = np.isfinite(results.heads(*excess_key(crossing(results)[0])).value)
    n_heads, other = count_text(int(known.sum()), "head"), other_part(results)
    if not named:
        text = "No head of {heads} attends to {other} more than distance explains."
        return say(text, heads=n_heads, other=other)
    heads = {head for of_pair in by_pair.values() for head in of_pair}
    n_named = sum(map(len, named.values()))
    of_pairs = [
        say("{heads}, {label}", label=arrow(label), heads=listed(
            say("{head} ({beyond})", head=head, beyond=beyond(results, label, head))
            for head in of_pair
        ))
        for label, of_pair in named.items()
    ]  # fmt: skip
    return say(
        "{n} of {heads} {attend} to {other} more than distance explains{such}{named}.",
        n=len(heads), heads=n_heads, other=other, named=listed(of_pairs, "; ", "; "),
        attend="attends" if len(heads) == 1 else "attend",
        such=": " if n_named == sum(map(len, by_pair.values())) else ", such as ",
    )  # fmt: skip


def _tested_heads(
    results: StackResults, by_pair: Mapping[str, Sequence[HeadName]]
) -> Iterator[tuple[str, HeadName]]:
    """Yield the heads that seek a region, or else the one with the largest excess on one half."""
    for label in crossing(results):
        chosen = highest(results.split(SELECTION, *excess_key(label)))
        largest = () if chosen is None else (HeadName(results.stack.name, *chosen),)
        yield from ((label, head) for head in by_pair.get(label, largest))


MOST_NAMED = 2  # heads that the answer names
OTHER_TEXT, OTHER_PART = "the other text", "another part"  # another region in words


def other_part(results: StackResults) -> str:
    """Return another region in words: the other text, if texts are pairs."""
    names = {name for label in crossing(results) for name in regions_of(label)}
    return OTHER_TEXT if names == {*PAIR_REGIONS} else OTHER_PART


def exemplars(results: StackResults, label: str, head: HeadName) -> Iterator[tuple[int, str, str]]:
    """Yield exemplars of a head with their largest weight from one region to the other.

    Yields:
        Number of the text, and the tokens of query and key; the largest weight first.
    """
    stack, found = results.stack, dict[int, tuple[int, str, str]]()
    for exemplar in results.cached(_exemplars).get(head, ()):
        text = results.study.sentence_data.sentences[exemplar.index].texts[stack.queries]
        inside = [
            np.array([text.region_of(place) == name for place in range(len(text.pieces))])
            for name in regions_of(label)
        ]
        keys = inside[1] & ~text.sink(causal=stack.causal)
        weights = np.where(np.outer(inside[0], keys), exemplar.attention, 0)
        query, key = np.unravel_index(weights.argmax(), weights.shape)
        found[exemplar.index] = int(weights.max()), text.pieces[query], text.pieces[key]
    for index, (weight, *tokens) in sorted(found.items(), key=lambda each: -each[1][0]):
        if weight:
            yield index + 1, tokens[0], tokens[1]


def _exemplars(results: StackResults) -> dict[HeadName, list[Exemplar]]:
    """Return the exemplars of each head, those of one text by its first map."""
    by_head: dict[HeadName, dict[int, Exemplar]] = {}
    for exemplar in results.study.sentence_data.by_weight:
        by_head.setdefault(exemplar.head, {}).setdefault(exemplar.index, exemplar)
    return {head: [*by_index.values()] for head, by_index in by_head.items()}
