"""Outputs of the heads of one layer, and their cosine similarities between tokens.

A head's output for a token is the mean of the values, weighted by attention, before the output
projection. Outputs for two tokens are compared by their cosine. Special tokens and queries that do
not count are left out.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.attention.token_pairs import (
    SIMILARITY_DECIMALS,
    TokenPairs,
    after_stops,
    attended_stops,
    cosines,
    depth_minima,
    evenly_spaced_ends,
    odds,
    segmentation_counts,
    similarity_across_gaps,
    sums_by_distance_label,
    thresholds,
    true_ends,
    vector_norms,
)
from headbook.attention.views import LayerAttention
from headbook.schema import SEGMENTATION_RULES, SIMILARITY_LABELS, TOP_PAIR_SHARES

MIN_RELATIVE_LENGTH = 1e-5  # a centred output shorter than this share of the mean is rounding


class HeadOutputs(TokenPairs):
    """Outputs of the heads of one layer of one stack over a batch, in one view.

    Attributes:
        layer: attention of the layer; rows need not sum to 1, since cosines ignore lengths.
    """

    def __init__(
        self, layer: LayerAttention, thresholds: NDArray[np.float64] | None = None
    ) -> None:
        """Store the attention of a layer and its thresholds.

        Args:
            thresholds: smallest similarity of each head's top shares, ``(share, head)``, in the
                order of `TOP_PAIR_SHARES`. By default computed from this batch.
        """
        super().__init__(layer.frame)
        self.layer = layer
        self._thresholds = thresholds

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
        """Boolean mask of outputs above 0. *Shape:* ``(sentence, head, token)``."""
        assert self.outputs is not None
        return self.counted & (vector_norms(self.outputs) > 0)

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
        return self.pairs_of(self.counted & (vector_norms(self.layer.weights) > 0))

    @cached_property
    def high(self) -> tuple[torch.Tensor, ...]:
        """1 for pairs of high similarity, earlier token first, else 0; by `SIMILARITY_LABELS`.

        *Shape:* ``(sentence, head, n, n)`` each.
        """
        assert self.similarity is not None
        rounded = self.similarity.round(decimals=SIMILARITY_DECIMALS)
        top_thresholds = self._thresholds if self._thresholds is not None else self.own_thresholds
        masks = []
        for label in SIMILARITY_LABELS:
            if label in TOP_PAIR_SHARES:
                of_heads = top_thresholds[[*TOP_PAIR_SHARES].index(label)]
                threshold = torch.from_numpy(of_heads).to(rounded)[:, None, None]
                masks.append((rounded >= threshold) * self.pairs)
            else:
                masks.append((rounded >= float(label)) * self.pairs)
        return tuple(masks)

    @property
    def own_thresholds(self) -> NDArray[np.float64]:
        """Smallest similarity of the top shares of this batch. *Shape:* ``(share, head)``."""
        return thresholds(self.collected())

    def collected(self, step: int = 1) -> NDArray[np.float32]:
        """Return the rounded similarities of every ``step``-th pair of a sentence; NaN without.

        Returns:
            *Shape:* ``(head, pair)``.
        """
        assert self.similarity is not None
        places = torch.arange(self.pairs.shape[-1], device=self.pairs.device)
        number = places * (places - 1) // 2 + places[:, None]  # independent of the padding
        anywhere = self.pairs.any(1) & (number % step == 0)
        rounded = self.similarity.round(decimals=SIMILARITY_DECIMALS)
        known = rounded.masked_fill(self.pairs == 0, torch.nan)
        similarities: NDArray[np.float32] = known.transpose(0, 1)[:, anywhere].float().cpu().numpy()
        return similarities

    def pooled(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sums of values of pairs, by the labels `DISTANCES`.

        *Shape:* ``(..., label)``.
        """
        return sums_by_distance_label(values)

    def sums_over_similar(self, values: torch.Tensor | None = None) -> torch.Tensor:
        """Return sums of values over pairs of high similarity, or numbers of these pairs.

        Args:
            values: values of pairs; None to count. *Shape:* ``(n, n)``, or that of `pairs`.

        Returns:
            *Shape:* ``(sentence, head, label)``; labels `SIMILARITY_LABELS`.
        """
        tables = [high if values is None else high * values for high in self.high]
        return torch.stack([table.sum((-1, -2)) for table in tables], -1)

    def mean_over_pairs(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean of values over the pairs of each sentence; 0 without pairs.

        *Shape:* ``(sentence, head, 1)``.
        """
        pairs = self.pairs.sum((-1, -2))
        return ((self.pairs * values).sum((-1, -2)) / pairs.clamp(1)).unsqueeze(-1)

    def odds(self, same: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return Mantel and Haenszel's sums for the odds of high similarity, by distance.

        Args:
            same: 1 for pairs of a kind, such as equal tokens, else 0. *Shape:* ``(sentence, 1, n,
                n)``.

        Returns:
            Both of *Shape:* ``(sentence, head, label)``; their ratio is the odds ratio.
        """
        terms = [odds(high, self.pairs, same) for high in self.high]
        above, below = (torch.stack(sums, -1) for sums in zip(*terms, strict=True))
        return above, below

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
            gaps, received = gaps.mean(1, keepdim=True), received.mean(1, keepdim=True)
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
        """Return sums for F1, Pk and WindowDiff of each rule in passages of several sentences.

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

    def ends(self, labels: Sequence[int]) -> torch.Tensor:
        """Count the pairs of high similarity of each token.

        *Shape:* ``(sentence, head, n, label)``.

        Args:
            labels: indices into `SIMILARITY_LABELS`.
        """
        return torch.stack([self.high[i].sum(-1) + self.high[i].sum(-2) for i in labels], -1)

    def nothing(self, n_labels: int) -> torch.Tensor:
        """Return sums of 0, for layers without values. *Shape:* ``(sentence, 1, label)``."""
        return self.layer.attention.new_zeros((len(self.layer.attention), 1, n_labels))
