"""Facts about what attention mixes into states: context mixing of each layer, and rollout."""

from itertools import pairwise

from headbook.report.facts.states.geometry import HALF, MEASURED, MIXING, token_numbers
from headbook.report.results import StackResults
from headbook.report.wording import count_text, number_word
from headbook.results.fact import Fact
from headbook.results.formats import THIN
from headbook.results.sentence import say


def falls_throughout(results: StackResults) -> Fact:
    """Return whether each layer lowers the share of its own input in a state, by rollout."""
    for metric in (MEASURED, HALF):
        numbers = token_numbers(results, metric, "all")
        values = [1.0, *(n.value for n in numbers)]
        if numbers and all(after < before for before, after in pairwise(values)):
            return Fact("falls_throughout", say("A state is ever less its own input"))
    return Fact("falls_throughout", say("Share of its own input in a state"), holds=False)


def mixing_range(results: StackResults) -> Fact:
    """Return the smallest and the largest share that other tokens give to a block’s output."""
    numbers = [n for n in token_numbers(results, MIXING, "all") if n.known]
    if not numbers:
        return Fact("mixing_range", holds=False)
    least, most = min(numbers, key=lambda n: n.value), max(numbers, key=lambda n: n.value)
    text = say(
        "Other tokens give {least} (layer {low}) to {most} (layer {high}); attention rollout, as "
        f"published, takes 50{THIN}% in every layer.",
        least=least, low=least.place("layer"), most=most, high=most.place("layer"),
    )  # fmt: skip
    return Fact("mixing_range", text)


def mixing_by_class(results: StackResults) -> Fact:
    """Return in how many layers function words mix in more, or less, context than content words."""
    function, content = (token_numbers(results, MIXING, k) for k in ("function", "content"))
    if not function or not content:
        return Fact("mixing_by_class", holds=False)
    pairs = [*zip(function, content, strict=True)]
    counts = {
        "more": sum(one.low > other.high for one, other in pairs),
        "less": sum(one.high < other.low for one, other in pairs),
    }
    n_layers, apart = len(pairs), f" (95{THIN}% intervals apart)."
    if not any(counts.values()):
        text = say("Function words and content words do not clearly differ in any layer.")
        return Fact("mixing_by_class", text, holds=False)
    where = (
        f"more context than content words in all {n_layers} layers"
        if counts["more"] == n_layers > 1
        else " and ".join(
            f"{word} context than content words in {number_word(count)}"
            for word, count in counts.items()
            if count
        )
        + f" of {count_text(n_layers, 'layer')}"
    )
    text = say("Function words mix in {where}{apart}", where=where, apart=apart)
    return Fact("mixing_by_class", text)
