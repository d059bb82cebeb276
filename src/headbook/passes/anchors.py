"""Anchors of heads: for each head the token type whose pairs are high most often.

Sums over texts are kept for the token types that occur in enough of them, and only the anchors are
stored: which pairs are high depends on all texts of the sample, so that sums of two samples could
not be added.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, Ints, divide
from headbook.attention.head_outputs import HeadOutputs
from headbook.attention.pair_cells import TOP_LABEL
from headbook.metrics.base import AnchorMetric
from headbook.model.tokens.strings import TokenStrings
from headbook.schema import TOP_PAIR_SHARES, AttentionStack, SinkView
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sums import token_sums
from headbook.study.sums.token_sums import AnchorColumn, Anchors
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence

HIGH, ALL, HIGH_SQUARES, ALL_SQUARES, PRODUCTS = range(5)  # sums over texts, of pairs of a type
ERRORS = 2  # standard errors from a lift to its lower end
N_ORDERS = 2  # of tokens: their own, and random within each text


class AnchorAccumulator:
    """Sums over texts of the pairs of each frequent token type, for the heads of one stack.

    Sums over batches are added in place.

    Args:
        metrics: metrics of anchors.
        items: texts of the sample.
        seed: seed of the random orders.
    """

    def __init__(
        self,
        stack: AttentionStack,
        metrics: Sequence[AnchorMetric],
        items: Iterable[TokenizedSentence],
        seed: int,
    ) -> None:
        self.stack, self.seed, self.metrics = stack, seed, metrics
        texts: Counter[int] = Counter()
        for item in items:
            tokens = item.tokens[stack.queries]
            texts.update(np.unique(tokens.ids[~tokens.special]).tolist())
        least = token_sums.MIN_ANCHOR_TEXTS
        self.types = np.array(sorted(t for t, n in texts.items() if n >= least), np.int64)
        self.columns = tuple(
            AnchorColumn(metric.id, view, label)
            for metric in metrics
            for view in metric.views
            for label in metric.labels
        )
        cells = (len(self.columns), N_ORDERS, stack.n_layers, stack.n_heads, len(self.types))
        self.sums = np.zeros((5, *cells))
        self.n_texts = np.zeros(cells, np.int64)  # texts in which a type has pairs

    def batch_counts(self, batch: Batch) -> "_BatchCounts":
        """Return a collector of the pairs of one batch."""
        return _BatchCounts(self, batch)

    def anchors(self, names: TokenStrings) -> Anchors:
        """Return the anchor of each head."""
        high, pairs, high_squares, pair_squares, products = self.sums
        share = divide(high, pairs)
        squares = high_squares - 2 * share * products + share**2 * pair_squares
        error = divide(np.sqrt(np.maximum(squares, 0)), pairs)
        base = [*TOP_PAIR_SHARES.values()][TOP_LABEL]
        enough = (self.n_texts >= token_sums.MIN_ANCHOR_TEXTS) & (pairs > 0)
        low = np.where(enough, share - ERRORS * error, -np.inf) / base
        shape = low.shape[:-1]
        if not len(self.types):
            missing = np.full(shape, np.nan)
            return Anchors(self.columns, {}, np.full(shape, -1), missing, missing)
        best = low.argmax(-1)[..., None]
        token = np.broadcast_to(self.types, low.shape)
        found = [np.take_along_axis(each, best, -1)[..., 0] for each in (token, share / base, low)]
        there = np.isfinite(found[2])
        entries = np.where(there, found[0], -1)
        known = {str(entry): names[entry] for entry in np.unique(entries[there]).tolist()}
        lifts = (np.where(there, each, np.nan) for each in found[1:])
        return Anchors(self.columns, known, entries, *lifts)


class _BatchCounts:
    """Pairs of the token types of one batch, added to the sums layer by layer."""

    def __init__(self, owner: AnchorAccumulator, batch: Batch) -> None:
        self._owner = owner
        self._hashes = batch.content_hash
        ids = batch.texts[owner.stack.queries].ids.cpu().numpy()
        index = np.searchsorted(owner.types, ids)
        is_known = np.isin(ids, owner.types)
        self._types = np.where(is_known, index, len(owner.types))  # the last one is dropped
        self._reordered: Ints | None = None

    def add(self, layer: int, heads: Mapping[SinkView, HeadOutputs]) -> None:
        """Add the pairs of one layer."""
        for number, column in enumerate(self._owner.columns):
            output = heads[column.view]
            if output.outputs is None:
                return
            ends = output.cells.ends
            if self._reordered is None:
                self._reordered = self._reorder(output.taking_part.squeeze(1).cpu().numpy())
            for order, types in enumerate((self._types, self._reordered)):
                pairs = self._by_type(ends[..., 0], types)
                high = self._by_type(ends[..., 1], types)
                place = number, order, layer, slice(0, ends.shape[1])
                terms = (high, pairs, high * high, pairs * pairs, high * pairs)
                for total, term in zip(self._owner.sums, terms, strict=True):
                    total[place] += term.sum(0)
                self._owner.n_texts[place] += (pairs > 0).sum(0)

    def _by_type(self, ends: Floats, types: Ints) -> Floats:
        """Add up the pairs of tokens by type. *Shape:* ``(sentence, head, type)``."""
        n_sentences, n_heads, _ = ends.shape
        n_types = len(self._owner.types) + 1
        rows = np.arange(n_sentences * n_heads).reshape(n_sentences, n_heads, 1)
        cells = rows * n_types + types[:, None]
        size = n_sentences * n_heads * n_types
        sums: Floats = np.bincount(cells.ravel(), ends.ravel(), size).astype(np.float64)
        return sums.reshape(n_sentences, n_heads, n_types)[..., :-1]

    def _reorder(self, counted: NDArray[np.bool_]) -> Ints:
        """Return the types of each text in random order among the tokens that take part.

        The order depends on the seed and the text, and is the same for all heads, so that heads
        that group the same tokens still share their anchors.
        """
        reordered = self._types.copy()
        for row, key in enumerate(self._hashes):
            rng = np.random.default_rng([self._owner.seed, int(key)])
            reordered[row, counted[row]] = rng.permutation(reordered[row, counted[row]])
        return reordered


def anchor_sums(accumulators: Mapping[str, AnchorAccumulator], names: TokenStrings) -> CorpusSums:
    """Return the anchors of all stacks in which heads have outputs, as corpus sums."""
    return CorpusSums(
        anchors={
            name: sums.anchors(names) for name, sums in accumulators.items() if sums.sums.any()
        }
    )
