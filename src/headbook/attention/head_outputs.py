"""Outputs of the heads of one layer, and their cosine similarities between tokens.

A head's output for a token is the mean of the values, weighted by attention, before the output
projection. Outputs for two tokens are compared by their cosine. Special tokens, queries that do not
count, and tokens that repeat the one before are left out.
"""

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.attention.pair_cells import (
    MAX_PAIR_DISTANCE,
    SIMILARITY_DECIMALS,
    PairCells,
    PairLimits,
)
from headbook.attention.token_pairs import (
    TokenPairs,
    after_stops,
    attended_stops,
    cosines,
    depth_minima,
    evenly_spaced_ends,
    segmentation_counts,
    similarity_across_gaps,
    sums_by_distance_label,
    true_ends,
    vector_norms,
)
from headbook.attention.views import LayerAttention
from headbook.schema import SEGMENTATION_RULES

MIN_RELATIVE_LENGTH = 1e-5  # a centred output shorter than this share of the mean is rounding


class HeadOutputs(TokenPairs):
    """Outputs of the heads of one layer of one stack over a batch, in one view.

    Attributes:
        layer: attention of the layer; rows need not sum to 1, since cosines ignore lengths.
    """

    def __init__(self, layer: LayerAttention, limits: PairLimits | None = None) -> None:
        """Store the attention of a layer and its limits.

        Args:
            limits: limits of pairs of the whole sample. By default computed from this batch.
        """
        super().__init__(layer.frame)
        self.layer = layer
        self._limits = limits

    @cached_property
    def outputs(self) -> torch.Tensor | None:
        """Head outputs; 0 for tokens that do not count. None if values are not available.

        *Shape:* ``(sentence, head, token, width)``.
        """
        value = self.layer.maps.call.value
        if value is None:
            return None
        n_heads = self.layer.attention.shape[1]
        # Several consecutive heads may share a key head.
        value = value.to(self.frame.dtype).repeat_interleave(n_heads // value.shape[1], 1)
        return self.layer.weights @ value

    @cached_property
    def similarity(self) -> torch.Tensor | None:
        """Cosines of head outputs; 0 if an output is 0. *Shape:* ``(sentence, head, n, n)``."""
        return None if self.outputs is None else cosines(self.outputs)

    @cached_property
    def has_output(self) -> torch.Tensor:
        """Tokens of pairs, those with an output above 0. *Shape:* ``(sentence, head, token)``."""
        assert self.outputs is not None
        return self.taking_part & (vector_norms(self.outputs) > 0)

    @cached_property
    def centred_outputs(self) -> torch.Tensor:
        """Head outputs minus their mean over the sentence; 0 if the difference is rounding.

        *Shape:* ``(sentence, head, token, width)``.
        """
        assert self.outputs is not None
        mask = self.has_output.to(self.frame.dtype).unsqueeze(-1)
        mean = (self.outputs * mask).sum(-2, keepdim=True) / mask.sum(-2, keepdim=True).clamp(1)
        deviation = (self.outputs - mean) * mask
        beyond_rounding = vector_norms(deviation) > MIN_RELATIVE_LENGTH * vector_norms(mean)
        return deviation * beyond_rounding.unsqueeze(-1)

    @cached_property
    def centred(self) -> torch.Tensor:
        """Cosines of the centred outputs. *Shape:* ``(sentence, head, n, n)``."""
        return cosines(self.centred_outputs)

    @cached_property
    def row_similarity(self) -> torch.Tensor:
        """Cosines of attention rows. *Shape:* ``(sentence, head, n, n)``."""
        return cosines(self.layer.weights)

    @cached_property
    def pairs(self) -> torch.Tensor:
        """1 for pairs of tokens with an output above 0, the earlier token first; else 0.

        *Shape:* ``(sentence, head, n, n)``.
        """
        return self.pairs_of(self.has_output)

    @cached_property
    def pairs_away(self) -> torch.Tensor:
        r"""1 for pairs of tokens with centred outputs above 0, the earlier first; else 0.

        *Shape:* ``(sentence, head, n, n)``.
        """
        return self.pairs_of(vector_norms(self.centred_outputs) > 0)

    @cached_property
    def pairs_of_rows(self) -> torch.Tensor:
        r"""1 for pairs of tokens that attend to a key, the earlier first; else 0.

        *Shape:* ``(sentence, head, n, n)``.
        """
        return self.pairs_of(self.taking_part & (vector_norms(self.layer.weights) > 0))

    @cached_property
    def cells(self) -> PairCells:
        """Pairs of tokens counted by distance, token type and sentence."""
        assert self.similarity is not None
        limits = self._limits if self._limits is not None else self.own_limits
        texts = self.frame.queries
        similarity, counted, ids, part = (
            array.contiguous().cpu().numpy()
            for array in (self.similarity, self.has_output, texts.ids, texts.part)
        )
        return PairCells.of(similarity, counted, ids, part, limits)

    @property
    def own_limits(self) -> PairLimits:
        """Limits of the pairs of this batch."""
        return PairLimits.of(*self.collected(), self.distance_sums)

    def collected(self, step: int = 1) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the rounded similarities of every ``step``-th pair of a sentence.

        Returns:
            Similarities, NaN without, *Shape:* ``(head, pair)``; and whether both tokens are equal,
            *Shape:* ``(pair,)``.
        """
        assert self.similarity is not None
        places = torch.arange(self.pairs.shape[-1], device=self.pairs.device)
        number = places * (places - 1) // 2 + places[:, None]  # independent of the padding
        anywhere = self.pairs.any(1) & (number % step == 0)
        chosen = self.similarity.transpose(0, 1)[:, anywhere].double().cpu()
        missing = (self.pairs == 0).transpose(0, 1)[:, anywhere].cpu()
        known = chosen.round(decimals=SIMILARITY_DECIMALS).masked_fill(missing, torch.nan)
        return known.float().numpy(), self.same_token[anywhere].cpu().numpy()

    @property
    def distance_sums(self) -> NDArray[np.float64]:
        """Sum of distances, and number, of pairs of different tokens. *Shape:* ``(2, head)``."""
        assert self.similarity is not None
        pairs = self.pairs * ~self.same_token.unsqueeze(1)
        places = torch.arange(pairs.shape[-1], device=pairs.device)
        distance = (places[None, :] - places[:, None]).clamp(0, MAX_PAIR_DISTANCE)
        sums = torch.stack([(pairs * distance).sum((0, 2, 3)), pairs.sum((0, 2, 3))])
        return sums.expand(-1, self.similarity.shape[1]).double().cpu().numpy()

    def tensor(self, array: NDArray[np.float64]) -> torch.Tensor:
        """Return an array as a tensor like the attention."""
        return torch.from_numpy(array.astype(np.float64)).to(self.layer.attention)

    def tensors(
        self, sums: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return numerators, denominators and observations as tensors like the attention."""
        return self.tensor(sums[0]), self.tensor(sums[1]), self.tensor(sums[2])

    def pooled(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sums of values of pairs, by the labels `DISTANCES`.

        *Shape:* ``(sentence, head, label)``.
        """
        n_heads = self.layer.attention.shape[1]
        return sums_by_distance_label(values).expand(-1, n_heads, -1)

    def proposed(self, *, together: bool = False) -> dict[str, torch.Tensor]:
        """Return proposed ends of sentences, by the rules of `headbook.attention.token_pairs`.

        Args:
            together: whether to average the scores of all heads, as of one head.

        Returns:
            *Shape:* ``(sentence, head, place)`` each, boolean.
        """
        places, texts = self.places, self.frame.queries
        gaps = similarity_across_gaps(places, self.centred * self.pairs_away, self.pairs_away)
        received = self.layer.weights.sum(-2)
        if together:
            gaps, received = gaps.nanmean(1, keepdim=True), received.mean(1, keepdim=True)
        stops = after_stops(places, texts.stop)
        even_ends = evenly_spaced_ends(places, true_ends(places, texts.part))
        ends_of_rules = (
            depth_minima(places, gaps),
            attended_stops(places, stops, received),
            stops,
            even_ends,
        )
        return {
            rule: ends if ends.ndim == 3 else ends.unsqueeze(1).expand(-1, gaps.shape[1], -1)
            for rule, ends in zip(SEGMENTATION_RULES, ends_of_rules, strict=True)
        }

    def ends_by_token(self) -> torch.Tensor:
        """Return the ends that all heads together propose, by the token before the end.

        *Shape:* ``(sentence, rule, token)``, boolean; rules as in `SEGMENTATION_RULES`.
        """
        proposed = torch.cat([*self.proposed(together=True).values()], 1)
        order = self.places.order.unsqueeze(1).expand_as(proposed)
        return torch.zeros_like(proposed).scatter(-1, order, proposed)

    def segmented(self, *, together: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return sums for the measures of each rule in passages of several sentences.

        Returns:
            Numerators, denominators and numbers of true ends. *Shape:* ``(sentence, head, label)``
            each, with the measures of the first rule first.
        """
        true = true_ends(self.places, self.frame.queries.part)
        counts = [
            segmentation_counts(self.places, ends, true)
            for ends in self.proposed(together=together).values()
        ]
        above, below = (
            torch.cat(tables, -1).to(self.frame.dtype) * self.joined
            for tables in zip(*counts, strict=True)
        )
        return above, below, (true.sum(1)[:, None, None] * self.joined).expand_as(above)

    def nothing(self, n_labels: int) -> torch.Tensor:
        """Return sums of 0, for layers without values. *Shape:* ``(sentence, 1, label)``."""
        return self.layer.attention.new_zeros((len(self.layer.attention), 1, n_labels))
