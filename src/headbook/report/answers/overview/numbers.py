"""Numbers behind the claims of the overview; each is None where its condition does not hold.

The conditions, in the order of `headbook.report.answers.overview.claims`:

- *sink*: the longest run of layers in which the sink receives surely at least twice the attention
  that uniform attention would give it.
- *same keys*: at least `MIN_SAME_KEYS` heads of one layer with the function ``same_keys``.
- *layer*: the effect of replacing all heads of a layer is the largest on one half of the sentences
  and lies above that of every other layer on the other half, by 95 % intervals.
- *sink heads*: replacing the sink heads together has an effect outside the range of random sets
  with as many heads in each layer (p < 0.05, by rank, both sides).
- *random weights*: three metrics in no layer outside the range of models with random weights.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate, Estimates, RatioSums
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics import all_metrics, ids
from headbook.report.ablation import LAYER, SINK, LayerRatio, layer_ratio, main_target
from headbook.report.facts.functions import FunctionFamily, functions_of
from headbook.report.facts.random_weights import no_layer_differs
from headbook.report.results import StackResults
from headbook.report.thresholds import TWICE_UNIFORM
from headbook.schema import FUNCTION, Baseline, HeadKey, Place, Replacement, SinkView
from headbook.study.ablation.results import AblationResults, HeadSet, HeadSetKind
from headbook.study.ablation_tables import GROUP

MIN_SAME_KEYS = 3  # heads of a layer
MAX_P = 0.05
SINK_SHARE = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
SINK_NORM = HeadKey(ids.SINK_NORM_SHARE, SinkView.RAW, "")
BY_KEY = HeadKey(ids.ATTENTION_PARTS, SinkView.RENORM, "key")
WORD_CLASSES = {
    "nouns and names": ("NOUN", "PROPN"),
    "verbs": ("VERB",),
    "adjectives and adverbs": ("ADJ", "ADV"),
    "function words": tuple(sorted(FUNCTION)),
    "punctuation": ("PUNCT",),
}


class SinkRun(NamedTuple):
    """Layers that attend much to the sink.

    Attributes:
        layers: a run of layers with attention.
        attention: share of the attention of these layers on the sink.
        uniform: share that uniform attention gives.
        norm: share of the value-weighted norm from the sink; NaN if not measured.
    """

    layers: tuple[int, ...]
    attention: Estimate
    uniform: float
    norm: Estimate

    @property
    def contributes_little(self) -> bool:
        """Whether the sink's share of the norm is surely less than half of its attention."""
        return self.norm.high < self.attention.low / 2


def run_mean(numbers: Estimates, run: Sequence[int]) -> Estimate:
    """Return the mean of a number over layers.

    The interval of the mean is the mean of the layers' intervals, which is wide enough however
    layers are correlated, since no mean varies more than its parts do on average.
    """
    value, low, high = (
        float(part[[*run]].mean()) for part in (numbers.value, numbers.low, numbers.high)
    )
    sentences, events = numbers.sentences[[*run]].min(), numbers.events[[*run]].sum()
    return Estimate(value, low, high, int(sentences), float(events))


def sink_run(results: StackResults) -> SinkRun | None:
    """Return the longest run of layers that attend much to the sink."""
    if not results.has_value(*SINK_SHARE):
        return None
    shares, uniform = results.layers(*SINK_SHARE), results.uniform(*SINK_SHARE).value
    with np.errstate(invalid="ignore"):
        much = (shares.low >= TWICE_UNIFORM.value * uniform) & (shares.effective >= MIN_EFFECTIVE)
    layers = max(_runs(results.stack.attention_layers, much), key=len, default=())
    heads = {(layer, head) for layer in layers for head in range(results.stack.n_heads)}
    attention = pooled(results, [SINK_SHARE], heads)
    if math.isnan(attention.low):
        return None
    norm = pooled(results, [SINK_NORM], heads) if results.has_value(*SINK_NORM) else NO_ESTIMATE
    return SinkRun(layers, attention, float(uniform[[*layers]].mean()), norm)


def _runs(layers: Iterable[int], chosen: NDArray[np.bool_]) -> list[tuple[int, ...]]:
    """Return the runs of neighbouring layers that are chosen."""
    grouped = groupby(layers, key=lambda layer: bool(chosen[layer]))
    return [tuple(run) for is_chosen, run in grouped if is_chosen]


class SameKeys(NamedTuple):
    """Heads of one layer that attend to the same keys from every query.

    Attributes:
        layer: layer of the heads.
        heads: the heads.
        by_key: mean over the heads of the departure from even attention that the key explains.
        word_class: class of words that these heads prefer to other heads; empty without one.
        share: share of their attention on the class.
        others: share of the attention of the other heads on the class.
    """

    layer: int
    heads: tuple[Place, ...]
    by_key: Estimate
    word_class: str = ""
    share: Estimate = NO_ESTIMATE
    others: Estimate = NO_ESTIMATE


def same_keys(results: StackResults) -> SameKeys | None:
    """Return the heads of the layer with most heads that attend to the same keys."""
    families = {
        (head.layer, head.head): function.family
        for head, function in functions_of(results).items()
        if function.family is not None
    }
    key_driven = [place for place in families if families[place] is FunctionFamily.SAME_KEYS]
    by_layer = {layer: tuple(heads) for layer, heads in groupby(key_driven, key=lambda x: x[0])}
    layer = max(by_layer, key=lambda number: (len(by_layer[number]), number), default=-1)
    if layer < 0 or len(by_layer[layer]) < MIN_SAME_KEYS:
        return None
    heads = by_layer[layer]
    by_key = mean_over(results.heads(*BY_KEY), heads)
    others = families.keys() - {*heads}
    preferred = [
        SameKeys(layer, heads, by_key, name, share, of_others)
        for name, tags in WORD_CLASSES.items()
        for columns in [class_columns(results, tags)]
        if columns
        for share, of_others in [[pooled(results, columns, places) for places in (heads, others)]]
        if share.low > of_others.high and share.effective >= MIN_EFFECTIVE
    ]
    return max(
        preferred,
        key=lambda same: same.share.value / max(same.others.value, 1e-9),
        default=SameKeys(layer, heads, by_key),
    )


def class_columns(results: StackResults, tags: Iterable[str]) -> list[HeadKey]:
    """Return the columns of the attention that some parts of speech receive, if measured."""
    columns = [HeadKey(ids.POS_RECEIVED, SinkView.RENORM, tag) for tag in tags]
    return [column for column in columns if results.has_value(*column)]


def mean_over(numbers: Estimates, heads: Iterable[Place]) -> Estimate:
    """Return the mean of a number over heads.

    Its interval is the mean of the heads' intervals, which is wide enough however heads vary
    together.
    """
    layers, places = np.array(sorted(heads)).T
    value, low, high = (float(part[layers, places].mean()) for part in numbers[:3])
    sentences = int(numbers.sentences[layers, places].min())
    return Estimate(value, low, high, sentences, float(numbers.events[layers, places].sum()))


class LayerEffect(NamedTuple):
    """A layer without which the output changes most, beside the next one.

    Attributes:
        ratio: the effect of the layer divided by that of the next one.
        effect, next_effect: change without all heads of each layer, in the unit of the target.
    """

    ratio: LayerRatio
    effect: Estimate
    next_effect: Estimate


def group_rows(results: StackResults) -> Mapping[str, Mapping[str, Any]]:
    """Return the row of each group of heads that was replaced by its mean, for the main target."""
    return results.cached(_group_rows)


def _group_rows(results: StackResults) -> Mapping[str, Mapping[str, Any]]:
    ablation, table = results.study.corpus_sums.ablation, results.study.head_groups
    if ablation is None:
        return {}
    wanted = {
        "stack": results.stack.name,
        "metric": GROUP,
        "replacement": str(Replacement.MEAN),
        "target": main_target(ablation),
    }
    for column, value in wanted.items():
        table = table[table[column] == value]
    return {row["group"]: {str(k): v for k, v in row.items()} for row in table.to_dict("records")}


def layer_rows(results: StackResults) -> dict[int, Mapping[str, Any]]:
    """Return the row of each layer whose heads were replaced together; empty if not measured."""
    rows = group_rows(results)
    names = {layer: f"{LAYER}{layer}" for layer in results.stack.attention_layers}
    return {layer: rows[name] for layer, name in names.items() if name in rows}


def decisive_layer(results: StackResults) -> LayerEffect | None:
    """Return the layer whose effect lies clearly above that of every other layer."""
    ablation, rows = results.study.corpus_sums.ablation, layer_rows(results)
    if ablation is None:
        return None
    ratio = layer_ratio(ablation, results.stack.name, main_target(ablation))
    if ratio is None or not ratio.clear or not {ratio.first, ratio.second} <= {*rows}:
        return None
    return LayerEffect(ratio, estimate_of(rows[ratio.first]), estimate_of(rows[ratio.second]))


def estimate_of(row: Mapping[str, Any]) -> Estimate:
    """Return the effect of a row of the table of groups."""
    return Estimate(row["value"], row["low"], row["high"], int(row["n_sentences"]), math.nan)


def set_of(ablation: AblationResults, stack: str, name: str) -> int:
    """Return the index of the set of heads of a group that was replaced by its mean."""
    return ablation.sets.index(HeadSet(HeadSetKind.GROUP, stack, name, 0, str(Replacement.MEAN)))


class SinkHeads(NamedTuple):
    """Sink heads that were replaced together, beside random sets of heads.

    Attributes:
        heads: layer and number of each head.
        effect: change without them, in the unit of the target.
        low, high: least and largest change without a random set.
        sets: number of random sets.
        rank: place of the group among itself and the random sets, 1 for the largest change.
    """

    heads: tuple[Place, ...]
    effect: Estimate
    low: float
    high: float
    sets: int
    rank: int

    @property
    def p(self) -> float:
        """Probability of a rank as extreme as this one, on either side."""
        return 2 * min(self.rank, self.sets + 2 - self.rank) / (self.sets + 1)

    @property
    def is_less(self) -> bool:
        """Whether the change is smaller than without random sets."""
        return self.rank > self.sets / 2


def sink_group_effect(results: StackResults) -> SinkHeads | None:
    """Return the effect of replacing the sink heads, if it is outside the range of random sets."""
    ablation, row = results.study.corpus_sums.ablation, group_rows(results).get(SINK)
    if ablation is None or row is None or not row["random_sets"]:
        return None
    members = np.flatnonzero(ablation.members[set_of(ablation, results.stack.name, SINK)])
    group = SinkHeads(
        tuple((ablation.heads[k].layer, ablation.heads[k].head) for k in members),
        estimate_of(row),
        row["random_low"],
        row["random_high"],
        int(row["random_sets"]),
        int(row["rank"]),
    )
    return group if group.p < MAX_P else None


class LikeRandom(NamedTuple):
    """Evenness of attention in a model that does not differ from random weights.

    Attributes:
        column: metric, view and label of the evenness.
        entropy: mean over layers of the model's normalised entropy.
        random: the same of random weights.
    """

    column: HeadKey
    entropy: Estimate
    random: Estimate


def like_random(results: StackResults) -> LikeRandom | None:
    """Return the evenness of attention if no layer differs clearly from random weights."""
    keys = [
        HeadKey(metric.id, SinkView.RAW if metric.id == ids.SINK_SHARE else view, "")
        for name in (ids.RELATIVE_ENTROPY, ids.SINK_SHARE, ids.ATTENTION_DISTANCE)
        if (metric := results.by_id.get(name))
        for view in [results.view(metric)]
    ]
    if len(keys) < 3 or not all(no_layer_differs(results, key) for key in keys):
        return None
    layers, entropy = [*results.stack.attention_layers], keys[0]
    band = results.baseline_band(Baseline.UNTRAINED, *entropy)
    return LikeRandom(entropy, run_mean(results.layers(*entropy), layers), run_mean(band, layers))


def pooled(results: StackResults, columns: Sequence[HeadKey], heads: Collection[Place]) -> Estimate:
    """Return a number of several heads together; NaN if the study lacks it.

    Args:
        columns: keys of numbers with one denominator, whose numerators are added: shares of several
            parts of speech.
        heads: layer and number of each head.
    """
    sums = [results.cluster_sums(column) for column in columns]
    known = [each for each in sums if each is not None]
    if len(known) < len(sums) or not heads:
        return NO_ESTIMATE
    layers, numbers = np.array(sorted(heads)).T
    n = sum(each.n[:, layers, numbers].sum(1) for each in known)
    d = known[0].d[:, layers, numbers].sum(1)
    metric = all_metrics()[columns[0].metric]
    ratios = RatioSums.of(n, d, np.zeros_like(d), np.zeros(len(d), np.int64))
    estimate = Estimates.of(ratios, metric.limits, metric.spread(columns[0].label)).at()
    numbers_of_heads = results.heads(*columns[0])
    return estimate._replace(
        sentences=int(numbers_of_heads.sentences[layers, numbers].max()),
        events=float(numbers_of_heads.events[layers, numbers].sum()),
    )
