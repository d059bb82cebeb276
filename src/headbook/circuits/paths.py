r"""Path patching between two heads: the lower head taken out of one input of the upper head.

The lower head's output minus its mean over all positions is subtracted from the residual stream
that the query or key map of the upper head reads, on repeated random tokens. The norm before the
map divides the new stream by the new stream's own scale; everything else of the pass stays. The
model's own attention function computes the weights, with its positions and masks.

Attention does not depend on values: an intervention on the value input changes no attention, and
is not made.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.special import stdtrit

from headbook.analysis.arrays import Floats
from headbook.circuits.composition import MIN_SCORE, PAIR_COLUMNS
from headbook.circuits.unembedding import Norm
from headbook.circuits.weights import StackWeights
from headbook.model import attention_hook
from headbook.model.architecture import AttentionPlace
from headbook.model.forward import model_inputs
from headbook.model.head_weights import WeightRows
from headbook.model.intervention import PatchableModel, make_patchable, skip_layers
from headbook.model.probe import hidden_states_of
from headbook.text.batch import Batch

N_STRONGEST = 10  # pairs of each kind whose paths are patched
N_SEQUENCES = 16  # sequences of random tokens
MAX_ERROR = 1e-3  # of attention weights in an unpatched pass
INDUCTION, STRONGEST = "induction_score", "strongest weight"
NOT_RECOMPUTED = "passes with an unchanged input do not give this model's own attention"
NORM_BEHIND = "a norm follows the output projection of heads, so that their outputs do not add up"


class _Done(BaseException):
    """Ends a pass behind an attention call; no error, so that nothing explains it as one."""


def with_interventions(
    table: pd.DataFrame, weights: StackWeights, batch: Batch, induction: Floats
) -> tuple[pd.DataFrame, str]:
    """Return a table of compositions with the effects of patched paths.

    Args:
        table: compositions from `headbook.circuits.composition.composition_table`.
        weights: weights of the stack.
        batch: sequences of random tokens, each repeated once.
        induction: induction scores; NaN without one. *Shape:* ``(layer, head)``.

    Returns:
        The table, and the reason why no path was patched; empty if paths were.

    Raises:
        ModelError: heads of this model cannot be replaced.
    """
    if any(maps.output_norm is not None for maps in weights.layers.values()):
        return table, NORM_BEHIND
    beyond = table["rank"] > N_ROWS  # pairs of induction and previous-token heads
    is_circuit = beyond | table["circuit"] if "circuit" in table else beyond
    chosen = table[(table["kind"] != "v") & ((table["rank"] <= N_STRONGEST) | is_circuit)]
    if chosen.empty:
        return table, ""
    patcher = PathPatcher(weights, batch, chosen)
    if not patcher.recomputes():
        return table, NOT_RECOMPUTED
    rows = [_effect(patcher, *row, induction) for row in chosen[["kind", *PAIR_COLUMNS]].values]
    return table.assign(**dict(zip(EFFECT_COLUMNS, pd.DataFrame(rows, chosen.index).T, strict=True))), ""
