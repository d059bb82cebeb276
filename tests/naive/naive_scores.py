"""A weight from its query and its keys, number by number."""

import math
from dataclasses import replace
from typing import NamedTuple

from headbook.analysis.rounded_vectors import in_float32
from headbook.study.sentence_data import QueriesAndKeys

NAN = math.nan


class Row(NamedTuple):
    """What one query of a head makes of every key; not a number where it does not see one."""

    products: list[float]
    added: list[float]
    scores: list[float]
    log_sum: float
    weights: list[float]


def row_of(kept: QueriesAndKeys, head: int, query: int) -> Row:
    """Products, what is added to them, scores, the logarithm of their sum, weights."""
    key_head = head * len(kept.keys) // len(kept.queries)
    vector = kept.queries[head][query].tolist()
    products, added, scores = [], [], []
    for number, key in enumerate(kept.keys[key_head].tolist()):
        seen = kept.seen[query][number]
        product = sum(a * b for a, b in zip(vector, key, strict=True)) if seen else NAN
        more = float(kept.added[head][query][number]) if kept.added.size else 0.0
        products.append(product)
        added.append(more if seen else NAN)
        scores.append(product * float(kept.scaling) + more)
    there = [score for score in scores if not math.isnan(score)]
    log_sum = math.log(math.fsum(math.exp(score) for score in there))
    weights = [math.exp(score - log_sum) for score in scores]
    return Row(products, added, scores, log_sum, weights)


def of_pages(kept: QueriesAndKeys) -> QueriesAndKeys:
    """Return queries and keys as scripts have them, from the integers of a page."""
    rounded = kept.rounded()
    queries = in_float32(rounded.queries, rounded.query_scales)
    return replace(kept, queries=queries, keys=in_float32(rounded.keys, rounded.key_scales))
