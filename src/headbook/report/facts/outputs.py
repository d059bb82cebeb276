"""Facts about head outputs: similarity within sentences, of repeated tokens, and anchors.

Context similarity is the cosine of a head's outputs for two tokens (Halevi et al. 2025,
arXiv:2512.21956). Pairs are compared at equal distance in one passage.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.metrics import ids
from headbook.report.leaders import alike_note, layer_leaders
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import capital, layers_text
from headbook.results.fact import Fact
from headbook.results.formats import number, word_list
from headbook.results.number import Number
from headbook.results.sentence import NOTHING, Sentence, listed, say
from headbook.schema import MAX_DISTANCE, Baseline, HeadKey, Place, SinkView
from headbook.study.manifest import MissingPart
from headbook.study.sums.token_sums import SHUFFLED_ORDER, TRUE_ORDER, AnchorColumn

OUTPUTS = HeadKey(ids.CONTEXT_SIMILARITY, SinkView.RAW, "all")
ROWS = HeadKey(ids.ROW_SIMILARITY, SinkView.RAW, "all")
MASKED_OUTPUTS, MASKED_ROWS = (key._replace(view=SinkView.NOSINK) for key in (OUTPUTS, ROWS))
SENTENCE = HeadKey(ids.SENTENCE_EXCESS, SinkView.RAW, "")
REPETITION = HeadKey(ids.REPETITION_EXCESS, SinkView.RAW, "")
ANCHORS = AnchorColumn(ids.ANCHOR_TOKEN, SinkView.RAW, "top 1 %")
MOSTLY = 0.5  # share of the difference that is left without separators
SEPARATORS = {  # kinds of special tokens, with their names
    "start": "the first special token", "inner_separator": "separators between sentences",
    "last_separator": "the last separator",
}  # fmt: skip
MIN_SINK_MULTIPLE = 2.0  # times the share of uniform attention
MIN_EXCESS = 0.01  # cosine; a smaller difference is none that a reader of a map would see
MAX_DIFFERENT_HEADS = 8  # heads that the page lists


def layers_above(results: StackResults, key: HeadKey) -> list[int]:
    """Return the layers whose interval lies above `MIN_EXCESS`."""
    low = results.layers(*key).low
    return [layer for layer in results.stack.attention_layers if low[layer] > MIN_EXCESS]


class _LayersAbove(NamedTuple):
    """Layers with a clear difference of similarities, each of which was checked alone.

    Attributes:
        above: the layers.
        first: the layer that leads.
        where, most: the layers, and the one that leads with its number, in words.
    """

    above: list[int]
    first: int
    where: str
    most: Sentence


def _layers_above(results: StackResults, key: HeadKey) -> _LayersAbove | None:
    """Return the layers in which pairs differ; None if no layer is above `MIN_EXCESS`."""
    leaders = layer_leaders(results, key)
    above = layers_above(results, key) if leaders else []
    if leaders is None or not above:
        return None
    (first,) = leaders.first
    number = results.number(key, first)
    most = say(" (by a cosine of {n:interval})", n=number)
    if len(above) > 1:
        note = alike_note(results, leaders)
        most = say(", most in layer {layer}{note}{most}", layer=first, note=note, most=most)
    where = f"in {layers_text(above)}"
    if [*above] == [*results.stack.attention_layers]:
        where = "in every layer" if len(above) > 1 else "in the only layer"
    return _LayersAbove(above, first, where, most)


def sentence_range(results: StackResults) -> Fact:
    """Return in which layers outputs are more alike within a sentence than across sentences."""
    layers = _layers_above(results, SENTENCE)
    if layers is None:
        return Fact("sentence_range", _no_layer(results, SENTENCE), holds=False)
    last = results.stack.attention_layers[-1]
    text = say(
        "Outputs keep to a sentence {where}{most}{ending}{reason}.",
        where=layers.where, most=layers.most,
        ending="" if last in layers.above else ", not in the last",
        reason=_separators(results, layers.first),
    )  # fmt: skip
    return Fact("sentence_range", text)


def _separators(results: StackResults, layer: int) -> str:
    """Return whether a layer keeps to a sentence without separators between them."""
    if Baseline.NO_SEPARATORS not in results.baselines:
        return ""
    band = results.baseline_band(Baseline.NO_SEPARATORS, *SENTENCE)
    if np.isnan(band.value[layer]):
        return ""
    share = band.value[layer] / results.layers(*SENTENCE).value[layer]
    if band.low[layer] > MIN_EXCESS and share > MOSTLY:
        return "; inner separators are not the reason"
    return f"; without inner separators {number(float(band.value[layer]))}"


def by_distance(results: StackResults) -> Fact:
    """Return how similarity within a sentence falls with distance, where most and where least."""
    of_layers = results.stack.attention_layers
    numbers: dict[int, list[Number]] = {}
    for d in range(1, MAX_DISTANCE):
        key = OUTPUTS._replace(label=f"within:{d}")
        if results.has_value(*key):
            at_distance = [results.number(key, layer) for layer in of_layers]
            if all(n.known and not n.is_thin for n in at_distance):
                numbers[d] = at_distance
    if len(numbers) < 2:
        return Fact("by_distance", holds=False)
    near, far = min(numbers), max(numbers)
    falls = dict(zip(of_layers, zip(numbers[near], numbers[far], strict=True), strict=True))
    ranked = sorted(falls, key=lambda layer: falls[layer][1].value - falls[layer][0].value)
    layers = [ranked[0], ranked[-1]] if len(ranked) > 1 else ranked
    parts = [
        say("from {near} to {far} in layer {layer}", near=falls[layer][0], far=falls[layer][1],
            layer=layer)
        for layer in layers
    ]  # fmt: skip
    note = " (largest and smallest fall, not tested)" if len(layers) > 1 else ""
    text = say(
        "Between tokens {near} and {far} apart in a sentence, the mean cosine goes {parts}{note}.",
        near=near, far=far, parts=listed(parts), note=note,
    )  # fmt: skip
    return Fact("by_distance", text)


def repetition(results: StackResults) -> Fact:
    """Return in which layers a token that occurs again gets a more similar output than others."""
    layers = _layers_above(results, REPETITION)
    if layers is None:
        return Fact("repetition", _no_layer(results, REPETITION), holds=False)
    text = say(
        "Outputs for two occurrences of a token are more alike than for two different tokens at "
        "the same distance {where}{most}.",
        where=layers.where, most=layers.most,
    )  # fmt: skip
    return Fact("repetition", text)


def _no_layer(results: StackResults, key: HeadKey) -> Sentence:
    """Return the largest difference of any layer; nothing if it was not measured."""
    if not results.has_value(*key):
        return NOTHING
    numbers = (results.number(key, layer) for layer in results.stack.attention_layers)
    largest = max((n for n in numbers if n.known), key=attrgetter("value"))
    return say(
        "In no layer by more than a cosine of {limit} at equal distance: the largest difference, "
        "not tested against the others, is {n:interval}, in layer {layer}.",
        limit=f"{MIN_EXCESS:g}", n=largest, layer=largest.place("layer"),
    )  # fmt: skip


def alike(results: StackResults) -> Fact:
    """Return whether a head's outputs for two tokens are more alike in the last layer."""
    if not results.has_value(*OUTPUTS):
        return Fact("alike", holds=False)
    numbers = [results.number(OUTPUTS, layer) for layer in results.stack.attention_layers]
    known = [n for n in numbers if n.known]
    first, last = known[0], known[-1]
    if first is last:
        start = "Only one layer was measured"
    elif first.high < last.low:
        start = "More so in the last layer than in the first"
    elif last.high < first.low:
        start = "Less so in the last layer than in the first"
    else:
        start = "No more in the last layer than in the first"
    text = say(
        "{start}: in layer {layer}, outputs of a head for two tokens of a {noun} have a mean "
        "cosine of {cosine}.",
        noun=results.study.manifest.text_noun, start=start, layer=last.place("layer"), cosine=last,
    )  # fmt: skip
    return Fact("alike", text, holds=first.high < last.low)


def sink_masked_note(results: StackResults) -> Sentence:
    """Return the similarity of outputs with the sink masked, in the last layer; or nothing."""
    key = OUTPUTS._replace(view=SinkView.NOSINK)
    if not results.has_value(*key):
        return NOTHING
    numbers = [results.number(key, layer) for layer in results.stack.attention_layers]
    last = [n for n in numbers if n.known][-1]
    return say(
        "With {tokens} masked, the mean cosine of outputs in layer {layer} is {cosine}.",
        tokens=sink_tokens(results), layer=last.place("layer"), cosine=last,
    )  # fmt: skip


def different_outputs(results: StackResults) -> list[Place]:
    """Return heads whose outputs are less alike than their rows, the largest difference first.

    The sink is masked in both, since a shared sink makes rows alike. Intervals do not overlap.
    """
    if not (results.has_value(*MASKED_ROWS) and results.has_value(*MASKED_OUTPUTS)):
        return []
    rows, outputs = results.heads(*MASKED_ROWS), results.heads(*MASKED_OUTPUTS)
    places = [(int(layer), int(head)) for layer, head in np.argwhere(rows.low > outputs.high)]
    ranked = sorted(places, key=lambda place: outputs.value[place] - rows.value[place])
    return ranked[:MAX_DIFFERENT_HEADS]


class AnchorCounts(NamedTuple):
    """Anchors of the heads of one layer.

    Attributes:
        layer: the layer.
        different: number of different anchors, of those whose lift has a lower end above 1.
        permuted: the same number with token types permuted within texts.
        n_above: number of heads with such an anchor.
        n_heads: number of heads with an anchor of any lift.
    """

    layer: int
    different: int
    permuted: int
    n_above: int
    n_heads: int


def anchor_counts(results: StackResults, column: AnchorColumn = ANCHORS) -> list[AnchorCounts]:
    """Return the anchors of each layer; empty if none were found."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None or column not in anchors.columns:
        return []
    index = anchors.columns.index(column)
    counts = []
    for layer in results.stack.attention_layers:
        token, is_above = anchors.token[index, :, layer], anchors.low[index, :, layer] > 1
        different, permuted = (
            len({*token[order][is_above[order]].tolist()}) for order in (TRUE_ORDER, SHUFFLED_ORDER)
        )
        n_above, n_heads = int(is_above[TRUE_ORDER].sum()), int((token[TRUE_ORDER] >= 0).sum())
        counts.append(AnchorCounts(layer, different, permuted, n_above, n_heads))
    return counts


def anchors(results: StackResults) -> Fact:
    """Return whether the heads of a layer gather outputs around different tokens."""
    counts = anchor_counts(results)
    if not any(of_layer.n_above for of_layer in counts):
        return Fact("anchors", holds=False)
    numbers = [of_layer.different for of_layer in counts]
    fewest, most = (
        say(
            "{n} ({layers})", n=end,
            layers=layers_text([count.layer for count in counts if count.different == end]),
        )
        for end in (min(numbers), max(numbers))
    )  # fmt: skip
    text = say(
        "The heads of a layer gather their outputs around {fewest} to {most} different tokens; "
        "with tokens permuted within a text, around {low} to {high}.",
        fewest=fewest, most=most, low=min(count.permuted for count in counts),
        high=max(count.permuted for count in counts),
    )  # fmt: skip
    return Fact("anchors", text)


def separator_key(kind: str, *, by_norm: bool = False) -> HeadKey:
    """Return the key of attention to a kind of separator, or of its share of summed norms."""
    label = f"{kind}_by_norm" if by_norm else kind
    return HeadKey(ids.SEPARATOR_ATTENTION, SinkView.RAW, label)


def separators(results: StackResults) -> Fact:
    """Return what each kind of special token gets and adds, and which of them are sinks.

    In the layer that attends most to the first special token. A sink gets at least twice what
    uniform attention gives, and adds less than half of its share, by the ends of the intervals.
    """
    names = {kind: name for kind, name in SEPARATORS.items()
             if results.has_value(*separator_key(kind))
             and results.has_value(*separator_key(kind, by_norm=True))}  # fmt: skip
    leaders = layer_leaders(results, separator_key(next(iter(names)))) if names else None
    if leaders is None:
        return Fact("separators", holds=False)
    (layer,) = leaders.first
    parts, sinks = [], []
    for kind, name in names.items():
        key = separator_key(kind)
        share, norm = (
            results.number(separator_key(kind, by_norm=by_norm), layer) for by_norm in (False, True)
        )
        parts.append(say("{name} {share} and {norm}", name=name, share=share, norm=norm))
        even = results.uniform(*key).value[layer]
        if share.low >= MIN_SINK_MULTIPLE * even and norm.high < MOSTLY * share.low:
            sinks.append(name)
    text = say(
        "Shares of attention and of the norms that keys add, in layer {layer}: {parts}. {sinks} "
        "{verb}.",
        layer=layer, parts=listed(parts),
        sinks=capital(word_list(sinks)) if sinks else "None of them",
        verb="is a sink there" if len(sinks) < 2 else "are sinks there",
    )  # fmt: skip
    return Fact("separators", text, holds=bool(sinks))


def separators_add(results: StackResults, layers: Sequence[int]) -> bool:
    """Return whether separators of a passage add at least half of what they get.

    By the means over layers, of separators between sentences or of the last one.
    """
    if results.study.manifest.text_noun != "passage":
        return False
    for kind in ("inner_separator", "last_separator"):
        keys = separator_key(kind), separator_key(kind, by_norm=True)
        if all(results.has_value(*key) for key in keys):
            share, added = (float(results.layers(*key).value[[*layers]].mean()) for key in keys)
            if added >= MOSTLY * share and (share or kind == "last_separator"):
                return True
    return False


def not_measured(results: StackResults) -> Iterator[str]:
    """Yield a sentence on each question that the study leaves open, with the option for it."""
    gaps = [gap for gap in results.study.manifest.gaps if gap.stack == results.stack.name]
    of_outputs = {MissingPart.OUTPUTS, MissingPart.PASSAGES}
    if not results.has_value(*OUTPUTS) and not any(
        gap.key in {OUTPUTS.metric, MissingPart.OUTPUTS} for gap in gaps
    ):
        yield f"Similarity of head outputs: --metrics {OUTPUTS.metric} measures it."
    for gap in gaps:
        if gap.key in of_outputs:
            yield f"{gap.what}: {gap.why}."


def best_layer(results: StackResults, rule: str) -> tuple[int, Estimate]:
    """Return the layer whose heads together find sentence ends best, with its F1."""
    numbers = results.layers(ids.SEGMENTATION, SinkView.RAW, f"f1:{rule}")
    layer = int(np.nan_to_num(numbers.value, nan=-1).argmax())
    return layer, numbers.at(layer)
