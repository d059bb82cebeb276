"""Inputs of token metrics: states of a batch's tokens with vocabulary neighbours and logit lens."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch

from headbook.model.logit_lens import LensReadings, LogitLens
from headbook.model.vocabulary import (
    Dimensions,
    VocabularyComparison,
    VocabularyEmbeddings,
    without_dimensions,
)
from headbook.schema import CLASSES, CONTENT, FUNCTION, UPOS, EmbeddingSpace, ResidualPoint
from headbook.text.batch import PaddedTexts

NEIGHBOURS = 11  # nearest vocabulary entries stored for each state: ten and the token itself
LENS_TOKENS = 10  # most probable vocabulary entries stored for each state
TRACKED_NEIGHBOURS = 100  # nearest vocabulary entries compared from layer to layer

# Neighbours of tokens one layer earlier, by space and point of the residual stream.
Earlier = dict[tuple[EmbeddingSpace, ResidualPoint], torch.Tensor]


@dataclass(frozen=True, eq=False)
class LensContext:
    """Logit lens with the final states of a batch.

    Attributes:
        lens: logit lens of the model.
        final: output of the last layer. *Shape:* ``(sentence, token, width)``.
    """

    lens: LogitLens
    final: torch.Tensor


@dataclass(frozen=True, eq=False)
class TokenStates:
    """States of one stack over a batch, with vocabulary and logit lens.

    Attributes:
        states: states of the tokens. *Shape:* ``(state, sentence, token, width)``.
        input: input of layer 0, for each state if it lacks dimensions. *Shape:* ``(sentence,
            token, width)`` or ``(state, sentence, token, width)``.
        texts: the tokens.
        vocabulary: original encodings to compare with, or None.
        kinds: points of the residual stream, in the order of layers. *Shape:* ``(state,)``.
        earlier: neighbours at the layer before the first state; updated by `kept`.
        near: number of neighbours to find.
        lens_context: logit lens, or None for models without language-model head.
        removed: dimensions of each state that do not count; empty if all count.
    """

    states: torch.Tensor
    input: torch.Tensor
    texts: PaddedTexts
    vocabulary: VocabularyEmbeddings | None = None
    kinds: Sequence[ResidualPoint] = ()
    earlier: Earlier = field(default_factory=dict)
    near: int = NEIGHBOURS
    lens_context: LensContext | None = None
    removed: Sequence[Dimensions] = ()
    _compared: dict[EmbeddingSpace, VocabularyComparison] = field(default_factory=dict)
    _whole: "WholeStates | None" = None  # None for states with all dimensions

    def without(
        self, removed: Sequence[Dimensions], of_input: Dimensions, earlier: Earlier
    ) -> "TokenStates":
        """Return the states without some dimensions; vocabulary and input lack them, too.

        Args:
            removed: dimensions to leave out, by state.
            of_input: dimensions to leave out of the input of layer 0 if it is a state itself.
            earlier: neighbours without dimensions one layer earlier; updated by `kept`.
        """
        return replace(
            self, states=without_dimensions(self.states, removed), earlier=earlier,
            input=without_dimensions(self.input.expand_as(self.states), removed), removed=removed,
            _compared={}, _whole=WholeStates(self, of_input),
        )  # fmt: skip

    def compared(self, space: EmbeddingSpace) -> VocabularyComparison:
        """Return the comparison of the states with all original encodings, cached by space."""
        if space not in self._compared:
            self._compared[space] = (
                self._compare(self.states, space)
                if self._whole is None
                else self._compared_without(space, self._whole.states.compared(space))
            )
        return self._compared[space]

    def _compared_without(
        self, space: EmbeddingSpace, whole: VocabularyComparison
    ) -> VocabularyComparison:
        """Return the comparison of states without dimensions.

        Args:
            whole: comparison with all dimensions, which holds for states that lack none.
        """
        lacking = [state for state, dimensions in enumerate(self.removed) if dimensions]
        if not lacking:
            return whole
        comparison = VocabularyComparison(*(values.clone() for values in whole))
        removed = [self.removed[state] for state in lacking]
        part = self._compare(self.states[lacking], space, removed)
        for values, of_lacking in zip(comparison, part, strict=True):
            values[lacking] = of_lacking
        return comparison

    def _compare(
        self, states: torch.Tensor, space: EmbeddingSpace, removed: Sequence[Dimensions] = ()
    ) -> VocabularyComparison:
        assert self.vocabulary is not None
        return self.vocabulary.compare(states, self.texts, space, self._near, removed)

    @property
    def _near(self) -> int:
        """Number of neighbours, at most the size of the vocabulary."""
        assert self.vocabulary is not None
        return min(self.near, len(self.vocabulary.embedding))

    def kept(self, space: EmbeddingSpace) -> torch.Tensor:
        """Return the share of neighbours kept since the same point one layer earlier.

        The first layer is compared with its input. Call once per space, in the order of layers.
        *Shape:* ``(state, sentence, token)``; NaN in the padding.
        """
        shares = []
        for ids, kind in zip(self.compared(space).ids, self.kinds, strict=True):
            if (space, kind) not in self.earlier:
                self.earlier[space, kind] = self._at_input(space)
            shares.append(shared_fraction(self.earlier[space, kind], ids))
            self.earlier[space, kind] = ids
        return self._masked(torch.stack(shares))

    def _at_input(self, space: EmbeddingSpace) -> torch.Tensor:
        """Return the neighbours of tokens at the input of layer 0.

        *Shape:* ``(sentence, token, k)``.
        """
        if (space, ResidualPoint.PRE) not in self.earlier:
            start, removed = self.input, Dimensions()
            if self._whole is not None:
                start, removed = self._whole.states.input, self._whole.of_input
            comparison = self._compare(start[None], space, [removed])
            self.earlier[space, ResidualPoint.PRE] = comparison.ids[0]
        return self.earlier[space, ResidualPoint.PRE]

    def shared(self, space: EmbeddingSpace) -> torch.Tensor:
        """Return the share of neighbours in common with a random token of the sentence.

        `random_partners` chooses the token. *Shape:* ``(state, sentence, token)``; NaN without one.
        """
        ids, partner = self.compared(space).ids, random_partners(self.texts)
        place = partner.clamp(min=0)[..., None].expand_as(ids[0])
        # State by state, since sorting takes several times the memory of the entries.
        shares = torch.stack([shared_fraction(state, state.gather(1, place)) for state in ids])
        return self._masked(shares.masked_fill(partner < 0, torch.nan))

    def chance(self) -> torch.Tensor:
        """Return the share of neighbours that a random choice of entries would have in common."""
        assert self.vocabulary is not None
        share = self._near / len(self.vocabulary.embedding)
        return self._masked(self.states.new_full(self.states.shape[:3], share))

    @cached_property
    def readings(self) -> LensReadings:
        """Readings of the states by the logit lens."""
        assert self.lens_context is not None
        return self.lens_context.lens.read(
            self.states, self.lens_context.final, self.texts, LENS_TOKENS
        )

    def _masked(self, values: torch.Tensor) -> torch.Tensor:
        """Return values in the number format of the states, NaN in the padding."""
        return values.to(self.states.dtype).masked_fill(~self.texts.valid, torch.nan)


class WholeStates(NamedTuple):
    """States with all dimensions, of which `TokenStates.without` leaves some out.

    Attributes:
        states: the states with all dimensions.
        of_input: dimensions that the input of layer 0 lacks as a state.
    """

    states: TokenStates
    of_input: Dimensions


def shared_fraction(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the share of entries that two lists have in common.

    *Shapes:* ``(..., k)`` twice to ``(...)``.
    """
    joined = torch.cat([first, second], -1).sort(-1).values
    return (joined[..., 1:] == joined[..., :-1]).sum(-1).double() / first.shape[-1]


def random_partners(texts: PaddedTexts) -> torch.Tensor:
    """Return the position of a random other token of the sentence for each token, or -1.

    Ordinary tokens are shifted cyclically by a number that depends on the sum of the sentence's
    ids, so that the choice does not depend on batch or run. *Shape:* ``(sentence, token)``.
    """
    ordinary = texts.ordinary
    count = ordinary.sum(1, keepdim=True)
    total = texts.ids.masked_fill(~texts.valid, 0).sum(1, keepdim=True)
    steps = 1 + total % (count - 1).clamp(min=1)
    # Positions of ordinary tokens in order, then those of other tokens.
    ordinary_places = (~ordinary).byte().argsort(dim=1, stable=True)
    others = ordinary_places.gather(1, (ordinary.cumsum(1) - 1 + steps) % count.clamp(min=1))
    alone = ~texts.valid | (count == 0) | (ordinary & (count == 1))
    partners: torch.Tensor = others.masked_fill(alone, -1)
    return partners


def token_classes(texts: PaddedTexts) -> torch.Tensor:
    """Return the membership of tokens in `CLASSES`. *Shape:* ``(sentence, token, class)``.

    ``all`` are the tokens of the text itself; special tokens are a separate class, and those that
    begin a text and separators are classes of their own besides.
    """
    in_word = texts.ordinary & (texts.share > 0)
    tags = texts.tags.bool()
    members = {
        "all": texts.ordinary,
        "content": tags[..., [UPOS.index(tag) for tag in sorted(CONTENT)]].any(-1),
        "function": tags[..., [UPOS.index(tag) for tag in sorted(FUNCTION)]].any(-1),
        "initial": in_word & texts.initial,
        "continuation": in_word & ~texts.initial,
        "special": texts.valid & texts.special,
        "start": texts.starts,
        "separator": texts.valid & texts.special & ~texts.starts,
    } | {tag: tags[..., number] for number, tag in enumerate(UPOS)}
    return torch.stack([members[name] for name in CLASSES], -1).to(texts.share.dtype)
