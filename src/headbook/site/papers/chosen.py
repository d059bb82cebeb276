"""Figures under another label or view than the site's, as ``headbook figures --label`` draws."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headbook.charts import Figure
from headbook.comparison.comparison import Comparison
from headbook.errors import ConfigError
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.pages.metric.sections import head_figures
from headbook.pages.metricpair.depth import depth_choices, depth_figure
from headbook.pages.metricpair.named import ComparedMetric, compared_metric
from headbook.pages.metricpair.section import pair_choices, pair_figures
from headbook.pages.parts.both import BothStacks, both_stacks
from headbook.report.numbers.results import StackResults
from headbook.report.wording import label_name
from headbook.study.importancetables import EFFECT
from headbook.terms import View

Column = tuple[str, str]  # view and label


@dataclass(frozen=True)
class Choosable:
    """A metric whose figures can be drawn under other labels or views than on the site.

    Attributes:
        metric: id of the metric.
        stack: kind of attention, or the pair of kinds of a comparison.
        columns: every view and label that have numbers, the site's choice first.
        name: returns the name of a label on pages.
        draw: draws the figures under a view and a label, in the same order for all choices.
    """

    metric: str
    stack: str
    columns: tuple[Column, ...]
    name: Callable[[str], str]
    draw: Callable[[str, str], Sequence[Figure]]

    def column(self, label: str, view: str) -> Column | None:
        """Return the view and label that are asked for, or None if they have no numbers.

        Args:
            label: as in tables, or as on pages; empty for the site's.
            view: empty for the site's, or for the first that has the label.
        """
        usual_view, usual_label = self.columns[0]
        if label and all(label != x for _, x in self.columns):
            label = next((x for _, x in self.columns if self.name(x) == label), label)
        wanted = label or usual_label
        views = [view] if view else [usual_view, *map(str, View)]
        return next(((v, wanted) for v in views if (v, wanted) in self.columns), None)


def chosen_figures(
    choosable: Sequence[Choosable], asked: Sequence[Sequence[str]], label: str, view: str
) -> list[Figure]:
    """Draw the figures that have a label and a view.

    Args:
        asked: names of figures of the site, in groups; of each group at least one must have the
            label and the view, and those that lack them are left out.

    Raises:
        ConfigError: all figures of a group lack the label or the view.
    """
    made: dict[str, Figure] = {}
    for names in asked:
        known: list[Choosable] = []
        found: dict[str, Figure] = {}
        for each in choosable:
            if not any(name.startswith(f"{each.metric}-{each.stack}") for name in names):
                continue
            usual = [figure.name for figure in each.draw(*each.columns[0])]
            places = [place for place, name in enumerate(usual) if name in names]
            column = each.column(label, view)
            known += [each] if places else []
            if column is not None and places:
                figures = each.draw(*column)
                found |= {figures[place].name: figures[place] for place in places}
        if not found:
            raise ConfigError(_refusal(names, known, label, view))
        made |= found
    return [*made.values()]


def _refusal(names: Sequence[str], known: Sequence[Choosable], label: str, view: str) -> str:
    """Return what is wrong with a label or view that no figure has, and what is accepted."""
    metrics = ", ".join(dict.fromkeys(each.metric for each in known)) or ", ".join(names)
    labels = [*dict.fromkeys(x for each in known for _, x in each.columns if x)]
    having = [each for each in known if each.column(label, "")]
    if label and not labels:
        return f"--label: got {label!r}, but {metrics} has no labels"
    if label and not having:
        return f"--label: got {label!r}, expected a label of {metrics}: {', '.join(labels)}"
    views = [v for v in map(str, View) if any(each.column(label, v) for each in having)]
    if not views:
        return f"--view: got {view!r}, but {metrics} has no views"
    about = f"{metrics}, label {label}" if label else metrics
    return f"--view: got {view!r}, expected a view of {about}: {', '.join(views)}"


def choosable_of_study(results: Mapping[str, StackResults]) -> list[Choosable]:
    """Return the metrics of heads that a study has figures of."""
    return [each for result in results.values() for each in _of_stack(result)]


def _of_stack(results: StackResults) -> Iterator[Choosable]:
    for metric in results.metrics:
        labels, usual = results.drawable(metric), results.drawn(metric)
        if usual is not None:
            there = [(v, x) for v in metric.views for x in labels if results.has(metric.id, v, x)]
            columns = dict.fromkeys((str(v), x) for v, x in (usual, *there))
            draw = partial(_heads, results, metric)
            yield Choosable(metric.id, results.stack.name, tuple(columns), label_name, draw)


def _heads(results: StackResults, metric: HeadMetric, view: str, label: str) -> Sequence[Figure]:
    return head_figures(results, metric, View(view), label)


def choosable_of_two(comparison: Comparison) -> list[Choosable]:
    """Return the metrics of heads that a comparison has figures of."""
    found = []
    for both in both_stacks(comparison):
        for name in (*all_metrics(), EFFECT):
            metric = compared_metric(name)
            if metric is None:
                continue
            columns = pair_choices(both, metric)
            if both.found is None:
                columns = [(str(view), label) for view, label in depth_choices(both, metric)]
            if columns:
                draw = partial(_pair, both, metric)
                found.append(Choosable(metric.id, both.stack, tuple(columns), metric.label, draw))
    return found


def _pair(both: BothStacks, metric: ComparedMetric, view: str, label: str) -> Sequence[Figure]:
    if both.found is None:
        return (depth_figure(both, metric, View(view), label),)
    return pair_figures(both, metric, view, label)
