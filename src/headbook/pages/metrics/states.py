"""Metrics of tokens and of states on their pages: curves over layers, and tables."""

from collections.abc import Iterator, Sequence

from headbook.charts import Plot
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerwiseMetric, Metric, TokenMetric
from headbook.pages.metrics.figures import curves, number_line
from headbook.pages.parts.blocks import Block, Group, Lead, Table, row
from headbook.report.facts.metrics import TokenNumbers, token_series
from headbook.report.facts.states.outliers import outliers
from headbook.report.results import StackResults
from headbook.report.wording import SPACES, STATES, TOKEN_CLASSES, capital
from headbook.results.number import Number
from headbook.schema import NO_OUTLIERS, EmbeddingSpace, TokenKey

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
    plots: list[Lead] = []
    tables: list[Table] = []
    for series in groups.values():
        key, lines = series[0][0], [*_lines(results, metric, series, variants)]
        plots.append(Lead(_plot(results, metric, key, lines, is_first=not plots)))
        tables.append(_table(key, lines))
    others = (Group(pair) for pair in zip(plots[1:], tables[1:], strict=True))
    return plots[0], (Group((tables[0],)), *others)


def _lines(
    results: StackResults,
    metric: LayerwiseMetric,
    series: Sequence[TokenNumbers],
    variants: Sequence[Metric],
) -> Iterator[NamedLine]:
    """Yield the classes of tokens, all without outlier dimensions, named metrics, and variants."""
    for key, numbers in series:
        yield TOKEN_CLASSES[key.label], KINDS[key.label], numbers
    state, space = series[0][0].state, series[0][0].space
    if outliers(results, state=state):
        numbers = results.token_numbers(TokenKey(metric.id, state, space, NO_OUTLIERS))
        if numbers:
            yield "no outliers", "baseline", numbers
    named = metric.beside if isinstance(metric, TokenMetric) else ()
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
    key: TokenKey,
    lines: Sequence[NamedLine],
    *,
    is_first: bool,
) -> Plot:
    """Return the curves of a state and an embedding space."""
    sentences = max(number.sentences for _, _, numbers in lines for number in numbers)
    caption = (
        f"{metric.title} by layer, {_where(key)}, mean over "
        f"tokens{results.sample_note(sentences, ' of')}"
        + (f" as {metric.averaged.unit}" if metric.averaged.unit else "")
        + "; 95 % intervals clustered by sentence."
    )
    ending = "" if is_first else f"-{key.state}{f'-{key.space}' if key.space else ''}"
    name = f"{metric.id}-{results.stack.name}-layers{ending}"
    first = lines[0][2]
    points = [str(layer) for layer in range(len(first))]
    drawn = [number_line(*line) for line in lines]
    return curves(name, caption, drawn, points, first[0].unit)


def _table(key: TokenKey, lines: Sequence[NamedLine]) -> Table:
    """Return the numbers of a state and an embedding space by layer."""
    rows = tuple(
        row(f"layer {layer}", *(numbers[layer] for _, _, numbers in lines))
        for layer in range(len(lines[0][2]))
    )
    return Table(("layer", *(name for name, *_ in lines)), rows, capital(_where(key)))
