"""Intervals and tests with formula and source, and one interval of the study worked out."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from headbook.analysis.intervals import (
    MIN_EFFECTIVE,
    MIN_PRESENT,
    critical_value,
    error_factor,
    variance,
)
from headbook.metrics import ids, interval_rules
from headbook.metrics.base import HeadMetric
from headbook.pages.parts.blocks import Block, Definition, Definitions, Text, Title, blocks
from headbook.report.results import StackResults
from headbook.report.wording import VIEWS, label_name
from headbook.results.formats import metric_page
from headbook.results.number import SHARE, Number
from headbook.results.sentence import Link, Sentence, say
from headbook.schema import HeadKey, HeadName, IntervalRule, SinkView

# Sums of one number over sentences: n and d are numerator and denominator of a sentence.
INTERVALS = (
    Definition(
        "Ratio of sums",
        "Every number of heads, layers and tokens: each of the S sentences gives a numerator n and "
        "a denominator d. Its linearised variance takes the sentences as clusters.",
        r"R = \frac{\sum n}{\sum d}, \qquad "
        r"V = \frac{S}{S-1} \cdot \frac{\sum (n - R\,d)^2}{(\sum d)^2}",
        "Cochran 1977, Sampling Techniques, chapter 6",
    ),
    Definition(
        "Effective number of sentences",
        "Long sentences count for more than short ones. Student's t has one degree of freedom less "
        "than the effective number of sentences.",
        r"S_{\mathrm{eff}} = \frac{(\sum d)^2}{\sum d^2}",
        "Kish 1965, Survey Sampling, section 8.2",
    ),
    Definition(
        "Wilson's score interval",
        "Shares. Its number of observations m is that of independent ones with the same variance; "
        "t is the 97.5 % quantile of Student's t.",
        r"\frac{R + \frac{t^2}{2m} \pm t \sqrt{\frac{R(1-R)}{m} + \frac{t^2}{4m^2}}}"
        r"{1 + \frac{t^2}{m}}, \qquad m = \frac{R(1-R)}{f^2 V}",
        "Wilson 1927, doi:10.1080/01621459.1927.10502953; Korn & Graubard 1998",
    ),
    Definition(
        "Widening f",
        "Standard errors grow with the skewness of values near a bound (g, as of lognormal "
        "distances from it) and with the leverage h of long sentences, beyond that of equal ones. "
        "The shares of both were set so that measured intervals hold the value 95 % of the time. "
        "Numbers of classes of tokens grow with unequal numbers of tokens, too.",
        r"f = 1 + 0.3\,g + 2.5\,\left(h - \tfrac{1}{S}\right), \qquad "
        r"h = \frac{S}{S_{\mathrm{eff}}^2}",
        "MacKinnon & White 1985, doi:10.1016/0304-4076(85)90158-7",
    ),
    Definition(
        "Student's t interval",
        "Numbers without bounds. Numbers with a lower bound of 0 alone have the limit of Wilson's "
        "interval for rare events.",
        r"R \pm t\, f \sqrt{V}",
        "Student 1908, doi:10.1093/biomet/6.1.1",
    ),
    Definition(
        "Bootstrap-t interval",
        "Effects of replacing a head: 2,000 bootstrap samples of sentences, each with its own "
        "standard error, because rare large effects make linearised intervals too narrow. "
        "Medians have the percentiles of such samples.",
        r"\left[R - t^{*}_{0.975} \sqrt{V},\; R - t^{*}_{0.025} \sqrt{V}\right], \qquad "
        r"t^{*} = \frac{R^{*} - R}{\sqrt{V^{*}}}",
        "Efron & Tibshirani 1993, An Introduction to the Bootstrap, section 12.5",
    ),
    Definition(
        "Exact bounds",
        "Verdicts on heads that were replaced: the share p of sentences like these that would "
        "change, if k of S sentences change, family-wise at 95 % over all H heads.",
        r"\sum_{i \ge k} \binom{S}{i} p^i (1-p)^{S-i} = \frac{0.05}{H}",
        "Clopper & Pearson 1934, doi:10.1093/biomet/26.4.404",
    ),
    Definition(
        "Leader of many heads",
        "A head or layer leads alone if a paired test over sentences tells it from every other "
        "one: step-down, with the largest bootstrap-t of each sample; else all are named that "
        "it does not tell from the first.",
        r"p_j = 2\,\Pr\left(\max_{i \ge j} t^{*}_{i} \ge t_j\right)",
        "Romano & Wolf 2005, doi:10.1198/016214504000000539",
    ),
    Definition(
        "Tests over all heads",
        "Relations, next words and pairs of sentences: signs of sentences are flipped, and the "
        "largest statistic of all heads and labels in each flip gives the p value of each head.",
        r"p_j = \frac{1 + \#\{\max_i |t^{*}_{i}| \ge |t_j|\}}{1 + \#\mathrm{flips}}",
        "Westfall & Young 1993; Nichols & Holmes 2002, doi:10.1002/hbm.1058",
    ),
)  # fmt: skip


class IntervalSteps(NamedTuple):
    """An interval of a share of one head, step by step, from its sums over sentences.

    Attributes:
        head, key: whose share it is, and of which metric, view and label.
        share: the share with its interval, of its row.
        effective: effective number of sentences.
        numerator, denominator: sums over sentences.
        error: linearised standard error; ``factor`` widens it.
        critical: quantile of Student's t.
        observations: independent observations with the widened variance.
    """

    head: HeadName
    key: HeadKey
    share: Number
    effective: float
    numerator: float
    denominator: float
    error: float
    factor: float
    critical: float
    observations: float


def interval_blocks(results: Mapping[str, StackResults]) -> tuple[Block, ...]:
    """Return formulas and sources of all intervals and tests, and one interval worked out."""
    steps = next((s for s in map(interval_steps, results.values()) if s), None)
    worked = (Title("Worked example"), Text(_worked(results, steps), "example")) if steps else ()
    return blocks(Definitions(INTERVALS), worked)


def interval_steps(results: StackResults) -> IntervalSteps | None:
    """Return the steps of the interval of a share, of the head with the largest share.

    Returns:
        None if no head has a share with an interval.
    """
    table = results.study.head_tables[results.stack.name]
    for key in filter(table.columns.__contains__, _shares(results)):  # circuits have no sums
        estimates = results.heads(*key)
        present = table.heads[:, :, table.columns.index(key)].total["present"]
        certain = np.isfinite(estimates.low) & (estimates.value < 1) & (present >= MIN_PRESENT)
        if certain.any():
            shares = np.where(certain, estimates.value, -1.0)
            layer, head = map(int, np.unravel_index(int(np.argmax(shares)), shares.shape))
            return _steps(results, key, HeadName(results.stack.name, layer, head))
    return None


def _shares(results: StackResults) -> Iterator[HeadKey]:
    """Yield the shares of heads among a stack's numbers, that of the sink first."""
    keys = [HeadKey(ids.SINK_SHARE, SinkView.RAW, "")]
    for metric in results.metrics:
        drawn = results.drawn(metric) if metric.is_share else None
        keys += [HeadKey(metric.id, *drawn)] if drawn is not None else []
    for key in keys:
        if results.has_value(*key) and interval_rules([key])[1] == [IntervalRule.USUAL]:
            yield key


def _steps(results: StackResults, key: HeadKey, head: HeadName) -> IntervalSteps:
    share = results.number(key, head.layer, head.head, unit=SHARE)
    table = results.study.head_tables[results.stack.name]
    sums = table.heads[head.layer, head.head, table.columns.index(key)].total
    error = float(np.sqrt(variance(sums)))
    factor = float(error_factor(sums, results.by_id[key.metric].limits))
    return IntervalSteps(
        head, key, share,
        effective=share.effective,
        numerator=float(sums["n"]),
        denominator=float(sums["d"]),
        error=error,
        factor=factor,
        critical=float(critical_value(np.asarray(share.effective))),
        observations=share.value * (1 - share.value) / (error * factor) ** 2,
    )  # fmt: skip


def _worked(results: Mapping[str, StackResults], steps: IntervalSteps) -> Sentence:
    """Return the steps of an interval as a computation in words."""
    stack_results = results[steps.head.stack]
    metric: HeadMetric = stack_results.by_id[steps.key.metric]
    label = f", {label_name(steps.key.label)}" if steps.key.label else ""
    return say(
        "{metric} of {head} ({view}{label}): R = Σn / Σd = {numerator} / {denominator} = {share} "
        "on {sentences} sentences, with a standard error √V of {error}; f = {factor}. Sentences "
        "count like {effective} of equal length, so t = {critical}. Independent observations with "
        "this variance: m = {observations}. Wilson's interval: {interval:interval}.",
        metric=Link(metric.title, metric_page(metric.id)), head=steps.head,
        view=VIEWS[SinkView(steps.key.view)], label=label, share=steps.share,
        numerator=f"{steps.numerator:,.1f}", denominator=f"{steps.denominator:,.1f}",
        sentences=steps.share.sentences, error=f"{100 * steps.error:.2f} points",
        factor=f"{steps.factor:.3f}", effective=f"{steps.effective:,.1f}",
        critical=f"{steps.critical:.3f}", observations=f"{steps.observations:,.0f}",
        interval=steps.share,
    )  # fmt: skip


FEW = (
    f"Below {MIN_EFFECTIVE} effective sentences (twice as many for averages over classes of "
    "tokens) a number is grey and has no interval. Neither have numbers that depend on few "
    "sentences whatever the sample: the odds of one sentence, lift by repetition, distance of "
    "similar pairs. Without a denominator there is no value: –."
)
