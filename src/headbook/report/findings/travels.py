"""How tokens travel: away from their input, and from their own word."""

from collections.abc import Iterator

import numpy as np

from headbook.metrics import ids
from headbook.report.findings.finding import Finding, begun, metric_link, opened
from headbook.report.numbers.results import StackResults
from headbook.report.wording import SPACES, interval, number
from headbook.terms import Space, State


def drift(results: StackResults) -> Iterator[Finding]:
    """How far tokens travel from their input."""
    numbers = results.tokens(ids.COSINE_TO_INPUT, State.OUT, None, "all")
    if numbers is None or len(numbers.value) < 2:
        return
    first, last = numbers.at(0), numbers.at(len(numbers.value) - 1)
    if last.high < first.low or last.low > first.high:
        verb = "falls" if last.value < first.value else "rises"
        before = f"{_cosine(first.value)} {interval(first.low, first.high)}"
        after = f"{_cosine(last.value)} {interval(last.low, last.high)}"
        yield Finding(
            (
                *opened(results, metric_link(ids.COSINE_TO_INPUT, "Cosine to the input embedding")),
                f" {verb} from {before} after layer 0 to {after} after layer "
                f"{len(numbers.value) - 1}.",
            ),
            last.sentences,
        )


def _cosine(value: float) -> str:
    """A cosine beside 0 in three digits: 0 is not an end of its range, and ``> −0.01`` no value."""
    return number(value) if abs(value) >= 0.005 else f"{value + 0.0:.3f}".replace("-", "−")


def own_word(results: StackResults) -> Iterator[Finding]:
    """Until which layer tokens are nearest to their own vocabulary token."""
    for space in Space:
        numbers = results.tokens(ids.VOCABULARY_RANK, State.OUT, space, "all")
        if numbers is None:
            continue
        last = numbers.at(len(numbers.value) - 1)
        near = [layer for layer, high in enumerate(numbers.high) if high < np.log10(2)]
        if not near or last.low <= np.log10(2):
            return
        yield Finding(
            (
                begun(results, f"Up to layer {_end(near)}, a typical token is nearest to its own "),
                "vocabulary token; after the last layer, ",
                metric_link(ids.VOCABULARY_RANK, "others are nearer"),
                f": {number(10**last.value - 1)} {interval(10**last.low - 1, 10**last.high - 1)} "
                f"(geometric mean, compared with {SPACES[space]}).",
            ),
            last.sentences,
        )
        return


def _end(layers: list[int]) -> int:
    """The end of the run of layers that begins with the first."""
    end = layers[0]
    for layer in layers:
        if layer > end + 1:
            break
        end = layer
    return end
