"""What a softmax gives to a learned sink: a logit of its own that stands for no token."""

import torch

from headbook.model import hook
from headbook.model.weights.offload import parameter


def learned_share(attention: hook.Attention) -> torch.Tensor:
    """What the softmax gives to its learned sink, from its logit where the module has one.

    A weight is exp(score) over the sum of all exponentials: the row's strongest key tells that sum.
    Where there is no logit by that name it is what a row lacks; another check shows that this
    brings nothing.

    Returns:
        *Shape:* ``(sentence, head, query)``.
    """
    sinks, (query, key) = parameter(attention.module, "sinks"), (attention.query, attention.key)
    if sinks is None or query is None or key is None:
        return 1 - attention.weights.sum(-1)
    best, place = attention.weights.max(-1)
    keys = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    mine = keys.gather(2, place.unsqueeze(-1).expand(-1, -1, -1, keys.shape[-1]))
    scaling = query.shape[-1] ** -0.5 if attention.scaling is None else attention.scaling
    scores = (query * mine).sum(-1) * scaling
    if attention.mask is not None:
        mask = attention.mask.expand_as(attention.weights)
        scores = scores + mask.gather(-1, place.unsqueeze(-1)).squeeze(-1)
    share: torch.Tensor = (sinks.reshape(1, -1, 1) - scores).exp() * best
    return share
