"""Regions of texts in a batch: which tokens are in them, and which queries see a key of them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import BatchMask, ViewMask


def query_regions(frame: "BatchMask") -> "torch.Tensor":
    """Return the regions of queries that count, as 0 and 1.

    *Shape:* ``(sentence, query, region)``.
    """
    return frame.queries.regions * frame.counted_queries.unsqueeze(-1)


def key_regions(frame: "BatchMask") -> "torch.Tensor":
    """Return the regions of keys, as 0 and 1. *Shape:* ``(sentence, key, region)``."""
    return frame.keys.regions


def sees_region(scope: "ViewMask") -> "torch.Tensor":
    """Return which queries see a key of each region, as 0 and 1.

    *Shape:* ``(sentence, query, region)``.
    """
    seen = scope.mask.squeeze(1) @ scope.frame.cached(key_regions)
    return (seen > 0).to(scope.frame.dtype)


def counted_queries(scope: "ViewMask") -> "torch.Tensor":
    """Return the number of queries of one region that see a key of another one, or of the same.

    *Shape:* ``(sentence, pair)``, pairs as in `headbook.schema.AnnotationScheme.region_pairs`.
    """
    queries, sees = scope.frame.cached(query_regions), scope.cached(sees_region)
    return (queries.mT @ sees).flatten(1)


def by_region_pair(
    scope: "ViewMask", weights: "torch.Tensor", mass: "torch.Tensor"
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Sum weights between regions, and the mass of the queries that see a key of the region.

    Args:
        scope: mask of the view.
        weights: weights of pairs that count. *Shape:* ``(sentence, head, query, key)``.
        mass: mass of each query. *Shape:* ``(sentence, head, query)``.

    Returns:
        *Shape:* ``(sentence, head, pair)`` each, pairs as in `counted_queries`.
    """
    queries = scope.frame.cached(query_regions).mT.unsqueeze(1)  # (sentence, 1, region, query)
    keys = scope.frame.cached(key_regions).unsqueeze(1)
    sees = scope.cached(sees_region).unsqueeze(1)
    on_keys = queries @ (weights @ keys)
    of_queries = queries @ (mass.unsqueeze(-1) * sees)
    return on_keys.flatten(2), of_queries.flatten(2)
