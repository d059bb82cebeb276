"""Figures for papers without a site, as written by ``headbook figures``."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from headbook.charts import Drawable, Drawing, Figure, Plot
from headbook.comparison.comparison import Comparison
from headbook.errors import ConfigError
from headbook.memory import check_address_space
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.output_folder import OutputKind, check_output_folder, replace_folder
from headbook.pages.comparison.metricpair_heads import (
    ComparedMetric,
    compared_metric,
    depth_choices,
    depth_figure,
    pair_choices,
    pair_figures,
)
from headbook.pages.comparison.parts import StackComparison, both_stacks
from headbook.pages.head_parts.sections import (
    OFFSET_METRIC,
    has_offsets,
    offset_section,
    profile_name,
)
from headbook.pages.metric import metric_pages, study_metrics
from headbook.pages.metrics.figures import head_figures
from headbook.pages.parts.page import SiteFacts
from headbook.progress import Progress, reporter
from headbook.python_options import names_arguments
from headbook.report.results import StackResults
from headbook.report.results import stack_results as results_of
from headbook.report.wording import count_text, label_name
from headbook.results.formats import head_file
from headbook.schema import SinkView, heads_of
from headbook.site import export, latex
from headbook.site.attention_figures import KINDS, attention_figures, single_name, stored_maps
from headbook.site.sites import across_pages, comparison_manifest, facts_of, pages_over_heads
from headbook.site.writer import exported
from headbook.study.ablation_tables import EFFECT
from headbook.study.study import Study

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
    draw: Callable[[str, str], Sequence[Figure | Plot]]

    def column(self, label: str, view: str) -> Column | None:
        """Return the view and label that are asked for, or None if they have no numbers.

        Args:
            label: label as in tables or on pages; empty for the label of the site.
            view: view of the keys; empty for that of the site, or the first that has the label.
        """
        site_view, site_label = self.columns[0]
        labels = [known_label for _, known_label in self.columns]
        if label and label not in labels:
            label = next((known for known in labels if self.name(known) == label), label)
        wanted_label = label or site_label
        for wanted_view in [view] if view else [site_view, *map(str, SinkView)]:
            if (wanted_view, wanted_label) in self.columns:
                return wanted_view, wanted_label
        return None


def chosen_figures(
    choosable: Sequence[Choosable], requested: Sequence[Sequence[str]], label: str, view: str
) -> list[Figure | Plot]:
    """Draw the figures that have a label and a view.

    Args:
        requested: names of figures of the site, in groups; of each group at least one must have the
            label and the view, and those that lack them are left out.

    Raises:
        ConfigError: all figures of a group lack the label or the view.
    """
    drawn: dict[str, Figure | Plot] = {}
    for names in requested:
        candidates: list[Choosable] = []
        group_figures: dict[str, Figure | Plot] = {}
        for choice in choosable:
            if not any(name.startswith(f"{choice.metric}-{choice.stack}") for name in names):
                continue
            site_names = [figure.name for figure in choice.draw(*choice.columns[0])]
            indices = [index for index, name in enumerate(site_names) if name in names]
            column = choice.column(label, view)
            candidates += [choice] if indices else []
            if column is not None and indices:
                figures = choice.draw(*column)
                group_figures |= {figures[index].name: figures[index] for index in indices}
        if not group_figures:
            raise ConfigError(_refusal(names, candidates, label, view))
        drawn |= group_figures
    return [*drawn.values()]


def _refusal(names: Sequence[str], candidates: Sequence[Choosable], label: str, view: str) -> str:
    """Return what is wrong with a label or view that no figure has, and what is accepted."""
    metrics = ", ".join(dict.fromkeys(choice.metric for choice in candidates)) or ", ".join(names)
    verb = "have" if ", " in metrics else "has"
    labels = [
        *dict.fromkeys(
            metric_label
            for choice in candidates
            for _, metric_label in choice.columns
            if metric_label
        )
    ]
    with_label = [choice for choice in candidates if choice.column(label, "")]
    if label and not labels:
        return f"--label: got {label!r}, but {metrics} {verb} no labels"
    if label and not with_label:
        return f"--label: got {label!r}, expected a label of {metrics}: {', '.join(labels)}"
    views = [
        candidate_view
        for candidate_view in map(str, SinkView)
        if any(choice.column(label, candidate_view) for choice in with_label)
    ]
    if not views:
        return f"--view: got {view!r}, but {metrics} {verb} no views"
    subject = f"{metrics}, label {label}" if label else metrics
    return f"--view: got {view!r}, expected a view of {subject}: {', '.join(views)}"


def choosable_of_study(results: Mapping[str, StackResults]) -> list[Choosable]:
    """Return the metrics of heads that a study has figures of."""
    return [choice for result in results.values() for choice in _of_stack(result)]


def _of_stack(results: StackResults) -> Iterator[Choosable]:
    for metric in results.metrics:
        labels, site_column = results.drawable(metric), results.drawn(metric)
        if site_column is not None:
            available = [
                (view, label)
                for view in metric.views
                for label in labels
                if results.has_value(metric.id, view, label)
            ]
            columns = dict.fromkeys((str(view), label) for view, label in (site_column, *available))
            draw = partial(_heads, results, metric)
            yield Choosable(metric.id, results.stack.name, tuple(columns), label_name, draw)


def _heads(
    results: StackResults, metric: HeadMetric, view: str, label: str
) -> Sequence[Figure | Plot]:
    return head_figures(results, metric, SinkView(view), label)


def choosable_of_two(comparison: Comparison) -> list[Choosable]:
    """Return the metrics of heads that a comparison has figures of."""
    choosable = []
    for both in both_stacks(comparison):
        for name in (*all_metrics(), EFFECT):
            metric = compared_metric(name)
            if metric is None:
                continue
            columns = pair_choices(both, metric)
            if both.differences is None:
                columns = [(str(view), label) for view, label in depth_choices(both, metric)]
            if columns:
                draw = partial(_pair, both, metric)
                choosable.append(
                    Choosable(metric.id, both.stack, tuple(columns), metric.label, draw)
                )
    return choosable


def _pair(both: StackComparison, metric: ComparedMetric, view: str, label: str) -> Sequence[Figure]:
    if both.differences is None:
        return (depth_figure(both, metric, SinkView(view), label),)
    return pair_figures(both, metric, view, label)


Results = Mapping[str, StackResults]
PROFILE_PREFIX = "profile-"  # of names of figures of attention by offset
# How names of figures of single sentences begin.
SENTENCE_FIGURE = re.compile(rf"(?:{'|'.join(KINDS)})-|.*-S")
N_SUGGESTIONS = 3  # names that the message about an unknown name suggests
MIN_SUGGESTION_SIMILARITY = 0.4  # ratio of `difflib`, from 0 to 1


@names_arguments
def figures(
    source: Study | Comparison | str | Path,
    out: str | Path,
    only: str | Sequence[str] = (),
    *,
    label: str = "",
    view: str = "",
    force: bool = False,
    progress: Progress | bool = True,
) -> list[str]:
    """Write the figures of a study, or of a comparison, into a folder, without its site.

    Each figure is an SVG and a PDF, 6.9 and 3.3 inches wide, and a CSV file; ``figures.tex`` has
    an environment for each, ``figures.bib`` an entry. The same study gives the same bytes every
    time.

    Args:
        source: a study, the folder of a stored one, or a comparison of two.
        out: folder to write; it appears when it is complete.
        only: names of figures, or one; ``*`` and ``?`` stand for any letters. Without one, all
            figures that the site has as files. What single heads do is drawn where a name asks for
            it: attention by offset as ``profile-L02-H03``, the map and the lines of one sentence
            as ``map-S0002-L02-H03`` and ``lines-S0002-L02-H03``. The id of a metric asks for all
            figures of the metric.
        label: which label figures of metrics of heads show, as in tables; figures without it are
            left out, and names of figures end with it unless the site shows it, too.
        view: which keys these figures show: ``raw``, ``nosink`` or ``renorm``.
        force: replace a folder of figures that is there; one with foreign files is refused.
        progress: whether to show a bar in terminals and notebooks; or a `headbook.Progress`.

    Returns:
        The names of the figures, in the order of the site.

    Raises:
        ConfigError: no figure has such a name, label or view.
        StudyError: the stored study cannot be read.
        OutputError: ``out`` may not be replaced, or cannot be written.
    """
    patterns = _patterns(only)
    check_output_folder(Path(out), OutputKind.FIGURES, force=force)
    check_address_space()
    if isinstance(source, Comparison):
        chosen, provenance = _figures_of_two(source, patterns, label, view)
    else:
        study = source if isinstance(source, Study) else Study.load(source)
        chosen, provenance = _figures_of_study(study, patterns, label, view)
    with reporter(progress) as bar:
        return _write(chosen, provenance, Path(out), force=force, progress=bar)


def _figures_of_study(
    study: Study, only: Sequence[str], label: str, view: str
) -> "tuple[Sequence[Drawable], _Provenance]":
    """Return the requested figures of a study, and their provenance."""
    results = results_of(study)
    chosen = _requested_figures(study, results, only)
    if label or view:
        chosen = chosen_figures(choosable_of_study(results), _groups(chosen, only), label, view)
    site = SiteFacts.of(study.manifest, sentence_pages=False)
    year = study.manifest.created[:4]
    return chosen, _Provenance(site, year, study.manifest.to_json() + "\n")


def _requested_figures(study: Study, results: Results, only: Sequence[str]) -> Sequence[Drawable]:
    """Return the figures that the patterns name; figures of pages are made only if needed."""
    head_drawings = [*_profiles(results, only), *_singles(results, only)]
    only_of_heads = bool(only) and all(
        pattern.startswith(PROFILE_PREFIX) or SENTENCE_FIGURE.match(pattern) for pattern in only
    )
    figures = [*(() if only_of_heads else study_figures(study)), *head_drawings]
    return _chosen(figures, only, partial(_expected, results))


def _figures_of_two(
    comparison: Comparison, only: Sequence[str], label: str, view: str
) -> "tuple[Sequence[Drawable], _Provenance]":
    """Return the requested figures of a comparison, and their provenance."""
    chosen: Sequence[Drawable] = _chosen(
        exported(pages_over_heads(comparison)), only, _expected_of_two
    )
    if label or view:
        chosen = chosen_figures(choosable_of_two(comparison), _groups(chosen, only), label, view)
    year = comparison.sides.a.manifest.created[:4]
    return chosen, _Provenance(facts_of(comparison), year, comparison_manifest(comparison))


def _patterns(only: Any) -> tuple[str, ...]:
    """Return the names of figures that are asked for; a lone text is one name.

    Raises:
        ConfigError: something is no text.
    """
    several = isinstance(only, Iterable) and not isinstance(only, str)
    patterns = tuple(only) if several else (only,)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise ConfigError(f"--only: got {pattern!r}, expected a name of a figure, or several")
    return patterns


class _Provenance(NamedTuple):
    """Facts for captions, the year of BibTeX entries, and the manifest of figures."""

    site: SiteFacts
    year: str
    manifest: str


def _write(
    chosen: Sequence[Drawable],
    provenance: _Provenance,
    out: Path,
    *,
    force: bool,
    progress: Progress,
) -> list[str]:
    """Write a folder of figures, and return their names."""
    progress.stage("figures", len(chosen))
    with replace_folder(out, OutputKind.FIGURES, force=force) as draft:
        characters: set[str] = set()
        for figure in chosen:
            characters |= export.write_figure(figure, draft)
            progress.advance(1, 0)
        entries = [latex.entry(figure, provenance.site, provenance.year) for figure in chosen]
        texts = {
            "figures.tex": latex.latex_document(chosen, provenance.site.source),
            "figures.bib": "\n".join(entries),
            "manifest.json": provenance.manifest,
        }
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
    export.warn_of_missing_glyphs(characters)
    return [figure.name for figure in chosen]


def study_figures(study: Study) -> list[Figure | Plot]:
    """Return every figure of a study that is a file as well, in the order of the site."""
    results = results_of(study)
    return exported((*metric_pages(results, study_metrics(results)), *across_pages(results)))


def _profiles(results: Results, only: Sequence[str]) -> Iterator[Drawing]:
    """Yield attention by offset of the heads that are asked for."""
    for result in results.values():
        for head in heads_of(result.stack):
            if _wanted(profile_name(head), only):
                section = offset_section(result, head)
                if section is not None:
                    yield section.picture


def _singles(results: Results, only: Sequence[str]) -> Iterator[Drawing]:
    """Yield maps and lines of single sentences that are asked for; ``*`` alone does not."""
    asking = [pattern for pattern in only if SENTENCE_FIGURE.match(pattern)]
    for result in results.values() if asking else ():
        yield from attention_figures(result, lambda name: _wanted(name, asking))


def _chosen(
    figures: Sequence[Drawable],
    only: Sequence[str],
    expected: Callable[[str, Sequence[str]], str],
) -> list[Drawable]:
    """Return the figures whose names match a pattern, in their own order.

    Args:
        expected: returns what the message suggests for a pattern that matches none of some names.

    Raises:
        ConfigError: a pattern matches none.
    """
    names = [figure.name for figure in figures]
    for pattern in only:
        if not any(_wanted(name, [pattern]) for name in names):
            raise ConfigError(
                f"--only: {pattern!r} is the name of no figure; {expected(pattern, names)}"
            )
    return [figure for figure in figures if _wanted(figure.name, only or ("*",))]


def _groups(figures: Sequence[Drawable], only: Sequence[str]) -> list[list[str]]:
    """Return the names of figures that each pattern asks for."""
    names = [figure.name for figure in figures]
    return [[name for name in names if _wanted(name, [pattern])] for pattern in only or ("*",)]


def _wanted(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches a figure's name, or is the metric that the name begins with."""
    metric = name.partition("-")[0]
    metrics = {metric} & {*all_metrics(), EFFECT}
    return any(fnmatchcase(name, pattern) or pattern in metrics for pattern in patterns)


def _expected_of_two(pattern: str, names: Sequence[str]) -> str:
    return f"expected a name such as {_near(pattern, names)}, or a pattern such as '*-difference'"


def _expected(results: Results, pattern: str, names: Sequence[str]) -> str:
    """Return names near one that is missing, and what can be asked for."""
    stored = [single for result in results.values() for single in stored_maps(result)]
    if pattern.startswith(PROFILE_PREFIX):
        stacks = [result.stack for result in results.values() if has_offsets(result)]
        names = [profile_name(head) for stack in stacks for head in heads_of(stack)]
        if not names:
            return f"the study has no {OFFSET_METRIC}; --metrics={OFFSET_METRIC} measures it"
    if not SENTENCE_FIGURE.match(pattern) or not stored:
        return f"expected a name such as {_near(pattern, names)}, or a pattern such as '*-layers'"
    numbers = sorted({index + 1 for index, _ in stored})
    heads = [*dict.fromkeys(head for _, head in stored)]
    kind = pattern.partition("-")[0]
    kind = kind if kind in KINDS else KINDS[0]
    # One sentence for each head and one head for each sentence: all of them may be very many.
    sentence_match = re.search(r"-S(\d+)", pattern)
    number = int(sentence_match[1]) if sentence_match else numbers[0]
    number = number if number in numbers else numbers[0]
    candidates = [
        single_name(kind, index + 1, head) for index, head in stored if index + 1 == number
    ]
    candidates += [
        single_name(kind, index + 1, head) for index, head in stored if head_file(head) in pattern
    ]
    return (
        f"expected a name such as {_near(pattern, candidates)}; maps are kept of "
        f"{count_text(len(numbers), 'sentence')} from {numbers[0]} to {numbers[-1]} and of heads "
        f"{head_file(heads[0])} to {head_file(heads[-1])}"
    )


def _near(pattern: str, names: Sequence[str]) -> str:
    suggestions = (
        difflib.get_close_matches(pattern, names, n=N_SUGGESTIONS, cutoff=MIN_SUGGESTION_SIMILARITY)
        or names[:N_SUGGESTIONS]
    )
    return ", ".join(suggestions)
