"""Rows of the table of tests for the claims of the overview."""

import math
from collections.abc import Iterator

from headbook.report.answers.overview.attention_claims import (
    OTHER_HEADS,
    RANDOM,
    SAME_KEYS,
    SINK,
    class_key,
)
from headbook.report.answers.overview.numbers import (
    BY_KEY,
    SINK_NORM,
    SINK_SHARE,
    like_random,
    same_keys,
    sink_run,
)
from headbook.report.claims.heads import UNIFORM, Row, row
from headbook.report.results import StackResults


def overview_rows(results: StackResults) -> Iterator[Row]:
    """Yield the numbers of several heads that claims of the overview print."""
    stack = results.stack.name
    if (run := sink_run(results)) is not None:
        yield row(SINK, stack, SINK_SHARE, value=run.attention, baseline=UNIFORM,
                  baseline_value=run.uniform)  # fmt: skip
        if not math.isnan(run.norm.value):
            yield row(SINK, stack, SINK_NORM, value=run.norm)
    if (same := same_keys(results)) is not None:
        yield row(SAME_KEYS, stack, BY_KEY, layer=same.layer, value=same.by_key)
        if same.word_class:
            column = class_key(same.word_class)
            yield row(SAME_KEYS, stack, column, layer=same.layer, value=same.share,
                      baseline="other heads", baseline_value=same.others.value)  # fmt: skip
            yield row(OTHER_HEADS, stack, column, value=same.others)
    if (random := like_random(results)) is not None:
        yield row(RANDOM, stack, random.column, value=random.entropy, baseline="random weights",
                  baseline_value=random.random.value)  # fmt: skip
