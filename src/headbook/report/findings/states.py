"""Findings on token states, head outputs and the geometry of states."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.metrics import ids
from headbook.report.findings.finding import (
    Finding,
    head_metric,
    metric_link,
    sentence_start,
    sentence_start_with_link,
)
from headbook.report.results import StackResults
from headbook.report.wording import SPACES, count_text, interval_text, is_share, number
from headbook.schema import HEAD_RULES, EmbeddingSpace, ResidualPoint, SinkView
from headbook.study.token_sums import SHUFFLED_ORDER, TRUE_ORDER, AnchorColumn, TopAnchor

ANCHOR_METRIC = ids.ANCHOR_TOKEN
ANCHOR_COLUMNS = tuple(
    AnchorColumn(ANCHOR_METRIC, view, label)
    for label in ("0.9", "top 1 %")
    for view in (SinkView.RAW, SinkView.NOSINK)
)


def anchor_layers(results: StackResults) -> dict[int, list[tuple[int, int, int]]]:
    """Return the number of different anchor tokens by layer, for each of `ANCHOR_COLUMNS`.

    Beside this number are the number for shuffled tokens and the number of heads with an anchor.
    Empty if no anchors were counted.
    """
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return {}
    true, shuffled = (
        [anchors.best(column, order) for column in ANCHOR_COLUMNS]
        for order in (TRUE_ORDER, SHUFFLED_ORDER)
    )
    return {
        layer: [
            (
                distinct(true_anchor, layer),
                distinct(shuffled_anchor, layer),
                int((true_anchor.token[layer] >= 0).sum()),
            )
            for true_anchor, shuffled_anchor in zip(true, shuffled, strict=True)
        ]
        for layer in results.stack.attention_layers
    }


def distinct(best: TopAnchor, layer: int) -> int:
    """Return the number of different anchor tokens of the heads of a layer."""
    return len({*best.token[layer].tolist()} - {-1})


SEGMENTATION_METRIC = ids.SEGMENTATION


def best_layer(results: StackResults, rule: str) -> tuple[int, Estimate]:
    """Return the layer whose heads together find sentence ends best, with its F1."""
    numbers = results.layers(SEGMENTATION_METRIC, SinkView.RAW, f"f1:{rule}")
    layer = int(np.nan_to_num(numbers.value, nan=-1).argmax())
    return layer, numbers.at(layer)


SIMILARITY, CENTRED = ids.CONTEXT_SIMILARITY, ids.CONTEXT_SIMILARITY_CENTRED
ROWS = ids.ROW_SIMILARITY
DISTANCE, REPETITION = ids.HIGH_PAIR_DISTANCE, ids.REPETITION_LIFT
PREFERENCE, SEGMENTS = ids.SAME_SENTENCE_PREFERENCE, ids.SEGMENTATION
ENDS = ids.SEPARATOR_ATTENTION
TOP = "top 1 %"
MIN_CORRELATION = 0.7  # over heads, for two numbers to be called related


def summary(results: StackResults) -> Iterator[str]:
    """Yield one sentence on each subject for which the study has numbers."""
    yield from _drift(results)
    yield from _rows(results)
    yield from _anchors(results)
    yield from _ends(results)
    yield from _preference(results)
    yield from _segments(results)


def _text(value: Estimate, name: str) -> str:
    return number(value.value, share=is_share(head_metric(name)))


def _drift(results: StackResults) -> Iterator[str]:
    if not results.has_value(DISTANCE, SinkView.RAW, TOP):
        return
    numbers = results.layers(DISTANCE, SinkView.RAW, TOP)
    layers = results.stack.attention_layers
    first, last = numbers.at(layers[0]), numbers.at(layers[-1])
    if last.high < first.low:
        verdict = "nearer than in the first"
    elif last.low > first.high:
        verdict = "farther than in the first, unlike in the paper"
    else:
        verdict = "no clear difference"
    values = np.where(np.isnan(numbers.value), np.inf, numbers.value)
    nearest_layer = int(values.argmin())
    yield (
        "Distance of tokens with nearly the same head output (top 1 % of pairs), over that of all "
        f"pairs: {_text(first, DISTANCE)} in layer {layers[0]}, {_text(last, DISTANCE)} in layer "
        f"{layers[-1]} ({verdict}). Smallest in layer {nearest_layer}: "
        f"{_text(numbers.at(nearest_layer), DISTANCE)}."
    )


def _rows(results: StackResults) -> Iterator[str]:
    if not (
        results.has_value(SIMILARITY, SinkView.RAW, "all")
        and results.has_value(ROWS, SinkView.RAW, "all")
    ):
        return
    outputs = results.heads(SIMILARITY, SinkView.RAW, "all").value.ravel()
    rows = results.heads(ROWS, SinkView.RAW, "all").value.ravel()
    is_known = ~np.isnan(outputs) & ~np.isnan(rows)
    if is_known.sum() < 3 or not (outputs[is_known].std() and rows[is_known].std()):
        return
    r = float(np.corrcoef(outputs[is_known], rows[is_known])[0, 1])
    verdict = (
        "similar outputs mostly come from similar rows"
        if r >= MIN_CORRELATION
        else "similar outputs are not only due to similar rows"
    )
    yield (
        f"Across {int(is_known.sum()):,} heads, similarity of outputs correlates with similarity "
        f"of attention rows (r = {number(r)}): {verdict}."
    )


def _anchors(results: StackResults) -> Iterator[str]:
    layers = results.cached(anchor_layers)
    if not layers:
        return
    n_true, n_shuffled, n_heads = (
        sum(counts[0][index] for counts in layers.values()) for index in range(3)
    )
    yield (
        f"Different anchors per layer, summed over layers: {n_true:,} for the "
        f"{count_text(n_heads, 'head')} with pairs of cosine ≥ 0.9; {n_shuffled:,} with the tokens "
        "of each sentence shuffled."
    )


def _ends(results: StackResults) -> Iterator[str]:
    names = {"separator": "special separators", "sentence_end": "., ! and ?"}
    for label, name in names.items():
        if not results.has_value(ENDS, SinkView.RAW, label):
            continue
        numbers = results.layers(ENDS, SinkView.RAW, label)
        highest_layer = int(np.nanargmax(numbers.value))
        norm_share = results.layers(ENDS, SinkView.RAW, f"{label}_by_norm").at(highest_layer)
        norm_note = (
            f", value-weighted {number(norm_share.value, share=True)}"
            if not np.isnan(norm_share.value)
            else ""
        )
        yield (
            f"Attention to {name} is highest in layer {highest_layer}: "
            f"{_text(numbers.at(highest_layer), ENDS)}{norm_note}, from tokens that see one."
        )


def _preference(results: StackResults) -> Iterator[str]:
    if not results.has_value(PREFERENCE, SinkView.RAW, TOP):
        return
    numbers = results.layers(PREFERENCE, SinkView.RAW, TOP)
    highest_layer = int(np.nanargmax(numbers.value))
    yield (
        "Odds that similar tokens are of one sentence, over those of other pairs of the same "
        f"distance: at most {_text(numbers.at(highest_layer), PREFERENCE)} (layer {highest_layer})."
    )


def _segments(results: StackResults) -> Iterator[str]:
    if not results.has_value(SEGMENTS, SinkView.RAW, "f1:even"):
        return
    best_f1 = {}
    for rule in HEAD_RULES:
        layer, f1 = best_layer(results, rule)
        best_f1[rule] = f"{_text(f1, SEGMENTS)} (layer {layer})"
    first = results.stack.attention_layers[0]
    baseline_f1 = {
        rule: _text(results.layers(SEGMENTS, SinkView.RAW, f"f1:{rule}").at(first), SEGMENTS)
        for rule in ("punctuation", "even")
    }
    yield (
        f"Sentence ends, best F1: {best_f1['similarity']} by dips of similarity, "
        f"{best_f1['attention']} by attention to ., ! and ?. Baselines: "
        f"{baseline_f1['punctuation']} for every ., ! and ?, "
        f"{baseline_f1['even']} at even distances."
    )


def drift_from_input(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on how far the cosine to the input embedding changes over the layers."""
    numbers = results.tokens(ids.COSINE_TO_INPUT, ResidualPoint.POST, None, "all")
    if numbers is None or len(numbers.value) < 2:
        return
    first, last = numbers.at(0), numbers.at(len(numbers.value) - 1)
    if last.high < first.low or last.low > first.high:
        verb = "falls" if last.value < first.value else "rises"
        before = f"{_cosine(first.value)} {interval_text(first.low, first.high)}"
        after = f"{_cosine(last.value)} {interval_text(last.low, last.high)}"
        yield Finding(
            (
                *sentence_start_with_link(
                    results, metric_link(ids.COSINE_TO_INPUT, "Cosine to the input embedding")
                ),
                f" {verb} from {before} after layer 0 to {after} after layer "
                f"{len(numbers.value) - 1}.",
            ),
            last.sentences,
        )


def _cosine(value: float) -> str:
    """Return a cosine as text, with three digits near 0.

    0 is not an end of the range of cosines, so that ``> −0.01`` would not be a value.
    """
    return number(value) if abs(value) >= 0.005 else f"{value + 0.0:.3f}".replace("-", "−")


def own_word(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on the layer up to which tokens are nearest to their own vocabulary token."""
    for space in EmbeddingSpace:
        numbers = results.tokens(ids.VOCABULARY_RANK, ResidualPoint.POST, space, "all")
        if numbers is None:
            continue
        last = numbers.at(len(numbers.value) - 1)
        nearest_layers = [layer for layer, high in enumerate(numbers.high) if high < np.log10(2)]
        if not nearest_layers or last.low <= np.log10(2):
            return
        yield Finding(
            (
                sentence_start(
                    results,
                    f"Up to layer {_end(nearest_layers)}, a typical token is nearest to its own ",
                ),
                "vocabulary token; after the last layer, ",
                metric_link(ids.VOCABULARY_RANK, "others are nearer"),
                f": {number(10**last.value - 1)} "
                f"{interval_text(10**last.low - 1, 10**last.high - 1)} "
                f"(geometric mean, compared with {SPACES[space]}).",
            ),
            last.sentences,
        )
        return


def _end(layers: list[int]) -> int:
    """Return the end of the run of consecutive layers that begins with the first."""
    end = layers[0]
    for layer in layers:
        if layer > end + 1:
            break
        end = layer
    return end
