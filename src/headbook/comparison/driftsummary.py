"""How far the heads of two models have moved apart in all: against rounding and other heads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats, divide
from headbook.comparison.drift import PATTERN_DRIFT, ROUNDED, SHUFFLED
from headbook.comparison.headdifferences import HeadDifferences
from headbook.terms import View

EQUAL = 1e-12  # nats: what is left of equal rows is rounding
CHANGED = 0.5  # part of the largest median of a layer from which on a layer is among the changed
QUARTILES = (25, 50, 75)


@dataclass(frozen=True, eq=False)
class DriftSummary:
    """Divergence of the heads of one stack, with all keys. *Shape* of all: ``(layer, head)``.

    Attributes:
        value, low, high: how far each head is from the one of its number, in nats, with its 95 %
            interval; NaN where there is no head.
        floor: of the first model and itself in bfloat16; None where that was not measured.
        floor_high: upper ends of its intervals.
        ceiling: of each head and another one of its layer; None in layers of one head.
    """

    value: Floats
    low: Floats
    high: Floats
    floor: Floats | None
    floor_high: Floats | None
    ceiling: Floats | None

    @property
    def there(self) -> NDArray[np.bool_]:
        """Which heads have a number."""
        return ~np.isnan(self.value)

    @property
    def equal(self) -> bool:
        """Whether all heads attend exactly alike."""
        return bool((self.value[self.there] <= EQUAL).all())

    @property
    def above(self) -> NDArray[np.bool_] | None:
        """Heads whose interval lies above that of rounding; None where rounding is not known."""
        if self.floor is None or self.floor_high is None:
            return None
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = self.low > np.fmax(self.floor_high, self.floor)
        return found

    @property
    def part(self) -> Floats | None:
        """How much of the way from rounding, or 0, to other heads each head has gone.

        The way is that of the median head, since a single other head may be a near copy.
        """
        if self.ceiling is None:
            return None
        floor = 0.0 if self.floor is None else float(np.nanmedian(self.floor))
        way = float(np.nanmedian(self.ceiling)) - floor
        return divide(self.value - floor, np.full(self.value.shape, max(way, 0.0)))

    def layers(self) -> Floats:
        """Quartiles of the heads of each layer; NaN without attention. *Shape:* ``(3, layer)``."""
        return by_layer(self.value)

    def changed(self) -> tuple[int, ...]:
        """Layers that changed most, the most first: none where all are alike or equal."""
        medians = self.layers()[1]
        if self.equal or np.isnan(medians).all():
            return ()
        most = float(np.nanmax(medians))
        found = [x for x in np.argsort(-medians, kind="stable") if medians[x] >= CHANGED * most]
        return () if len(found) == int((~np.isnan(medians)).sum()) else tuple(map(int, found))


def by_layer(values: Floats) -> Floats:
    """Quartiles of the heads of each layer. *Shape:* ``(layer, head)`` to ``(3, layer)``."""
    found = np.full((len(QUARTILES), len(values)), np.nan)
    for layer, row in enumerate(values):
        if not np.isnan(row).all():
            found[:, layer] = np.nanpercentile(row, QUARTILES)
    return found


def drift_summary(found: HeadDifferences, view: View = View.RAW) -> DriftSummary | None:
    """What is known of a stack; None where no attention was compared."""
    places = [found.column(PATTERN_DRIFT, str(view), x) for x in ("", ROUNDED, SHUFFLED)]
    column, floor, ceiling = places
    if column is None or np.isnan(found.value[..., column]).all():
        return None
    return DriftSummary(
        found.value[..., column],
        found.low[..., column],
        found.high[..., column],
        None if floor is None else found.value[..., floor],
        None if floor is None else found.high[..., floor],
        None if ceiling is None else found.value[..., ceiling],
    )
