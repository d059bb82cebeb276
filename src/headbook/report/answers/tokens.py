"""Answers of the page *Tokens*: does a word stay the same in every sentence?"""

import math

from headbook.analysis.accumulators import Estimates
from headbook.report.linked_rows import LinkedNumber, Parts
from headbook.report.results import StackResults
from headbook.report.token_neighbours import WORD_CLASS_NAMES, SharedNeighbours, shared_neighbours
from headbook.results.formats import number

SHARED = "shared nearest vocabulary tokens"  # claim in the table of tests
DIFFERENT = "two different words"  # baseline in the table of tests
YES, PARTLY = 8.0, 4.0  # of ten shared tokens
MIN_RATIO = 2.0  # to the baseline, below which words are not measurably the same
ONE_WORD = {"all": "a word", "punctuation": "a punctuation mark"}


def one_word(kind: str) -> str:
    """Return a word of a class: ``a content word``."""
    return ONE_WORD.get(kind, f"a {WORD_CLASS_NAMES[kind].removesuffix('s')}")


def shared_number(
    results: StackResults, found: SharedNeighbours, kind: str, layer: int
) -> LinkedNumber:
    """Return the mean number of tokens that occurrences of words of a class share."""
    stack = results.stack.name
    row = (("claim", SHARED), ("stack", stack), ("label", kind), ("layer", layer))
    return LinkedNumber(short(found.means[kind].value.item(layer)), "tests", row)


def short(value: float) -> str:
    """Return a number of shared tokens with one decimal."""
    return number(value) if math.isnan(value) else f"{value:.1f}"


def sameness_answer(results: StackResults) -> Parts:
    """Return one sentence on whether words stay the same, by the state after all layers."""
    found = shared_neighbours(results)
    if found is None:
        return ("Not known here: no nearest vocabulary tokens of a word in two sentences.",)
    last = results.stack.n_layers - 1
    kind = next(k for k in ("content", "function", "all", "punctuation") if k in found.means)
    mean = found.means[kind].value.item(last)
    linked = shared_number(results, found, kind, last)
    start = f"after the last layer, two occurrences of {one_word(kind)}"
    nearest = " of their ten nearest vocabulary tokens"
    if math.isnan(mean):
        return (f"Not known: {start} have no nearest vocabulary tokens.",)
    different = found.different.item(last)
    if not mean >= MIN_RATIO * different:
        more = "hardly more" if mean > different else "no more"
        return (
            f"Not measurably: {start} share ",
            linked,
            f"{nearest}, {more} than different words.",
        )
    verdict, verb = (
        ("Yes", "still share") if mean >= YES
        else ("Partly", "still share") if mean >= PARTLY
        else ("No", "share")
    )  # fmt: skip
    compared = ""
    if kind == "content" and "function" in found.means:
        function, content = found.means["function"], found.means["content"]
        compared = f", of a function word {_compared(function, content, last)}"
    return f"{verdict}: {start} {verb} ", linked, f"{nearest}{compared}."


def _compared(function: Estimates, content: Estimates, layer: int) -> str:
    """Return how many tokens function words share, beside content words, by intervals."""
    one, other = function.at(layer), content.at(layer)
    if one.high < other.low:
        return "less than half as many" if one.value < other.value / 2 else "fewer"
    return "more" if one.low > other.high else "about as many"
