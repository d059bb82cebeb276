"""Drawing charts that are known to be right."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol

import altair as alt
import numpy as np
import pandas as pd
from altair.utils import schemapi

from headbook.analysis.arrays import Floats
from headbook.charts.render import svg_of
from headbook.charts.theme import BLUE, GREEN, ORANGE, PURPLE, vega_config
from headbook.report.wording import option_name


@contextmanager
def without_schema_checks() -> Iterator[None]:
    """Draw without comparing every part of a chart with Vega-Lite's schema as it is made.

    That takes longer than all other work on a page; tests draw the same charts with it.
    """
    with schemapi.debug_mode(False):
        yield


def checks() -> bool:
    """Whether charts are compared with the schema."""
    return schemapi.DEBUG_MODE


Given = ParamSpec("Given")


class Drawable(Protocol):
    """What files are written of: a `Figure`, or a `Drawing`."""

    @property
    def name(self) -> str:
        """Also its file name."""

    @property
    def caption(self) -> str:
        """What it shows."""

    @property
    def svg(self) -> str:
        """An SVG element that inherits the page's colour."""

    @property
    def rows(self) -> pd.DataFrame | None:
        """What it shows, in full precision; None where no file of it is written."""


class ChartSpec(NamedTuple):
    """What is behind a figure.

    Attributes:
        spec: Vega-Lite specification.
        interactive: whether the live chart shows more than the picture.
        rows: what the picture shows, a row for each of its marks, in full precision; None where
            no file of it is written.
    """

    spec: dict[str, Any]
    interactive: bool = True
    rows: pd.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart as pages and files use it; it is made when it is first looked at.

    Attributes:
        name: unique on its page; also its file name.
        caption: what it shows; also its text for who cannot see it.
        make: makes the chart.
    """

    name: str
    caption: str
    make: Callable[[], ChartSpec]

    @cached_property
    def _chart(self) -> ChartSpec:
        return self.make()

    @property
    def spec(self) -> dict[str, Any]:
        """Vega-Lite specification."""
        return self._chart.spec

    @cached_property
    def interactive(self) -> bool:
        """Whether the live chart shows more than the picture."""
        return self._chart.interactive

    @property
    def rows(self) -> pd.DataFrame | None:
        """What the picture shows, as in `ChartSpec`."""
        return self._chart.rows

    def forget(self) -> None:
        """Let go of the chart, which can be made again; the picture stays, where it was drawn."""
        _ = self.interactive  # what pages still ask for
        vars(self).pop("_chart", None)

    @cached_property
    def svg(self) -> str:
        """The chart as an SVG element that inherits the page's colour.

        Element ids get the figure's name, so that several charts share a page; ids that
        vl-convert numbers within a process would differ between builds.
        """
        return svg_of(static_spec(self.spec), self.name, self.caption)


def lazy_figure(make: Callable[Given, ChartSpec]) -> Callable[Concatenate[str, str, Given], Figure]:
    """Let a function that makes a chart give a figure that makes it when it is asked for.

    The figure's name and caption stand before the other arguments.
    """

    @wraps(make)
    def figure(name: str, caption: str, /, *args: Given.args, **named: Given.kwargs) -> Figure:
        return Figure(name, caption, partial(make, *args, **named))

    return figure


def static_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with no more rows than its picture shows: others wait for readers."""
    chosen = {
        param["name"].removesuffix("_shown"): param["value"]
        for param in spec.get("params", ())
        if param["name"].endswith("_shown")
    }
    if not chosen:
        return spec
    sets = {
        name: [row for row in rows if all(row.get(k, v) == v for k, v in chosen.items())]
        for name, rows in spec.get("datasets", {}).items()
    }
    return spec | {"datasets": sets}


def rounded_rows(rows: pd.DataFrame, digits: int = 5) -> pd.DataFrame:
    """Rows with no more decimals than a picture can show, so that live charts stay short."""
    single = rows.select_dtypes("float32").columns
    return rows.astype(dict.fromkeys(single, float)).round(digits)


def chosen_rows(rows: pd.DataFrame, show: dict[str, str]) -> pd.DataFrame:
    """The rows of a picture, without those that only the live chart offers."""
    chosen = (rows[[*show]] == pd.Series(show)).all(axis=1)
    return rows[chosen].reset_index(drop=True)


def styled_chart(
    chart: Any, rows: pd.DataFrame | None = None, *, interactive: bool = True
) -> ChartSpec:
    """An Altair chart in the site's style.

    Args:
        rows: what the picture shows.
    """
    named: dict[int, tuple[str, pd.DataFrame]] = {}  # by identity: layers share their rows

    def name(table: Any) -> dict[str, str]:
        first = f"rows-{len(named)}", table
        return {"name": named.setdefault(id(table), first)[0]}

    # Altair looks at every cell several times, to check it and to name the whole.
    alt.data_transformers.register("named", name)
    with alt.data_transformers.enable("named"):
        spec = chart.to_dict(validate=checks())
    spec.pop("$schema", None)  # an address that nothing should ask for
    spec |= {"background": None, "config": vega_config()}
    if named:
        spec["datasets"] = {each: records(table) for each, table in named.values()}
    return ChartSpec(spec, interactive, rows)


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """A mapping for each row, as JSON has it; None for what is no number."""
    text = rows.to_json(orient="records", double_precision=15)
    found: list[dict[str, Any]] = json.loads(text)
    return found


def columnar(figure: Figure) -> dict[str, Any]:
    """The specification with its rows as columns: shorter, and quick to turn back."""
    tables = figure.spec.get("datasets", {})
    columns = {
        name: {column: _once([row[column] for row in rows]) for column in rows[0]} if rows else {}
        for name, rows in tables.items()
    }
    return figure.spec | {"datasets": columns}


def _once(column: list[Any]) -> list[Any] | dict[str, list[Any]]:
    """A column as it is, or, where its texts repeat, each text once and the places of all."""
    if not all(isinstance(value, str) for value in column):
        return column
    texts = {text: index for index, text in enumerate(dict.fromkeys(column))}
    if 2 * len(texts) > len(column):
        return column
    return {"texts": [*texts], "at": [texts[text] for text in column]}


LINE = 13  # pixels between two labels
CURVE = (300, 170)  # width and height of a curve over layers
NAMED = 224  # width where names of lines stand beside it: three charts fit beside each other
LAYER_NAMES: dict[str, Any] = {"labelAngle": 0, "labelOverlap": True, "labelSeparation": 3}
UNIFORM = "uniform attention"
CHANCE = "expected overlap"
SHARE, PLAIN = "~p", "~g"  # formats: shares in per cent, as tables have them; other numbers
INKS = (BLUE, ORANGE, GREEN, PURPLE)

# Columns that readers choose from: name, what is chosen first, what there is.
FIELDS = {"view": "Keys", "state": "State", "space": "Compared with", "label": "Label"}
Choices = tuple[tuple[str, str, tuple[str, ...]], ...]


def _places(**more: Any) -> alt.Axis:
    return alt.Axis(ticks=False, domain=False, labelOverlap=True, **more)


def axis_heading(title: str) -> alt.Title:
    """What an axis of values shows, above the chart: there it has room at any height."""
    return alt.Title(title, fontSize=12, limit=0, offset=8)


def spread_values(values: Floats, gap: float, ends: tuple[float, float]) -> Floats:
    """Move values apart until neighbours are ``gap`` apart, as little as that takes.

    Neighbours that would overlap form a group around their common mean, as in isotonic
    regression.

    Args:
        ends: where no value may lie below or above, as long as there is room for all; half a
            gap above the lower one, where an axis would strike a name out.
    """
    order = np.argsort(values, kind="stable")
    groups: list[tuple[float, int]] = []  # mean of (value - place in group * gap), members
    for number, place in enumerate(order):
        mean, size = float(values[place]) - number * gap, 1
        while groups and groups[-1][0] > mean:
            other, members = groups.pop()
            mean = (mean * size + other * members) / (size + members)
            size += members
        groups.append((mean, size))
    apart = np.concatenate([np.full(size, mean) for mean, size in groups] or [np.zeros(0)])
    places = np.arange(len(values)) * gap
    found = np.empty(len(values))
    highest = ends[1] - gap * (len(values) - 1)
    lowest = min(ends[0] + gap / 2, max(highest, ends[0]))
    found[order] = np.maximum(np.minimum(apart, highest), lowest) + places
    return found


def number_tooltips(*names: str, share: bool = False) -> list[alt.Tooltip]:
    """Columns of numbers as a tooltip says them."""
    form = f".4{SHARE if share else PLAIN}"
    return [alt.Tooltip(f"{name}:Q", format=form) for name in names]


def text_tooltips(*names: str) -> list[alt.Tooltip]:
    """Other columns as a tooltip says them: ``name:type``.

    Channels, and no bare names: for each of those Altair looks through all of its classes.
    """
    return [alt.Tooltip(name) for name in names]


def choices_of(rows: pd.DataFrame, show: dict[str, str]) -> Choices:
    """What readers may choose from, by column."""
    return tuple((name, chosen, tuple(rows[name].unique())) for name, chosen in show.items())


def with_choices(chart: Any, choices: Choices, *, again: bool = False) -> Any:
    """Filter by what is shown; where there are more options, a drop-down list changes it.

    Args:
        again: the lists are made by another layer of the same chart.
    """
    for field, chosen, options in choices:
        wanted: Any = chosen
        if len(options) > 1:
            wanted = alt.param(
                name=f"{field}_shown",
                value=chosen,
                bind=alt.binding_select(
                    options=[*options],
                    labels=[option_name(field, option) for option in options],
                    name=f"{FIELDS.get(field, field)} ",
                ),
            )
            chart = chart if again else chart.add_params(wanted)
        chart = chart.transform_filter(alt.datum[field] == wanted)
    return chart
