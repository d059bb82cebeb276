"""Metrics of tokens and of states on their pages: curves over layers, and tables."""

from collections.abc import Iterator, Sequence

from headbook.charts import Plot
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerwiseMetric, Metric, TokenMetric
from headbook.pages.metrics.figures import curves, line_of
from headbook.pages.parts.blocks import Block, Group, Lead, Table, row
from headbook.report.facts.metrics import TokenNumbers, token_series
from headbook.report.results import StackResults
from headbook.report.wording import SPACES, STATES, TOKEN_CLASSES, capital
from headbook.results.number import Number
from headbook.schema import EmbeddingSpace, TokenKey

KINDS = {"all": "model", "content": "content", "function": "function"}  # classes of lines
NamedLine = tuple[str, str, Sequence[Number]]  # name, class and numbers by layer


def token_blocks(
    results: StackResults, metric: LayerwiseMetric, variants: Sequence[Metric]
) -> tuple[Lead, tuple[Block, ...]]:
    """Return the curves of a metric over layers, and what a closer look shows.

    Args:
        variants: metrics that the page shows beside its own.
    """
    groups: dict[tuple[str, str], list[TokenNumbers]] = {}
    for key, numbers in token_series(results, metric):
        groups.setdefault((str(key.state), str(key.space or "")), []).append((key, numbers))
    first, *others = groups.values()
    closer: list[Block] = [_table(results, metric, first, variants)]
    for of_state in others:
        plot = _plot(results, metric, of_state, variants, is_first=False)
        closer += [Lead(plot), _table(results, metric, of_state, variants)]
    lead = Lead(_plot(results, metric, first, variants, is_first=True))
    return lead, (Group(tuple(closer)),)


def _lines(
    results: StackResults,
    metric: LayerwiseMetric,
    series: Sequence[TokenNumbers],
    variants: Sequence[Metric],
) -> Iterator[NamedLine]:
    """Yield the classes of tokens, then metrics that the definition names, and variants."""
    for key, numbers in series:
        yield TOKEN_CLASSES[key.label], KINDS[key.label], numbers
    named = metric.beside if isinstance(metric, TokenMetric) else ()
    state, space = series[0][0].state, series[0][0].space
    for other in dict.fromkeys((*named, *(variant.id for variant in variants))):
        # Numbers that do not depend on the embedding space are stored for one space.
        numbers = results.token_numbers(TokenKey(other, state, space, "all"))
        numbers = numbers or results.token_numbers(
            TokenKey(other, state, EmbeddingSpace.RAW, "all")
        )
        if numbers:
            title = _short(all_metrics()[other].title)
            kind = "control" if "another" in title or "random" in title else "baseline"
            yield title, kind, numbers


def _short(title: str) -> str:
    """Return the title of a metric beside another one, for the end of a line."""
    name = title.lower().partition(":")[0]
    for start in ("attention rollout ", "neighbours ", "shared "):
        name = name.removeprefix(start)
    return name


def _where(key: TokenKey) -> str:
    return f"{STATES[key.state]}{f', against {SPACES[key.space]}' if key.space else ''}"


def _plot(
    results: StackResults,
    metric: LayerwiseMetric,
    series: Sequence[TokenNumbers],
    variants: Sequence[Metric],
    *,
    is_first: bool,
) -> Plot:
    """Return the curves of a state and an embedding space."""
    key, numbers = series[0]
    sentences = max(number.sentences for _, of_class in series for number in of_class)
    caption = (
        f"{metric.title} by layer, {_where(key)}, mean over "
        f"tokens{results.sample_note(sentences, ' of')}"
        + (f" as {metric.averaged.unit}" if metric.averaged.unit else "")
        + "; 95 % intervals clustered by sentence."
    )
    lines = [line_of(*line) for line in _lines(results, metric, series, variants)]
    ending = "" if is_first else f"-{key.state}{f'-{key.space}' if key.space else ''}"
    name = f"{metric.id}-{results.stack.name}-layers{ending}"
    points = [str(layer) for layer in range(len(numbers))]
    return curves(name, caption, lines, points, numbers[0].unit)


def _table(
    results: StackResults,
    metric: LayerwiseMetric,
    series: Sequence[TokenNumbers],
    variants: Sequence[Metric],
) -> Table:
    """Return the numbers of a state and an embedding space by layer."""
    lines = [*_lines(results, metric, series, variants)]
    rows = tuple(
        row(f"layer {layer}", *(numbers[layer] for _, _, numbers in lines))
        for layer in range(len(series[0][1]))
    )
    return Table(("layer", *(name for name, *_ in lines)), rows, capital(_where(series[0][0])))
