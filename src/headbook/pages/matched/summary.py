"""What matching found, in sentences."""

from collections.abc import Iterator

import numpy as np

from headbook.comparison.matched import MatchedHeads
from headbook.pages.metricpair.depth import depth
from headbook.pages.parts.both import BothStacks
from headbook.report.findings.finding import Parts, head_link
from headbook.report.wording import THIN, counted, head_name, number, percent, small

TO_THE_OTHER = 0.1  # of the depth: within it, a match counts as at the same depth


def matched_summary(both: BothStacks, found: MatchedHeads) -> Iterator[Parts]:
    """Sentences with links: counterparts, stability, depth and the best match."""
    if both.found is not None:
        yield (_same_number(both, found),)
    yield (_counterparts(both, found),)
    if not np.isnan(found.stability):
        again = percent(found.stability)
        yield (
            f"Matched on one half of the sentences, {again} of the matches are found again on the "
            "other half.",
        )
    if both.found is None:
        yield (_deep(both, found),)
    best = _best(found)
    if best is not None:
        place, value = best
        partner = found.b[found.matching.partner[place]]
        yield (
            "Most alike are ",
            head_link(found.a[place]),
            f" and {head_name(partner)} of {both.names[1]}: similarity {number(value)}.",
        )


def _same_number(both: BothStacks, found: MatchedHeads) -> str:
    """How many heads are most like the one of their number."""
    same = sum(
        found.b[best].layer == head.layer and found.b[best].head == head.head
        for head, best in zip(found.a, found.matching.best.tolist(), strict=True)
        if best >= 0
    )
    return (
        f"Of {counted(len(found.a), 'head')} of {both.names[0]}, {same:,} are most like the head "
        f"of the same number in {both.names[1]}."
    )


def _counterparts(both: BothStacks, found: MatchedHeads) -> str:
    """How many have a counterpart, and what that takes."""
    matching, total = found.matching, counted(len(found.a), "head")
    there = int(matching.counterpart.sum())
    mutual = _mutual(int((matching.mutual & matching.counterpart).sum()))
    if not found.tested:
        return (
            f"Of {total} of {both.names[0]}, {_mutual(int(matching.mutual.sum()))} in a pair "
            f"with one of {both.names[1]} in which each is the other's most similar head. Whether "
            "a match is more than chance was not tested: no model with random weights was compared "
            "(--null)."
        )
    return (
        f"Of {total} of {both.names[0]}, {there:,} have a counterpart in {both.names[1]}: a match "
        f"more alike than 95{THIN}% of heads are to those of random weights (similarity "
        f"{number(matching.threshold)}). Of them, {mutual} in a pair in which each is the "
        "other's most similar head."
    )


def _mutual(amount: int) -> str:
    return f"{small(amount)} {'is' if amount == 1 else 'are'}"


def _deep(both: BothStacks, found: MatchedHeads) -> str:
    """Whether matches stand at the same relative depth."""
    matching = found.matching
    gaps = np.array([
        abs(depth(both.pair.a, head.layer) - depth(both.pair.b, found.b[partner].layer))
        for head, partner in zip(found.a, matching.partner.tolist(), strict=True)
        if partner >= 0
    ])  # fmt: skip
    near = percent(float((gaps <= TO_THE_OTHER).mean()))
    return (
        f"Matches stand {number(float(np.median(gaps)))} of the depth apart (median); {near} are "
        f"within {TO_THE_OTHER} of it."
    )


def _best(found: MatchedHeads) -> tuple[int, float] | None:
    value = found.matching.similarity
    if np.isnan(value).all():
        return None
    place = int(np.nanargmax(value))
    return place, float(value[place])
