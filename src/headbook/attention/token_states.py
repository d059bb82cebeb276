"""What a token metric sees: states of a batch's tokens, beside where they came from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from headbook.model.logit_lens import LensReadings, LogitLens
from headbook.model.vocabulary import VocabularyComparison, VocabularyEmbeddings
from headbook.schema import CLASSES, CONTENT, FUNCTION, UPOS, EmbeddingSpace, ResidualPoint
from headbook.text.batch import PaddedTexts

NEIGHBOURS = 10  # nearest entries that are kept of each state
AROUND = 100  # nearest entries that are followed from layer to layer

# The neighbours that tokens had one layer earlier, by space and kind of state.
Earlier = dict[tuple[EmbeddingSpace, ResidualPoint], torch.Tensor]


@dataclass(frozen=True, eq=False)
class LensContext:
    """The head's view of a batch.

    Attributes:
        final: what leaves the last layer. *Shape:* ``(sentence, token, width)``.
    """

    lens: LogitLens
    final: torch.Tensor


@dataclass(frozen=True, eq=False)
class TokenStates:
    """States of one stack over a batch.

    Attributes:
        states: *Shape:* ``(state, sentence, token, width)``.
        input: what enters layer 0. *Shape:* ``(sentence, token, width)``.
        texts: the tokens.
        vocabulary: original encodings to compare with; None where there are none.
        kinds: what the states are, in the order of layers. *Shape:* ``(state,)``.
        earlier: the neighbours at the layer before the first of these; `kept` brings it up to date.
        near: how many neighbours are looked for.
        lens_context: through the language-model head; None where there is none.
    """

    states: torch.Tensor
    input: torch.Tensor
    texts: PaddedTexts
    vocabulary: VocabularyEmbeddings | None = None
    kinds: Sequence[ResidualPoint] = ()
    earlier: Earlier = field(default_factory=dict)
    near: int = NEIGHBOURS
    lens_context: LensContext | None = None
    _compared: dict[EmbeddingSpace, VocabularyComparison] = field(default_factory=dict)

    def compared(self, space: EmbeddingSpace) -> VocabularyComparison:
        """The states beside every original encoding; made once for each space."""
        assert self.vocabulary is not None
        if space not in self._compared:
            comparison = self.vocabulary.compare(self.states, self.texts, space, self._near)
            self._compared[space] = comparison
        return self._compared[space]

    @property
    def _near(self) -> int:
        """A vocabulary may have fewer entries."""
        assert self.vocabulary is not None
        return min(self.near, len(self.vocabulary.embedding))

    def kept(self, space: EmbeddingSpace) -> torch.Tensor:
        """Share of the neighbours one layer earlier, in the same kind of state, that are still.

        Before the first layer comes the input. Layers must come in order, each once. *Shape:*
        ``(state, sentence, token)``; NaN in the padding.
        """
        shares = []
        for ids, kind in zip(self.compared(space).ids, self.kinds, strict=True):
            if (space, kind) not in self.earlier:
                self.earlier[space, kind] = self._at_input(space)
            shares.append(shared_fraction(self.earlier[space, kind], ids))
            self.earlier[space, kind] = ids
        return self._masked(torch.stack(shares))

    def _at_input(self, space: EmbeddingSpace) -> torch.Tensor:
        """The neighbours of the tokens as they enter layer 0. *Shape:* ``(sentence, token, k)``."""
        assert self.vocabulary is not None
        if (space, ResidualPoint.PRE) not in self.earlier:
            comparison = self.vocabulary.compare(self.input[None], self.texts, space, self._near)
            self.earlier[space, ResidualPoint.PRE] = comparison.ids[0]
        return self.earlier[space, ResidualPoint.PRE]

    def shared(self, space: EmbeddingSpace) -> torch.Tensor:
        """Return the share of neighbours that another token of the sentence has; `random_partners`.

        *Shape:* ``(state, sentence, token)``; NaN where there is no other.
        """
        ids, other = self.compared(space).ids, random_partners(self.texts)
        place = other.clamp(min=0)[..., None].expand_as(ids[0])
        # State by state: sorting takes several times the memory of the entries.
        found = torch.stack([shared_fraction(state, state.gather(1, place)) for state in ids])
        return self._masked(found.masked_fill(other < 0, torch.nan))

    def chance(self) -> torch.Tensor:
        """Share of its neighbours that a random choice of entries would hold; the same anywhere."""
        assert self.vocabulary is not None
        share = self._near / len(self.vocabulary.embedding)
        return self._masked(self.states.new_full(self.states.shape[:3], share))

    @cached_property
    def readings(self) -> LensReadings:
        """The states through the language-model head."""
        assert self.lens_context is not None
        return self.lens_context.lens.read(
            self.states, self.lens_context.final, self.texts, NEIGHBOURS
        )

    def _masked(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.states.dtype).masked_fill(~self.texts.valid, torch.nan)


def shared_fraction(some: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Share of entries that two sets have in common; *Shapes:* ``(.., k)`` to ``(..)``."""
    both = torch.cat([some, others], -1).sort(-1).values
    return (both[..., 1:] == both[..., :-1]).sum(-1).double() / some.shape[-1]


def random_partners(texts: PaddedTexts) -> torch.Tensor:
    """For each token the place of another one of its sentence, at random; -1 where there is none.

    Tokens are taken as many places further on as the sum of the sentence's ids says, special
    tokens left out: the same in every batch and every run. *Shape:* ``(sentence, token)``.
    """
    ordinary = texts.ordinary
    count = ordinary.sum(1, keepdim=True)
    total = texts.ids.masked_fill(~texts.valid, 0).sum(1, keepdim=True)
    steps = 1 + total % (count - 1).clamp(min=1)
    inside = (~ordinary).byte().argsort(dim=1, stable=True)  # places of ordinary tokens come first
    others = inside.gather(1, (ordinary.cumsum(1) - 1 + steps) % count.clamp(min=1))
    alone = ~texts.valid | (count == 0) | (ordinary & (count == 1))
    found: torch.Tensor = others.masked_fill(alone, -1)
    return found


def token_classes(texts: PaddedTexts) -> torch.Tensor:
    """Which token belongs to which of `CLASSES`. *Shape:* ``(sentence, token, class)``.

    ``all`` are the tokens that stand for text; special tokens are a class of their own.
    """
    in_word = texts.ordinary & (texts.share > 0)
    tags = texts.tags.bool()
    found = {
        "all": texts.ordinary,
        "content": tags[..., [UPOS.index(tag) for tag in sorted(CONTENT)]].any(-1),
        "function": tags[..., [UPOS.index(tag) for tag in sorted(FUNCTION)]].any(-1),
        "initial": in_word & texts.initial,
        "continuation": in_word & ~texts.initial,
        "special": texts.valid & texts.special,
    } | {tag: tags[..., number] for number, tag in enumerate(UPOS)}
    return torch.stack([found[name] for name in CLASSES], -1).to(texts.share.dtype)
