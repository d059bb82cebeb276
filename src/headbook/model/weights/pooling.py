"""How a sentence encoder makes one vector of a sentence from the states of its tokens.

Checkpoints of the library sentence-transformers say so in ``modules.json`` and in the folder of
their pooling module. Modules behind it (a dense layer, a normalisation) are not read: cosines do
not depend on a vector's length, and a dense layer is no part of the network with attention.
"""

import json
from pathlib import Path
from typing import Any

import torch

MODULES, FOLDER, CONFIG = "modules.json", "1_Pooling", "config.json"
MEAN, CLS, MAX, LAST, WEIGHTED = "mean", "cls", "max", "last token", "weighted mean"
MODES = {
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_mean_sqrt_len_tokens": MEAN,  # another length, the same direction
    "pooling_mode_cls_token": CLS,
    "pooling_mode_max_tokens": MAX,
    "pooling_mode_lasttoken": LAST,
    "pooling_mode_weightedmean_tokens": WEIGHTED,
}


def read_pooling(folder: Path) -> str:
    """Return the pooling of a checkpoint, as in `MODES`; empty if it is no sentence encoder.

    Empty, too, if the checkpoint joins several poolings, or has one that is not known.
    """
    try:
        modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
        paths = [str(m["path"]) for m in modules if str(m["type"]).endswith(".Pooling")]
        if len(paths) != 1 or Path(paths[0]).name != paths[0]:
            return ""
        path = folder / paths[0] / CONFIG
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        named = [name for name, on in config.items() if name in MODES and on]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return MODES.get(named[0], "") if len(named) == 1 else ""


def pooled(states: torch.Tensor, valid: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return one vector for each sentence; its length has no meaning.

    Args:
        states: *Shape:* ``(*passes, sentence, token, width)``.
        valid: real tokens, padding left out. *Shape:* ``(sentence, token)``.
        pooling: as in `MODES`.

    Returns:
        *Shape:* ``(*passes, sentence, width)``.
    """
    if pooling == MAX:
        lowest = torch.finfo(states.dtype).min
        return states.masked_fill(~valid[..., None], lowest).amax(-2)
    weights = valid.to(states)
    place = weights.cumsum(-1) * weights  # from 1; padding may stand on either side
    if pooling == CLS:
        weights = (place == 1).to(states)
    elif pooling == LAST:
        weights = ((place > 0) & (place == place.amax(-1, keepdim=True))).to(states)
    elif pooling == WEIGHTED:
        weights = place
    return (states * weights[..., None]).sum(-2)
