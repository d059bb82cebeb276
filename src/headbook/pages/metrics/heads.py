"""Head metrics on their pages: all heads with values, labels, layers, and variants of a metric."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from headbook.charts import Plot
from headbook.charts.axes import UNIFORM
from headbook.charts.heads import heads_plot
from headbook.charts.theme import BELOW, STOPS, amount_class, fills_between, ratio_class
from headbook.metrics.base import HeadMetric, Notable
from headbook.pages.metrics.figures import (
    choice_name,
    curve_plot,
    figure_name,
    heat_figure,
    offered_labels,
)
from headbook.pages.parts.all_heads import MAX_LINKED, heads_table
from headbook.pages.parts.blocks import (
    Block,
    Caption,
    Cell,
    Choices,
    Columns,
    Details,
    Group,
    Heat,
    Lead,
    Option,
    Steps,
    Table,
    Text,
    Words,
    blocks,
    row,
)
from headbook.pages.parts.table import domain
from headbook.report.facts.depth import by_depth
from headbook.report.facts.metrics import label_phrase, range_over_heads
from headbook.report.head_numbers import HeadMetricNumbers, drawn_numbers
from headbook.report.leaders import Chosen, chosen_head
from headbook.report.trees import TREES
from headbook.report.wording import DIRECTIONS, FEW_WORDS, VIEWS, capital, label_name
from headbook.results.formats import MISSING
from headbook.results.number import SHARE, Number, unit_of
from headbook.results.sentence import Sentence, say
from headbook.schema import HeadName, Place, SinkView, relation_of

MAX_BY_LABEL = 24  # heads in the table of heads by label
Ends = tuple[float, float]  # of a scale of fills
Best = tuple[HeadMetricNumbers, Chosen]  # a label and the head that leads it
CHOICE = (
    "with those that a test paired by sentence does not tell from it; at least "
    f"{FEW_WORDS} observations in half of the sentences"
)
HEADS_FIRST = (
    "heads with the highest values first; framed: the one that leads; all are in the files"
)


def head_lead(numbers: HeadMetricNumbers) -> Lead:
    """Return the figure of a metric: marks of all heads, or the table of a label to choose."""
    if not has_choice(numbers):
        return Lead(_plot(numbers))
    metric, labels, views = numbers.metric, offered_labels(numbers), _views(numbers)
    ends = _scale_ends(numbers, labels)
    choices = Choices(
        title=metric.title, share=metric.is_share, low=ends[0], high=ends[1],
        labels=tuple(_option(numbers._replace(label=label)) for label in labels),
        views=tuple(Option(str(view), VIEWS[view]) for view in views),
        label=numbers.label, view=str(numbers.view),
    )  # fmt: skip
    unit = "Per cent" if metric.is_share else capital(metric.unit) or "Value"
    keys = "by the keys that are chosen" if len(views) > 1 else VIEWS[numbers.view]
    framed = " Framed: the head that leads." if _is_framed(numbers) else ""
    words = say("{phrase}: {values}", phrase=_phrase(numbers), values=range_over_heads(numbers))
    return Lead(
        blocks=(_table(numbers, ends, words), Caption((_steps(numbers, ends),))),
        caption=f"{unit} of every head, {keys}.{framed}", drawn=heat_figure(numbers),
        choices=choices,
    )  # fmt: skip


def head_closer(
    numbers: HeadMetricNumbers, variants: Sequence[HeadMetric], *, is_first: bool
) -> Iterator[Block]:
    """Yield all heads by view, tables by label, layers, and variants.

    Args:
        is_first: whether the stack is the first one, whose variants have addresses.
    """
    beside = [drawn for v in variants if (drawn := drawn_numbers(numbers.results, v)) is not None]
    if has_choice(numbers):
        yield from _label_tables(numbers, [variant.metric for variant in beside])
    else:
        yield _by_view(numbers)
    if numbers.metric.has_layer_value:
        label = label_name(numbers.label) if numbers.label else ""
        change = by_depth(numbers.results, numbers.key).text
        curve = Columns((Lead(curve_plot(numbers)), _layers(numbers, beside)))
        yield Group(
            blocks(Text(change, "evidence") if change else None, curve),
            "Layers: curve, and numbers with intervals", label, folded=not has_choice(numbers),
        )  # fmt: skip
    for variant in beside:
        content = blocks(Text(variant.metric.summary), _variant(variant))
        yield Group(content, variant.metric.title, id=variant.metric.id if is_first else "")


def has_choice(numbers: HeadMetricNumbers) -> bool:
    """Return whether a metric has several labels to choose from."""
    return len(numbers.results.drawable(numbers.metric)) > 1


def _views(numbers: HeadMetricNumbers) -> list[SinkView]:
    return [view for view in numbers.metric.views if numbers._replace(view=view).known]


def _is_framed(numbers: HeadMetricNumbers) -> bool:
    return numbers.notable is not Notable.NONE


def _option(numbers: HeadMetricNumbers) -> Option:
    """Return a label to choose, with the end of its numbers that is framed."""
    unit = numbers.unit
    return Option(
        numbers.label, choice_name(numbers.metric, numbers.label), _phrase(numbers),
        "" if unit == SHARE else unit.name.strip(),
        str(numbers.notable) if _is_framed(numbers) else "",
    )  # fmt: skip


def _phrase(numbers: HeadMetricNumbers) -> str:
    """Return a label as the beginning of a sentence."""
    return capital(label_phrase(numbers.label, numbers.metric))


def _scale_ends(numbers: HeadMetricNumbers, labels: Sequence[str]) -> Ends:
    """Return the ends of the fills of a metric: one scale for all views and labels."""
    choices = [
        numbers._replace(view=view, label=x) for view in numbers.metric.views for x in labels
    ]
    values = [of_choice.heads.value.ravel() for of_choice in choices if of_choice.known]
    return domain(np.concatenate(values), numbers.metric.limits)


def fill_of(numbers: HeadMetricNumbers, ends: Ends) -> Callable[[Number], str]:
    """Return the rule of fills: dark at the notable end, or at the upper one; grey below 0."""
    (low, high), is_low = ends, numbers.notable is Notable.LOW

    def fill(number: Number) -> str:
        value = low + high - number.value if is_low else number.value
        if low >= 0:
            return amount_class(value, low, high)
        if not value < 0:
            return amount_class(value, 0.0, high)
        return f"z{min(1 + int(len(BELOW) * value / low), len(BELOW))}"

    return fill


def _steps(numbers: HeadMetricNumbers, ends: Ends) -> Steps:
    """Return the fills from the lowest number to the highest."""
    unit = unit_of(numbers.metric)
    below = [f"z{n}" for n in range(len(BELOW), 0, -1)] if ends[0] < 0 else []
    amounts = [f"q{n}" for n in range(len(STOPS))]
    fills = (*below, *(reversed(amounts) if numbers.notable is Notable.LOW else amounts))
    return Steps(unit.without_name.text(ends[0]), fills, unit.text(ends[1]))


def _table(
    numbers: HeadMetricNumbers,
    ends: Ends,
    title: Words,
    fill: Callable[[Number], str] | None = None,
) -> Table:
    """Return all heads; of a label with a frame around the head that leads."""
    best = numbers.best() if numbers.label and _is_framed(numbers) else None
    fill = fill or fill_of(numbers, ends)
    return heads_table(
        numbers.results.stack,
        lambda head: numbers.number(head[1:]),
        lambda head, number: fill(number) + " top1" * (head[1:] == best),
        title,
    )


def _by_view(numbers: HeadMetricNumbers) -> Lead:
    """Return all heads by view, the one that pages show first in front, on one scale."""
    ends, first = _scale_ends(numbers, [numbers.label]), numbers.view
    is_small = numbers.n_heads <= MAX_LINKED  # else one table is large enough
    views = sorted(_views(numbers), key=lambda view: view != first)[: None if is_small else 1]
    tables = [
        _table(numbers._replace(view=view), ends, capital(VIEWS[view]))
        for view in views
    ]  # fmt: skip
    scale = Caption((_steps(numbers, ends), *(["One scale for all keys."] * (len(tables) > 1))))
    columns = Columns(tuple(tables), 2 if len(tables) > 1 else 1)
    return Lead(blocks=(columns, scale), drawn=heat_figure(numbers))


def _variant(numbers: HeadMetricNumbers) -> Lead:
    """Return the table of a variant of a metric, in the view that pages show first."""
    known = [number for head in _all(numbers) if (number := numbers.number(head)).known]
    low, high = min(known, key=_value), max(known, key=_value)
    ends = _scale_ends(numbers, [numbers.label])
    steps, fill = _steps(numbers, ends), fill_of(numbers, ends)
    if _is_ratio(numbers.metric):
        fill = _ratio_fill
        fills = fills_between(ratio_class(low.value), ratio_class(high.value))
        steps = Steps(low.as_text("bare"), fills, f"{high.as_text('bare')}, of uniform attention")
    label = f"{_phrase(numbers)}, " if numbers.label else ""
    table = _table(numbers, ends, capital(f"{label}{VIEWS[numbers.view]}"), fill)
    return Lead(blocks=(table, Caption((steps,))), drawn=heat_figure(numbers))


def _all(numbers: HeadMetricNumbers) -> list[Place]:
    """Return layer and number of all heads."""
    stack = numbers.results.stack
    return [(layer, head) for layer in stack.attention_layers for head in range(stack.n_heads)]


def _value(number: Number) -> float:
    return number.value


def _ratio_fill(number: Number) -> str:
    return ratio_class(number.value)


def _is_ratio(metric: HeadMetric) -> bool:
    """Whether a number is a multiple of its value under uniform attention."""
    return not metric.unit and not metric.is_share and metric.limits[0] == 0


def _plot(numbers: HeadMetricNumbers) -> Plot:
    """Return the marks of all heads by layer."""
    metric, stack = numbers.metric, numbers.results.stack
    of_layers = {
        layer: [numbers.number((layer, head)) for head in range(stack.n_heads)]
        for layer in stack.attention_layers
    }
    means = {layer: numbers.layer(layer) for layer in of_layers if metric.has_layer_value}
    uniform = {layer: numbers.uniform(layer) for layer in of_layers}
    parts = [f"{metric.title} of every head, {VIEWS[numbers.view]}. In each layer lowest first."]
    if any(number.known for number in means.values()):
        parts.append("Line: all heads of the layer together.")
    if any(number.known for number in uniform.values()):
        parts.append("Dashed: uniform attention.")
    if any(number.is_thin for of_layer in of_layers.values() for number in of_layer):
        parts.append("Hollow: too few sentences.")
    is_log = numbers.notable is Notable.LOW and metric.limits[0] > 0  # ranks
    parts += ["Logarithmic scale."] * is_log
    return heads_plot(
        figure_name(numbers, "-heads"), " ".join(parts), of_layers, means=means, uniform=uniform,
        least=0.0 if metric.limits[0] == 0 else np.nan, log=is_log,
    )  # fmt: skip


def _layers(numbers: HeadMetricNumbers, variants: Sequence[HeadMetricNumbers]) -> Table:
    """Return a metric by layer: every view, uniform attention, and variants."""
    views = [numbers._replace(view=view) for view in _views(numbers)]
    columns: list[tuple[str, Callable[[int], Number]]] = [
        (VIEWS[of_view.view], of_view.layer) for of_view in views
    ]
    columns.append((UNIFORM, numbers.uniform))
    if not numbers.label:
        by_layer = [variant for variant in variants if variant.metric.has_layer_value]
        columns += [(variant.metric.title.lower(), variant.layer) for variant in by_layer]
    layers = numbers.results.stack.attention_layers
    known = [(name, of) for name, of in columns if any(of(layer).known for layer in layers)]
    rows = tuple(row(f"layer {layer}", *(of(layer) for _, of in known)) for layer in layers)
    return Table(
        ("layer", *(name for name, _ in known)), rows, label=f"{numbers.metric.title} by layer"
    )


def _label_tables(numbers: HeadMetricNumbers, variants: Sequence[HeadMetric]) -> Iterator[Block]:
    """Yield the tables of several labels: heads that lead, few observations, heads by label."""
    tree = TREES.get(numbers.metric.id)
    alike = tree.same_for_all_heads if tree else numbers.metric.of_no_head
    labels = [x for x in numbers.results.drawable(numbers.metric) if x not in alike]
    known = [of_label for x in labels if (of_label := numbers._replace(label=x)).known]
    best = [(of_label, chosen) for of_label in known if (chosen := _chosen(of_label)) is not None]
    best.sort(key=lambda label_and_head: -label_and_head[1].value.value)
    seen = {of_label.label: int(of_label.heads.events.max()) for of_label in known}
    if _is_framed(numbers):
        yield from _leading(best, seen, numbers, variants)
    offered = {*offered_labels(numbers)}
    drawn = [x for x in known if x.label in offered and seen[x.label] >= FEW_WORDS]
    drawn.sort(key=lambda of_label: -float(np.nanmax(of_label.heads.value)))
    if len(drawn) > 1:
        yield Group((_by_label(drawn, numbers),), "Heads by label", HEADS_FIRST)


def _leading(
    best: Sequence[Best],
    seen: dict[str, int],
    numbers: HeadMetricNumbers,
    variants: Sequence[HeadMetric],
) -> Iterator[Group]:
    """Yield the heads that lead the labels, and the labels with too few observations for that."""
    often = {of_label.label for of_label, _ in best}
    few = sorted(((x, n) for x, n in seen.items() if x not in often), key=lambda pair: -pair[1])
    rows = tuple(row(_phrase(numbers._replace(label=label)), n) for label, n in few)
    rare = Table(("label", "observations"), rows, label="Labels with too few observations")
    if best:
        title = f"{len(few)} with too few observations for that"
        content = blocks(_best_table(best, variants), Details(title, (rare,)) if few else None)
        yield Group(content, "Best head for each label", CHOICE)
    elif few:
        yield Group((rare,), "Labels with too few observations to choose a head")


def _chosen(numbers: HeadMetricNumbers) -> Chosen | None:
    """Return the head that leads; None with few observations on one half of the sentences."""
    lowest = numbers.notable is Notable.LOW
    chosen = chosen_head(numbers.results, numbers.key, lowest=lowest)
    if chosen is None or chosen.held_out.events < FEW_WORDS or np.isnan(chosen.held_out.value):
        return None
    return chosen


def _best_table(best: Sequence[Best], variants: Sequence[HeadMetric]) -> Table:
    """Return the leading head of each label with its number, beside uniform attention."""
    rows = tuple(
        row(
            _phrase(numbers), int(chosen.value.events), _noted(chosen),
            numbers.number(chosen.place), numbers.uniform(chosen.place[0]),
            *(_variant_cell(numbers, variant, chosen.place) for variant in variants),
        )
        for numbers, chosen in best
    )  # fmt: skip
    others = (variant.title.lower() for variant in variants)
    titles = ("label", "observations", "head", "value", UNIFORM, *others)
    return Table(titles, rows, label="Best head for each label")


def _noted(chosen: Chosen) -> Sentence:
    return say("{head}{note}", head=chosen.head, note=chosen.note)


def _variant_cell(numbers: HeadMetricNumbers, variant: HeadMetric, place: Place) -> Cell:
    """Return the number of a variant for a label of the metric and its best head."""
    results, label = numbers.results, numbers.label
    if label not in results.labels(variant.id):
        return MISSING
    of_variant = HeadMetricNumbers(results, variant, results.view(variant, label), label)
    if not of_variant.known or not (number := of_variant.number(place)).known:
        return MISSING
    return Heat(number, ratio_class(number.value)) if _is_ratio(variant) else number.printed("")


def _by_label(labels: Sequence[HeadMetricNumbers], numbers: HeadMetricNumbers) -> Table:
    """Return the heads of the highest values of any label, with their values of each label."""
    labels = sorted(labels, key=lambda of_label: relation_of(of_label.label)[1] == "to_dependent")
    ends = _scale_ends(numbers, offered_labels(numbers))
    values = np.stack([of_label.heads.value for of_label in labels])
    largest = np.where(np.isnan(values), -np.inf, values).max(0)
    known = np.argwhere(np.isfinite(largest))
    order = known[np.argsort(-largest[tuple(known.T)], kind="stable")][:MAX_BY_LABEL]
    heads = [HeadName(numbers.results.stack.name, int(layer), int(head)) for layer, head in order]
    best = {x.label: x.best() if _is_framed(x) else None for x in labels}

    def cell(of_label: HeadMetricNumbers, head: HeadName) -> Heat:
        number = of_label.number(head[1:])
        if not number.known:
            return Heat(MISSING, "q0")
        fill = fill_of(of_label, ends)(number) + " top1" * (best[of_label.label] == head[1:])
        return Heat(number.printed("bare"), fill, number.as_text("interval"))

    rows = tuple(row(head, *(cell(of_label, head) for of_label in labels)) for head in heads)
    names = [relation_of(of_label.label) for of_label in labels]
    style, label = "heat by-label", "Heads by label"
    if all(relation and direction in DIRECTIONS for relation, direction in names):
        sides = Counter(direction for _, direction in names)
        groups = tuple((DIRECTIONS[side], amount) for side, amount in sides.items())
        titles = ("head", *(relation for relation, _ in names))
        return Table(titles, rows, style=style, groups=groups, label=label)
    titles = ("head", *(label_name(of_label.label) for of_label in labels))
    return Table(titles, rows, style=style, label=label)
