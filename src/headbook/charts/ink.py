"""The ink of maps of attention: weights from 0, which is the page's paper, to 1.

Colours are un-blended from white, so that 0 is transparent. On dark paper pages turn such pictures
round, ``invert(1) hue-rotate(180deg)``, so that one picture serves both themes.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from headbook.measures.arithmetic import Floats

STOPS = ("#ffffff", "#d3e4f3", "#94c0e0", "#4b92c6", "#1c62a4", "#0c3b78", "#071f45")
STEPS = 64


@cache
def ink() -> tuple[tuple[int, int, int, int], ...]:
    """Red, green, blue and opacity of each step, 0 to 255."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in STOPS], float)
    places = np.linspace(0, len(STOPS) - 1, STEPS)
    colours = np.stack(
        [np.interp(places, range(len(STOPS)), channel) for channel in stops.T], axis=-1
    )
    alpha = 1 - colours.min(1, keepdims=True) / 255
    with np.errstate(invalid="ignore"):
        bare = np.where(alpha > 0, (colours - (1 - alpha) * 255) / alpha, 0).clip(0, 255)
    table = np.concatenate([bare, 255 * alpha], axis=1).round().astype(int)
    return tuple((int(r), int(g), int(b), int(a)) for r, g, b, a in table)


def ink_steps(weights: Floats) -> NDArray[np.uint8]:
    """Weights from 0 to 1 as steps of the ink by their square root; nothing where one is missing.

    The shape of ``weights``.
    """
    known = np.nan_to_num(weights).clip(0, 1)
    found: NDArray[np.uint8] = np.rint(np.sqrt(known) * (STEPS - 1)).astype(np.uint8)
    return found
