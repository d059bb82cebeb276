"""How well fixed keys and fixed distances explain a head's attention.

Each head is compared with the best map with the same *keys* for every query, and with the best map
with the same *offsets*:

- **spread**: how even a row is, entropy over that of uniform attention. 0: one key. 1: all
  equally.
- **column**: unexplained by one weight per key of the sentence, as divergence from the fit over
  the logarithm of the number of keys. 0: all queries attend to the same keys.
- **offset**: the same with one weight per distance, shared by all sentences. 0: the relative
  position of the key decides everything.

Many heads are mixtures; *parts of attention* divides them.

Special tokens are kept as keys and, unlike in other metrics, as queries: a column at `[SEP]` runs
through all rows. Hence all keys only. Tokens that see a single key do not count. Rows count 1 over
the logarithm of the number of their keys in both fits, which makes them those with the least
residual, at most 1 minus the spread; it changes the values by less than 0.01 where all rows see
about as many keys.

Taken on a sample of the sentences, of at most 64 tokens. Short sentences leave less unexplained,
having fewer rows for each weight: random targets leave a rest of 0.6 in eight tokens and 0.9 in
sixty. Across two texts there are no offsets: spread and column only. Offsets are missing, too,
where the visible keys are no run of tokens around the query.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.pattern_fits import OffsetSums, column_residual, fit_offsets, offset_sums
from headbook.metrics.base import ChartKind, FinishedRatios, Notable, SampledMetric, Section
from headbook.metrics.examples import Example, previous_token, to_token, uniform
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.analysis.arrays import Floats
    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention

    Bools = NDArray[np.bool_]

LONGEST = 64  # tokens; the statistics have a fixed width
REACH = LONGEST - 1
OFFSETS = 2 * REACH + 1
NOTHING = 1e-9  # of a row: what rounding leaves of a perfect fit
LABELS = ("spread", "column", "offset")
# Behind the masses by offset.
SPREAD, COLUMN, ROWS = range(OFFSETS, OFFSETS + 3)
WIDTH = OFFSETS + 3


def sentences(scope: "ViewMask") -> "list[tuple[slice, slice, Bools]]":
    """Each sentence's queries and keys without padding, and what the former see of the latter.

    *Shape:* ``(query, key)``, special tokens on both sides.
    """
    frame = scope.frame
    sizes = [texts.valid.sum(1).tolist() for texts in (frame.queries, frame.keys)]
    seen = frame.attention_mask.cpu().numpy()
    found = []
    for number, (n, m) in enumerate(zip(*sizes, strict=True)):
        rows, columns = slice(n), slice(m)
        found.append((rows, columns, seen[number, rows, columns]))
    return found


def fits(scope: "ViewMask") -> "list[tuple[slice, slice, Bools] | None]":
    """Return slices and visible keys of each sentence; None for sentences that are too long."""
    return [None if max(one[2].shape) > LONGEST else one for one in scope.cached(sentences)]


def about(scope: "ViewMask") -> "torch.Tensor":
    """Return how many keys each row sees, back and then ahead.

    *Shape:* ``(sentence, 2 * LONGEST)``.
    """
    text_stats = np.zeros((len(scope.frame.attention_mask), 2 * LONGEST))
    for line, one in zip(text_stats, scope.cached(fits), strict=True):
        if one is not None and not scope.frame.stack.crosses:
            extents = _offsets(one[2][None].astype(np.float64), one[2]).extents
            line[: len(extents)] = extents[:, 0]
            line[LONGEST : LONGEST + len(extents)] = extents[:, 1]
    return scope.mask.new_tensor(text_stats)


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Masses by offset, then sums over rows. *Shape:* ``(sentence, head, WIDTH)``."""
    maps = layer.attention.double().cpu().numpy()
    if layer.frame.stack.learned_sink:  # a row's shape is that of what it gives to tokens
        maps = maps / np.maximum(maps.sum(-1, keepdims=True), np.finfo(maps.dtype).tiny)
    found = np.zeros((*maps.shape[:2], WIDTH))
    for line, own, one in zip(found, maps, layer.scope.cached(fits), strict=True):
        if one is not None:
            _fill(line, own[:, one[0], one[1]], one[2], crosses=layer.frame.stack.crosses)
    return layer.attention.new_tensor(found)


def _fill(line: "Floats", attention: "Floats", seen: "Bools", *, crosses: bool) -> None:
    columns = column_residual(attention, seen, weighted=True)
    line[:, SPREAD], line[:, COLUMN], line[:, ROWS] = columns.spread, columns.residual, columns.rows
    if not crosses:
        mass = _offsets(attention, seen).mass
        reach = mass.shape[1] // 2
        line[:, REACH - reach : REACH + reach + 1] = mass


def _offsets(attention: "Floats", seen: "Bools") -> OffsetSums:
    """Return sums by offset, without queries that see no run of keys."""
    try:
        return offset_sums(attention, seen)
    except ValueError:
        heads = len(attention)
        return OffsetSums(np.zeros((heads, 1)), np.zeros(heads), np.zeros((0, 2), dtype=np.int64))


def finish(stats: "Floats", text_stats: "Floats") -> FinishedRatios:
    """Return sums over queries, and numbers of queries.

    *Shape:* ``(sentence, head, label)`` each.
    """
    sums = [_one(*pair) for pair in zip(stats, text_stats, strict=True)]
    rows = stats[..., ROWS]
    by_offset = rows * np.array([[len(one.extents) > 0] for one in sums])
    left = [stats[..., COLUMN], fit_offsets(sums).residual * (by_offset > 0)]
    column, offset = (np.where(each > rows * NOTHING, each, 0) for each in left)
    above = [stats[..., SPREAD], column, offset]
    below = np.stack([rows, rows, by_offset], axis=-1)
    return FinishedRatios(np.stack(above, axis=-1), below, below)


def _one(stats: "Floats", text_stats: "Floats") -> OffsetSums:
    """Return the statistics of a sentence as the input of the fit of offsets.

    Sums stored in single precision are rescaled to rows that sum to 1; otherwise the weights'
    common factor would diverge.
    """
    extents = text_stats[: 2 * LONGEST].reshape(2, LONGEST).T.astype(np.int64)
    extents = extents[extents.sum(1) > 0]
    reach = int(extents.max(initial=0))
    mass = stats[:, REACH - reach : REACH + reach + 1]
    total = mass.sum(1, keepdims=True)
    whole = (1 / np.log(extents.sum(1) + 1)).sum()
    return OffsetSums(mass * whole / np.where(total > 0, total, 1), stats[:, SPREAD], extents)


METRIC = SampledMetric(
    title="Pattern",
    question="What shape do attention maps have?",
    formula=r"\frac{1}{N}\sum_i \frac{H(A_i)}{\ln k_i},\quad "
    r"\frac{1}{N}\sum_i \frac{\mathrm{KL}(A_i\,\|\,w/Z_i)}{\ln k_i},\quad "
    r"\frac{1}{N}\sum_i \frac{\mathrm{KL}(A_i\,\|\,v/Z_i)}{\ln k_i}",
    reference="after Kovaleva et al. (2019), section 4, arXiv:1908.08593; own fit",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="column",
    views=(SinkView.RAW,),
    notable=Notable.NONE,
    measure=measure,
    sentence_statistics=about,
    finish=finish,
    compares_sentences=True,
    examples={
        "all look at the third token": (
            Example(to_token(4, 2), special=(0,)),
            {"spread": 0.0, "column": 0.0},
        ),
        "each token looks one back": (
            Example(previous_token(4)),
            # The first key gets half of all, two others a quarter each.
            {"spread": 0.0, "column": (2 * math.log(2) + 2 * math.log(4)) / (4 * math.log(4))},
        ),
        "all of four tokens look everywhere alike": (
            Example(uniform(4)),
            {"spread": 1.0, "column": 0.0, "offset": 0.0},
        ),
    },
)
