"""What the geometry of states says, in sentences with this model's numbers."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.clouds import MINIBATCH
from headbook.metrics import ids
from headbook.report.wording import number, percent
from headbook.study.summaries.shapes import GeometrySums, state_names

DOMINANT = 1 / 4  # part of the anisotropy that one dimension alone must give to be named


def geometry_sentences(sums: GeometrySums) -> Iterator[str]:
    """One sentence a metric; none where its numbers are missing in the input or the last layer."""
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
    found = sums.of(ids.ANISOTROPY, "raw").value
    if np.isnan(found).any():
        return
    top = int(found.argmax())
    yield (
        f"Mean cosine of two tokens of different sentences: {number(found[0])} at the input, "
        f"{number(found[-1])} after the last layer, highest in {_place(sums, top)} "
        f"({number(found[top])})."
    )


def _outlier(sums: GeometrySums) -> Iterator[str]:
    whole = sums.of(ids.ANISOTROPY, "raw").value
    largest = sums.of(ids.OUTLIER_DIMENSIONS, "largest").value
    rest = sums.of(ids.ANISOTROPY, "without_outliers").value
    if np.isnan([whole, largest, rest]).any():
        return
    # Where the whole may be nothing, a part of it says nothing.
    sure = sums.above(ids.ANISOTROPY, "raw")
    parts = np.divide(largest, whole, out=np.zeros(len(whole)), where=sure)
    state = int(parts.argmax())
    if parts[state] < DOMINANT:
        yield (
            f"No single dimension contributes {percent(DOMINANT)} or more of the mean cosine of "
            "two tokens in any layer."
        )
        return
    named = sums.largest(state, 1)[0]
    yield (
        f"Dimension {named} contributes {number(largest[state])} of the mean cosine of "
        f"{number(whole[state])} in {_place(sums, state)}; without its three largest dimensions: "
        f"{number(rest[state])}."
    )


def _alike(sums: GeometrySums) -> Iterator[str]:
    for metric, what in (
        (ids.SELF_SIMILARITY, "Self-similarity"),
        (ids.INTRA_SENTENCE_SIMILARITY, "Intra-sentence similarity"),
    ):
        found = sums.of(metric, "adjusted").value
        # Without an interval above 0, nothing is more similar.
        if sums.above(metric, "adjusted")[[0, -1]].all():
            yield (
                f"{what} above the anisotropy baseline: {number(found[0])} at the input, "
                f"{number(found[-1])} after the last layer."
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
    found = sums.of(ids.EFFECTIVE_RANK, "").value
    if np.isnan(found[[0, -1]]).any():
        return
    most = int(np.nanargmax(found))
    yield (
        f"Effective rank of {MINIBATCH} tokens: {number(found[0])} of "
        f"{sums.dimensions.shape[1]:,} dimensions at the input, {number(found[-1])} after the last "
        f"layer, highest in {_place(sums, most)} ({number(found[most])})."
    )


def _path(sums: GeometrySums) -> Iterator[str]:
    raw, treated = (
        sums.of(ids.STANDARDISED_COSINE, label).value for label in ("raw", "standardised")
    )
    if not np.isnan([raw[-1], treated[-1]]).any():
        yield (
            f"Cosine to the input embedding after the last layer: {number(raw[-1])}; with every "
            f"dimension standardised: {number(treated[-1])}."
        )


def _cka(sums: GeometrySums) -> Iterator[str]:
    if np.isnan(sums.cka).any():
        return
    steps = np.diag(sums.cka, 1)
    turn = int(steps.argmin())
    before, after = (_place(sums, state) for state in (turn, turn + 1))
    yield (
        f"Least similar consecutive states: {before} and {after}, CKA "
        f"{number(float(steps[turn]))}; input and last layer: {number(float(sums.cka[0, -1]))}."
    )
