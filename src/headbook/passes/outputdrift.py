"""How far the outputs of corresponding heads of two models are apart, token by token.

Heads write into directions of their own choice, so that outputs can be compared only where both
models come from the same start: a checkpoint and what was trained from it.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from headbook.analysis.arithmetic import Floats
from headbook.analysis.paired import ClusterSums
from headbook.inputs import Sentence
from headbook.model import hook
from headbook.model.architecture import Architecture, Call
from headbook.model.capture import forward
from headbook.model.encode import Encoder
from headbook.model.model import Model
from headbook.study.mapsample import MappedSentence
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch
from headbook.text.tokens import Encoded

Outputs = Mapping[tuple[str, int], torch.Tensor]  # by stack and layer, ``(head, query, width)``


def output_drift(
    models: Sequence[tuple[Model, Architecture]], sentences: Iterable[MappedSentence]
) -> dict[str, ClusterSums]:
    """1 minus the cosine of both models' outputs, for each head, added over ordinary tokens.

    Args:
        models: two of one shape, with what was found of them.
        sentences: what both read as the same tokens.

    Returns:
        By stack, sums of each sentence and how many tokens they are of. *Shape:*
        ``(sentence, layer, head, 1)``. Nothing where outputs are not available.
    """
    rows: dict[str, list[tuple[Floats, Floats]]] = {}
    for sentence in sentences:
        one, other = (_outputs(model, architecture, sentence) for model, architecture in models)
        for name, stack in models[0][1].stacks.items():
            ordinary = ~torch.tensor(sentence.texts[stack.queries].special)
            n = torch.zeros(stack.n_layers, stack.n_heads, dtype=torch.float64)
            d = torch.zeros_like(n)
            for layer in stack.attention_layers:
                if (name, layer) in one and (name, layer) in other:
                    apart = _apart(one[name, layer], other[name, layer])[:, ordinary]
                    n[layer, : len(apart)] = apart.nansum(-1)
                    d[layer, : len(apart)] = (~apart.isnan()).sum(-1)
            rows.setdefault(name, []).append((n.numpy()[..., None], d.numpy()[..., None]))
    return {name: _stacked(found) for name, found in rows.items()}


def _stacked(found: Sequence[tuple[Floats, Floats]]) -> ClusterSums:
    n, d = (np.stack(parts) for parts in zip(*found, strict=True))
    return ClusterSums(n, d)


def _outputs(model: Model, architecture: Architecture, sentence: MappedSentence) -> Outputs:
    """What the heads of a model write for one sentence."""
    encoder = Encoder(model, limit=model.limit, targets=Annotator.load("none"))
    tokens = {side: encoder.of_ids(ids.tolist()) for side, ids in sentence.ids.items()}
    item = Encoded(Sentence(sentence.index, id="", text=""), tokens)
    found: dict[tuple[str, int], torch.Tensor] = {}

    def on_attention(place: Call, attention: hook.Attention) -> None:
        if attention.output is not None:
            found[place.stack, place.layer] = attention.output[0].double().movedim(1, 0).cpu()

    forward(model, architecture, Batch.of([item], model.device), on_attention)
    return found


def _apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """1 minus cosines; exactly 0 of equal vectors, NaN of those without direction."""
    sizes = one.norm(dim=-1) * other.norm(dim=-1)
    cosine = (one * other).sum(-1) / torch.where(sizes > 0, sizes, torch.nan)
    equal = (one == other).all(-1) & (sizes > 0)
    return torch.where(equal, 0.0, (1 - cosine).clamp(0, 2))
