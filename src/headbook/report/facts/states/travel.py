"""Published observations on how words travel, tested on a study.

The observations are those of D. Avery's exploration of RoBERTa (2024-25): three on the means of all
tokens, the walk back of states at the end, and the shift of function words in the middle.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimates, without_interval
from headbook.analysis.arrays import Floats, divide
from headbook.analysis.multiple_testing import ALPHA, step_down_t_p
from headbook.report.facts.states.geometry import (
    COSINE,
    KEPT,
    RANK,
    WITHOUT_OUTLIERS,
    space_number,
    token_key,
    token_numbers,
)
from headbook.report.results import StackResults
from headbook.results.fact import Fact, Tested
from headbook.results.number import PLAIN, SHARE, Number
from headbook.results.sentence import say
from headbook.schema import ResidualPoint, TokenKey

OBSERVATION = "published observation"  # claim
WALK_BACK = "cosine to the input embedding, last layer against earlier ones"  # claim
SHIFT = "mean log rank of function words in a layer against its neighbours"  # claim
MIN_LAYERS = 3  # layers from which on halves, and a middle, are compared
EARLY = "Tokens leave their embedding early: the cosine falls more in the first half of the layers."
STABLE = (
    "The rank is stable until the last layer: its logarithm changes more there than in all layers "
    "before."
)
TURNING = "Replacement of neighbours speeds up, then slows down."


class Observation(NamedTuple):
    """A published observation on the paths of all tokens of text, tested on the study.

    Attributes:
        name: short name, for tables.
        text: the observation.
        metric: id of the metric that is compared.
        state: state of the tokens.
        holds: whether it holds.
        measure: names of both numbers below.
        numbers: two numbers that are compared; the second is NaN for the place of an extreme.
        layer: layer of an extreme, or of the largest change; None without one.
    """

    name: str
    text: str
    metric: str
    state: ResidualPoint
    holds: bool
    measure: tuple[str, str]
    numbers: tuple[float, float]
    layer: int | None = None

    @property
    def label(self) -> str:
        """Label of its row in the table of tests."""
        return f"{self.name} ({self.state})"

    def tested(self, stack: str) -> Tested:
        """Return its row in the table of tests."""
        (measure, baseline), (value, other) = self.measure, self.numbers
        return Tested(
            OBSERVATION, stack, self.metric, measure, self.label, without_interval(value, 0),
            self.layer, baseline=baseline, baseline_value=other,
        )  # fmt: skip

    def printed(self, stack: str) -> tuple[Number, Number]:
        """Return both numbers with their row."""
        row, unit = self.tested(stack), SHARE if self.metric == KEPT else PLAIN
        return row.number(unit), Number(row.baseline_value, unit, row.row)


def published_observations(results: StackResults) -> Fact:
    """Return the observations on all tokens of text, in both kinds of states."""
    evidence = tuple(
        observation.tested(results.stack.name)
        for state in (ResidualPoint.POST, ResidualPoint.MID)
        for observation in observations(results, state)
    )
    return Fact("published_observations", evidence=evidence, holds=bool(evidence))


def observations(results: StackResults, state: ResidualPoint) -> Iterator[Observation]:
    """Yield the observations on all tokens of text, in one kind of state."""
    cosines, ranks, kept = (
        _values(results, metric, state, start)
        for metric, start in ((COSINE, 1.0), (RANK, 0.0), (KEPT, None))
    )
    if cosines is not None:
        falls = -np.diff(cosines)
        half = len(falls) // 2
        first, second = float(falls[:half].sum()), float(falls[half:].sum())
        yield Observation(
            "early", EARLY, COSINE, state, first > second,
            (f"fall before layer {half}", f"from layer {half} on"), (first, second),
            int(falls.argmax()),
        )  # fmt: skip
    if ranks is not None:
        *before, last = np.diff(ranks)
        change = float(np.sum(before))
        holds = abs(last) > abs(change)
        measure = ("change of log rank in the last layer", "in all before")
        yield Observation("stable", STABLE, RANK, state, holds, measure, (float(last), change))
    if kept is not None:
        least = int(kept.argmin())
        yield Observation(
            "turning", TURNING, KEPT, state, 0 < least < len(kept) - 1, ("most replaced", ""),
            (1 - kept.item(least), math.nan), least,
        )  # fmt: skip


def _values(
    results: StackResults, metric: str, state: ResidualPoint, start: float | None
) -> Floats | None:
    """Return averages over all tokens by layer after a start; None if too few or missing."""
    values = np.array([n.value for n in token_numbers(results, metric, "all", state)])
    if np.isnan(values).any() or len(values) < MIN_LAYERS:
        return None
    return values if start is None else np.array([start, *values])


class _Columns(NamedTuple):
    """Numbers of layers side by side, with their sums by bucket of sentences.

    Attributes:
        value: *Shape:* ``(column,)``.
        residuals: contribution of each bucket to the error of each number. *Shape:* ``(bucket,
            column)``.
    """

    value: Floats
    residuals: Floats

    def p(self, contrasts: Floats) -> Floats:
        """Return the family-wise p value of each contrast of the numbers.

        Args:
            contrasts: weights of the numbers. *Shape:* ``(contrast, column)``.
        """
        return step_down_t_p(contrasts @ self.value, self.residuals @ contrasts.T)


def _columns(results: StackResults, keys: Sequence[TokenKey]) -> _Columns | None:
    """Return the numbers of all layers of some keys, one after the other; None if not measured."""
    parts = [results.token_buckets(key) for key in keys]
    sums = [part for part in parts if part is not None]
    if not sums or len(sums) < len(parts) or len({len(n) for n, _ in sums}) > 1:
        return None
    n, d = (np.concatenate(side, axis=1) for side in zip(*sums, strict=True))
    if not (d.sum(0) > 0).all():
        return None
    value = divide(n.sum(0), d.sum(0))
    return _Columns(value, divide(n - value * d, d.sum(0)))


def walk_back(results: StackResults) -> Fact:
    """Return whether states come back towards their embedding at the end.

    The cosine after the last layer is compared with that after every earlier layer, paired by
    sentence and corrected for all of them; the fact holds if it is above one of them, also without
    outlier dimensions.
    """
    key, numbers = token_key(results, COSINE, "all"), token_numbers(results, COSINE, "all")
    columns = _columns(results, [key]) if key else None
    if columns is None or key is None or len(numbers) < MIN_LAYERS:
        return Fact("walk_back", holds=False)
    last = len(numbers) - 1
    lowest = int(columns.value[:last].argmin())
    contrasts = np.eye(last + 1)[last] - np.eye(last + 1)[:last]
    p = float(columns.p(contrasts)[lowest])
    rises = bool(columns.value[last] > columns.value[lowest]) and p < ALPHA
    holds = rises and _rises_without_outliers(results, lowest, last)
    estimates = results.tokens(*key)
    assert estimates is not None
    tested = Tested(
        WALK_BACK, results.stack.name, COSINE, "", "all", estimates.at(last), last,
        baseline=f"layer {lowest}", baseline_value=float(columns.value[lowest]), p=p,
    )  # fmt: skip
    text = say(
        "States walk back at the end: their cosine to the embedding rises from {low} after layer "
        "{layer} to {end} after layer {last}."
        if holds
        else "Few dimensions decide whether states walk back at the end: without three outlier "
        "dimensions, their cosine to the embedding does not rise from layer {layer} to {last}."
        if rises
        else "States do not walk back at the end: their cosine to the embedding is {end} after "
        "layer {last}, not clearly above any earlier one.",
        low=numbers[lowest], layer=lowest, end=tested.number(PLAIN), last=last,
    )  # fmt: skip
    return Fact("walk_back", text, (tested,), holds=holds)


def _rises_without_outliers(results: StackResults, layer: int, last: int) -> bool:
    """Check whether the cosine rises between two layers without outlier dimensions, if known."""
    ends = [space_number(results, WITHOUT_OUTLIERS, state + 1) for state in (layer, last)]
    known = [n.value for n in ends if n is not None and n.known]
    return len(known) < len(ends) or known[0] < known[1]


def function_shift(results: StackResults) -> Fact:
    """Return whether function words leave their embedding in one middle layer and come back.

    The mean of log10(1 + rank) of function words is compared with that of the layer before and of
    the layer after, and both steps with those of content words: four differences for each middle
    layer, paired by sentence and corrected for all of them. The fact holds if all four of a layer
    are above 0.
    """
    keys = [token_key(results, RANK, kind) for kind in ("function", "content")]
    known = [key for key in keys if key]
    columns = _columns(results, known) if len(known) == len(keys) else None
    function, content = (token_numbers(results, RANK, kind) for kind in ("function", "content"))
    n_layers = len(function)
    if columns is None or n_layers < MIN_LAYERS:
        return Fact("function_shift", holds=False)
    contrasts = _steps(n_layers)
    steps = (contrasts @ columns.value).reshape(-1, 4)
    p = columns.p(contrasts).reshape(-1, 4)
    middle = int(steps[:, :2].min(1).argmax())
    holds = bool((steps[middle] > 0).all() and (p[middle] < ALPHA).all())
    layer = middle + 1
    estimates = results.tokens(*known[0])
    assert estimates is not None
    tested = _shift_row(results, estimates, layer, float(p[middle].max()))
    if not holds:
        text = say("Function words do not leave their embedding in one middle layer alone.")
        return Fact("function_shift", text, (tested,), holds=False)
    text = say(
        "Function words leave their embedding in layer {layer} and come back: {before}, {rank} and "
        "{after} vocabulary tokens are nearer than their own after layers {first} to {last}, of "
        "content words {c_before}, {c_rank} and {c_after} (geometric means).",
        layer=layer, first=layer - 1, last=layer + 1, before=function[layer - 1],
        rank=function[layer], after=function[layer + 1], c_before=content[layer - 1],
        c_rank=content[layer], c_after=content[layer + 1],
    )  # fmt: skip
    return Fact("function_shift", text, (tested,))


def _steps(n_layers: int) -> Floats:
    """Return the contrasts of `function_shift`: four of each middle layer.

    Columns are the layers of function words, then those of content words.
    """
    one = np.eye(2 * n_layers)
    rows = []
    for layer in range(1, n_layers - 1):
        for kind in (0, n_layers):
            rows += [one[kind + layer] - one[kind + layer + side] for side in (-1, 1)]
        rows[-2:] = [rows[-4] - rows[-2], rows[-3] - rows[-1]]
    return np.array(rows)


def _shift_row(results: StackResults, estimates: Estimates, layer: int, p: float) -> Tested:
    """Return the row of the layer in which function words stand out most."""
    before, after = estimates.value[layer - 1], estimates.value[layer + 1]
    return Tested(
        SHIFT, results.stack.name, RANK, "", "function", estimates.at(layer), layer,
        baseline=f"layer {layer - 1 if before > after else layer + 1}",
        baseline_value=float(max(before, after)), p=p,
    )  # fmt: skip
