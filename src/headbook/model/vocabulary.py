"""Cosines, ranks and nearest entries of states against the embeddings of the whole vocabulary.

In the positional space the encoding of entry v at position i is the output of the embedding block,
LN(u) with u = s e_v + p_i. No encoding is ever formed: with gain g and bias b,

    LN(u) . x  =  ((g x - mean(g x)) . u) / std(u)  +  b . x

is one product with the plain embedding matrix, and std(u) and |LN(u)| follow from sums over e_v,
e_v^2 and e_v . p_i, computed once for each position. With a linear map W, c from the norm to the
states' width, as in ALBERT, (W LN(u) + c) . x = LN(u) . W^T x + c . x is computed likewise, and the
length follows from W^T W. Ranks and neighbours are computed from the same block of scores, without
sorting the vocabulary.

Without some dimensions, products follow from states that are 0 there, and the length of an encoding
from the share of its square that these dimensions have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch

from headbook.schema import EmbeddingSpace
from headbook.text.batch import PaddedTexts


class VocabularyComparison(NamedTuple):
    """States compared with the original encodings of the vocabulary.

    Attributes:
        ranks: number of entries with a strictly higher cosine to a state than the token's own; 0 if
            that is nearest, NaN in the padding. *Shape:* ``(state, sentence, token)``.
        ids: nearest entries, nearest first; 0 in the padding. *Shape:* ``(state, sentence, token,
            k)``.
        cosines: cosines of the nearest entries; NaN in the padding. *Shape:* ``(state, sentence,
            token, k)``.
    """

    ranks: torch.Tensor
    ids: torch.Tensor
    cosines: torch.Tensor

    @classmethod
    def empty(cls, states: torch.Tensor, k: int) -> "VocabularyComparison":
        """Return a comparison of NaN, to be filled."""
        cosines = states.new_full((*states.shape[:3], k), torch.nan)
        ranks = states.new_full(states.shape[:3], torch.nan)
        return cls(ranks, torch.zeros_like(cosines, dtype=torch.long), cosines)


def compare_with_vocabulary(
    scores: torch.Tensor, own: torch.Tensor, k: int
) -> VocabularyComparison:
    """Find the rank of each row's own entry and the row's k nearest entries.

    Args:
        scores: cosines. *Shape:* ``(row, entry)``.
        own: the row's own entry. *Shape:* ``(row,)``.
        k: number of nearest entries.
    """
    nearest = scores.topk(k)
    is_nearer = scores > scores.gather(1, own.unsqueeze(1))
    # int32 counts take a third of the time of the default int64.
    ranks = is_nearer.sum(1, dtype=torch.int32).to(scores.dtype)
    return VocabularyComparison(ranks, nearest.indices, nearest.values)


MAX_BLOCK_SCORES = 1 << 22  # scores in memory at a time: 16 MiB in float32
BLOCK_ENTRIES = 1 << 13  # vocabulary entries whose float64 sums are computed at a time
MAX_CACHED_FACTORS = 1 << 26  # numbers of each factor in the cache before it is cleared
BLOCK_POSITIONS = 16  # positions whose sums are computed at a time
EMPTY_SHARE = 1e-6  # of a squared length, below which it is a rounding error of float32
Dimensions = tuple[int, ...]  # of states and encodings


class LayerNormWeights(NamedTuple):
    """Weights of a layer norm: gain and bias, both ``(width,)``, and epsilon."""

    gain: torch.Tensor
    bias: torch.Tensor
    epsilon: float


class LinearWeights(NamedTuple):
    """Weights of a linear map after the norm: weight ``(width of states, width)`` and bias."""

    weight: torch.Tensor
    bias: torch.Tensor


class CosineFactors(NamedTuple):
    """Factors that turn products into cosines, ``(entry,)`` or ``(position, entry)``.

    Attributes:
        scale: 1 / (std(u) |LN(u)|).
        inverse_norm: 1 / |LN(u)|.
    """

    scale: torch.Tensor
    inverse_norm: torch.Tensor


@dataclass(eq=False)
class VocabularyEmbeddings:
    """Original encodings of the vocabulary on one side of a model.

    Attributes:
        embedding: word embeddings. *Shape:* ``(entry, width)``.
        scale: the model's factor of word embeddings.
        positions: p_i, sum of position and type embedding; None if the model adds nothing at its
            input, so that the positional space does not apply. Positions of a second type of
            tokens follow on those of the first. *Shape:* ``(position, width)``.
        norm: norm at the end of the embedding block, if any.
        through: linear map from the norm to the width of the states, if any.
        coarse: number format of the product with the embedding; None for the embedding's own.
        n_types: number of types of tokens that have positions of their own.
    """

    embedding: torch.Tensor
    scale: float = 1.0
    positions: torch.Tensor | None = None
    norm: LayerNormWeights | None = None
    through: LinearWeights | None = None
    coarse: torch.dtype | None = None
    n_types: int = 1
    _factors: dict[int, CosineFactors] = field(
        default_factory=dict
    )  # by the first of `BLOCK_POSITIONS`
    _kept_columns: dict[int, torch.Tensor] = field(default_factory=dict)  # by dimension
    _shares: dict[Dimensions, torch.Tensor] = field(default_factory=dict)  # at one position
    _shares_at: int | None = None

    @property
    def spaces(self) -> tuple[EmbeddingSpace, ...]:
        """Embedding spaces that apply, the default one first."""
        if self.through is not None:  # word embeddings and states are not in one space
            return (EmbeddingSpace.POSITIONAL,)
        return (
            (EmbeddingSpace.RAW,)
            if self.positions is None
            else (EmbeddingSpace.POSITIONAL, EmbeddingSpace.RAW)
        )

    def compare(
        self,
        states: torch.Tensor,
        texts: PaddedTexts,
        space: EmbeddingSpace,
        k: int,
        removed: Sequence[Dimensions] = (),
    ) -> VocabularyComparison:
        """Compare every state with every entry's original encoding.

        Args:
            states: the states. *Shape:* ``(state, sentence, token, width)``.
            texts: the tokens.
            space: embedding space of the encodings.
            k: number of nearest entries to return.
            removed: dimensions of states and encodings that do not count, by state; empty if all
                dimensions count.
        """
        comparison = VocabularyComparison.empty(states, k)
        states = without_dimensions(states, removed)
        for tokens, position in self._groups(texts, space):
            rows = states[:, tokens].flatten(0, 1)
            own_ids = texts.ids[tokens].repeat(len(states))
            block_rows = max(16, MAX_BLOCK_SCORES // len(self.embedding))
            block = VocabularyComparison.empty(rows[None, None], k)
            # Results are allocated before the scores, whose memory is then freed without gaps.
            for start in range(0, len(rows), block_rows):
                rows_of_block = slice(start, start + block_rows)
                scores = self._scores(rows[rows_of_block], position)
                if removed:
                    self._lengthen(scores, start, len(rows) // len(states), position, removed)
                near = compare_with_vocabulary(scores, own_ids[rows_of_block], k)
                del scores
                for whole, result in zip(block, near, strict=True):
                    whole[0, 0, rows_of_block] = result
                del near
            for whole, result in zip(comparison, block, strict=True):
                whole[:, tokens] = result[0, 0].unflatten(0, (len(states), -1))
        return comparison

    def encode(self, texts: PaddedTexts) -> torch.Tensor:
        """Return the original encodings of tokens at their own positions.

        *Shape:* ``(sentence, token, width)``.
        """
        sums = self.embedding[texts.ids] * self.scale
        if self.positions is None:
            return sums
        sums = sums + self.positions[self._position(texts)]
        if self.norm is not None:
            gain, bias, epsilon = self.norm
            sums = torch.nn.functional.layer_norm(sums, gain.shape, gain, bias, epsilon)
        return sums if self.through is None else torch.nn.functional.linear(sums, *self.through)

    def _groups(
        self, texts: PaddedTexts, space: EmbeddingSpace
    ) -> Iterator[tuple[torch.Tensor, int | None]]:
        """Yield the tokens that are compared with equal encodings, and their position."""
        if space is EmbeddingSpace.RAW:
            yield texts.valid, None
            return
        positions = self._position(texts)
        for position in positions[texts.valid].unique().tolist():
            yield texts.valid & (positions == position), position

    def _position(self, texts: PaddedTexts) -> torch.Tensor:
        """Return the index of each token's position and type. *Shape:* ``(sentence, token)``."""
        assert self.positions is not None
        of_type = len(self.positions) // self.n_types
        positions = torch.arange(texts.n_tokens, device=texts.ids.device)
        return texts.types * of_type + positions

    def _scores(self, states: torch.Tensor, position: int | None) -> torch.Tensor:
        """Return the cosines of states with all encodings.

        Args:
            states: the states. *Shape:* ``(row, width)``.
            position: position of the states, or None for word embeddings without position.

        Returns:
            *Shape:* ``(row, entry)``.
        """
        unit = torch.nn.functional.normalize(states, dim=-1)
        scale, inverse_norm = self.factors(position)
        if position is None:
            return self._product(unit).mul_(scale)
        assert self.positions is not None
        centred, bias = unit, torch.zeros_like(unit[:, 0])
        if self.through is not None:
            unit, bias = unit @ self.through.weight, unit @ self.through.bias
            centred = unit
        if self.norm is not None:
            centred, bias = unit * self.norm.gain, bias + unit @ self.norm.bias
            centred = centred - centred.mean(-1, keepdim=True)
        shift = centred @ self.positions[position]
        scores = self._product(centred * self.scale).mul_(scale)
        return scores.addmm_(torch.stack([shift, bias], 1), torch.stack([scale, inverse_norm]))

    def _lengthen(
        self,
        scores: torch.Tensor,
        first_row: int,
        n_tokens: int,
        position: int | None,
        removed: Sequence[Dimensions],
    ) -> None:
        """Divide cosines by the lengths that encodings of length 1 have without dimensions.

        Args:
            scores: cosines, changed in place. *Shape:* ``(row, entry)``.
            first_row: number of the first row among the rows of all states.
            n_tokens: number of rows of each state.
            position: position of the states, or None for word embeddings without position.
            removed: dimensions that do not count, by state.
        """
        end = first_row + len(scores)
        for state in range(first_row // n_tokens, (end - 1) // n_tokens + 1):
            if removed[state]:
                start, stop = max(first_row, state * n_tokens), min(end, (state + 1) * n_tokens)
                share = self._squared_share(position, removed[state])
                # Encodings without any other dimension have no direction: cosine 0.
                scale = torch.where(share < 1 - EMPTY_SHARE, (1 - share).rsqrt(), 0)
                scores[start - first_row : stop - first_row] *= scale

    def _squared_share(self, position: int | None, dimensions: Dimensions) -> torch.Tensor:
        """Return the share of the squared length of encodings in some dimensions, cached.

        Args:
            position: position of the encodings, or None for word embeddings without position.
            dimensions: dimensions of states.

        Returns:
            *Shape:* ``(entry,)``.
        """
        if self._shares_at != position:
            self._shares.clear()
            self._shares_at = position
        if dimensions not in self._shares:
            scale, inverse_norm = self.factors(position)
            encoded = self._encoded(position, dimensions, inverse_norm / scale)
            self._shares[dimensions] = (encoded * inverse_norm).square_().sum(0)
        return self._shares[dimensions]

    def _encoded(
        self, position: int | None, dimensions: Dimensions, std: torch.Tensor
    ) -> torch.Tensor:
        """Return some dimensions of the encodings at a position, or of word embeddings for None.

        Args:
            std: std(u) of each encoding; 1 without a norm. *Shape:* ``(entry,)``.

        Returns:
            *Shape:* ``(dimension, entry)``.
        """
        chosen = list(dimensions)
        if position is None:
            return self._columns(dimensions)
        assert self.positions is not None
        p = self.positions[position]
        gain, bias, mean = torch.ones_like(p), torch.zeros_like(p), torch.zeros_like(std)
        if self.norm is not None:
            gain, bias, _ = self.norm
            mean = (self._entry_sums * self.scale + p.sum()) / len(p)
        if self.through is None:
            u = (self._columns(dimensions) * self.scale).add_(p[chosen, None]).sub_(mean)
            return u.mul_(gain[chosen, None]).div_(std).add_(bias[chosen, None])
        rows, shift = self.through.weight[chosen], self.through.bias[chosen]
        shift, rows = shift + rows @ bias, rows * gain
        u = (rows @ self.embedding.T).mul_(self.scale).add_((rows @ p)[:, None])
        return u.sub_(rows.sum(1)[:, None] * mean).div_(std).add_(shift[:, None])

    def _columns(self, dimensions: Dimensions) -> torch.Tensor:
        """Return dimensions of the word embeddings. *Shape:* ``(dimension, entry)``."""
        for dimension in dimensions:
            if dimension not in self._kept_columns:  # gathered once, since rows are far apart
                self._kept_columns[dimension] = self.embedding[:, dimension].clone()
        return torch.stack([self._kept_columns[dimension] for dimension in dimensions])

    @cached_property
    def _entry_sums(self) -> torch.Tensor:
        """Sum of each word embedding over the width. *Shape:* ``(entry,)``."""
        return self.embedding.sum(1)

    @cached_property
    def _rounded(self) -> torch.Tensor:
        """Word embeddings in the number format of the product. *Shape:* ``(entry, width)``."""
        return self.embedding.to(self.coarse or self.embedding.dtype)

    def _product(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the products with all embeddings.

        *Shapes:* ``(row, width)`` to ``(row, entry)``.
        """
        return (rows.to(self._rounded.dtype) @ self._rounded.T).to(rows.dtype)

    def factors(self, position: int | None) -> CosineFactors:
        """Return the cosine factors at a position, or of word embeddings for None."""
        if position is None:
            return self._raw_factors
        row = position % BLOCK_POSITIONS
        start = position - row
        if start not in self._factors:
            cached = len(self._factors) * BLOCK_POSITIONS * len(self.embedding)
            if cached > MAX_CACHED_FACTORS:
                self._factors.clear()
            self._factors[start] = self._factors_from(start)
        return CosineFactors(*(numbers[row] for numbers in self._factors[start]))

    @cached_property
    def _raw_factors(self) -> CosineFactors:
        """Cosine factors of the word embeddings without position."""
        length = self.embedding.norm(dim=1)
        return _inverted(torch.ones_like(length), length)

    def _factors_from(self, start: int) -> CosineFactors:
        """Return the cosine factors at up to `BLOCK_POSITIONS` positions.

        *Shape:* ``(position, entry)``. The factors are stored in two large tensors, because small
        tensors would fragment the memory.
        """
        assert self.positions is not None
        shape = len(self.positions[start : start + BLOCK_POSITIONS]), len(self.embedding)
        factors = CosineFactors(self.embedding.new_empty(shape), self.embedding.new_empty(shape))
        for first_entry in range(0, len(self.embedding), BLOCK_ENTRIES):
            entries = slice(first_entry, first_entry + BLOCK_ENTRIES)
            std, length = self._sums(self.embedding[entries], start)
            inverted = _inverted(std.to(self.embedding.dtype), length.to(self.embedding.dtype))
            for whole, part in zip(factors, inverted, strict=True):
                whole[:, entries] = part
        return factors

    def _sums(self, entries: torch.Tensor, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return std(u) and |LN(u)| of a block of entries at several positions, from sums.

        Without a norm, the result is 1 and |u|. *Shape:* ``(position, entry)``; in float64, since
        variances are small differences of large sums.
        """
        assert self.positions is not None
        e = entries.double() * self.scale
        p = self.positions[start : start + BLOCK_POSITIONS].double()
        width = e.shape[1]
        length2 = (e * e).sum(1) + 2 * p @ e.T + (p * p).sum(1, keepdim=True)
        if self.through is not None:
            return self._sums_through(e, p, length2, self.through)
        if self.norm is None:
            return torch.ones_like(length2), length2.sqrt()
        mean = (e.sum(1) + p.sum(1, keepdim=True)) / width
        variance = length2 / width - mean**2 + self.norm.epsilon
        gain, bias = self.norm.gain.double(), self.norm.bias.double()
        g2, gb = gain * gain, gain * bias
        # Sums of g^2 (u - mean)^2 and g b (u - mean) over the width.
        square = (e * e) @ g2 + 2 * (p * g2) @ e.T + ((p * p) @ g2).unsqueeze(1)
        linear = e @ g2 + (p @ g2).unsqueeze(1)
        centred = square - 2 * mean * linear + mean**2 * g2.sum()
        mixed = e @ gb + (p @ gb).unsqueeze(1) - mean * gb.sum()
        norm2 = centred / variance + 2 * mixed / variance.sqrt() + (bias * bias).sum()
        return variance.sqrt(), norm2.sqrt()

    def _sums_through(
        self, e: torch.Tensor, p: torch.Tensor, length2: torch.Tensor, through: LinearWeights
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return std(u) and |W LN(u) + c| for a linear map W, c after the norm.

        With A = W diag(g) and d = W b + c, the mapped vector is A (u - mean) / std + d.
        """
        w, d = through.weight.double(), through.bias.double()
        std, mean = torch.ones_like(length2), torch.zeros_like(length2)
        if self.norm is not None:
            mean = (e.sum(1) + p.sum(1, keepdim=True)) / e.shape[1]
            std = (length2 / e.shape[1] - mean**2 + self.norm.epsilon).sqrt()
            d = d + w @ self.norm.bias.double()
            w = w * self.norm.gain.double()
        gram, along = w.T @ w, d @ w
        square = ((e @ gram) * e).sum(1) + 2 * (p @ gram) @ e.T
        square = square + ((p @ gram) * p).sum(1, keepdim=True)
        gram_sums = gram.sum(1)
        linear = e @ gram_sums + (p @ gram_sums).unsqueeze(1)
        centred = square - 2 * mean * linear + mean**2 * gram_sums.sum()
        mixed = e @ along + (p @ along).unsqueeze(1) - mean * along.sum()
        return std, (centred / std**2 + 2 * mixed / std + d @ d).sqrt()


def without_dimensions(states: torch.Tensor, removed: Sequence[Dimensions]) -> torch.Tensor:
    """Return states that are 0 in some dimensions; the states themselves if all dimensions count.

    Args:
        states: *Shape:* ``(state, ..., width)``.
        removed: dimensions that do not count, by state; empty if all count.
    """
    if not any(removed):
        return states
    states = states.clone()
    for state, dimensions in zip(states, removed, strict=True):
        state[..., list(dimensions)] = 0
    return states


def _inverted(std: torch.Tensor, length: torch.Tensor) -> CosineFactors:
    smallest = torch.finfo(std.dtype).tiny  # an entry of zeros has no direction: cosine 0
    inverse_norm = length.clamp(min=smallest).reciprocal()
    return CosineFactors(std.clamp(min=smallest).reciprocal() * inverse_norm, inverse_norm)
