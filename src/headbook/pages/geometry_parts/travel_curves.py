"""Curves of the paths of tokens: cosine, own vocabulary token, neighbours, mixing, rollout."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.charts.panels import PanelPlot, PlotPanel, panel_plot
from headbook.charts.plots import Plot, Scale, Series, layer_plot
from headbook.report.answers import geometry as answers
from headbook.report.results import StackResults
from headbook.report.token_neighbours import WORD_CLASS_NAMES, own_tokens
from headbook.report.wording import SPACES
from headbook.results.formats import number, whole_percent
from headbook.schema import EmbeddingSpace

HEIGHT, SMALL_HEIGHT = 340, 250  # pixels of the plots that answer, and of those below
MAX_MARKED, MAX_MARKED_WIDE = 11, 20  # layers with a mark in panels of a third and a half
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Kinds of rollout, the one that is drawn if it is known first, with its assumption.
ROLLOUTS = ((answers.MEASURED, "measured mixing"), (answers.HALF, "half kept in each layer"))
Written = Callable[[float], str]


def _short(kind: str) -> str:
    """Return the name of a class at the end of a line."""
    name = WORD_CLASS_NAMES[kind]
    return name if kind == "all" else name.removesuffix(" words").removesuffix(" tokens")


def _series(
    kind: str, numbers: answers.TokenNumbers, written: Written, start: float | None
) -> Series:
    """Return the line of a class, from a value at the input if there is one."""
    hrefs = [numbers.linked("", layer).href for layer in range(len(numbers.estimates.value))]
    return _line(kind, numbers.estimates, hrefs, written, start)


def _line(
    kind: str, estimates: Estimates, hrefs: list[str], written: Written, start: float | None
) -> Series:
    before = [] if start is None else [start]
    value, low, high = (np.array([*before, *part]) for part in estimates[:3])
    return Series(
        _short(kind), "model" if kind == "all" else kind, value, low, high,
        [*map(written, value.tolist())], ["" for _ in before] + hrefs,
    )  # fmt: skip


def path_plot(results: StackResults) -> PanelPlot | None:
    """Return the curves of cosine, own vocabulary token and kept neighbours."""
    panels = [*_path_panels(results)]
    titles = ((f"{n} " if len(panels) > 1 else "") + p.title for n, p in enumerate(panels, 1))
    panels = [p._replace(title=title) for p, title in zip(panels, titles, strict=True)]
    spaces = {SPACES[own.space]} if (own := own_tokens(results)) else set()
    compared = f" Vocabulary tokens: {', '.join(spaces)}." if spaces else ""
    caption = (
        "One line a class of tokens: ● content words, ■ function words, ▲ punctuation, ◆ special "
        f"tokens. Bands: 95 % intervals.{compared}"
        if answers.word_classes(results)[0] == "content"
        else f"All tokens of text, and special tokens (◆). Bands: 95 % intervals.{compared}"
    )
    return panel_plot(f"geometry-words-{results.stack.name}", caption, panels)


def _path_panels(results: StackResults) -> Iterator[PlotPanel]:
    classes, own = answers.word_classes(results), own_tokens(results)
    points = ["input", *map(str, range(results.stack.n_layers))]
    draw = partial(_unit_plot, points=points, n_marked=MAX_MARKED)
    found = {k: n for k in classes if (n := answers.token_numbers(results, answers.COSINE, k))}
    whole = answers.token_numbers(results, answers.COSINE, "all")
    if found and whole:
        lines = [_series(kind, n, number, 1.0) for kind, n in found.items()]
        lowest = min(float(np.nanmin(line.values)) for line in lines)
        yield PlotPanel(
            answers.cosine_title(whole.estimates), "cosine to the token’s own input embedding",
            draw(lines, low=min(0.0, lowest), written=lambda v: f"{v:g}"),
        )  # fmt: skip
    if own and "all" in own.shares:
        start = 1.0 if own.space is EmbeddingSpace.POSITIONAL else np.nan
        lines = [
            _line(kind, own.shares[kind],
                  [answers.own_token_number(results, kind, layer).href
                   for layer in range(len(points) - 1)],
                  whole_percent, start)
            for kind in classes if kind in own.shares
        ]  # fmt: skip
        of_classes = np.array([own.shares[kind].value for kind in classes if kind in own.shares])
        yield PlotPanel(
            answers.own_title(own.shares["all"].value, of_classes),
            "tokens whose nearest vocabulary token is their own",
            draw(lines, written=whole_percent),
        )
    found = {k: n for k in classes if (n := answers.token_numbers(results, answers.KEPT, k))}
    whole = answers.token_numbers(results, answers.KEPT, "all")
    if found and whole:
        yield PlotPanel(
            answers.kept_title(whole.estimates),
            "of the 100 nearest vocabulary tokens, kept from the layer before",
            draw(
                [_series(kind, n, whole_percent, np.nan) for kind, n in found.items()],
                written=whole_percent,
            ),
        )


def _unit_plot(
    lines: list[Series],
    *,
    points: list[str],
    written: Written,
    n_marked: int,
    low: float = 0.0,
    high: float = 1.0,
    height: float = HEIGHT,
    baselines: tuple[tuple[float, str], ...] = (),
) -> Plot:
    """Return a plot of shares or cosines."""
    ticks = [tick for tick in QUARTERS if low <= tick <= high]
    return layer_plot(
        "", lines[0].name, lines, points, scale=Scale(low, high, height),
        ticks=[(tick, written(tick)) for tick in ticks], baselines=baselines,
        label_width=130, n_marked=n_marked,
    )  # fmt: skip


def mixing_plot(results: StackResults) -> PanelPlot | None:
    """Return the curves of the context-mixing ratio and of attention rollout."""
    layers = [*map(str, range(results.stack.n_layers))]
    draw = partial(_unit_plot, written=whole_percent, n_marked=MAX_MARKED_WIDE, height=SMALL_HEIGHT)
    panels = []
    found = {
        k: n
        for k in answers.word_classes(results)
        if (n := answers.token_numbers(results, answers.MIXING, k))
    }
    if found:
        lines = [_series(kind, n, whole_percent, None) for kind, n in found.items()]
        most = max(float(np.nanmax(line.values)) for line in lines)
        plot = draw(
            lines, points=layers, high=0.5 if most <= 0.5 else 1.0,
            baselines=((0.5, "rollout’s half"),),
        )  # fmt: skip
        measure = "their share of the attention block’s output, residual included"
        panels.append(PlotPanel("Each layer mixes in other tokens", measure, plot))
    for metric, assumption in ROLLOUTS:
        if rollout := answers.token_numbers(results, metric, "all"):
            line = _series("all", rollout, whole_percent, 1.0)._replace(name="own input")
            plot = draw([line], points=["input", *layers])
            about = f"attention rollout, {assumption}"
            panels.append(PlotPanel(answers.rollout_title(results), about, plot))
            break
    behind = max((int(n.estimates.sentences.max()) for n in found.values()), default=0)
    caption = (
        f"Means over tokens{results.sample_note(behind, ' of') if behind else ''}; bands: 95 % "
        "intervals. Attention rollout ignores feed-forward layers."
    )
    return panel_plot(f"geometry-mixing-{results.stack.name}", caption, panels)
