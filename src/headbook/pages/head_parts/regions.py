"""The section of a head's page on attention between the regions of a text."""

from dataclasses import dataclass

from headbook.pages.parts.blocks import Table, row
from headbook.pages.texts.regions import NUMBERS, region_exemplars, region_numbers
from headbook.report.facts.texts import regions as facts
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import capital, p_family_wise_text
from headbook.results.sentence import Sentence, say
from headbook.schema import HeadName

MOST_PAIRS = 6  # ordered pairs of regions in the table, those with the largest excess


@dataclass(frozen=True)
class RegionsSection:
    """Attention of a head between regions.

    Attributes:
        title: the regions in words.
        text: the region that the head seeks, with share, excess and p; or that it seeks none.
        table: ordered pairs of regions with numbers and exemplars.
    """

    title: str
    text: Sentence
    table: Table


def regions_section(results: StackResults, head: HeadName) -> RegionsSection | None:
    """Return the section on regions; None if texts have no regions, or the head no numbers."""
    known = [label for label in facts.crossing(results) if facts.beyond(results, label, head).known]
    if not known:
        return None
    known.sort(key=lambda label: -facts.beyond(results, label, head).value)
    rows = tuple(
        row(
            facts.arrow(label),
            *region_numbers(results, label, head),
            region_exemplars(results, label, head),
        )
        for label in known[:MOST_PAIRS]
    )
    of_pair = facts.other_part(results) == facts.OTHER_TEXT
    return RegionsSection(
        "Between both texts of a pair" if of_pair else "Between the parts of a text",
        _text(results, head),
        Table(row("attention", *NUMBERS, "exemplars"), rows),
    )


def _text(results: StackResults, head: HeadName) -> Sentence:
    """Return the region that a head seeks most beyond distance."""
    place = head.layer, head.head
    label = facts.sought(results, place)
    if label is None:
        other = facts.other_part(results)
        return say("Not confirmed: more attention to {other} than distance explains.", other=other)
    return say(
        "{Where}: {share} of its attention off {sink}, {beyond} beyond distance ({p}).",
        Where=capital(facts.phrase(label)), share=facts.share(results, label, head),
        sink=sink_tokens(results), beyond=facts.beyond(results, label, head),
        p=p_family_wise_text(facts.region_tests(results)[place, label].p),
    )  # fmt: skip
