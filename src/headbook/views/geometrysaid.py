"""What the geometry of states says, in sentences with this model's numbers."""

from collections.abc import Iterator

import numpy as np

from headbook.measures.clouds import MINIBATCH
from headbook.summaries.shapes import GeometrySums, state_names
from headbook.wording import number, percent

DOMINANT = 1 / 4  # part of the anisotropy that one dimension alone must give to be named


def said(sums: GeometrySums) -> Iterator[str]:
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
    return "in the input" if layer is None else f"in layer {layer}"


def _anisotropy(sums: GeometrySums) -> Iterator[str]:
    found = sums.of("anisotropy", "raw").value
    if np.isnan(found).any():
        return
    top = int(found.argmax())
    yield (
        f"Two tokens of different sentences have a mean cosine of {number(found[0])} in the input "
        f"and {number(found[-1])} in the last layer; it is highest {_place(sums, top)}, "
        f"{number(found[top])}."
    )


def _outlier(sums: GeometrySums) -> Iterator[str]:
    whole = sums.of("anisotropy", "raw").value
    largest = sums.of("outlier_dimensions", "largest").value
    rest = sums.of("anisotropy", "without_outliers").value
    if np.isnan([whole, largest, rest]).any():
        return
    # Where the whole may be nothing, a part of it says nothing.
    sure = sums.of("anisotropy", "raw").interval()[0] > 0
    parts = np.divide(largest, whole, out=np.zeros(len(whole)), where=sure)
    state = int(parts.argmax())
    if parts[state] < DOMINANT:
        yield (
            f"No single dimension gives as much as {percent(DOMINANT)} of the mean cosine of two "
            "tokens in any layer."
        )
        return
    named = sums.largest(state, 1)[0]
    yield (
        f"Dimension {named} alone gives {number(largest[state])} of the mean cosine of "
        f"{number(whole[state])} {_place(sums, state)}; without the three largest dimensions of "
        f"that state it is {number(rest[state])}."
    )


def _alike(sums: GeometrySums) -> Iterator[str]:
    for metric, what in (
        ("self_similarity", "Occurrences of one vocabulary entry in different sentences are"),
        ("intra_sentence_similarity", "Tokens and the mean of their sentence are"),
    ):
        found = sums.of(metric, "adjusted").value
        # Without an interval above 0, nothing is more alike.
        if (sums.of(metric, "adjusted").interval()[0][[0, -1]] > 0).all():
            yield (
                f"{what} more alike than any two tokens by a cosine of {number(found[0])} in the "
                f"input and {number(found[-1])} in the last layer."
            )


def _variance(sums: GeometrySums) -> Iterator[str]:
    raw, baseline = (
        sums.of("maximum_explainable_variance", label).value for label in ("raw", "baseline")
    )
    if not np.isnan([raw[-1], baseline[-1]]).any():
        yield (
            f"In the last layer, one fixed direction holds {percent(raw[-1])} of an entry's "
            f"vectors in all its sentences, and {percent(baseline[-1])} of as many random tokens."
        )


def _rank(sums: GeometrySums) -> Iterator[str]:
    found = sums.of("effective_rank", "").value
    if np.isnan(found[[0, -1]]).any():
        return
    most = int(np.nanargmax(found))
    yield (
        f"{MINIBATCH} tokens use {number(found[0])} of {sums.dimensions.shape[1]:,} dimensions in "
        f"the input and {number(found[-1])} in the last layer; most {_place(sums, most)}, "
        f"{number(found[most])}."
    )


def _path(sums: GeometrySums) -> Iterator[str]:
    raw, treated = (
        sums.of("standardised_cosine", label).value for label in ("raw", "standardised")
    )
    if not np.isnan([raw[-1], treated[-1]]).any():
        yield (
            f"In the last layer a token's cosine to its own input is {number(raw[-1])}, and "
            f"{number(treated[-1])} with every dimension standardised."
        )


def _cka(sums: GeometrySums) -> Iterator[str]:
    if np.isnan(sums.cka).any():
        return
    steps = np.diag(sums.cka, 1)
    turn = int(steps.argmin())
    before, after = (_place(sums, state).removeprefix("in ") for state in (turn, turn + 1))
    yield (
        f"Of all states one after the other, {before} and {after} are least alike: CKA "
        f"{number(float(steps[turn]))}. The input and the last layer have "
        f"{number(float(sums.cka[0, -1]))}."
    )
