"""Published observations on how words travel, tested on a study.

The observations are those of D. Avery's exploration of RoBERTa (2024-25): three on the means of all
tokens, the walk back of states at the end, and the shift of function words in the middle.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimates, without_interval
from headbook.analysis.arrays import Floats, divide
from headbook.analysis.multiple_testing import ALPHA, step_down_t_p
from headbook.report.facts.states.geometry import (
    COSINE,
    KEPT,
    RANK,
    token_key,
    token_numbers,
    without_outliers,
)
from headbook.report.facts.states.outliers import dimension_names, outliers
from headbook.report.results import StackResults
from headbook.results.fact import Fact, Tested
from headbook.results.number import PLAIN, SHARE, Number
from headbook.results.sentence import say
from headbook.schema import NO_OUTLIERS, ResidualPoint, TokenKey

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
        compared: the numbers with all dimensions.
        without: the numbers without outlier dimensions; None if they are not measured or if no
            layer has outlier dimensions.
    """

    name: str
    text: str
    metric: str
    state: ResidualPoint
    compared: "ObservedNumbers"
    without: "ObservedNumbers | None" = None

    @property
    def holds(self) -> bool:
        """Whether it holds, with outlier dimensions and without."""
        return self.compared.holds and (self.without is None or self.without.holds)

    @property
    def is_decided_by_outliers(self) -> bool:
        """Whether it holds either with outlier dimensions or without, but not both."""
        return self.without is not None and self.without.holds != self.compared.holds

    def tested(self, stack: str) -> tuple[Tested, ...]:
        """Return its rows in the table of tests: with all dimensions, then without outliers."""
        labels = f"{self.name} ({self.state})", f"{self.name} ({self.state}, {NO_OUTLIERS})"
        return tuple(
            Tested(
                OBSERVATION, stack, self.metric, compared.measure[0], label,
                without_interval(compared.numbers[0], 0), compared.layer,
                baseline=compared.measure[1], baseline_value=compared.numbers[1],
            )
            for label, compared in zip(labels, (self.compared, self.without), strict=True)
            if compared is not None
        )  # fmt: skip

    def printed(self, stack: str) -> tuple[tuple[Number, Number], ...]:
        """Return both numbers of each row."""
        unit = SHARE if self.metric == KEPT else PLAIN
        return tuple(
            (row.number(unit), Number(row.baseline_value, unit, row.row))
            for row in self.tested(stack)
        )


class ObservedNumbers(NamedTuple):
    """Two numbers by which an observation holds or not.

    Attributes:
        holds: whether it holds.
        measure: names of both numbers.
        numbers: the numbers; the second is NaN for the place of an extreme.
        layer: layer of an extreme, or of the largest change; None without one.
    """

    holds: bool
    measure: tuple[str, str]
    numbers: tuple[float, float]
    layer: int | None = None


def published_observations(results: StackResults) -> Fact:
    """Return the observations on all tokens of text, in both kinds of states."""
    evidence = tuple(
        row
        for state in (ResidualPoint.POST, ResidualPoint.MID)
        for observation in observations(results, state)
        for row in observation.tested(results.stack.name)
    )
    return Fact("published_observations", evidence=evidence, holds=bool(evidence))


def observations(results: StackResults, state: ResidualPoint) -> Iterator[Observation]:
    """Yield the observations on all tokens of text, in one kind of state."""
    rules: tuple[tuple[str, str, str, Callable[[Floats], ObservedNumbers]], ...] = (
        ("early", EARLY, COSINE, _early), ("stable", STABLE, RANK, _stable),
        ("turning", TURNING, KEPT, _turning),
    )  # fmt: skip
    has_outliers = bool(outliers(results, state=state))
    for name, text, metric, rule in rules:
        values = _values(results, metric, state, "all")
        if values is not None:
            reduced = _values(results, metric, state, NO_OUTLIERS) if has_outliers else None
            without = None if reduced is None else rule(reduced)
            yield Observation(name, text, metric, state, rule(values), without)


def _early(cosines: Floats) -> ObservedNumbers:
    falls = -np.diff([1.0, *cosines])
    half = len(falls) // 2
    first, second = float(falls[:half].sum()), float(falls[half:].sum())
    measure = f"fall before layer {half}", f"from layer {half} on"
    return ObservedNumbers(first > second, measure, (first, second), int(falls.argmax()))


def _stable(ranks: Floats) -> ObservedNumbers:
    *before, last = np.diff([0.0, *ranks])
    change = float(np.sum(before))
    measure = "change of log rank in the last layer", "in all before"
    return ObservedNumbers(bool(abs(last) > abs(change)), measure, (float(last), change))


def _turning(kept: Floats) -> ObservedNumbers:
    least = int(kept.argmin())
    numbers = 1 - kept.item(least), math.nan
    return ObservedNumbers(0 < least < len(kept) - 1, ("most replaced", ""), numbers, least)


def _values(results: StackResults, metric: str, state: ResidualPoint, kind: str) -> Floats | None:
    """Return averages over all tokens by layer; None if too few or missing.

    Args:
        kind: all tokens with all dimensions, or without outlier dimensions.
    """
    values = np.array([n.value for n in token_numbers(results, metric, kind, state)])
    return None if np.isnan(values).any() or len(values) < MIN_LAYERS else values


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
    sentence and corrected for all of them; the fact holds if it is above the lowest of them, also
    without outlier dimensions.
    """
    numbers, rise = token_numbers(results, COSINE, "all"), _rise(results, "all")
    if rise is None:
        return Fact("walk_back", holds=False)
    lowest, last = rise.lowest, len(numbers) - 1
    without = without_outliers(results, COSINE, [lowest, last])
    reduced = _rise(results, NO_OUTLIERS, lowest) if without else None
    agrees = reduced is None or reduced.is_clear == rise.is_clear
    names = dimension_names(outliers(results, [lowest, last]))
    text = say(
        "Whether states walk back at the end is decided by {names}: from layer {layer} to {last}, "
        "their cosine to the embedding goes from {low} to {end}, without from {low_without} to "
        "{end_without}."
        if not agrees
        else "States walk back at the end: their cosine to the embedding rises from {low} after "
        "layer {layer} to {end} after layer {last}."
        if rise.is_clear
        else "States do not walk back at the end: their cosine to the embedding is {end} after "
        "layer {last}, above none of the earlier ones.",
        low=numbers[lowest], layer=lowest, end=rise.tested.number(PLAIN), last=last, names=names,
        low_without=without[lowest] if without else "", end_without=without[-1] if without else "",
    )  # fmt: skip
    evidence = (rise.tested,) if reduced is None else (rise.tested, reduced.tested)
    return Fact("walk_back", text, evidence, holds=rise.is_clear and agrees)


class _Rise(NamedTuple):
    """The cosine after the last layer against that after an earlier one.

    Attributes:
        lowest: layer that the last one is compared with.
        is_clear: whether the cosine rises by the test.
        tested: row in the table of tests.
    """

    lowest: int
    is_clear: bool
    tested: Tested


def _rise(results: StackResults, kind: str, layer: int | None = None) -> _Rise | None:
    """Compare the last cosine with an earlier one, corrected for all earlier ones.

    Args:
        results: results of the stack.
        kind: all tokens with all dimensions, or without outlier dimensions.
        layer: the earlier layer; None for the one with the lowest cosine.
    """
    key = token_key(results, COSINE, kind)
    columns, estimates = (_columns(results, [key]), results.tokens(*key)) if key else (None, None)
    if columns is None or estimates is None or len(columns.value) < MIN_LAYERS:
        return None
    last = len(columns.value) - 1
    lowest = int(columns.value[:last].argmin()) if layer is None else layer
    p = float(columns.p(np.eye(last + 1)[last] - np.eye(last + 1)[:last])[lowest])
    low = float(columns.value[lowest])
    tested = Tested(
        WALK_BACK, results.stack.name, COSINE, "", kind, estimates.at(last), last,
        baseline=f"layer {lowest}", baseline_value=low, p=p,
    )  # fmt: skip
    return _Rise(lowest, bool(columns.value[last] > low) and p < ALPHA, tested)


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
