"""Claims on two models whose heads do not correspond by number.

A claim is made only under the condition of its rule, at most one of each kind:

- *pair*: the two heads that attend most alike, if each is the other's most similar head, heads of
  random weights are less similar, and no other pair is as similar to the digits printed.
- *median*: the first number of `MEDIANS` whose medians differ, by an interval that is widened for
  the choice among them.
- *counterparts*: how many heads have a counterpart, if they are at least `MIN_TIMES_CHANCE` times
  as many as random weights would give.
"""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.head_matching import NULL_QUANTILE
from headbook.analysis.paired import Medians
from headbook.comparison.claims import DEFINITION
from headbook.comparison.comparison import Comparison
from headbook.comparison.differences import ComparedColumn
from headbook.comparison.matching import MatchedHeads
from headbook.comparison.study_pair import StackPair
from headbook.metrics import all_metrics, ids
from headbook.report.answers.overview.claim_parts import OverviewClaim, short_link
from headbook.report.linked_rows import LinkedNumber
from headbook.report.wording import count_text, is_share, number_word, tied_places
from headbook.results.formats import head_name, interval_text, number, percent
from headbook.results.sentence import Link, Sentence
from headbook.schema import SinkView, heads_of

MEDIANS = (  # metric, view and label, whose median it is, and how a difference is read
    (ids.SINK_SHARE, SinkView.RAW, "", "head", "gives the sink {} points {} of its attention",
     ("more", "less")),
    (ids.RELATIVE_ENTROPY, SinkView.RENORM, "", "head", "has a normalised entropy {} {}",
     ("higher", "lower")),
    (ids.ATTENTION_DISTANCE, SinkView.RENORM, "", "head", "attends {} tokens {}",
     ("farther", "nearer")),
    (ids.COSINE_TO_INPUT, "", "out/all", "layer", "leaves tokens {} {} to their input by cosine",
     ("closer", "less close")),
)  # fmt: skip
WIDENING = 1.28  # of a 95 % interval for the choice among four numbers (Bonferroni)
MIN_TIMES_CHANCE = 3  # of the share of heads that random weights give a counterpart


def matching_claims(comparison: Comparison) -> list[OverviewClaim]:
    """Return the claims on models whose heads do not correspond, one of each kind."""
    found: list[OverviewClaim] = []
    for rule in (pair_claim, median_claim, counterparts_claim):
        claims = (claim for pair in comparison.sides.stacks for claim in rule(comparison, pair))
        found += [*claims][:1]
    return found


def pair_claim(comparison: Comparison, pair: StackPair) -> Iterator[OverviewClaim]:
    """Yield the claim on the two heads that attend most alike."""
    found = comparison.matched.get(pair.name)
    if found is None or not found.tested:
        return
    matching = found.matching
    sure = matching.mutual & matching.counterpart & ~np.isnan(matching.similarity)
    if not sure.any():
        return
    places = tied_places(np.where(sure, matching.similarity, np.nan), number)
    if len(places) > 1:
        return  # several pairs are alike to the digits printed
    place = places[0][0]
    one, other = found.a[place], found.b[matching.partner[place]]
    row = (("stack", pair.name), ("layer", one.layer), ("head", one.head))
    value = LinkedNumber(number(float(matching.similarity[place])), "matching", row)
    yield OverviewClaim(
        "pair",
        pair.name,
        Sentence((
            short_link(one), f" and {head_name(other)} of {comparison.sides.names[1]} attend most "
            "alike: similarity ", value, ".",
        )),
        frozenset({one}),
        Sentence((
            "Each is the other’s most similar head; the highest similarity of all pairs, not "
            "tested against the others. Similarity of attention between words, sink masked: 0 (no "
            "word in common) to 1 (equal); heads of random weights stay below "
            f"{number(matching.threshold)} in {percent(NULL_QUANTILE)} of cases. "
            f"{count_text(found.sentences, 'sentence')}. ",
            Link("All pairs", "matched.html"),
        )),
    )  # fmt: skip


def median_claim(comparison: Comparison, pair: StackPair) -> Iterator[OverviewClaim]:
    """Yield the claim on a number whose median over heads, or layers, differs."""
    medians = comparison.depths.get(pair.name, {})
    for metric, view, label, cells, text, directions in MEDIANS:
        found = medians.get(ComparedColumn(metric, str(view), label))
        if found is None or not differs(found):
            continue
        share = is_share(all_metrics()[metric])
        gap = float(np.ravel(found.difference.value)[0])
        row = (("stack", pair.name), ("metric", metric), ("view", str(view)), ("label", label))
        amount = f"{100 * abs(gap):.1f}" if "points" in text else number(abs(gap))
        before, behind = text.split(" {}", 1)
        size = LinkedNumber(amount, "medians", row)
        if "points" in text:
            size, behind = size._replace(text=f"{amount} points"), behind.removeprefix(" points")
        one, other = comparison.sides.names
        yield OverviewClaim(
            "median",
            pair.name,
            Sentence(
                (
                    f"The median {cells} of {other} {before} ",
                    size,
                    f"{behind.format(directions[gap < 0])} than that of {one}.",
                )
            ),
            frozenset(heads_of(pair.a)),
            Sentence(
                (
                    f"{all_metrics()[metric].title}, median over {cells}s. ",
                    *_both_medians(found, size, comparison.sides.names, share=share),
                    DEFINITION,
                )
            ),
        )
        return


def differs(found: Medians) -> bool:
    """Check whether two medians differ by an interval that is widened by `WIDENING`."""
    value, low, high = (float(np.ravel(part)[0]) for part in found.difference[:3])
    return bool(value - WIDENING * (value - low) > 0 or value + WIDENING * (high - value) < 0)


def _both_medians(
    found: Medians, size: LinkedNumber, names: tuple[str, str], *, share: bool
) -> tuple[str | LinkedNumber, ...]:
    """Return the medians of both models and their difference, with intervals."""
    parts: list[str | LinkedNumber] = []
    for name, side in zip(
        (*names, "difference"), (found.a, found.b, found.difference), strict=True
    ):
        value, low, high = (float(np.ravel(part)[0]) for part in side[:3])
        interval = interval_text(low, high, share=share)
        text = number(value, share=share)
        parts += [f"{name}: ", size._replace(text=text), f" {interval}; " if interval else "; "]
    tried = f"The first of {number_word(len(MEDIANS))} numbers that differs"
    return (*parts, f"{tried}, tested with a wider interval. ")


def counterparts_claim(comparison: Comparison, pair: StackPair) -> Iterator[OverviewClaim]:
    """Yield the claim on the number of heads that have a counterpart in the other model."""
    found = comparison.matched.get(pair.name)
    if found is None or not found.tested:
        return
    heads = [head for place, head in enumerate(found.a) if found.partner(place) is not None]
    chance = (1 - NULL_QUANTILE) * len(found.a)
    if len(heads) < MIN_TIMES_CHANCE * chance:
        return
    one, other = comparison.sides.names
    yield OverviewClaim(
        "counterparts",
        pair.name,
        Sentence((f"Of the heads of {one}, {len(heads):,} have a counterpart in {other}.",)),
        frozenset(heads),
        Sentence(
            (
                f"{len(heads):,} of {len(found.a):,} heads, by similarity of attention of at least "
                f"{number(found.matching.threshold)}; random weights would give about {chance:.0f}"
                f"{stability_clause(found)}. {count_text(found.sentences, 'sentence')}. ",
                Link("All matches", "matched.html"),
            )
        ),
    )


def stability_clause(found: MatchedHeads) -> str:
    """Return how many matches both halves of the sentences share, as a clause."""
    if np.isnan(found.stability):
        return ""
    return f"; {percent(found.stability)} of matches are the same on either half of the sentences"


def apart_text(comparison: Comparison) -> str:
    """Return the sentence that says why heads are not compared one to one."""
    one, other = comparison.sides.names
    return (
        f"Heads of {one} and {other} do not correspond by number: {comparison.sides.mismatch}. "
        "They cannot be compared one to one."
    )


def unmatched_text(comparison: Comparison) -> str:
    """Return the sentence in place of claims on models whose heads do not correspond."""
    tested = any(found.tested for found in comparison.matched.values())
    why = "" if tested else " Matches were not tested: no model with random weights was compared."
    return f"No difference of medians is supported by these sentences.{why}"
