"""Answers of the page *How words travel*: do words keep their identity through the layers?"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.analysis.arrays import Floats
from headbook.metrics import ids
from headbook.report.linked_rows import LinkedNumber, Parts
from headbook.report.results import StackResults
from headbook.report.token_neighbours import WORD_CLASS_NAMES, WORD_CLASSES, own_tokens
from headbook.report.wording import capital, count_text, number_word
from headbook.results.formats import THIN, number, percent, whole_percent, word_list
from headbook.schema import EmbeddingSpace, ResidualPoint

COSINE, KEPT, RANK = ids.COSINE_TO_INPUT, ids.NEIGHBOUR_OVERLAP, ids.VOCABULARY_RANK
MIXING, HALF, MEASURED = ids.MIXING_RATIO, ids.ROLLOUT_SELF, ids.ROLLOUT_SELF_MEASURED
STATES = {MIXING: ResidualPoint.MID}  # of a metric; after the layer for all others
SPACES = {RANK: (*EmbeddingSpace,), KEPT: (*EmbeddingSpace,)}  # of a metric, the first that exists
LABELS = {"punctuation": "PUNCT"}  # names in tables of classes of tokens
OWN_NEAREST = "nearest to own vocabulary token"  # claim in the table of tests
OBSERVATION = "published observation"  # claim in the table of tests
MOST, SOME, FEW = 0.75, 0.25, 0.1  # shares from which on most, some, and few tokens do
UNTIL = 0.9  # share of tokens that is called most in the title of a panel
MIN_LAYERS = 4  # layers from which on halves are compared


class TokenNumbers(NamedTuple):
    """Averages of a token metric over a class of tokens, with the keys of their rows.

    Attributes:
        estimates: *Shape:* ``(layer,)``.
        row: columns and values that, with the layer, identify a row of the table `words`.
    """

    estimates: Estimates
    row: tuple[tuple[str, str | int], ...]

    def linked(self, text: str, layer: int) -> LinkedNumber:
        """Return a text that leads to the row of a layer."""
        return LinkedNumber(text, "words", (*self.row, ("layer", layer)))


def token_numbers(
    results: StackResults, metric: str, kind: str, state: ResidualPoint | None = None
) -> TokenNumbers | None:
    """Return the averages of a metric over a class of tokens; None if they are missing.

    Args:
        kind: class of words as in `WORD_CLASS_NAMES`, or a part of speech.
        state: state of tokens; by default that of pages.
    """
    label, state = LABELS.get(kind, kind), state or STATES.get(metric, ResidualPoint.POST)
    for space in SPACES.get(metric, (None,)):
        estimates = results.tokens(metric, state, space, label)
        if estimates is not None:
            row: dict[str, str | int] = {
                "stack": results.stack.name, "metric": metric, "class": label,
                "state": str(state), "space": str(space or ""),
            }  # fmt: skip
            return TokenNumbers(estimates, tuple(row.items()))
    return None


def word_classes(results: StackResults) -> tuple[str, ...]:
    """Return the classes that figures draw: without annotation all tokens and special ones."""
    annotated = (
        any(
            token_numbers(results, metric, kind) is not None
            for metric in (COSINE, KEPT, MIXING)
            for kind in ("content", "function")
        )
        or {"content", "function"} & _own_shares(results).keys()
    )
    return WORD_CLASSES if annotated else ("all", "special")


def _own_shares(results: StackResults) -> Mapping[str, Estimates]:
    own = own_tokens(results)
    return own.shares if own else {}


def own_token_number(results: StackResults, kind: str, layer: int) -> LinkedNumber:
    """Return the share of a class nearest to its own vocabulary token, with its row."""
    stack = results.stack.name
    row = (("claim", OWN_NEAREST), ("stack", stack), ("label", kind), ("layer", layer))
    share = _own_shares(results)[kind].value.item(layer)
    return LinkedNumber(whole_percent(share), "tests", row)


def identity_answer(results: StackResults) -> Parts:
    """Return one sentence on whether words keep their identity, by the state after all layers."""
    shares, last = _own_shares(results), results.stack.n_layers - 1
    kind = "content" if "content" in shares else "all"
    share = shares[kind].at(last) if kind in shares else None
    if share is None or math.isnan(share.value):
        return _answer_without_ranks(results)
    below = [
        name
        for name in ("function", "punctuation")
        if name in shares and kind == "content" and shares[name].high[last] < share.low
    ]
    words = word_list([WORD_CLASS_NAMES[name] for name in below]) if below else ""
    often = "often are not" if all(shares[n].value[last] < MOST for n in below) else "less often"
    linked = own_token_number(results, kind, last)
    nearest = "nearest to their own vocabulary token"
    if share.value >= MOST and "function" in below:
        return (
            f"{capital(WORD_CLASS_NAMES[kind])} do: after the last layer, ",
            linked,
            f" are still {nearest}; {words} {often}.",
        )
    verdict = (
        "Most" if share.value >= MOST
        else "Some" if share.value >= SOME
        else "Few" if share.value >= FEW
        else "Hardly any"
    )  # fmt: skip
    return (
        f"{verdict} do: after the last layer, ",
        linked,
        f" of {WORD_CLASS_NAMES[kind]} are still {nearest}"
        + (f"; {words} less often." if words else "."),
    )


def _answer_without_ranks(results: StackResults) -> Parts:
    """Return a sentence on the best of the other measures that a study has."""
    last = results.stack.n_layers - 1
    kind = "content" if token_numbers(results, COSINE, "content") else "all"
    name, unknown = WORD_CLASS_NAMES[kind], "Vocabulary tokens were not compared; "
    for metric, before, written, after in (
        (COSINE, f"after the last layer, {name} have a cosine of ", number, " to their embedding."),
        (MEASURED, "by attention rollout, ", whole_percent, " of a last state is its own input."),
        (HALF, "by attention rollout, ", whole_percent, " of a last state is its own input."),
        (MIXING, "other tokens give ", whole_percent, " of the last attention block’s output."),
    ):
        found = token_numbers(results, metric, kind if metric == COSINE else "all")
        if found and not math.isnan(found.estimates.value[last]):
            linked = found.linked(written(found.estimates.value.item(last)), last)
            return unknown + before, linked, after
    return ("Not known here: only how similar the states of tokens are to each other.",)


def cosine_title(cosines: Estimates) -> str:
    """Return what the curve of cosines to the input embedding shows."""
    values, last = cosines.value, len(cosines.value) - 1
    if np.isnan(values).any() or not cosines.high[last] < 1:
        return "How near they stay to their embedding"
    if len(values) < MIN_LAYERS:
        return "They leave their embedding"
    first, second = halves(np.array([1.0, *values]))
    return f"They leave their embedding {'early' if first > second else 'late'}"


def own_title(shares: Floats, of_classes: Floats) -> str:
    """Return what the curves of tokens that are nearest to themselves show.

    Args:
        shares: shares of all tokens. *Shape:* ``(layer,)``.
        of_classes: shares of the classes that are drawn. *Shape:* ``(class, layer)``.
    """
    lowest = np.vstack([shares, of_classes]).min(0)
    most = np.flatnonzero(lowest >= UNTIL)
    if np.isnan(lowest).any() or (len(most) and most[-1] != len(most) - 1):
        return "How many are nearest to themselves"
    if len(most) == len(lowest):
        return "Most stay nearest to themselves"
    if len(most):
        return f"Most stay nearest to themselves up to layer {most[-1]}"
    many = (shares < UNTIL).all()
    return "Many are not nearest to themselves" if many else "How many are nearest to themselves"


def kept_title(kept: Estimates) -> str:
    """Return what the curve of kept neighbours shows, by intervals of the first and last layer."""
    first, last = kept.at(0), kept.at(len(kept.value) - 1)
    if last.high < first.low:
        return "More neighbours are replaced at the end"
    if last.low > first.high:
        return "Fewer neighbours are replaced at the end"
    return "How many neighbours stay"


def halves(values: Floats) -> tuple[float, float]:
    """Return the mean decrease from point to point in the first and in the second half."""
    steps = -np.diff(values)
    half = len(steps) // 2
    return float(steps[:half].mean()), float(steps[half:].mean())


class Observation(NamedTuple):
    """A published observation on the paths of tokens, tested on the study.

    Attributes:
        name: short name, for tables.
        text: the observation.
        metric: id of the metric that is compared.
        state: state of the tokens.
        holds: whether it holds.
        measure: names of both numbers below.
        numbers: two numbers that are compared; the second is NaN for the place of an extreme.
        layer: layer of an extreme; None without one.
    """

    name: str
    text: str
    metric: str
    state: ResidualPoint
    holds: bool
    measure: tuple[str, str]
    numbers: tuple[float, float]
    layer: int | None = None

    @property
    def label(self) -> str:
        """Label of its row in the table of tests."""
        return f"{self.name} ({self.state})"


EARLY = "Tokens leave their embedding early: the cosine falls faster in the first half."
STABLE = (
    "The rank is stable until the last layer: log rank changes more there than in all layers "
    "before."
)
TURNING = "Replacement of neighbours speeds up, then slows down."


def observations(results: StackResults, state: ResidualPoint) -> Iterator[Observation]:
    """Yield the observations of a public exploration on all tokens of text, in one kind of state.

    The observations are those of D. Avery (2024-25) on RoBERTa.
    """
    cosines, ranks, kept = (
        _values(results, metric, state, start)
        for metric, start in ((COSINE, 1.0), (RANK, 0.0), (KEPT, None))
    )
    if cosines is not None:
        first, second = halves(cosines)
        measure = ("fall a layer in the first half", "in the second half")
        yield Observation("early", EARLY, COSINE, state, first > second, measure, (first, second))
    if ranks is not None:
        *before, last = np.diff(ranks)
        change = float(np.sum(before))
        holds = abs(last) > abs(change)
        measure = ("change in the last layer", "in all before")
        yield Observation("stable", STABLE, RANK, state, holds, measure, (float(last), change))
    if kept is not None:
        most = int(kept.argmin())
        yield Observation(
            "turning", TURNING, KEPT, state, 0 < most < len(kept) - 1, ("most replaced", ""),
            (1 - kept.item(most), math.nan), most,
        )  # fmt: skip


def _values(
    results: StackResults, metric: str, state: ResidualPoint, start: float | None
) -> Floats | None:
    """Return averages over all tokens by layer after a start; None if too few or missing."""
    found = token_numbers(results, metric, "all", state)
    if found is None or np.isnan(found.estimates.value).any() or len(found.estimates.value) < 3:
        return None
    values = found.estimates.value
    return values if start is None else np.array([start, *values])


def mixing_sentences(results: StackResults) -> Iterator[Parts]:
    """Yield the range of the context-mixing ratio, and how function and content words differ."""
    found = token_numbers(results, MIXING, "all")
    if found is None:
        return
    values = found.estimates.value
    least, most = int(np.nanargmin(values)), int(np.nanargmax(values))
    yield (
        "Other tokens give ",
        found.linked(percent(values.item(least)), least),
        f" (layer {least}) to ",
        found.linked(percent(values.item(most)), most),
        f" (layer {most}); attention rollout, as published, takes 50{THIN}% in every layer.",
    )
    function, content = (token_numbers(results, MIXING, k) for k in ("function", "content"))
    if function is not None and content is not None:
        yield (_class_difference(function.estimates, content.estimates),)


def _class_difference(function: Estimates, content: Estimates) -> str:
    """Return a sentence on the layers in which intervals of two classes of words are apart."""
    counts = {
        "more": int((function.low > content.high).sum()),
        "less": int((function.high < content.low).sum()),
    }
    layers, apart = len(function.value), f" (95{THIN}% intervals apart)."
    if counts["more"] == layers > 1:
        return (
            f"Function words mix in more context than content words in all {layers} layers{apart}"
        )
    different = [
        f"{word} context than content words in {number_word(count)}"
        for word, count in counts.items()
        if count
    ]
    if different:
        of = count_text(layers, "layer")
        return f"Function words mix in {' and '.join(different)} of {of}{apart}"
    return "Function words and content words do not clearly differ in any layer."


def rollout_title(results: StackResults) -> str:
    """Return what the curves of attention rollout show."""
    for metric in (MEASURED, HALF):
        found = token_numbers(results, metric, "all")
        if found is not None and (np.diff([1.0, *found.estimates.value]) < 0).all():
            return "A state is ever less its own input"
    return "Share of its own input in a state"
