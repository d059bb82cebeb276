"""Tests of relations with chosen numbers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from headbook.analysis.accumulators import Estimates
from headbook.report.relation_counts import ClassPreference
from headbook.report.relation_tests import RelationScores, RelationTests


def estimates(
    values: ArrayLike, *, words: float = 60, sentences: int = 40, effective: float = 30
) -> Estimates:
    """Numbers with intervals of a tenth on either side."""
    value = np.array(values, float)
    behind = (np.full(value.shape, n) for n in (sentences, words, effective))
    counts, events, kish = behind
    return Estimates(value, value - 0.1, value + 0.1, counts, events, kish)


def chosen_tests(
    labels: Sequence[str],
    heads: Sequence[tuple[int, int]],
    accuracy: Sequence[float],
    margin: Sequence[float],
    p: Sequence[float],
    *,
    rule: str = "next:NOUN_PRON_PROPN",
    preference: Sequence[float] | None = None,
    others: int = 100,
    chosen: Sequence[float] | None = None,
    shape: tuple[int, int] = (2, 2),
    words: float = 60,
    sentences: int = 40,
    effective: float = 30,
) -> RelationTests:
    """Relations with their best heads.

    Args:
        preference: for the right class of words, beyond that outside the relation.
        chosen: margins on the choice half; as on the other half by default.
    """

    def numbers(values: Sequence[float]) -> Estimates:
        return estimates(values, words=words, sentences=sentences, effective=effective)

    n = len(labels)
    at_rule = [a - m for a, m in zip(accuracy, margin, strict=True)]
    beyond = [0.3] * n if preference is None else [*preference]
    every = np.full((*shape, n), np.nan)
    for place, (head, value) in enumerate(zip(heads, p, strict=True)):
        every[(*head, place)] = value
    reported = RelationScores(numbers(accuracy), numbers(at_rule), numbers(margin))
    preferred = ClassPreference(
        np.array(beyond) + 0.2, np.full(n, 0.2), numbers(beyond), np.full(n, others)
    )
    return RelationTests(
        labels=tuple(labels),
        head=np.array(heads),
        rule=(rule,) * n,
        scores=reported,
        held_out=reported,
        selection=reported._replace(margin=numbers(chosen or margin)),
        accuracy_where_rule_fails=numbers([0.5] * n)._replace(events=np.full(n, 20.0)),
        preference=preferred,
        held_out_preference=preferred,
        p=np.array(p, float),
        p_of_all_heads=every,
        layer_head=np.zeros((shape[0], n), np.int64),
        layer_margin=estimates(np.zeros((shape[0], n))),
        held_out_layer_margin=estimates(np.zeros((shape[0], n))),
        family=shape[0] * shape[1] * n,
    )
