"""Facts on depth: how numbers change from the first third of the layers to the last.

Every layer counts alike, and the change is paired by sentence (`headbook.analysis.depth`). If a few
sentences hold more than a third of a numerator, what is claimed rests on the number without them.
Attention by depth is the subject of Vig & Belinkov (2019, arXiv:1906.04284).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimate, without_interval
from headbook.analysis.depth import depth_changes, head_correlation
from headbook.analysis.few_clusters import few_clusters
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.analysis.multiple_testing import ALPHA
from headbook.analysis.paired import ClusterSums
from headbook.metrics import ids
from headbook.report.facts import words
from headbook.report.leaders import Leaders, alike_note, layer_leaders
from headbook.report.results import TAG_VIEW, StackResults
from headbook.report.wording import FEW_WORDS, VIEWS, is_share, label_name
from headbook.results.fact import Fact, Tested
from headbook.results.number import PLAIN, SHARE, Number
from headbook.results.sentence import NOTHING, Sentence, listed, say
from headbook.schema import HeadKey, SinkView

CHANGE = "last third of the layers minus first third"  # claim
WITHOUT_FEW = f"{CHANGE}, without few sentences"  # claim
FEW = "share of the numerator that few sentences hold"  # claim
FIRST_THIRD = "first third of the layers"  # baseline
MOST_LAYER, LEAST_LAYER = "first of all layers", "last of all layers"  # claims
CORRELATION = "correlation of two numbers over heads"  # claim
# Views of Vig & Belinkov: the sink is masked, and for entropies rows are renormalised. Without
# that, the few queries with attention outside the sink decide a distance, so it has both views.
DISTANCE = HeadKey(ids.ATTENTION_DISTANCE, SinkView.RENORM, "")
MASKED_DISTANCE = DISTANCE._replace(view=SinkView.NOSINK)
ENTROPY = HeadKey(ids.ATTENTION_ENTROPY, SinkView.RENORM, "")
VARIABILITY = HeadKey(ids.VARIABILITY, SinkView.NOSINK, "")
SINK = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
ALIGNMENT = HeadKey(ids.DEPENDENCY_ALIGNMENT, SinkView.NOSINK, "either")
# Alignment that distance alone explains falls and rises with distance.
BEYOND_DISTANCE = HeadKey(ids.DEPENDENCY_EXCESS, SinkView.NOSINK, "")
QUANTITIES = (
    DISTANCE, MASKED_DISTANCE, ENTROPY, VARIABILITY, SINK, ALIGNMENT, BEYOND_DISTANCE,
)  # fmt: skip
PUBLISHED = {ENTROPY: 0.61, ALIGNMENT: -0.73}  # correlation with distance in GPT-2 small, section 5
MAX_NAMED = 2  # parts of speech by name in a sentence


class DepthChange(NamedTuple):
    """Change of a number with depth.

    Attributes:
        all: last third minus first third on all sentences.
        without: the same without the few sentences that decide the number; None if none do.
        few: their number and the share of the numerator that they hold; None if none do.
    """

    all: Tested
    without: Tested | None
    few: Tested | None

    @property
    def decisive(self) -> Tested:
        """The change on which claims rest."""
        return self.without or self.all

    @property
    def holds(self) -> bool:
        """Whether the number changes with depth: a test and the interval agree."""
        _, low, high, *_ = self.decisive.difference
        return bool(self.decisive.p < ALPHA and (low > 0 or high < 0))

    @property
    def evidence(self) -> tuple[Tested, ...]:
        """The rows behind it."""
        return tuple(tested for tested in self if tested is not None)


def changes(results: StackResults, keys: Sequence[HeadKey]) -> dict[HeadKey, DepthChange]:
    """Return the change of each number of a family with depth, as far as the study can tell.

    Missing are numbers without sums by sentence or bucket, of too few sentences, and all numbers of
    a stack of one layer.
    """
    layers = [*results.stack.attention_layers]
    known = {key: sums for key in keys if (sums := _layer_sums(results, key, layers)) is not None}
    if len(layers) < 2 or not known:
        return {}
    all_sums = ClusterSums(*(np.stack(part, -1) for part in zip(*known.values(), strict=True)))
    few = few_clusters(all_sums.n.sum(1), results.sentences_of_clusters(next(iter(known))))
    others = ClusterSums(*(np.where(few.mask[:, None], 0, part) for part in all_sums))
    of_all, of_others = depth_changes(all_sums), depth_changes(others)
    made = {}
    for index, key in enumerate(known):
        n, n_few = int(results.layers(*key).sentences.max()), int(few.sentences[index])
        change, without = ([float(part[index]) for part in each] for each in (of_all, of_others))
        share = Tested(
            FEW, results.stack.name, key.metric, str(key.view), key.label,
            without_interval(float(few.share[index]), n_few),
        )  # fmt: skip
        made[key] = DepthChange(
            _tested(results, key, CHANGE, change, n),
            _tested(results, key, WITHOUT_FEW, without, n - n_few) if n_few else None,
            share if n_few else None,
        )
    return made


def _layer_sums(results: StackResults, key: HeadKey, layers: Sequence[int]) -> ClusterSums | None:
    """Return the sums of all heads of each layer; None without, or if a layer has too few."""
    sums = results.cluster_sums(key) if results.has_value(*key) else None
    if sums is None or not (results.layers(*key).effective[[*layers]] >= MIN_EFFECTIVE).all():
        return None
    n, d = (part.sum(2)[:, [*layers]] for part in sums)
    return ClusterSums(n, d)


def _tested(
    results: StackResults, key: HeadKey, claim: str, change: Sequence[float], sentences: int
) -> Tested:
    """Return the row of a change: the fields of `DepthChanges` of one number."""
    first, last, value, low, high, p = change
    return Tested(
        claim, results.stack.name, key.metric, str(key.view), key.label,
        without_interval(last, sentences), baseline=FIRST_THIRD, baseline_value=first,
        difference=Estimate(value, low, high, sentences, np.nan), p=p,
    )  # fmt: skip


def _made_changes(_: StackResults) -> dict[HeadKey, DepthChange | None]:
    """Return the changes that were computed before."""
    return {}


def change_of(results: StackResults, key: HeadKey) -> DepthChange | None:
    """Return the change of one number with depth; None if the study cannot tell."""
    made = results.cached(_made_changes)
    if key not in made:
        made[key] = changes(results, [key]).get(key)
    return made[key]


def number_of_change(results: StackResults, tested: Tested) -> Number:
    """Return a change in the unit of its metric; of shares in points."""
    metric = results.by_id[tested.metric]
    return tested.change(share=is_share(metric), unit=f" {metric.unit}" if metric.unit else "")


def by_depth(results: StackResults, key: HeadKey) -> Fact:
    """Return whether a number of heads rises or falls with depth; for any metric with layers.

    ``holds`` is False without a clear change, and without text if the study cannot tell.
    """
    change = change_of(results, key)
    if change is None:
        return Fact("by_depth", holds=False)
    metric, start = results.by_id[key.metric], ": no clear change,"
    if change.holds:
        rises = change.decisive.difference.value > 0
        start = f", {'rises' if rises else 'falls'} with depth:"
    label = f" ({label_name(key.label)})" if key.label else ""
    text = say(
        "{name}{start} last minus first third {n:interval}{few}.",
        name=f"{metric.title}{label}, {VIEWS[key.view]}", start=start,
        n=number_of_change(results, change.all), few=_without_few(results, change),
    )  # fmt: skip
    return Fact("by_depth", text, change.evidence, holds=change.holds)


def _without_few(results: StackResults, change: DepthChange) -> Sentence:
    """Return the change without the few sentences that decide the number; or nothing."""
    if change.without is None or change.few is None:
        return NOTHING
    n, noun = change.few.value.sentences, results.study.manifest.text_noun
    return say(
        "; without {sentences} that hold {share:whole} {n:interval}",
        sentences=f"{n} {noun}{'s' * (n != 1)}", share=change.few.number(SHARE),
        n=number_of_change(results, change.without),
    )  # fmt: skip


def leading_layer(results: StackResults, key: HeadKey) -> Fact:
    """Return the layers of the largest and the smallest number, each beside uniform attention.

    If a test does not tell the first one from more than half of the layers, it is not named.
    """
    rows, parts = [], []
    for claim, name, lowest in ((MOST_LAYER, "Most", False), (LEAST_LAYER, "least", True)):
        leaders = layer_leaders(results, key, lowest=lowest)
        if leaders is None or leaders.candidates < 2:
            return Fact("leading_layer", holds=False)
        rows.append(_leader_row(results, key, claim, leaders))
        if 2 * len(leaders.places) <= leaders.candidates:
            (layer,), note = leaders.first, alike_note(results, leaders)
            n, uniform = results.number(key, layer), results.uniform_number(key, layer)
            template = "{name} in layer {layer}{note}: {n:interval}, uniform attention {uniform}"
            if not uniform.known:
                template = "{name} in layer {layer}{note}: {n:interval}"
            parts.append(say(template, name=name, layer=layer, note=note, n=n, uniform=uniform))
    text = say("{parts}.", parts=listed(parts, "; ")) if parts else NOTHING
    return Fact("leading_layer", text, tuple(rows), holds=bool(parts))


def _leader_row(results: StackResults, key: HeadKey, claim: str, leaders: Leaders) -> Tested:
    """Return the row of the layer that leads, beside the best one that a test tells from it."""
    values, (layer,), second = results.layers(*key), leaders.first, leaders.second
    return Tested(
        claim, results.stack.name, key.metric, str(key.view), key.label, values.at(layer), layer,
        baseline=f"layer {second[0]}" if second else "",
        baseline_value=float(values.value[second]) if second else np.nan, p=leaders.p,
    )  # fmt: skip


def quantities(results: StackResults) -> list[HeadKey]:
    """Return the numbers of the page of depth that a study has."""
    return [key for key in QUANTITIES if change_of(results, key) is not None]


def depth_rows(results: StackResults) -> Fact:
    """Return the evidence on depth: of each metric in the view of its page, and of this page."""
    drawn = {
        HeadKey(metric.id, *view_and_label)
        for metric in results.metrics
        if metric.has_layer_value and (view_and_label := results.drawn(metric))
    }
    of_tags = {*received_keys(results), *given_keys(results)}  # tested together, as families
    keys = [*QUANTITIES, *sorted(drawn - of_tags - {*QUANTITIES})]
    rows = [tested for key in keys for tested in by_depth(results, key).evidence]
    rows += [
        tested for key in quantities(results) for tested in leading_layer(results, key).evidence
    ]
    return Fact("depth", evidence=tuple(rows), holds=bool(rows))


def received_keys(results: StackResults) -> list[HeadKey]:
    """Return the shares of attention to frequent kinds of words, renormalised."""
    return [HeadKey(ids.POS_RECEIVED, TAG_VIEW, tag) for tag in words.frequent(results)]


def given_keys(results: StackResults) -> list[HeadKey]:
    """Return the shares of attention from frequent kinds of words."""
    return [
        HeadKey(ids.POS_GIVEN, words.GIVEN_VIEW, tag)
        for tag in results.labels(ids.POS_GIVEN)
        if words.n_words(results, results.stack.queries, tag) >= FEW_WORDS
    ]


def received_by_depth(results: StackResults) -> Fact:
    """Return the parts of speech that receive more, and those that receive less, with depth."""
    return _by_tag(results, "received", received_keys(results))


def given_by_depth(results: StackResults) -> Fact:
    """Return the parts of speech that give more, and those that give less, with depth."""
    return _by_tag(results, "given", given_keys(results))


def tag_changes(results: StackResults, keys: Sequence[HeadKey]) -> dict[HeadKey, DepthChange]:
    """Return the changes of a family of parts of speech, the largest first."""
    made = changes(results, keys)
    return dict(sorted(made.items(), key=lambda each: -abs(each[1].decisive.difference.value)))


def _by_tag(results: StackResults, side: str, keys: Sequence[HeadKey]) -> Fact:
    """Return the fact on attention received or given, tested family-wise over parts of speech."""
    made = tag_changes(results, keys)
    if not made:
        return Fact(f"{side}_by_depth", holds=False)
    rises, falls = (
        [(key.label, change) for key, change in made.items()
         if change.holds and sign * change.decisive.difference.value > 0]
        for sign in (1, -1)
    )  # fmt: skip
    evidence = tuple(tested for change in made.values() for tested in change.evidence)
    parts = [
        say("{verb} for {tags}", verb=verb, tags=_named(results, of))
        for verb, of in (("rises", rises), ("falls", falls))
        if of
    ]
    if not parts:
        text = say("Attention {side} changes clearly with depth for no part of speech.", side=side)
        return Fact(f"{side}_by_depth", text, evidence, holds=False)
    text = say(
        "With depth, attention {side} {parts}.",
        side=side, parts=listed(parts, "; "),
    )  # fmt: skip
    return Fact(f"{side}_by_depth", text, evidence)


def _named(results: StackResults, tags: Sequence[tuple[str, DepthChange]]) -> Sentence:
    """Return parts of speech with their changes, as many as a sentence has room for."""
    named = [
        say("{tag} ({n})", tag=words.tag_name(tag), n=number_of_change(results, change.all))
        for tag, change in tags[:MAX_NAMED]
    ]
    rest = len(tags) - len(named)
    return listed([*named, f"{rest} more"] if rest else named)


class HeadCorrelation(NamedTuple):
    """Correlation of the distance of heads with another number.

    Attributes:
        other: the other number.
        tested: the correlation.
    """

    other: HeadKey
    tested: Tested

    @property
    def number(self) -> Number:
        """The correlation as pages print it."""
        return self.tested.number(PLAIN)


def correlations(results: StackResults) -> Fact:
    """Return the correlations of distance with entropy and with alignment, over heads."""
    evidence = tuple(each.tested for each in head_correlations(results))
    return Fact("depth_correlations", evidence=evidence, holds=bool(evidence))


def head_correlations(results: StackResults) -> Iterator[HeadCorrelation]:
    """Yield the correlations over all heads that have both numbers."""
    for other in (ENTROPY, ALIGNMENT):
        sums = [
            results.cluster_sums(key) if results.has_value(*key) else None
            for key in (MASKED_DISTANCE, other)
        ]
        if sums[0] is None or sums[1] is None or len(sums[0].n) != len(sums[1].n):
            continue
        has_both = (sums[0].d.sum(0) > 0) & (sums[1].d.sum(0) > 0)
        if has_both.sum() > 2 and len(sums[0].n) >= MIN_EFFECTIVE:
            first, second = (ClusterSums(*(p[:, has_both] for p in each)) for each in sums if each)
            sentences = int(results.heads(*MASKED_DISTANCE).sentences.max())
            value = Estimate(*head_correlation(first, second), sentences, float(has_both.sum()))
            tested = Tested(
                CORRELATION, results.stack.name, f"{MASKED_DISTANCE.metric}, {other.metric}",
                str(other.view), other.label, value,
            )  # fmt: skip
            yield HeadCorrelation(other, tested)
