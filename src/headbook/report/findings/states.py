"""Findings on token states, head outputs and the geometry of states."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.analysis.state_vectors import MINIBATCH
from headbook.metrics import ids
from headbook.report.findings.finding import (
    Finding,
    metric_link,
    sentence_start,
    sentence_start_with_link,
)
from headbook.report.results import StackResults
from headbook.report.wording import SPACES, interval_text, number, percent
from headbook.schema import EmbeddingSpace, ResidualPoint, SinkView
from headbook.study.state_geometry import GeometrySums, state_names
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


MIN_DOMINANT_SHARE = 1 / 4  # of the anisotropy; a dimension with less is not named


def geometry_sentences(sums: GeometrySums) -> Iterator[str]:
    """Yield one sentence for each geometry metric; none if its numbers are missing."""
    yield from _anisotropy(sums)
    yield from _outlier(sums)
    yield from _alike(sums)
    yield from _variance(sums)
    yield from _rank(sums)
    yield from _path(sums)
    yield from _cka(sums)


def _place(sums: GeometrySums, state: int) -> str:
    layer, _ = state_names(len(sums.weights))[state]
    return "the input" if layer is None else f"layer {layer}"


def _anisotropy(sums: GeometrySums) -> Iterator[str]:
    cosines = sums.of(ids.ANISOTROPY, "raw").value
    if np.isnan(cosines).any():
        return
    highest = int(cosines.argmax())
    yield (
        f"Mean cosine of two tokens of different sentences: {number(cosines[0])} at the input, "
        f"{number(cosines[-1])} after the last layer, highest in {_place(sums, highest)} "
        f"({number(cosines[highest])})."
    )


def _outlier(sums: GeometrySums) -> Iterator[str]:
    cosines = sums.of(ids.ANISOTROPY, "raw").value
    largest = sums.of(ids.OUTLIER_DIMENSIONS, "largest").value
    without_outliers = sums.of(ids.ANISOTROPY, "without_outliers").value
    if np.isnan([cosines, largest, without_outliers]).any():
        return
    # If the mean cosine may be 0, the share of one dimension means nothing.
    is_positive = sums.above(ids.ANISOTROPY, "raw")
    shares = np.divide(largest, cosines, out=np.zeros(len(cosines)), where=is_positive)
    state = int(shares.argmax())
    if shares[state] < MIN_DOMINANT_SHARE:
        yield (
            f"No single dimension contributes {percent(MIN_DOMINANT_SHARE)} or more of the mean "
            "cosine of two tokens in any layer."
        )
        return
    dimension = sums.largest(state, 1)[0]
    yield (
        f"Dimension {dimension} contributes {number(largest[state])} of the mean cosine of "
        f"{number(cosines[state])} in {_place(sums, state)}; without its three largest dimensions: "
        f"{number(without_outliers[state])}."
    )


def _alike(sums: GeometrySums) -> Iterator[str]:
    for name, subject in (
        (ids.SELF_SIMILARITY, "Self-similarity"),
        (ids.INTRA_SENTENCE_SIMILARITY, "Intra-sentence similarity"),
    ):
        similarities = sums.of(name, "adjusted").value
        # Only an interval above 0 supports that tokens are more similar than the baseline.
        if sums.above(name, "adjusted")[[0, -1]].all():
            yield (
                f"{subject} above the anisotropy baseline: {number(similarities[0])} at the input, "
                f"{number(similarities[-1])} after the last layer."
            )


def _variance(sums: GeometrySums) -> Iterator[str]:
    raw, baseline = (
        sums.of(ids.MAXIMUM_EXPLAINABLE_VARIANCE, label).value for label in ("raw", "baseline")
    )
    if not np.isnan([raw[-1], baseline[-1]]).any():
        yield (
            "Variance along the best single direction after the last layer: "
            f"{percent(raw[-1])} for one vocabulary token in all its sentences, "
            f"{percent(baseline[-1])} for as many random tokens."
        )


def _rank(sums: GeometrySums) -> Iterator[str]:
    ranks = sums.of(ids.EFFECTIVE_RANK, "").value
    if np.isnan(ranks[[0, -1]]).any():
        return
    highest = int(np.nanargmax(ranks))
    yield (
        f"Effective rank of {MINIBATCH} tokens: {number(ranks[0])} of "
        f"{sums.dimensions.shape[1]:,} dimensions at the input, {number(ranks[-1])} after the last "
        f"layer, highest in {_place(sums, highest)} ({number(ranks[highest])})."
    )


def _path(sums: GeometrySums) -> Iterator[str]:
    raw, standardised = (
        sums.of(ids.STANDARDISED_COSINE, label).value for label in ("raw", "standardised")
    )
    if not np.isnan([raw[-1], standardised[-1]]).any():
        yield (
            f"Cosine to the input embedding after the last layer: {number(raw[-1])}; with every "
            f"dimension standardised: {number(standardised[-1])}."
        )


def _cka(sums: GeometrySums) -> Iterator[str]:
    if np.isnan(sums.cka).any():
        return
    steps = np.diag(sums.cka, 1)
    least_similar = int(steps.argmin())
    before, after = (_place(sums, state) for state in (least_similar, least_similar + 1))
    yield (
        f"Least similar consecutive states: {before} and {after}, CKA "
        f"{number(float(steps[least_similar]))}; input and last layer: "
        f"{number(float(sums.cka[0, -1]))}."
    )


SEGMENTATION_METRIC = ids.SEGMENTATION


def best_layer(results: StackResults, rule: str) -> tuple[int, Estimate]:
    """Return the layer whose heads together find sentence ends best, with its F1."""
    numbers = results.layers(SEGMENTATION_METRIC, SinkView.RAW, f"f1:{rule}")
    layer = int(np.nan_to_num(numbers.value, nan=-1).argmax())
    return layer, numbers.at(layer)


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
