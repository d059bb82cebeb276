"""Every threshold by which functions of heads and layers are told, each with its reason."""

import math
from typing import NamedTuple


class Threshold(NamedTuple):
    """A limit that a number has to reach.

    Attributes:
        value: the limit; for shares that are corrected for chance, the corrected share.
        reason: why the limit is that value.
    """

    value: float
    reason: str


UNTESTED = Threshold(math.nan, "A test decides, or no number does.")
MIN_SENTENCES = Threshold(20, "With fewer sentences, intervals rest on too few clusters.")
MIN_QUERIES = Threshold(200, "A share of fewer query tokens can be that of a few words.")
MIN_OFF_UNIFORM = Threshold(
    0.05, "If uniform attention gives more than 95 %, no share can exceed that clearly."
)
HALF = Threshold(0.5, "More than all other keys together, so that two functions cannot both hold.")
SCORE = Threshold(
    0.3, "Heads on repeated random tokens give either nearly nothing or far more than this."
)
SINK_ONLY = Threshold(0.9, "With less than a tenth left, what is left moves hardly any output.")
POSITION_ONLY = Threshold(
    0.05,
    "Upper end of attention variability: a twentieth of the weight changes with the words.",
)
TWICE_THE_MEAN = Threshold(2.0, "A head has a function only if most other heads do not have it.")
EVEN = Threshold(
    0.8, "Untrained heads lie above 0.9; half of the weight on one of 20 keys gives 0.72."
)
SAME_KEYS = Threshold(0.5, "The key explains more than distance and pairs of words together.")
OWN_SENTENCE_ODDS = Threshold(
    2.0, "Odds, since uniform attention already gives about half to one of two sentences."
)
# Of sentences of the overview about layers.
MOST_HEADS = Threshold(0.5, "Layers are named by families that more than half of their heads have.")
PART_OF_LAYERS = Threshold(
    0.1, "If fewer heads belong to a family, its layers are better told by what the others do."
)
TWICE_UNIFORM = Threshold(
    2.0, "Below, most of what the sink receives is what uniform attention gives to any key."
)
REGION_EXCESS = Threshold(
    0.05,
    "A twentieth of the attention: many texts confirm less, too, which moves hardly any output.",
)
