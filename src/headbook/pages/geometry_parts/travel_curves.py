"""Curves of the paths of tokens: cosine, own vocabulary token, neighbours, mixing, rollout."""

from collections.abc import Iterator, Mapping, Sequence

from headbook.charts.panels import PanelPlot, PlotPanel, panel_plot
from headbook.charts.plots import Line, Plot, Scale, layer_plot
from headbook.report.facts.states import geometry as facts
from headbook.report.facts.states.mixing import falls_throughout
from headbook.report.facts.states.outliers import dimension_names, outliers
from headbook.report.results import StackResults
from headbook.report.token_neighbours import class_name, own_tokens
from headbook.report.wording import SPACES
from headbook.results.formats import whole_percent
from headbook.results.number import Number
from headbook.schema import NO_OUTLIERS, SPECIAL_ROLES, EmbeddingSpace

HEIGHT, SMALL_HEIGHT = 260, 250  # pixels of the plots that answer, and of those below
MAX_MARKED, MAX_MARKED_WIDE = 11, 20  # layers with a mark in panels of a third and a half
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Kinds of rollout, the one that is drawn if it is known first, with its assumption.
ROLLOUTS = (
    (facts.MEASURED, "measured mixing"), (facts.HALF, "half kept in each layer"),
)  # fmt: skip
Numbers = Mapping[str, Sequence[Number]]  # by class of tokens and layer


def _lines(
    results: StackResults, numbers: Numbers, format_name: str = "", start: float | None = None
) -> list[Line]:
    """Return a line for each class of tokens, from a value at the input if there is one."""
    return [
        Line(
            class_name(results, kind).removesuffix(" words"),
            "model" if kind == "all" else "special" if kind in SPECIAL_ROLES else kind,
            of_class, format_name, start,
        )
        for kind, of_class in numbers.items()
    ]  # fmt: skip


def _without(results: StackResults, metric: str, format_name: str, start: float) -> list[Line]:
    """Return the dashed line of all tokens without outlier dimensions, if states have any."""
    numbers = facts.token_numbers(results, metric, NO_OUTLIERS)
    if not numbers or not outliers(results):
        return []
    return [Line("no outliers", "baseline", numbers, format_name, start)]


def path_plot(results: StackResults) -> PanelPlot | None:
    """Return the curves of cosine, own vocabulary token and kept neighbours."""
    panels = [*_path_panels(results)]
    titles = ((f"{n} " if len(panels) > 1 else "") + p.title for n, p in enumerate(panels, 1))
    panels = [p._replace(title=title) for p, title in zip(panels, titles, strict=True)]
    spaces = {SPACES[tokens.space]} if (tokens := own_tokens(results)) else set()
    compared = f" Vocabulary tokens: {', '.join(spaces)}." if spaces else ""
    dashed = []
    if facts.token_numbers(results, facts.ANOTHER, "all"):
        dashed.append("neighbours of another token of the sentence, at random")
    if dimensions := outliers(results):
        dashed.append(f"all tokens without {dimension_names(dimensions)}")
    if dashed:
        compared += f" Dashed: {'; '.join(dashed)}."
    classes = (
        "● content words, ■ function words, ▲ punctuation, ◆ special tokens"
        if facts.word_classes(results)[0] == "content"
        else "all tokens of text, and special tokens (◆)"
    )
    caption = f"Tokens through the layers: {classes}. Bands: 95 % intervals.{compared}"
    return panel_plot(f"geometry-words-{results.stack.name}", caption, panels)


def _path_panels(results: StackResults) -> Iterator[PlotPanel]:
    points = ["input", *map(str, range(results.stack.n_layers))]
    if cosines := facts.numbers_by_class(results, facts.COSINE):
        lowest = min(n.value for numbers in cosines.values() for n in numbers if n.known)
        lines = [*_lines(results, cosines, start=1.0), *_without(results, facts.COSINE, "", 1.0)]
        plot = _plot(lines, points, low=min(0.0, lowest), share=False)
        title = results.cached(facts.leaves_embedding).text.text
        yield PlotPanel(title, "cosine to the token’s own input embedding", plot)
    classes = facts.word_classes(results)
    nearest = {kind: numbers for kind in classes if (numbers := facts.own_numbers(results, kind))}
    if nearest:
        tokens = own_tokens(results)
        is_exact = tokens is not None and tokens.space is EmbeddingSpace.POSITIONAL
        lines = _lines(results, nearest, "whole", 1.0 if is_exact else float("nan"))
        title = results.cached(facts.stays_nearest).text.text
        measure = "tokens whose nearest vocabulary token is their own"
        yield PlotPanel(title, measure, _plot(lines, points))
    if kept := facts.numbers_by_class(results, facts.KEPT):
        unknown = float("nan")
        lines = _lines(results, kept, "whole", unknown)
        lines += _without(results, facts.KEPT, "whole", unknown)
        if another := facts.token_numbers(results, facts.ANOTHER, "all"):
            lines.append(Line("another token", "baseline", another, "whole", unknown))
        title = results.cached(facts.most_replaced).text.text
        measure = "of the 100 nearest vocabulary tokens, kept from the layer before"
        yield PlotPanel(title, measure, _plot(lines, points))


def _plot(
    lines: list[Line],
    points: list[str],
    *,
    low: float = 0.0,
    high: float = 1.0,
    share: bool = True,
    height: float = HEIGHT,
    n_marked: int = MAX_MARKED,
    baselines: tuple[tuple[float, str], ...] = (),
) -> Plot:
    """Return a plot of shares, or of cosines."""
    ticks = [
        (tick, whole_percent(tick) if share else f"{tick:g}") for tick in QUARTERS
        if low <= tick <= high
    ]  # fmt: skip
    return layer_plot(
        "", lines[0].name, lines, points, scale=Scale(low, high, height), ticks=ticks,
        baselines=baselines, label_width=130, n_marked=n_marked,
    )  # fmt: skip


def mixing_plot(results: StackResults) -> PanelPlot | None:
    """Return the curves of the context-mixing ratio and of attention rollout."""
    layers, panels = [*map(str, range(results.stack.n_layers))], []
    mixing = facts.numbers_by_class(results, facts.MIXING)
    if mixing:
        most = max(n.value for numbers in mixing.values() for n in numbers if n.known)
        plot = _plot(
            _lines(results, mixing, "whole"), layers, high=0.5 if most <= 0.5 else 1.0,
            height=SMALL_HEIGHT, n_marked=MAX_MARKED_WIDE, baselines=((0.5, "rollout’s half"),),
        )  # fmt: skip
        measure = "their share of the attention block’s output, residual included"
        panels.append(PlotPanel("Each layer mixes in other tokens", measure, plot))
    for metric, assumption in ROLLOUTS:
        if rollout := facts.token_numbers(results, metric, "all"):
            line = Line("own input", "model", rollout, "whole", 1.0)
            plot = _plot([line], ["input", *layers], height=SMALL_HEIGHT, n_marked=MAX_MARKED_WIDE)
            title = results.cached(falls_throughout).text.text
            panels.append(PlotPanel(title, f"attention rollout, {assumption}", plot))
            break
    behind = max((n.sentences for numbers in mixing.values() for n in numbers), default=0)
    caption = (
        "Context mixing and attention rollout by layer, means over tokens"
        f"{results.sample_note(behind, ' of') if behind else ''}; bands: 95 % intervals. "
        "Rollout ignores feed-forward layers."
    )
    return panel_plot(f"geometry-mixing-{results.stack.name}", caption, panels)
