"""The word for each head's maps, and what its stripe or its diagonal stands on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headbook.measures.classify import DEFAULT, Label, Thresholds, classify
from headbook.metrics import all_metrics
from headbook.numbers.results import StackResults
from headbook.terms import View

PATTERN = "pattern"
GAIN = 0.25  # a kind of key is what stripes stand on if it gets so much more than from even weights
KINDS = ("first", "separator", "special", "punctuation")
OTHER = "other"


Place = tuple[int, int]  # layer and head


@dataclass(frozen=True)
class HeadClass:
    """What the maps of a head look like.

    Attributes:
        label: in a word.
        keys: of a vertical head, the kind of key that stripes stand on: one of `KINDS` (special:
            neither the first token nor a separator) or `OTHER`; empty where not known.
        offset: of a diagonal head or a window, the offset with most mass; None where not known.
    """

    label: Label
    keys: str = ""
    offset: int | None = None


Classes = Mapping[Place, HeadClass | None]


def head_classes(results: StackResults, limits: Thresholds = DEFAULT) -> Classes:
    """The class of every head, by layer and head; None where its numbers are missing.

    Empty where the study has no `pattern`. What needs a metric that the study lacks, or has no
    value for, is left out: the block ratio, the kind of key, the offset.
    """
    if not results.has(PATTERN, View.RAW, "spread"):
        return {}
    stack = results.stack
    heads = [(layer, head) for layer in stack.attention_layers for head in range(stack.n_heads)]
    return {place: head_class(results, place, limits) for place in heads}


def head_class(
    results: StackResults, place: Place, limits: Thresholds = DEFAULT
) -> HeadClass | None:
    """The class of one head; see `head_classes`."""
    spread, column, offset = (
        value(results, PATTERN, label, place) for label in ("spread", "column", "offset")
    )
    label = classify(spread, column, offset, value(results, "block_ratio", "", place), limits)
    if label is None:
        return None
    if label is Label.VERTICAL:
        return HeadClass(label, keys=_keys(results, place))
    if label in {Label.DIAGONAL, Label.WINDOW}:
        return HeadClass(label, offset=_offset(results, place))
    return HeadClass(label)


def value(results: StackResults, metric: str, label: str, place: Place) -> float:
    """A head's number among all keys; NaN where there is none."""
    if not results.has(metric, View.RAW, label):
        return math.nan
    return float(results.heads(metric, View.RAW, label).value[place])


def _keys(results: StackResults, place: Place) -> str:
    """The kind that gets most, if it gets `GAIN` more than from uniform attention.

    The first token and separators count as special tokens once more, which is taken off.
    """
    metric = "attention_to"
    if not any(results.has(metric, View.RAW, kind) for kind in KINDS):
        return ""
    own, even = {}, {}
    for kind in KINDS:
        known = results.has(metric, View.RAW, kind)
        own[kind] = value(results, metric, kind, place)
        uniform = results.uniform(metric, View.RAW, kind).value[place[0]] if known else math.nan
        even[kind] = float(uniform)
    for each in (own, even):
        each |= {kind: 0.0 for kind, share in each.items() if math.isnan(share)}
        each["special"] = max(each["special"] - each["first"] - each["separator"], 0.0)
    best = max(KINDS, key=lambda kind: own[kind])
    return best if own[best] - even[best] >= GAIN else OTHER


def _offset(results: StackResults, place: Place) -> int | None:
    metric = "offset_profile"
    if not results.has(metric, View.RAW, "0"):
        return None
    labels = all_metrics()[metric].labels
    shares = {label: value(results, metric, label, place) for label in labels}
    known = {label: share for label, share in shares.items() if not math.isnan(share)}
    return int(max(known, key=lambda label: known[label])) if known else None
