"""Head metrics on their pages: all heads with values, labels, layers, and variants of a metric."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.analysis.arrays import Floats
from headbook.charts import Figure, Plot
from headbook.charts.axes import UNIFORM
from headbook.charts.heads import heads_plot
from headbook.charts.plots import MAX_LINKED_MARKS
from headbook.charts.theme import BELOW, STOPS, amount_class, ratio_class
from headbook.metrics.base import HeadMetric
from headbook.pages.metrics.figures import curve_plot, figure_name, heat_figure, offered_labels
from headbook.pages.parts.all_heads import MANY, MAX_LINKED
from headbook.pages.parts.baselines import baseline_title
from headbook.pages.parts.table import (
    HeatCell,
    NumberCell,
    PageTable,
    Row,
    WordsCell,
    domain,
    words_cell,
)
from headbook.report.answers.metric import label_phrase
from headbook.report.head_numbers import (
    HeadMetricNumbers,
    Place,
    cell_number,
    drawn_numbers,
)
from headbook.report.leaders import Chosen, chosen_head
from headbook.report.results import StackResults
from headbook.report.trees import TREES
from headbook.report.wording import (
    DIRECTIONS,
    FEW_WORDS,
    STACKS,
    VIEWS,
    capital,
    is_share,
    label_name,
    unbroken,
)
from headbook.results.formats import head_name
from headbook.results.sentence import head_link
from headbook.schema import HeadKey, relation_of

MAX_BY_LABEL = 24  # heads in the table of heads by label
ROOT = "../"  # path from the page of a metric to the site's root
UNKNOWN = words_cell("–")
Tables = tuple[PageTable | None, PageTable | None, PageTable | None]
NO_TABLES: Tables = (None, None, None)  # of a metric of one number a head


@dataclass(frozen=True)
class HeatMap:
    """All heads of a stack with one number each.

    Attributes:
        title: what the numbers are of.
        table: a row for each layer, a column for each head.
        id: id of its place on the page; empty without one.
    """

    title: str
    table: PageTable
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class HeadSection:
    """A head metric in one stack.

    Attributes:
        stack, title: the stack, as files and as pages call it.
        figure: heat map in files, with data of all views and offered labels.
        plot: marks of all heads by layer; None if the metric has several labels.
        labels: labels that readers may choose from, with their names and their phrases as the
            beginning of a sentence; empty for a single one.
        views: views with their names.
        choice: view and label of the map.
        highest: the head with the highest value of the label, in words.
        maps: maps of all heads: of the label that is chosen, or of each view.
        scale: ends of the scale of fills.
        ends: text of the ends of the scale.
        fills: fills of the scale from the lowest number to the highest.
        curve: the metric by layer; None without values of layers.
        layers: table of the metric by layer; None without values of layers.
        best: the head that leads for each label, with its number; None without several labels.
        few: labels with few observations, and their number; None without any.
        by_label: heads with their values of many labels; None without several labels.
        variants: heat maps of variants of the metric in files, with the ids of the variants.
    """

    stack: str
    title: str
    figure: Figure
    plot: Plot | None
    labels: tuple[tuple[str, str, str], ...]
    views: tuple[tuple[str, str], ...]
    choice: tuple[str, str]
    highest: str
    maps: tuple[HeatMap, ...]
    scale: tuple[float, float]
    ends: tuple[str, str]
    fills: tuple[str, ...]
    curve: Plot | None
    layers: PageTable | None
    best: PageTable | None
    few: PageTable | None
    by_label: PageTable | None
    variants: tuple[tuple[str, Figure], ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the figures that are files."""
        return tuple(each.name for each in (self.figure, self.plot, self.curve) if each)


def head_section(
    results: StackResults, metric: HeadMetric, variants: Sequence[HeadMetric]
) -> HeadSection | None:
    """Return a metric with its variants in one stack; None if it has no numbers there."""
    numbers = drawn_numbers(results, metric)
    if numbers is None:
        return None
    _, metric, view, label = numbers
    labels = offered_labels(numbers)
    several = len(results.drawable(metric)) > 1
    views = [each for each in metric.views if numbers._replace(view=each).known]
    beside = [drawn for v in variants if (drawn := drawn_numbers(results, v)) is not None]
    scale = _Scale(numbers, labels)
    maps = [_map(numbers, scale.fill)]
    if not several and numbers.n_heads <= MAX_LINKED:
        maps += [_map(numbers._replace(view=each), scale.fill) for each in views if each != view]
        maps += [_variant_map(each) for each in beside]
    best, few, by_label = _label_tables(numbers, scale, beside) if several else NO_TABLES
    return HeadSection(
        stack=results.stack.name,
        title=capital(STACKS[results.stack.name]),
        figure=heat_figure(numbers),
        plot=None if several else _plot(numbers),
        labels=tuple(_named(metric, each) for each in labels) if several else (),
        views=tuple((str(v), VIEWS[v]) for v in views),
        choice=(str(view), label),
        highest=f"{_named(metric, label)[2]}: {_highest(numbers)}" if several else "",
        maps=tuple(maps),
        scale=(scale.low, scale.high),
        ends=scale.texts,
        fills=scale.fills,
        curve=curve_plot(numbers, ROOT) if metric.has_layer_value else None,
        layers=_layers(numbers, beside) if metric.has_layer_value else None,
        best=best,
        few=few,
        by_label=by_label,
        variants=tuple((each.metric.id, heat_figure(each)) for each in beside),
    )


def _named(metric: HeadMetric, label: str) -> tuple[str, str, str]:
    """Return a label with its name and its phrase, which begins a sentence."""
    return label, label_name(label), capital(label_phrase(label, metric.id))


class _Scale:
    """The scale of fills of a metric in a stack: one for all views and labels.

    Args:
        numbers: numbers of the metric.
        labels: labels whose numbers the scale holds.
    """

    def __init__(self, numbers: HeadMetricNumbers, labels: Sequence[str]) -> None:
        values = [
            numbers._replace(view=view, label=label).heads.value.ravel()
            for view in numbers.metric.views
            for label in labels
        ]
        self.low, self.high = domain(np.concatenate(values), numbers.metric.limits)
        self.share = numbers.share

    def fill(self, value: float) -> str:
        """Return the class of a number's fill: blue, or grey below 0."""
        if self.low >= 0:
            return amount_class(value, self.low, self.high)
        if value >= 0 or math.isnan(value):
            return amount_class(value, 0.0, self.high)
        return f"z{min(1 + int(len(BELOW) * value / self.low), len(BELOW))}"

    @property
    def fills(self) -> tuple[str, ...]:
        """Fills from the lowest number to the highest."""
        below = [f"z{n}" for n in range(len(BELOW), 0, -1)] if self.low < 0 else []
        return (*below, *(f"q{n}" for n in range(len(STOPS))))

    @property
    def texts(self) -> tuple[str, str]:
        """Ends of the scale as text."""
        low, high = (cell_number(end, share=self.share) for end in (self.low, self.high))
        return low, f"{high}\u202f%" if self.share else high


def _map(numbers: HeadMetricNumbers, fill: Callable[[float], str]) -> HeatMap:
    """Return the map of all heads; of a label with a frame around the highest value."""
    stack = numbers.results.stack
    best = numbers.best() if numbers.label else None
    rows = []
    for layer in stack.attention_layers:
        cells = []
        for place in ((layer, head) for head in range(stack.n_heads)):
            style = fill(float(numbers.heads.value[place])) + (" top1" if place == best else "")
            cells.append(_cell(numbers, place, style))
        rows.append(Row(f"layer {layer}", tuple(cells)))
    style = "heat all-heads" + (" small" if stack.n_heads >= MANY else "")
    titles = ("layer", *(f"H{head}" for head in range(stack.n_heads)))
    return HeatMap(capital(VIEWS[numbers.view]), PageTable(titles, tuple(rows), style=style))


def _cell(numbers: HeadMetricNumbers, place: Place, fill: str) -> HeatCell:
    """Return a number of a head on a fill; of very many heads without its interval and row."""
    value = numbers.at(place).value
    text = cell_number(value, share=numbers.share)
    if numbers.n_heads > MAX_LINKED or math.isnan(value):
        return HeatCell(text, fill)
    linked = numbers.head_number(place, text)
    if numbers.n_heads > MAX_LINKED_MARKS:
        return HeatCell(text, fill, linked)
    words = f"{head_name(numbers.name(place))}: {numbers.printed(value)}"
    return HeatCell(text, fill, linked, f"{words} {numbers.interval(place)}".strip())


def _variant_map(numbers: HeadMetricNumbers) -> HeatMap:
    """Return the map of a variant of a metric, in the view that pages show first."""
    heat = _map(numbers, ratio_class if _is_ratio(numbers.metric) else _Scale(numbers, [""]).fill)
    title = f"{numbers.metric.title}, {VIEWS[numbers.view]}"
    return HeatMap(title, heat.table, numbers.metric.id)


def _is_ratio(metric: HeadMetric) -> bool:
    """Whether a number is a multiple of its value under uniform attention."""
    return not metric.unit and not is_share(metric) and metric.limits[0] == 0


def _plot(numbers: HeadMetricNumbers) -> Plot:
    """Return the marks of all heads by layer."""
    metric, values = numbers.metric, numbers.heads.value
    means = numbers.layers.value if metric.has_layer_value else np.full(len(values), np.nan)
    uniform = numbers.uniform.value
    parts = [f"{metric.title} of every head, {VIEWS[numbers.view]}: in each layer lowest first."]
    if not np.isnan(means).all():
        parts.append("Line: all heads of the layer together.")
    if not np.isnan(uniform).all():
        parts.append("Dashed: uniform attention.")

    def address(layer: int, head: int) -> str:
        return numbers.head_number((layer, head), "").href

    return heads_plot(
        figure_name(numbers, "-heads"),
        " ".join(parts),
        values,
        layers=numbers.results.stack.attention_layers,
        means=means,
        uniform=uniform,
        written=partial(cell_number, share=False),
        unit="%" if numbers.share else metric.unit,
        factor=100.0 if numbers.share else 1.0,
        least=0.0 if metric.limits[0] >= 0 else math.nan,
        href=address if numbers.n_heads <= MAX_LINKED_MARKS else None,
        root=ROOT,
    )


def _highest(numbers: HeadMetricNumbers) -> str:
    """Return the head of the highest value for a label, beside uniform attention."""
    place = numbers.best()
    even = float(numbers.uniform.value[place[0]])
    beside = "" if math.isnan(even) else f"; {UNIFORM} {numbers.printed(even)}"
    name = head_name(numbers.name(place))
    most = "lowest" if numbers.lowest else "most"
    return f"{most} in {name}{numbers.note}, {numbers.printed(numbers.at(place).value)}{beside}"


def _layers(numbers: HeadMetricNumbers, variants: Sequence[HeadMetricNumbers]) -> PageTable:
    """Return a metric by layer: every view, uniform attention, baselines, and variants."""
    results, metric, view, label = numbers
    views = [numbers._replace(view=each) for each in metric.views]
    columns: list[tuple[str, Estimates, HeadMetricNumbers | None]] = [
        (VIEWS[each.view], each.layers, each) for each in views if each.known
    ]
    columns.append((UNIFORM, numbers.uniform, None))
    for baseline in results.baselines:
        band = results.baseline_band(baseline, metric.id, view, label)
        columns.append((baseline_title(results, baseline), band, None))
    if not label:
        by_layer = [each for each in variants if each.metric.has_layer_value]
        columns += [(each.metric.title.lower(), each.layers, each) for each in by_layer]
    columns = [each for each in columns if not np.isnan(each[1].value).all()]
    rows = []
    for layer in results.stack.attention_layers:
        cells = []
        for _, estimates, of in columns:
            cell = NumberCell.of(estimates.at(layer), of.metric if of else metric)
            cells.append(cell.with_row("layers", of.layer_row(layer)) if of else cell)
        rows.append(Row(f"layer {layer}", tuple(cells)))
    return PageTable(("layer", *(title for title, *_ in columns)), tuple(rows))


def _label_tables(
    numbers: HeadMetricNumbers, scale: _Scale, variants: Sequence[HeadMetricNumbers]
) -> Tables:
    """Return the tables of a metric of several labels: best heads, few observations, by label."""
    tree = TREES.get(numbers.metric.id)
    alike = tree.same_for_all_heads if tree else numbers.metric.of_no_head
    labels = [x for x in numbers.results.drawable(numbers.metric) if x not in alike]
    known = [one for x in labels if (one := numbers._replace(label=x)).known]
    best = [(one, chosen) for one in known if (chosen := _chosen(one)) is not None]
    best.sort(key=lambda found: -found[1].value.value)
    often = {one.label for one, _ in best}
    seen = [(one.label, float(one.heads.events.max())) for one in known]
    seldom = sorted(((x, n) for x, n in seen if x not in often), key=lambda found: -found[1])
    offered = {*offered_labels(numbers)}
    drawn = [one for one in known if one.label in offered and dict(seen)[one.label] >= FEW_WORDS]
    drawn.sort(key=lambda one: -float(np.nanmax(one.heads.value)))
    few = [Row(_label_title(numbers, label), (f"{n:,.0f}",)) for label, n in seldom]
    return (
        _best_table(best, [v.metric for v in variants]) if best else None,
        PageTable(("label", "observations"), tuple(few)) if few else None,
        _by_label(drawn, scale) if len(drawn) > 1 else None,
    )


def _label_title(numbers: HeadMetricNumbers, label: str) -> str:
    """Return a label as the beginning of a row."""
    return unbroken(capital(label_phrase(label, numbers.metric.id)))


def _chosen(numbers: HeadMetricNumbers) -> Chosen | None:
    """Return the head that leads; None with few observations on one half of the sentences."""
    results, metric, view, label = numbers
    chosen = chosen_head(results, HeadKey(metric.id, view, label), lowest=numbers.lowest)
    if chosen is None or chosen.held_out.events < FEW_WORDS or math.isnan(chosen.held_out.value):
        return None
    return chosen


def _best_table(
    labels: Sequence[tuple[HeadMetricNumbers, Chosen]], variants: Sequence[HeadMetric]
) -> PageTable:
    """Return the chosen head of each label with its number, beside uniform attention."""
    rows = []
    for one, chosen in labels:
        metric, label = one.metric, one.label
        linked = one.head_number(chosen.place, NumberCell.of(chosen.value, metric).text)
        cells = (
            f"{chosen.value.events:,.0f}",
            words_cell(head_link(chosen.head), chosen.note),
            NumberCell.of(chosen.value, metric).with_row(linked.table, linked.row),
            NumberCell.of(chosen.uniform, metric).text,
            *(_variant_cell(one, variant, chosen.place) for variant in variants),
        )
        rows.append(Row(_label_title(one, label), cells))
    others = (v.title.lower() for v in variants)
    titles = ("label", "observations", "head", "value", UNIFORM, *others)
    return PageTable(titles, tuple(rows))


def _variant_cell(
    numbers: HeadMetricNumbers, variant: HeadMetric, place: Place
) -> WordsCell | HeatCell:
    """Return the number of a variant for a label of the metric and its best head."""
    results, label = numbers.results, numbers.label
    if label not in results.labels(variant.id):
        return UNKNOWN
    other = HeadMetricNumbers(results, variant, results.view(variant, label), label)
    if not other.known or math.isnan(other.at(place).value):
        return UNKNOWN
    estimate = other.at(place)
    linked = other.head_number(place, NumberCell.of(estimate, variant).text)
    if _is_ratio(variant):
        return HeatCell(linked.text, ratio_class(estimate.value), linked)
    return words_cell(linked, style="number")


def _by_label(labels: Sequence[HeadMetricNumbers], scale: _Scale) -> PageTable:
    """Return the heads of the highest values of any label, with their values of each label."""
    labels = sorted(labels, key=lambda one: relation_of(one.label)[1] == "to_dependent")
    values: Floats = np.stack([one.heads.value for one in labels])
    best = {one.label: one.best() for one in labels}
    largest = np.where(np.isnan(values), -np.inf, values).max(0)
    known = np.argwhere(np.isfinite(largest))
    order = known[np.argsort(-largest[tuple(known.T)], kind="stable")][:MAX_BY_LABEL]
    rows = []
    for place in ((int(layer), int(head)) for layer, head in order):
        cells = []
        for one in labels:
            fill = scale.fill(float(one.heads.value[place]))
            fill += " top1" if best[one.label] == place else ""
            cells.append(_cell(one, place, fill))
        rows.append(Row(labels[0].link(place), tuple(cells)))
    ends = [relation_of(one.label) for one in labels]
    if all(relation and direction in DIRECTIONS for relation, direction in ends):
        sides = Counter(direction for _, direction in ends)
        groups = tuple((DIRECTIONS[side], amount) for side, amount in sides.items())
        titles = ("head", *(relation for relation, _ in ends))
        return PageTable(titles, tuple(rows), style="heat by-label", groups=groups)
    titles = ("head", *(unbroken(label_name(one.label)) for one in labels))
    return PageTable(titles, tuple(rows), style="heat by-label")
