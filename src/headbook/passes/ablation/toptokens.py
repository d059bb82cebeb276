"""The tokens for which a head says most, and what becomes of their logits without it."""

import numpy as np

from headbook.analysis.arithmetic import Floats, Ints

SHARE = 0.02  # of the tokens
ROUNDING = 1e-5  # relative; what equals the threshold but for it is not above


def top_sums(total: Floats, direct: Floats, sentence: Ints, half: Ints) -> Floats:
    """Sums over each head's largest direct effects; where they begin is told by the other half.

    A head's direct effect is what it says to a logit: minus the change without it.

    Args:
        total, direct: changes of logits without heads. *Shape:* ``(token, head)``.
        sentence: row of each token's sentence. *Shape:* ``(token,)``.
        half: of each sentence. *Shape:* ``(sentence,)``.

    Returns:
        Total change, direct change, and how many tokens. *Shape:* ``(3, sentence, head)``.
    """
    largest = np.zeros(direct.shape, dtype=bool)
    for own in (0, 1):
        mine = half[sentence] == own
        if not mine.all():
            least = np.quantile(-direct[~mine], 1 - SHARE, axis=0)
            least += ROUNDING * np.abs(least)
            largest |= mine[:, None] & (-direct > least)
    found = np.zeros((3, len(half), direct.shape[1]))
    for sums, numbers in zip(found, (total, direct, np.ones_like(direct)), strict=True):
        np.add.at(sums, sentence, np.where(largest, numbers, 0))
    return found
