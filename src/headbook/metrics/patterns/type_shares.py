"""Shares of attention that decide the function of a head.

Rows with the sink masked and renormalised. Rows with more than 90 % of their mass on the sink take
no part; **left_out** is their share. Nor do queries with fewer than two keys outside the sink.

- **previous**, **next**, **self**: mass on the token before, on the one after, on the token
  itself; **near**: on tokens two or three away; **-8** to **8**: on the token at one offset.
- **punctuation**, **repeated**, **before**, **after**: mass on keys four or more tokens away that
  are punctuation, or else the same token, or else before or after the query. With the four above
  these sum to 1. Attention across two texts has only **punctuation**, at any distance.
- **within_3**: mass on tokens at most three away, the token itself included: the sum of previous,
  next, self and near.
- **same_token**: mass on other occurrences of the same token, over the queries that see one.
- **key_punctuation** and the like: in how many sentences the key that receives most beyond uniform
  attention is of a class: punctuation, or else the first or the last key, or else a function or a
  content word, or none.
- **own_sentence**: mass on the query's own sentence, in texts of several that separators divide.
- **even_previous** and the like: each of these shares under uniform attention over the keys outside
  the sink, for the same queries.

Taken on a sample of the sentences.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, FinishedRatios, SampledMetric, Section
from headbook.metrics.examples import Example, identity, previous_token, to_token, uniform
from headbook.metrics.patterns.block_ratio import by_sentence
from headbook.schema import CONTENT, FUNCTION, IntervalRule, SinkView

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.analysis.arrays import Floats
    from headbook.attention.masks import BatchMask, ViewMask
    from headbook.attention.views import LayerAttention

    Bools = NDArray[np.bool_]

NEAR = 3  # tokens either way that are no distance
REACH = 8  # offsets that have a share of their own
ONE_OFFSET = {"previous": -1, "next": 1, "self": 0}
DISTANT = ("punctuation", "repeated", "before", "after")
PARTS = (*ONE_OFFSET, "near", *DISTANT)  # they sum to 1
OFFSETS = tuple(str(k) for k in range(-REACH, REACH + 1) if abs(k) > 1)
KEYS = ("punctuation", "first", "last", "function", "content", "other")
KEY_LABELS = tuple(f"key_{kind}" for kind in KEYS)
WITHIN = "within_3"  # the query's token and tokens at most `NEAR` away
PAIRS = (*PARTS, *OFFSETS, WITHIN, "same_token", "own_sentence")  # masses on pairs of query and key
EVEN = {label: f"even_{label}" for label in PAIRS}  # the same under uniform attention
# Of other occurrences of a token, most are in few sentences: rows of signs, lists.
RARE = ("repeated", "same_token", EVEN["repeated"], EVEN["same_token"])
LABELS = (*PAIRS, *EVEN.values(), "left_out", *KEY_LABELS)
ROUNDING = 1e-6  # of sums over queries, in single precision
FEWEST = 2  # keys outside the sink; of fewer, uniform attention gives all to the only one
# Behind the sums of the labels: how many rows or sentences they are over.
COUNTS = ("rows", "aligned", "repeating", "divided", "seeing", "sentences")
_OF_PAIRS = {
    **dict.fromkeys((*PARTS, *OFFSETS, WITHIN), "aligned"),
    "punctuation": "rows",
    "same_token": "repeating",
    "own_sentence": "divided",
}
BELOW = {
    **_OF_PAIRS,
    **{EVEN[label]: count for label, count in _OF_PAIRS.items()},
    "left_out": "seeing",
    **dict.fromkeys(KEY_LABELS, "sentences"),
}


def kinds(scope: "ViewMask") -> "torch.Tensor":
    """Return the pairs of query and key that count for each of `PAIRS`, as 0 and 1.

    *Shape:* ``(sentence, query, key, kind)``.
    """
    frame, seen = scope.frame, scope.visible
    table = scope.mask.new_zeros((*seen.shape, len(PAIRS)))
    punctuation = frame.keys.punctuation[:, None, :].expand_as(seen)
    if frame.stack.crosses:
        table[..., PAIRS.index("punctuation")] = seen & punctuation
        return table
    offset = frame.offset
    for label in (*ONE_OFFSET, *OFFSETS):
        found = offset == ONE_OFFSET[label] if label in ONE_OFFSET else offset == int(label)
        table[..., PAIRS.index(label)] = seen & found
    same = repeats(frame)
    table[..., PAIRS.index("near")] = seen & (offset.abs() > 1) & (offset.abs() <= NEAR)
    table[..., PAIRS.index(WITHIN)] = seen & (offset.abs() <= NEAR)
    left = seen & (offset.abs() > NEAR)
    for label, members in zip(DISTANT, (punctuation, same, offset < 0, offset > 0), strict=True):
        table[..., PAIRS.index(label)] = left & members
        left = left & ~members
    table[..., PAIRS.index("same_token")] = seen & same
    table[..., PAIRS.index("own_sentence")] = seen & scope.cached(own_sentence)
    return table


def repeats(frame: "BatchMask") -> "torch.Tensor":
    """Return the mask of pairs with the same token at different positions.

    *Shape:* ``(sentence, query, key)``.
    """
    return (frame.queries.ids[:, :, None] == frame.keys.ids[:, None, :]) & (frame.offset != 0)


def own_sentence(scope: "ViewMask") -> "torch.Tensor":
    """Return the mask of pairs within one of several sentences; False in texts of one sentence.

    *Shape:* ``(sentence, query, key)``.
    """
    found = scope.visible.new_zeros(scope.visible.shape)
    for line, numbers in zip(found, scope.cached(by_sentence), strict=True):
        if numbers[-1] > 0:
            own = numbers[:, None] == numbers
            line[: len(own), : len(own)] = line.new_tensor(own)
    return found


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Return sums over the queries of each sentence, and the number of queries.

    *Shape:* ``(sentence, head, statistic)``, by `LABELS` and then `COUNTS`.
    """
    scope = layer.scope
    seeing = (scope.n_visible >= FEWEST).unsqueeze(1)
    kept = (layer.trusted_rows > 0) & (layer.mass > 0) & seeing
    weights = layer.weights * kept.unsqueeze(-1)
    rows = kept.to(weights.dtype)
    members = scope.cached(kinds)
    sums = weights.flatten(2) @ members.flatten(1, 2)
    found = weights.new_zeros((*sums.shape[:2], len(LABELS) + len(COUNTS)))
    found[..., : len(PAIRS)] = sums
    even = members.sum(2) / scope.n_visible.clamp(min=1).unsqueeze(-1)
    found[..., len(PAIRS) : 2 * len(PAIRS)] = rows @ even
    _count(found, rows, seeing, scope)
    first = LABELS.index(KEY_LABELS[0])
    found[..., first : first + len(KEYS)] = _class_of_largest(weights, rows, scope)
    found[..., _count_place("sentences")] = kept.any(-1)
    return found


def _count_place(name: str) -> int:
    return len(LABELS) + COUNTS.index(name)


def _count(found: "torch.Tensor", rows: "torch.Tensor", seeing: "torch.Tensor",
           scope: "ViewMask") -> None:  # fmt: skip
    """Numbers of rows, of all kinds."""
    total, of_one_text = rows.sum(-1), not scope.frame.stack.crosses
    found[..., LABELS.index("left_out")] = seeing.sum(-1) - total
    found[..., _count_place("seeing")] = seeing.sum(-1).expand_as(total)
    found[..., _count_place("rows")] = total
    if of_one_text:
        visible = scope.visible
        own = visible & scope.cached(own_sentence)
        divided = own.any(-1).any(-1)[:, None].to(rows.dtype)
        repeating = (visible & repeats(scope.frame)).any(-1)
        found[..., _count_place("aligned")] = total
        found[..., _count_place("repeating")] = (rows * repeating.unsqueeze(1)).sum(-1)
        found[..., _count_place("divided")] = total * divided


def _class_of_largest(
    weights: "torch.Tensor", rows: "torch.Tensor", scope: "ViewMask"
) -> "torch.Tensor":
    """Return the class of the key that receives most beyond uniform attention, as 0 and 1.

    *Shape:* ``(sentence, head, class)``; 0 without rows.
    """
    even = scope.mask / scope.n_visible.clamp(min=1)[:, None, :, None]
    beyond = weights.sum(2) - (rows.unsqueeze(2) @ even).squeeze(2)
    beyond = beyond.where(beyond.abs() > ROUNDING, 0).masked_fill(
        ~scope.visible.any(1)[:, None], -math.inf
    )
    best = beyond.argmax(-1)
    classes = weights.new_tensor(scope.cached(key_classes))
    found = classes.gather(1, best.unsqueeze(-1).expand(-1, -1, len(KEYS)))
    return found * (rows.sum(-1, keepdim=True) > 0)


def key_classes(scope: "ViewMask") -> "Floats":
    """Return the class of each key that counts, as 0 and 1. *Shape:* ``(sentence, key, class)``."""
    keys, kept = scope.frame.keys, scope.kept_keys
    place = kept.cumsum(1)
    tags = [[tag in group for tag in keys.scheme.tags] for group in (FUNCTION, CONTENT)]
    function, content = (keys.tags @ keys.tags.new_tensor(tag) > 0 for tag in tags)
    first, last = place == 1, place == kept.sum(1, keepdim=True)
    found = np.zeros((*kept.shape, len(KEYS)))
    left = kept
    for number, members in enumerate((keys.punctuation, first, last, function, content, kept)):
        found[..., number] = (left & members).cpu().numpy()
        left = left & ~members
    return found


def finish(stats: "Floats", text_stats: "Floats") -> FinishedRatios:
    """Return sums and their numbers of queries as ratios.

    *Shape:* ``(sentence, head, label)`` each.
    """
    below = np.stack([stats[..., _count_place(BELOW[label])] for label in LABELS], axis=-1)
    return FinishedRatios(stats[..., : len(LABELS)], below, below)


METRIC = SampledMetric(
    title="Shares behind functions of heads",
    question="Which shares of attention decide a head's function?",
    formula=r"\frac{1}{N}\sum_i \sum_{j\ \mathrm{is}\ c} \frac{A_{ij}}{1 - s_i},\quad "
    r"s_i = \sum_{j\ \mathrm{in\ sink}} A_{ij} \le 0.9",
    reference="own; masking after Vig & Belinkov (2019), arXiv:1906.04284",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="previous",
    baselines=frozenset(EVEN.values()),
    views=(SinkView.RENORM,),
    spreads=dict.fromkeys(RARE, IntervalRule.RARE),
    measure=measure,
    finish=finish,
    examples={
        "each of four tokens attends to the one before": (
            Example(previous_token(4)),
            {
                "previous": 3 / 4,
                "even_previous": 3 / 16,
                "within_3": 1.0,
                "even_within_3": 1.0,
                "self": 1 / 4,
                "next": 0.0,
                "before": 0.0,
                "left_out": 0.0,
            },
        ),
        "all attend to the third of six, of which the first is the sink": (
            Example(to_token(6, 2), special=(0,)),
            # The second query looks one ahead, the third at itself, the others back.
            {"next": 1 / 5, "self": 1 / 5, "previous": 1 / 5, "near": 2 / 5},
        ),
        "even attention over eight, two of them special": (
            Example(uniform(8), special=(0, 7)),
            {
                "self": 1 / 6,
                "previous": 5 / 36,
                "even_previous": 5 / 36,
                "within_3": 5 / 6,
                "key_first": 1.0,
            },
        ),
        "half of the rows give all to the sink": (
            Example(((1.0, 0, 0), (1.0, 0, 0), (0, 0, 1.0)), special=(0,)),
            {"left_out": 1 / 2, "self": 1.0, "same_token": math.nan, "own_sentence": math.nan},
        ),
        "the token at both ends is the same": (
            Example(((0, 0, 0, 0, 1.0), *identity(5)[1:]), ids=(3, 1, 2, 4, 3)),
            {"same_token": 1 / 2, "repeated": 1 / 5, "self": 4 / 5},
        ),
    },
)
