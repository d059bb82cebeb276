"""Rows about what a model loses without heads: effects, and what pages conclude from them."""

import math
from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import CHOICE, REPORT
from headbook.report.findings.importance import allowed
from headbook.report.numbers.changes import primary
from headbook.report.numbers.results import Estimate
from headbook.report.tables.rows import ALL, HELD_OUT, SPLITS, Row, row, without_interval
from headbook.study.importancetables import EFFECT
from headbook.study.sentencedata import HeadName
from headbook.study.study import Study
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import Removals
from headbook.terms import Replacement

AUDIT = "estimates against exact effects"


def effects(study: Study) -> Iterator[Row]:
    """Yield the effect of every head that was replaced by its mean output, with its margin."""
    removals = study.corpus_sums.removals
    for target in removals.targets if removals else ():
        assert removals is not None
        found = verdicts.head_effects(removals, target, Replacement.MEAN)
        for place, value, low, high, sentences, events, p in zip(*found[:7], strict=True):
            number = Estimate(value, low, high, int(sentences), events)
            yield _of_head(removals, int(place), EFFECT, target, number, p=p)


def whole_model(study: Study) -> Iterator[Row]:
    """Yield the loss of the whole model, of which pages print effects in per cent."""
    removals = study.corpus_sums.removals
    target = primary(removals) if removals else ""
    if removals is not None and target in removals.full:
        behind = len(removals.content_hash), float(removals.counts[target].sum())
        value = without_interval(removals.loss(target), *behind)
        yield row("whole model", "all", (target, "", ""), value=value)


def largest_effect(study: Study) -> Iterator[Row]:
    """Yield the head of largest effect on the choice half, with its effect on both halves."""
    removals = study.corpus_sums.removals
    for target in removals.targets if removals else ():
        assert removals is not None
        sets = verdicts.places(removals, Replacement.MEAN)
        ratios = removals.ratios(target, sets)
        first = ratios.half(CHOICE).value
        if not len(sets) or np.isnan(first).all():
            continue
        best = int(np.nanargmax(first))
        head = int(removals.members[sets].argmax(1)[best])
        for half in (CHOICE, REPORT):
            other = ratios.half(half)[best]
            low, high = map(float, other.interval(verdicts.limits_of(target)))
            behind = int(other.sentences), float(other.events)
            value = Estimate(float(other.value), low, high, *behind)
            claim = "largest effect of all heads"
            yield _of_head(removals, head, claim, target, value, split=SPLITS[half])


def _of_head(
    removals: Removals, place: int, claim: str, target: str, value: Estimate, *,
    split: str = ALL, p: float = math.nan,
) -> Row:  # fmt: skip
    head, margin = HeadName(*removals.heads[place]), verdicts.margin(removals, target)
    return row(
        claim, head.stack, (EFFECT, Replacement.MEAN, target), layer=head.layer, head=head.head,
        split=split, value=value, baseline="" if math.isnan(margin) else "margin",
        baseline_value=margin, p=p,
    )  # fmt: skip


def audit(study: Study) -> Iterator[Row]:
    """Yield what estimates are worth on heads picked at random, which are the observations."""
    removals = study.corpus_sums.removals
    found = verdicts.audit(removals, primary(removals)) if removals else None
    if removals is None or found is None or not found.heads or not found.rest:
        return
    behind = len(removals.content_hash), float(found.heads)
    for label in ("pearson", "spearman"):
        value = without_interval(getattr(found, label), *behind)
        yield row(AUDIT, "all", (verdicts.ATTRIBUTION, "", label), value=value)
    missed = Estimate(found.missed / found.heads, 0.0, found.share, *behind)
    yield row(AUDIT, "all", (verdicts.ATTRIBUTION, "", "missed"), value=missed)


def removed_together(study: Study) -> Iterator[Row]:
    """Yield the share of heads that can be removed together, beside that in random order."""
    removals = study.corpus_sums.removals
    if removals is None:
        return
    steps = study.pruning[study.pruning["target"] == primary(removals)]
    if steps.empty or steps["high"].isna().all():
        return
    most, behind = allowed(removals), int((removals.half == REPORT).sum())
    shares = {
        str(order): verdicts.can_go([*rows["share"]], [*rows["high"]], most)
        for order, rows in steps.groupby("order", sort=False)
    }
    chance = [share for order, share in shares.items() if order.startswith("random")]
    for order, share in shares.items():
        if not order.startswith("random"):
            column = ("pruning", str(Replacement.MEAN), f"{primary(removals)}, {order}")
            yield row(
                "can be removed together", "all", column, split=HELD_OUT,
                value=without_interval(share, behind, math.nan), baseline="random order",
                baseline_value=float(np.median(chance)) if chance else math.nan,
            )  # fmt: skip
