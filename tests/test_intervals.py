"""Intervals of ratios of sums: what they must hold for every input, and from which sums."""

import numpy as np
import torch

from headbook.analysis.accumulators import Ratios
from headbook.metrics.base import Ratio
from headbook.study.summaries.reduce import Parts


def test_sums_of_single_precision_are_squared_in_double() -> None:
    """Values that vary by a millionth from sentence to sentence have a spread, not its rounding."""
    random = np.random.default_rng(0)
    n = (0.7 + 1e-6 * random.standard_normal((64, 3, 2))).astype(np.float32)
    d = np.ones((64, 1, 1), np.float32)
    for own in (d, np.ones_like(n)):
        parts = Parts.of([Ratio(torch.from_numpy(n), torch.from_numpy(own))], [2], 3)
        found, _ = parts.sums(np.zeros(64, np.int64))
        single = n.astype(np.float64)
        np.testing.assert_allclose(found[2, 0], (single**2).sum(0), rtol=1e-14)
        low, high = Ratios(found).interval((0.0, 1.0))
        spread = single.std(0, ddof=1)
        np.testing.assert_allclose(high - low, 2 * 1.998 * spread / np.sqrt(64), rtol=0.02)
