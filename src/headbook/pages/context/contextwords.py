"""What the numbers of what heads write say, in sentences."""

from collections.abc import Iterator

import numpy as np

from headbook.metrics import ids
from headbook.pages.context.anchors import anchor_layers
from headbook.pages.widgets.passage import best_layer
from headbook.report.findings.finding import metric
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import counted, is_share, number
from headbook.terms import HEAD_RULES, View

SIMILARITY, CENTRED = ids.CONTEXT_SIMILARITY, ids.CONTEXT_SIMILARITY_CENTRED
ROWS = ids.ROW_SIMILARITY
DISTANCE, REPETITION = ids.HIGH_PAIR_DISTANCE, ids.REPETITION_LIFT
PREFERENCE, SEGMENTS = ids.SAME_SENTENCE_PREFERENCE, ids.SEGMENTATION
ENDS = ids.SEPARATOR_ATTENTION
TOP = "top 1 %"
CLOSE = 0.7  # correlation over heads from which on two things go together


def summary(results: StackResults) -> Iterator[str]:
    """One sentence a subject, where the study has its numbers."""
    yield from _drift(results)
    yield from _rows(results)
    yield from _anchors(results)
    yield from _ends(results)
    yield from _preference(results)
    yield from _segments(results)


def _text(value: Estimate, name: str) -> str:
    return number(value.value, share=is_share(metric(name)))


def _drift(results: StackResults) -> Iterator[str]:
    if not results.has(DISTANCE, View.RAW, TOP):
        return
    numbers = results.layers(DISTANCE, View.RAW, TOP)
    layers = results.stack.attention_layers
    first, last = numbers.at(layers[0]), numbers.at(layers[-1])
    if last.high < first.low:
        verdict = "nearer than in the first"
    elif last.low > first.high:
        verdict = "farther than in the first, unlike in the paper"
    else:
        verdict = "no clear difference"
    values = np.where(np.isnan(numbers.value), np.inf, numbers.value)
    least = int(values.argmin())
    yield (
        "Distance of tokens with nearly the same head output (top 1 % of pairs), over that of all "
        f"pairs: {_text(first, DISTANCE)} in layer {layers[0]}, {_text(last, DISTANCE)} in layer "
        f"{layers[-1]} ({verdict}). Smallest in layer {least}: "
        f"{_text(numbers.at(least), DISTANCE)}."
    )


def _rows(results: StackResults) -> Iterator[str]:
    if not (results.has(SIMILARITY, View.RAW, "all") and results.has(ROWS, View.RAW, "all")):
        return
    written = results.heads(SIMILARITY, View.RAW, "all").value.ravel()
    rows = results.heads(ROWS, View.RAW, "all").value.ravel()
    both = ~np.isnan(written) & ~np.isnan(rows)
    if both.sum() < 3 or not (written[both].std() and rows[both].std()):
        return
    r = float(np.corrcoef(written[both], rows[both])[0, 1])
    verdict = (
        "similar outputs mostly come from similar rows"
        if r >= CLOSE
        else "similar outputs are not only due to similar rows"
    )
    yield (
        f"Across {int(both.sum()):,} heads, similarity of outputs correlates with similarity of "
        f"attention rows (r = {number(r)}): {verdict}."
    )


def _anchors(results: StackResults) -> Iterator[str]:
    layers = results.once(anchor_layers)
    if not layers:
        return
    true, mixed, heads = (sum(counts[0][i] for counts in layers.values()) for i in range(3))
    yield (
        f"Different anchors per layer, summed over layers: {true:,} for the "
        f"{counted(heads, 'head')} with pairs of cosine ≥ 0.9; {mixed:,} with the tokens of each "
        "sentence shuffled."
    )


def _ends(results: StackResults) -> Iterator[str]:
    names = {"separator": "special separators", "sentence_end": "., ! and ?"}
    for label, name in names.items():
        if not results.has(ENDS, View.RAW, label):
            continue
        numbers = results.layers(ENDS, View.RAW, label)
        most = int(np.nanargmax(numbers.value))
        by_norm = results.layers(ENDS, View.RAW, f"{label}_by_norm").at(most)
        weighted = (
            f", value-weighted {number(by_norm.value, share=True)}"
            if not np.isnan(by_norm.value)
            else ""
        )
        yield (
            f"Attention to {name} is highest in layer {most}: "
            f"{_text(numbers.at(most), ENDS)}{weighted}, from tokens that see one."
        )


def _preference(results: StackResults) -> Iterator[str]:
    if not results.has(PREFERENCE, View.RAW, TOP):
        return
    numbers = results.layers(PREFERENCE, View.RAW, TOP)
    most = int(np.nanargmax(numbers.value))
    yield (
        "Odds that similar tokens are of one sentence, over those of other pairs of the same "
        f"distance: at most {_text(numbers.at(most), PREFERENCE)} (layer {most})."
    )


def _segments(results: StackResults) -> Iterator[str]:
    if not results.has(SEGMENTS, View.RAW, "f1:even"):
        return
    found = {}
    for rule in HEAD_RULES:
        layer, f1 = best_layer(results, rule)
        found[rule] = f"{_text(f1, SEGMENTS)} (layer {layer})"
    first = results.stack.attention_layers[0]
    base = {
        rule: _text(results.layers(SEGMENTS, View.RAW, f"f1:{rule}").at(first), SEGMENTS)
        for rule in ("punctuation", "even")
    }
    yield (
        f"Sentence ends, best F1: {found['similarity']} by dips of similarity, "
        f"{found['attention']} by attention to ., ! and ?. Baselines: {base['punctuation']} for "
        f"every ., ! and ?, {base['even']} at even distances."
    )
