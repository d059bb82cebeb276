"""Rows about every head: type, evidence on its role, quantiles; and medians over heads."""

import math
from collections.abc import Iterator

import numpy as np

from headbook.metrics import ids
from headbook.report.numbers.headtypes import head_types
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.roles import role
from headbook.report.tables.rows import Row, row, without_interval
from headbook.study.exemplars import weights_of
from headbook.study.sentencedata import Ranking, heads_of
from headbook.study.summaries.columns import HeadColumn
from headbook.terms import View

TYPE, MEDIAN = "type", "median of all heads"
QUANTILES = {Ranking.STRONGEST: 1.0, Ranking.Q90: 0.9, Ranking.Q75: 0.75, Ranking.MEDIAN: 0.5}


def types(results: StackResults) -> Iterator[Row]:
    """Yield the type of every head as a label, with the share of the sink that its name prints."""
    for (layer, head), found in head_types(results).items():
        if found is not None:
            numbers = results.heads(ids.SINK_SHARE, View.RAW).at(layer, head)
            share = without_interval(found.shares.sink.value, numbers.sentences, numbers.events)
            yield row(TYPE, results.stack.name, (ids.SINK_SHARE, View.RAW, found.short),
                      layer=layer, head=head, value=share)  # fmt: skip


def evidence(results: StackResults) -> Iterator[Row]:
    """Yield the claims on what every head does, but for relations, which have rows of their own."""
    for head in heads_of(results.stack):
        for claim in role(results, head, None).claims:
            if claim.column is not None:
                yield row(
                    f"role: {claim.kind}", head.stack, claim.column, layer=head.layer,
                    head=head.head, value=claim.value,
                    baseline="" if math.isnan(claim.baseline) else claim.against,
                    baseline_value=claim.baseline, p=claim.p,
                )  # fmt: skip


def quantiles(results: StackResults) -> Iterator[Row]:
    """Yield quantiles over sentences of every head's largest weight, by which exemplars rank."""
    for head in heads_of(results.stack):
        sample = results.study.corpus_sums.heads[head.stack].sample
        scores = weights_of(sample, head).score
        for ranking, share in QUANTILES.items() if len(scores) else ():
            value = without_interval(float(np.quantile(scores, share)), len(scores), math.nan)
            yield row("largest weight of a sentence", head.stack, ("exemplars", "", ranking),
                      layer=head.layer, head=head.head, value=value)  # fmt: skip


def medians(results: StackResults) -> Iterator[Row]:
    """Yield the median over all heads of every metric and label, in the view of pages."""
    for metric in results.metrics:
        for label in metric.labels:
            column = HeadColumn(metric.id, results.view(metric, label), label)
            if results.has(*column):
                numbers = results.heads(*column)
                median = without_interval(
                    float(np.nanmedian(numbers.value)),
                    int(numbers.sentences.max()),
                    float(np.nansum(numbers.events)),
                )
                yield row(MEDIAN, results.stack.name, column, value=median)
