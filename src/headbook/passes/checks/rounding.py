"""What a coarser product with the vocabulary does to ranks, measured on a few sentences."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from headbook.model.architecture import Architecture
from headbook.model.capture import forward, tapped
from headbook.model.model import Model
from headbook.model.vocabulary.embedding import Embedding
from headbook.model.vocabulary.vocabulary import Vocabulary
from headbook.study.manifest import Rounding
from headbook.terms import Side, State
from headbook.text.batch import Batch


def roundings(
    model: Model, architecture: Architecture, batch: Batch, embeddings: Mapping[Side, Embedding]
) -> tuple[Rounding, ...]:
    """Ranks of every state of a batch, both ways; nothing where the product is exact."""
    coarse = {
        side: embedding.vocabulary
        for side, embedding in embeddings.items()
        if embedding.vocabulary is not None and embedding.vocabulary.coarse is not None
    }
    if not coarse:
        return ()
    found: dict[tuple[str, str], Rounding] = {}

    def on_state(stack: str, _: int, state: State, vectors: torch.Tensor) -> None:
        side = architecture.stacks[stack].queries
        if side in coarse and state is not State.INPUT:
            for rounding in _compared(coarse[side], vectors, batch, side):
                place = rounding.side, rounding.space
                found[place] = found[place] + rounding if place in found else rounding

    with tapped(model, architecture, on_state):
        forward(model, architecture, batch)
    return tuple(found.values())


def _compared(
    vocabulary: Vocabulary, vectors: torch.Tensor, batch: Batch, side: Side
) -> Iterator[Rounding]:
    """One state of all tokens, ``(sentence, token, width)``, in every space."""
    texts = batch.texts[side]
    states, exact = vectors.to(texts.share.dtype)[None], replace(vocabulary, coarse=None)
    for space in vocabulary.spaces:
        both = (each.compare(states, texts, space, 1).ranks for each in (vocabulary, exact))
        coarse, wanted = (ranks[0][texts.valid] for ranks in both)
        apart = (coarse - wanted).abs()
        yield Rounding(
            str(side),
            str(space),
            states=len(apart),
            changed=int((apart > 0).sum()),
            largest=int(apart.max()) if len(apart) else 0,
        )
