"""Models that were never trained, and their attention to random sentences."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    MarianConfig,
    MarianModel,
)

from layers import Marks
from map_results import Mapped

LENGTHS = (5, 10, 20, 50)  # tokens, special ones included
WORDS = 30  # in the vocabulary of these models, beside two special tokens


def untrained(family: str, seed: int) -> Any:
    """Return a model with transformers' own initialisation, of its usual width but few layers."""
    torch.manual_seed(seed)
    more: dict[str, Any] = {"vocab_size": WORDS + 2, "attn_implementation": "eager"}
    if family == "gpt2":
        return GPT2Model(GPT2Config(n_layer=2, **more)).eval()
    if family == "bert":
        return BertModel(BertConfig(num_hidden_layers=2, **more)).eval()
    more |= {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "d_model": 512}
    more |= {"scale_embedding": True}  # as the published checkpoints
    for part in ("encoder", "decoder"):
        more |= {f"{part}_layers": 1, f"{part}_attention_heads": 8, f"{part}_ffn_dim": 512}
    return MarianModel(MarianConfig(**more)).eval()


def sentences_of(model: Any, length: int, amount: int, seed: int) -> dict[str, list[Mapped]]:
    """Return attention of all layers to random sentences, by stack; layers side by side."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, WORDS + 2, (amount, length), generator=generator)
    family = model.config.model_type
    if family == "bert":
        ids[:, 0] = ids[:, -1] = 0
    if family == "marian":
        ids[:, -1] = 1
    read = {"input_ids": ids}
    asked = torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], 1)
    if family == "marian":
        read["decoder_input_ids"] = asked
    with torch.no_grad():
        found = model(**read, output_attentions=True)
    source, target = ([Marks(length, ids=line, special=[k for k in (0, length - 1) if line[k] < 2])
                       for line in each.tolist()] for each in (ids, asked))  # fmt: skip
    if family != "marian":
        return {"self": _mapped(found.attentions, source)}
    return {
        "encoder": _mapped(found.encoder_attentions, source),
        "decoder": _mapped(found.decoder_attentions, target),
        "cross": _mapped(found.cross_attentions, target, source),
    }


def _mapped(
    layers: Sequence[torch.Tensor], queries: list[Marks], keys: list[Marks] | None = None
) -> list[Mapped]:
    maps = torch.cat([*layers], 1).double()
    others: Sequence[Marks | None] = keys or [None] * len(maps)
    return [Mapped(*each) for each in zip(maps, queries, others, strict=True)]
