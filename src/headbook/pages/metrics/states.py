"""Metrics of tokens and of states on their pages: curves over layers, and tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headbook.analysis.accumulators import Estimates
from headbook.charts import Plot
from headbook.charts.plots import Series
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerwiseMetric, Metric, TokenMetric
from headbook.pages.metrics.figures import curves
from headbook.pages.parts.table import NumberCell, PageTable, Row
from headbook.report.answers.metric import token_series
from headbook.report.results import StackResults
from headbook.report.wording import SPACES, STACKS, STATES, TOKEN_CLASSES, capital, is_share
from headbook.results.formats import number
from headbook.schema import EmbeddingSpace, ResidualPoint

KINDS = {"all": "model", "content": "content", "function": "function"}  # classes of lines
ROOT = "../"  # path from the page of a metric to the site's root
Line = tuple[str, str, Estimates]  # name, class and numbers


@dataclass(frozen=True, kw_only=True)
class StateSection:
    """A metric of tokens or states in one stack.

    Attributes:
        stack, title: the stack, as files and as pages call it.
        plots: curves over layers, one for each state and embedding space, the main one first.
        tables: numbers of the plots with their intervals.
    """

    stack: str
    title: str
    plots: tuple[Plot, ...]
    tables: tuple[PageTable, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the figures that are files."""
        return tuple(plot.name for plot in self.plots)


def token_section(
    results: StackResults, metric: LayerwiseMetric, variants: Sequence[Metric]
) -> StateSection | None:
    """Return a metric of tokens in one stack; None if it has no numbers there.

    Args:
        variants: metrics that the page shows beside its own.
    """
    groups: dict[tuple[ResidualPoint, EmbeddingSpace | None], list[Line]] = {}
    for state, space, kind, numbers in token_series(results, metric):
        line = (TOKEN_CLASSES[kind], KINDS[kind], numbers)
        groups.setdefault((state, space), []).append(line)
    if not groups:
        return None
    plots: list[Plot] = []
    tables = []
    for (state, space), own in groups.items():
        lines = [*own, *_beside(results, metric, state, space, variants)]
        plots.append(_plot(results, metric, state, space, lines, first=not plots))
        tables.append(_table(results, metric, state, space, lines))
    return StateSection(
        stack=results.stack.name,
        title=capital(STACKS[results.stack.name]),
        plots=tuple(plots),
        tables=tuple(tables),
    )


def _beside(
    results: StackResults,
    metric: LayerwiseMetric,
    state: ResidualPoint,
    space: EmbeddingSpace | None,
    variants: Sequence[Metric],
) -> Iterator[Line]:
    """Yield the lines beside a metric: metrics that its definition names, and its variants."""
    named = metric.beside if isinstance(metric, TokenMetric) else ()
    for other in dict.fromkeys((*named, *(each.id for each in variants))):
        # Numbers that do not depend on the embedding space are stored for one space.
        numbers = results.tokens(other, state, space, "all")
        numbers = numbers or results.tokens(other, state, EmbeddingSpace.RAW, "all")
        if numbers is not None:
            title = _short(all_metrics()[other].title)
            kind = "control" if "another" in title or "random" in title else "baseline"
            yield title, kind, numbers


def _short(title: str) -> str:
    """Return the title of a metric beside another one, for the end of a line."""
    name = title.lower().partition(":")[0]
    for start in ("attention rollout ", "neighbours ", "shared "):
        name = name.removeprefix(start)
    return name


def _where(state: ResidualPoint, space: EmbeddingSpace | None) -> str:
    return f"{STATES[state]}{f', against {SPACES[space]}' if space else ''}"


def _plot(
    results: StackResults,
    metric: LayerwiseMetric,
    state: ResidualPoint,
    space: EmbeddingSpace | None,
    lines: Sequence[Line],
    *,
    first: bool,
) -> Plot:
    """Return the curves of a state and an embedding space."""
    unit = metric.averaged.unit or metric.unit
    share = not unit and is_share(metric)
    behind = max(int(numbers.sentences.max()) for *_, numbers in lines)
    caption = (
        f"{metric.title} by layer, {_where(state, space)}, mean over "
        f"tokens{results.sample_note(behind, ' of')}"
        + (f" as {unit}" if metric.averaged.unit else "")
        + "; 95 % intervals clustered by sentence."
    )
    series = [
        Series(
            name, kind, numbers.value, numbers.low, numbers.high,
            [number(value, share=share) for value in numbers.value],
        )
        for name, kind, numbers in lines
    ]  # fmt: skip
    ending = "" if first else f"-{state}{f'-{space}' if space else ''}"
    name = f"{metric.id}-{results.stack.name}-layers{ending}"
    points = [str(layer) for layer in range(len(lines[0][2].value))]
    return curves(name, caption, series, points, metric, root=ROOT, unit=unit)


def _table(
    results: StackResults,
    metric: LayerwiseMetric,
    state: ResidualPoint,
    space: EmbeddingSpace | None,
    lines: Sequence[Line],
) -> PageTable:
    """Return the numbers of a state and an embedding space by layer."""
    rows = [
        Row(
            f"layer {layer}",
            tuple(NumberCell.of(numbers.at(layer), metric) for *_, numbers in lines),
        )
        for layer in range(len(lines[0][2].value))
    ]
    titles = ("layer", *(name for name, *_ in lines))
    return PageTable(titles, tuple(rows), capital(_where(state, space)))
