"""Facts about the regions of texts, such as the two texts of a pair: which heads seek another one.

A head *seeks* a region from another one if it gives more attention than distance alone explains
(`headbook.metrics.targets.region_excess`) on the held-out half: family-wise over all heads and
ordered pairs of regions, and by at least `thresholds.REGION_EXCESS`.

*Null hypothesis:* the vector of differences of a text (attention between regions minus the expected
one), over all heads and pairs, is as likely as the vector with the opposite sign. The expected
weights come from the other half.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate
from headbook.analysis.multiple_testing import sign_flip_p
from headbook.metrics import ids
from headbook.metrics.base import SampledMetric
from headbook.report.leaders import highest
from headbook.report.relation_tests import is_supported
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.thresholds import REGION_EXCESS
from headbook.report.wording import capital, count_text
from headbook.results.fact import Fact, Tested
from headbook.results.number import Number, difference
from headbook.results.sentence import Sentence, say
from headbook.schema import HELD_OUT_SPLIT, HeadKey, HeadName, Place, SinkView, regions_of
from headbook.study.corpus_sums import sampled_ratios

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


def _chosen(results: StackResults, label: str) -> HeadName | None:
    """Return the head with the largest excess on the half that chooses."""
    place = highest(results.split(SELECTION, *excess_key(label)))
    return None if place is None else HeadName(results.stack.name, *place)


def between_regions(results: StackResults) -> Fact:
    """Return which heads seek another region, and for each ordered pair one that does.

    One half of the texts chooses the head of a pair, and the other half tests it; shares are those
    of all texts.
    """
    pairs = crossing(results)
    if not pairs or not region_tests(results):
        return Fact("regions", say("Not measured here: the texts have no regions."), holds=False)
    heads = {head for label in pairs for head in seeking(results, label)}
    chosen = {label: _chosen(results, label) for label in pairs}
    named = {
        label: head for label, head in chosen.items() if head and head in seeking(results, label)
    }
    rows = {(label, head) for label in pairs for head in seeking(results, label)}
    rows |= {(label, head) for label, head in chosen.items() if head}
    evidence = tuple(tested(results, *each) for each in sorted(rows))
    n_heads = count_text(int(np.isfinite(results.heads(*excess_key(pairs[0])).value).sum()), "head")
    text = say(
        "No head of {heads} attends to another part of the text beyond what distance explains.",
        heads=n_heads,
    )
    if heads:
        text = say(
            "{n} of {heads} {attend} to another part of the text beyond what distance explains.",
            n=len(heads), heads=n_heads, attend="attends" if len(heads) == 1 else "attend",
        )  # fmt: skip
    order = sorted(named, key=lambda label: -share(results, label, named[label]).value)
    for label in order[:MOST_NAMED]:
        text = text + _of_pair(results, label, named[label])
    return Fact("regions", text, evidence, tuple(named[label] for label in order), bool(named))


MOST_NAMED = 2  # ordered pairs that the answer names


def _of_pair(results: StackResults, label: str, head: HeadName) -> Sentence:
    return say(
        "{Where}, {head} gives {share} of its attention off {sink}, {beyond} beyond distance.",
        head=head, share=share(results, label, head), sink=sink_tokens(results),
        Where=capital(phrase(label)), beyond=beyond(results, label, head),
    )  # fmt: skip


def exemplars(results: StackResults, label: str, head: HeadName) -> Iterator[tuple[int, str, str]]:
    """Yield exemplars of a head whose largest weight goes from one region to the other.

    Yields:
        Number of the text, and the tokens of query and key; the strongest exemplar first.
    """
    queries, keys = regions_of(label)
    data = results.study.sentence_data
    seen = set[int]()
    for exemplar in data.by_weight:
        if exemplar.head != head or exemplar.index in seen:
            continue
        seen.add(exemplar.index)
        text = data.sentences[exemplar.index].texts[results.stack.queries]
        ends = text.region_of(exemplar.query), text.region_of(exemplar.key)
        if ends == (queries, keys):
            yield exemplar.index + 1, text.pieces[exemplar.query], text.pieces[exemplar.key]
