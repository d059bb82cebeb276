"""A metric in two models: one page, for metrics of heads and of the tokens of layers alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.paired import MedianEstimate
from headbook.charts import Figure
from headbook.charts.comparison import depth_curves, difference_curve, paired_curves
from headbook.comparison.differences import ComparedColumn, LayerDifferences, ModelDifferences
from headbook.comparison.study_pair import same_vocabulary
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerwiseMetric
from headbook.pages.comparison.metricpair_heads import (
    CUT,
    OF_LAYERS,
    ComparedMetric,
    choice_words,
    compared_metric,
    depth,
    depth_choices,
    depth_figure,
    pair_choices,
    pair_figures,
)
from headbook.pages.comparison.parts import StackComparison
from headbook.pages.parts.blocks import (
    STYLES,
    Block,
    Cell,
    Charts,
    Details,
    Page,
    Table,
    Text,
    Title,
    blocks,
)
from headbook.pages.parts.table import layer_frame
from headbook.report.wording import (
    ROUNDING_NOTE,
    SPACES,
    STATES,
    TOKEN_CLASSES,
    capital,
    count_text,
    counted_if,
    floor_text,
    signed_points,
)
from headbook.results.formats import number, p_text
from headbook.results.number import PLAIN, SHARE, Number, RowAddress, difference
from headbook.results.sentence import Link, Marked, Sentence, say
from headbook.schema import COMPARED_CLASSES, HeadName, ResidualPoint, TokenKey
from headbook.study.ablation_tables import EFFECT

MOST_HEADS = 150  # of a table; the files have them all
VOCABULARIES = "The vocabularies differ, and with them ranks and what chance gives."
Place = tuple[int, ...]  # layer and head, or a layer


class MetricPair(NamedTuple):
    """A metric in two models.

    Attributes:
        metric: what is compared.
        page: its page.
        short: the difference in the first kind of attention, in few words; empty if unknown.
        depths: charts over relative depth, where heads do not correspond.
    """

    metric: ComparedMetric
    page: Page
    short: str
    depths: tuple[Figure, ...]


@dataclass(frozen=True)
class Compared:
    """The numbers of a metric in one kind of attention of two models, by head or by layer.

    Attributes:
        stack: the kind of attention.
        differences: all differences in it, of heads or of layers.
        metric: the metric.
        columns: views and labels that both models have numbers for; the first is shown first.
    """

    stack: StackComparison
    differences: ModelDifferences
    metric: ComparedMetric
    columns: tuple[ComparedColumn, ...]

    @property
    def what(self) -> str:
        """The kind of places that have a number: a head or a layer."""
        return "layer" if isinstance(self.differences, LayerDifferences) else "head"

    @property
    def leading(self) -> ComparedColumn:
        """The number that is shown first."""
        return self.columns[0]

    def at(self, column: ComparedColumn) -> int:
        """Return the index of a number among all differences."""
        return self.differences.columns.index(column)

    def supported(self, column: ComparedColumn) -> np.ndarray:
        """Return which differences are supported. *Shape:* ``(layer, head)`` or ``(layer,)``."""
        supported: np.ndarray = self.differences.supported[..., self.at(column)]
        return supported

    def values(self, column: ComparedColumn) -> np.ndarray:
        """Return the differences. *Shape:* ``(layer, head)`` or ``(layer,)``."""
        values: np.ndarray = self.differences.value[..., self.at(column)]
        return values

    def largest(self, column: ComparedColumn) -> list[Place]:
        """Return the places of all differences, the largest first; supported ones before others."""
        values, sure = self.values(column), self.supported(column)
        places = [tuple(map(int, place)) for place in np.argwhere(~np.isnan(values))]
        return sorted(places, key=lambda place: (not sure[place], -abs(values[place])))

    def subject(self, place: Place) -> HeadName | str:
        """Return the head, or the layer in words."""
        if self.what == "layer":
            return f"layer {place[0]}"
        return HeadName(self.stack.pair.a.name, *place)

    def numbers(self, column: ComparedColumn, place: Place) -> tuple[Number, Number, Number]:
        """Return the number in both models, and its difference."""
        differences, unit = self.differences, SHARE if self.metric.share else PLAIN
        layer, head = place[0], place[1] if place[1:] else ""
        row = RowAddress("differences", (
            ("stack", self.stack.stack), ("layer", layer), ("head", head),
            ("metric", column.metric), ("view", column.view), ("label", column.label),
        ))  # fmt: skip
        at = (*place, self.at(column))
        sentences = int(differences.sentences[at])
        value, low, high = (
            float(part[at]) for part in (differences.value, differences.low, differences.high)
        )
        a, b = (
            Number(float(side[at]), unit, row, sentences=sentences)
            for side in (differences.a, differences.b)
        )
        gap = difference(value, low, high, row, share=self.metric.share, sentences=sentences)
        return a, b, gap

    def cells(self, column: ComparedColumn, place: Place) -> tuple[Cell, ...]:
        """Return both numbers, their difference and its q."""
        q = float(self.differences.q[(*place, self.at(column))])
        return (*self.numbers(column, place), p_text(q))

    def amount(self, column: ComparedColumn) -> int:
        """Return how many differences are supported."""
        return int(self.supported(column).sum())

    @property
    def differs(self) -> bool:
        """Whether anything differs at all under any label."""
        of_metric = [
            n for n, c in enumerate(self.differences.columns) if c.metric == self.metric.id
        ]
        return bool(np.nan_to_num(self.differences.value[..., of_metric]).any())

    @property
    def summary(self) -> Sentence:
        """In how many heads or layers the number that is shown first differs, and where most."""
        column, several = self.leading, len(self.columns) > 1
        total = count_text(int((~np.isnan(self.values(column))).sum()), self.what)
        floor = float(self.differences.floors[self.at(column)])
        of_label = f" ({self.words})" if several and self.words else ""
        if not np.nan_to_num(self.values(column)).any():
            text = "Both models are exactly equal in all {total}{of_label}."
            return say(text, total=total, of_label=of_label)
        if not self.amount(column):
            return say(
                "No clear difference in any of {total}{of_label}{floor}{ends}.",
                total=total, of_label=of_label, ends=self._possible(column),
                floor="" if np.isnan(floor) else f" ({floor_text(floor, share=self.metric.share)})",
            )  # fmt: skip
        place = self.largest(column)[0]
        a, b, gap = self.numbers(column, place)
        return say(
            "Of {total}, {n} differ{of_label} ({rule}); largest supported difference in {where}: "
            "{a} in {name}, {b} in {other}, {gap:interval}.",
            total=total, n=self.amount(column), of_label=of_label,
            rule=counted_if(floor, share=self.metric.share), where=self.subject(place),
            a=a, name=self.stack.names[0], b=b, other=self.stack.names[1], gap=gap,
        )  # fmt: skip

    def _possible(self, column: ComparedColumn) -> str:
        """Return how large differences may be by their intervals; empty without an interval."""
        low, high = (
            part[..., self.at(column)] for part in (self.differences.low, self.differences.high)
        )
        if np.isnan(low).all():
            return ""
        reach = float(np.nanmax(np.fmax(np.abs(low), np.abs(high))))
        size = signed_points(reach) if self.metric.share else number(reach)
        unit = " points" if self.metric.share else ""
        return f"; intervals reach {size.removeprefix('+')}{unit} from 0"

    @property
    def short(self) -> str:
        """The number of heads or layers that differ in any view or label, in few words."""
        at = [self.at(column) for column in self.columns]
        if not np.nan_to_num(self.differences.value[..., at]).any():
            return "exactly equal"
        amount = int(self.differences.supported[..., at].any(-1).sum())
        total = int((~np.isnan(self.differences.value[..., at])).any(-1).sum())
        several = [
            name
            for name in ("view", "label")
            if len({getattr(column, name) for column in self.columns}) > 1
        ]
        notes = [
            *([f"in any {' or '.join(several)}"] if several else []),
            *([ROUNDING_NOTE] if amount and np.isnan(self.differences.floors[at]).all() else []),
        ]
        note = f" ({'; '.join(notes)})" if notes else ""
        return f"{amount:,} of {total:,} {self.what}s differ{note}"

    @property
    def words(self) -> str:
        """The number that charts and table show, in words."""
        return self.name(self.leading)

    def name(self, column: ComparedColumn) -> str:
        """Return view and label of a number in words."""
        if self.what == "layer":
            return token_words(column.label)
        return choice_words(self.metric, column.view, column.label)


def metric_pairs(stacks: Sequence[StackComparison]) -> Iterator[MetricPair]:
    """Yield each metric that both models have, with its page."""
    for name in (*all_metrics(), EFFECT):
        metric = compared_metric(name)
        if metric is None:
            continue
        heads = [compared for stack in stacks if (compared := _of_heads(stack, metric))]
        layers = [compared for stack in stacks if (compared := _of_layers(stack, metric))]
        apart = [stack for stack in stacks if stack.differences is None]
        depths = {
            stack.title: of_stack for stack in apart if (of_stack := _depth_blocks(stack, metric))
        }
        if heads or layers or depths:
            yield _pair(metric, [*heads, *layers], depths)


def _pair(
    metric: ComparedMetric,
    compared: Sequence[Compared],
    depths: dict[str, tuple[Block, ...]],
) -> MetricPair:
    """Return the page of a metric: where models correspond, and over relative depth elsewhere."""
    of_page: list[Block] = []
    for of_cells in compared:
        of_page += [Title(capital(of_cells.stack.title), 2), *_blocks(of_cells)]
    for title, of_stack in depths.items():
        of_page += [Title(capital(title), 2), *of_stack]
    page = Page(
        path=metric.path,
        title=metric.title,
        topic=say("{all}", all=Link("all metrics", "index.html#metrics")),
        description=metric.about,
        answer=metric.about,
        blocks=tuple(of_page),
        measured=(_source(metric),),
        styles=tuple(name for name in STYLES if name != "maps"),  # there are no maps of one model
    )
    figures = [f for of_stack in depths.values() for b in of_stack if isinstance(b, Charts)
               for f in b.figures]  # fmt: skip
    return MetricPair(metric, page, compared[0].short if compared else "", tuple(figures))


def _source(metric: ComparedMetric) -> Text:
    return Text(say(
        "{section} · {id} · all numbers are in {files}",
        section=metric.section, id=Marked(metric.id, "code"), files=Link("the files", "data.html"),
    ))  # fmt: skip


def _blocks(compared: Compared) -> tuple[Block, ...]:
    """Return the differences of a metric: figures, largest difference by label, all places."""
    names = compared.stack.names
    about = say(
        "Shown: {words}. Differences are {second} minus {first}, paired by sentence, with 95 % "
        "intervals; {how}.",
        words=compared.words or compared.metric.title, second=names[1], first=names[0],
        how=Link("how they are made", "comparing.html"),
    )  # fmt: skip
    if compared.what == "head":
        figures = pair_figures(
            compared.stack, compared.metric, compared.leading.view, compared.leading.label
        )
    else:
        figures = _layer_figures(compared)
    table = _places(compared)
    many = len(table.rows) > len(compared.differences.value)
    title = f"The {len(table.rows)} largest differences, by size"
    labels = {column.label for column in compared.columns}
    return blocks(
        Text(compared.summary, "evidence"),
        Text(about, "hint"),
        Charts(figures),
        [Title("Labels"), _by_label(compared)] if len(labels) > 1 and compared.differs else None,
        Title(capital(f"{compared.what}s")),
        Details(title, (table,), "differences.csv") if many else table,
    )


def _by_label(compared: Compared) -> Table:
    """Return how many heads or layers differ for each number, and the largest difference."""
    same_view = [c for c in compared.columns if c.view == compared.leading.view]
    known = [(column, places) for column in same_view if (places := compared.largest(column))]
    rows = tuple(
        (compared.metric.label(column.label) if compared.what == "head" else compared.name(column),
         compared.amount(column), compared.subject(places[0]), *compared.cells(column, places[0]))
        for column, places in known
    )  # fmt: skip
    grey = frozenset(n for n, (column, _) in enumerate(known) if not compared.amount(column))
    columns = (
        "Label",
        f"{compared.what}s that differ",
        "most",
        *compared.stack.names,
        "difference",
        "q",
    )
    caption = "The largest supported difference of each label, else the largest, grey."
    return Table(columns, rows, caption, grey=grey)


def _places(compared: Compared) -> Table:
    """Return the difference of every head, the largest first, or of every layer in order."""
    places = compared.largest(compared.leading)
    values = compared.values(compared.leading)
    places.sort(key=lambda place: place if compared.what == "layer" else -abs(values[place]))
    places = places[:MOST_HEADS]
    sure = compared.supported(compared.leading)
    rows = tuple(
        (compared.subject(place), *compared.cells(compared.leading, place)) for place in places
    )
    grey = frozenset(n for n, place in enumerate(places) if not sure[place])
    columns = (capital(compared.what), *compared.stack.names, "difference", "q")
    return Table(columns, rows, grey=grey, label=capital(f"{compared.what}s"))


def _of_heads(stack: StackComparison, metric: ComparedMetric) -> Compared | None:
    """Return the differences of heads; None where heads do not correspond."""
    choices = pair_choices(stack, metric)
    if stack.differences is None or not choices:
        return None
    columns = (ComparedColumn(metric.id, view, label) for view, label in choices)
    return Compared(stack, stack.differences, metric, tuple(columns))


def _of_layers(stack: StackComparison, metric: ComparedMetric) -> Compared | None:
    """Return the differences of the tokens of layers; None without any."""
    known, differences = all_metrics().get(metric.id), stack.layers
    if differences is None or not isinstance(known, LayerwiseMetric):
        return None
    keys = sorted(token_keys(known), key=_is_later)
    columns = [ComparedColumn(key.metric, "", key.words) for key in keys]
    shared = [
        column
        for column in columns
        if column in differences.columns
        and not np.isnan(differences.value[:, differences.columns.index(column)]).all()
    ]
    return Compared(stack, differences, metric, tuple(shared)) if shared else None


def token_keys(metric: LayerwiseMetric) -> Iterator[TokenKey]:
    """Yield everything by which a metric of tokens is compared."""
    for state in metric.states:
        for space in metric.spaces or (None,):
            for label in COMPARED_CLASSES:
                yield TokenKey(metric.id, state, space, label)


def _is_later(key: TokenKey) -> tuple[bool, bool]:
    """Return the order of numbers of tokens: first after the layer, of all tokens."""
    return key.state is not ResidualPoint.POST, key.label != COMPARED_CLASSES[0]


def token_words(label: str) -> str:
    """Return state, space and class of a number of tokens in words."""
    state, *space, tokens = label.split("/")
    beside = [f"compared with {SPACES[known]}" for known in SPACES if [str(known)] == space]
    return ", ".join((STATES[ResidualPoint(state)], *beside, TOKEN_CLASSES[tokens]))


def _choice(label: str) -> dict[str, str]:
    """Return state, space and class of a number of tokens as columns of a chart."""
    state, *space, tokens = label.split("/")
    return {"state": state, "space": "".join(space), "label": TOKEN_CLASSES[tokens]}


def _layer_figures(compared: Compared) -> tuple[Figure, ...]:
    """Return both models over layers, and the difference."""
    metric, names = compared.metric, compared.stack.names
    name = f"{metric.id}-{compared.stack.stack}"
    about = f"{metric.title}, {compared.words}"
    rule = counted_if(
        float(compared.differences.floors[compared.at(compared.leading)]), share=metric.share
    )
    return (
        paired_curves(
            f"{name}-layers",
            f"{about}, mean over tokens by layer. Bands: 95 % intervals of each model, sentences "
            "as clusters.",
            pd.concat([*_layer_curves(compared)], ignore_index=True),
            title=metric.unit_title,
        ),
        difference_curve(
            f"{name}-difference",
            f"{about}: {names[1]} minus {names[0]}. Band: 95 % interval, paired by sentence. "
            f"Filled: {rule} (family: all layers and labels); hollow: no clear difference.",
            _differences(compared),
            title=f"difference in {metric.unit_title}",
        ),
    )


def _layer_curves(compared: Compared) -> Iterator[pd.DataFrame]:
    """Yield each model's own numbers."""
    known = all_metrics()[compared.metric.id]
    assert isinstance(known, LayerwiseMetric)
    (key,) = (key for key in token_keys(known) if key.words == compared.leading.label)
    for name, results in zip(
        compared.stack.names, (compared.stack.a, compared.stack.b), strict=True
    ):
        numbers = results.tokens(*key)
        if numbers is not None:
            yield layer_frame(numbers, name).assign(**_choice(key.words))


def _differences(compared: Compared) -> pd.DataFrame:
    parts = ("value", "low", "high", "q", "supported")
    columns = {
        part: getattr(compared.differences, part)[:, compared.at(compared.leading)]
        for part in parts
    }
    frame = pd.DataFrame({"layer": range(len(columns["value"]))} | columns)
    return frame.assign(**_choice(compared.leading.label))


def _depth_blocks(stack: StackComparison, metric: ComparedMetric) -> tuple[Block, ...]:
    """Return both models over relative depth; nothing where one of them has no numbers."""
    choices = depth_choices(stack, metric)
    if choices:
        view, label = choices[0]
        labels = [x for v, x in choices if v == view]
        words = choice_words(metric, view, label)
        named = {metric.label(x) or metric.title: ComparedColumn(metric.id, view, x)
                 for x in labels}  # fmt: skip
        figure, cells = depth_figure(stack, metric, view, label), "heads"
        note = CUT if stack.pair.a.causal != stack.pair.b.causal else ""
    elif keys := _keys_of_both(stack, metric):
        words, cells = token_words(keys[0].words), "layers"
        named = {token_words(k.words): ComparedColumn(k.metric, "", k.words) for k in keys}
        figure, note = _token_depths(stack, metric, keys[0]), _vocabulary_note(stack, metric)
    else:
        return ()
    about = (
        f"Shown: {words}. Relative depth is (layer + ½) / number of layers. {capital(cells)} of "
        f"these models do not correspond by number, so none is set against another here. {note}"
    )
    table = _medians(stack, metric, named, cells)
    return blocks(Text(about, "hint"), Charts((figure,)), table)


def _keys_of_both(stack: StackComparison, metric: ComparedMetric) -> list[TokenKey]:
    """Return the numbers of tokens that both models have, the one that is shown first."""
    known = all_metrics().get(metric.id)
    if not isinstance(known, LayerwiseMetric):
        return []
    keys = (key for key in token_keys(known)
            if all(results.tokens(*key) is not None for results in (stack.a, stack.b)))  # fmt: skip
    return sorted(keys, key=_is_later)


def _vocabulary_note(stack: StackComparison, metric: ComparedMetric) -> str:
    known = all_metrics()[metric.id]
    models = (results.study.manifest.model for results in (stack.a, stack.b))
    spaces = isinstance(known, LayerwiseMetric) and known.spaces
    return VOCABULARIES if spaces and not same_vocabulary(*models) else ""


def _token_depths(stack: StackComparison, metric: ComparedMetric, key: TokenKey) -> Figure:
    """Return the chart of both models over relative depth, for a metric of tokens."""
    frames = []
    for name, results in zip(stack.names, (stack.a, stack.b), strict=True):
        numbers = results.tokens(*key)
        assert numbers is not None
        known = np.flatnonzero(~np.isnan(numbers.value))
        frame = pd.DataFrame({
            "depth": [depth(results.stack, layer) for layer in known.tolist()],
            **{part: getattr(numbers, part)[known] for part in ("value", "low", "high")},
        })  # fmt: skip
        frames.append(frame.assign(series=name, kind=OF_LAYERS, **_choice(key.words)))
    return depth_curves(
        f"{metric.id}-{stack.stack}-depth",
        f"{metric.title}, {token_words(key.words)}, over relative depth: mean over tokens; "
        "bands: 95 % intervals, sentences as clusters.",
        pd.concat(frames, ignore_index=True),
        title=metric.unit_title,
    )


def _medians(
    stack: StackComparison, metric: ComparedMetric, named: dict[str, ComparedColumn], cells: str
) -> Table | None:
    """Return medians of both models with their difference, those that there are.

    Args:
        named: numbers by what rows are called.
        cells: heads or layers.
    """
    unit = SHARE if metric.share else PLAIN
    sentences = stack.a.study.manifest.counts["sentences"]

    def median(compared: MedianEstimate, row: RowAddress) -> Number:
        return Number(compared.value, unit, row, compared.low, compared.high, sentences)

    rows = []
    for title, column in named.items():
        medians = stack.medians.get(column)
        if medians is None or np.isnan(medians.difference.value):
            continue
        row = RowAddress("medians", (
            ("stack", stack.stack), ("metric", column.metric), ("view", column.view),
            ("label", column.label),
        ))  # fmt: skip
        gap = difference(*medians.difference, row, share=metric.share, sentences=sentences)
        rows.append((title, median(medians.a, row), median(medians.b, row), gap))
    caption = (
        f"Median over all {cells} of each model, with 95 % intervals for other sentences; that of "
        f"the difference is paired by sentence. {capital(cells)} of one model are no sample."
    )
    columns = (f"Median of {cells}", *stack.names, "difference")
    return Table(columns, tuple(rows), caption) if rows else None
