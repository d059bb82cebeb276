"""Numbers of several heads together: ratios of sums over sentences and heads, with intervals.

The sums of single heads cannot be added with their intervals, because heads vary together from
sentence to sentence. The sums of buckets of sentences can: see `headbook.study.buckets`.
"""

from collections.abc import Collection, Sequence

import numpy as np

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate, Estimates, RatioSums
from headbook.metrics import all_metrics
from headbook.report.head_types import Place
from headbook.report.results import StackResults
from headbook.schema import HeadKey


def pooled(results: StackResults, columns: Sequence[HeadKey], heads: Collection[Place]) -> Estimate:
    """Return a number of several heads together; NaN if the study lacks it.

    Args:
        columns: keys of numbers with one denominator, whose numerators are added: shares of several
            parts of speech.
        heads: layer and number of each head.
    """
    buckets = next(
        (
            each
            for each in results.study.corpus_sums.buckets.get(results.stack.name, ())
            if {*columns} <= {*each.columns}
        ),
        None,
    )
    if buckets is None or not heads:
        return NO_ESTIMATE
    layers, numbers = np.array(sorted(heads)).T
    places = [buckets.columns.index(column) for column in columns]
    all_d = np.broadcast_to(buckets.d, buckets.n.shape)
    n = buckets.n[:, layers, numbers][..., places].sum((1, 2))
    d = all_d[:, layers, numbers][..., places[0]].sum(1)
    metric = all_metrics()[columns[0].metric]
    ratios = RatioSums.of(n, d, np.zeros_like(d), buckets.keys % 2)
    estimate = Estimates.of(ratios, metric.limits, metric.spread(columns[0].label)).at()
    numbers_of_heads = results.heads(*columns[0])
    return estimate._replace(
        sentences=int(numbers_of_heads.sentences[layers, numbers].max()),
        events=float(numbers_of_heads.events[layers, numbers].sum()),
    )
