"""Figures alone, as a paper takes them: pictures, their data, LaTeX and BibTeX."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headbook.charts import Drawing, Figure, Picture
from headbook.comparison.comparison import Comparison
from headbook.errors import ConfigError
from headbook.limits import check_room
from headbook.metrics import all_metrics
from headbook.output_folder import OutputKind, check_output_folder, replace_folder
from headbook.pages.head import offsets
from headbook.pages.head.offsets import profile_name
from headbook.pages.metric.page import metric_pages, study_metrics
from headbook.pages.parts.page import SiteFacts
from headbook.progress import Progress, Silent
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.results import results as results_of
from headbook.report.wording import counted, head_file
from headbook.site import export, latex
from headbook.site.comparisons.comparing import facts_of, manifest_of, pages_over_heads
from headbook.site.papers.chosen import choosable_of_study, choosable_of_two, chosen_figures
from headbook.site.papers.single import KINDS, pictures, single_name, singles
from headbook.site.site import across_pages, exported
from headbook.study.importancetables import EFFECT
from headbook.study.sentencedata import heads_of
from headbook.study.study import Study

Results = Mapping[str, StackResults]
PROFILE = "profile-"  # how names of attention by offset begin
SINGLE = re.compile(rf"(?:{'|'.join(KINDS)})-|.*-S")  # how names of single sentences begin
NEAR = 3  # names that are offered for one that is not there
ALIKE = 0.4  # from 0 to 1, how near they are at least


def write_figures(
    study: Study | str | Path,
    out: str | Path,
    only: Sequence[str] = (),
    *,
    label: str = "",
    view: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> list[str]:
    """Write a study's figures into a folder, without its site.

    Each figure is an SVG and a PDF, 6.9 and 3.3 inches wide, and a CSV file; ``figures.tex`` has
    an environment for each, ``figures.bib`` an entry. The same study gives the same bytes every
    time.

    Args:
        study: a study, or the folder of a stored one.
        out: folder to write; it appears when it is complete.
        only: names of figures, ``*`` and ``?`` standing for any letters; without one, all figures
            that the site has as files. What single heads do is drawn where a name asks for it:
            attention by offset as ``profile-L02-H03``, the map and the lines of one sentence as
            ``map-S0002-L02-H03`` and ``lines-S0002-L02-H03``. The id of a metric asks for all
            figures of the metric.
        label: which label figures of metrics of heads show, as in tables; figures without it are
            left out, and names of figures end with it unless the site shows it, too.
        view: which keys these figures show: ``raw``, ``nosink`` or ``renorm``.
        force: replace a folder of figures that is there; one with foreign files is refused.
        progress: told how many figures are done.

    Returns:
        The names of the figures, in the order of the site.

    Raises:
        ConfigError: no figure has such a name, label or view.
        StudyError: the stored study cannot be read.
        OutputError: ``out`` may not be replaced, or cannot be written.
    """
    check_output_folder(Path(out), OutputKind.FIGURES, force=force)
    check_room()
    if not isinstance(study, Study):
        study = Study.load(study)
    results = results_of(study)
    asked = [*_profiles(results, only), *_singles(results, only)]
    own = bool(only) and all(p.startswith(PROFILE) or SINGLE.match(p) for p in only)
    figures = [*(() if own else study_figures(study)), *asked]
    chosen: Sequence[Picture] = _chosen(figures, only, partial(_expected, results))
    if label or view:
        chosen = chosen_figures(choosable_of_study(results), _groups(chosen, only), label, view)
    site = SiteFacts.of(study.manifest, sentence_pages=False)
    made = _Made(site, study.manifest.created[:4], study.manifest.to_json() + "\n")
    return _write(chosen, made, Path(out), force=force, progress=progress or Silent())


def write_comparison_figures(
    comparison: Comparison,
    out: str | Path,
    only: Sequence[str] = (),
    *,
    label: str = "",
    view: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> list[str]:
    """Write the figures of two models held against each other; see `write_figures`."""
    check_output_folder(Path(out), OutputKind.FIGURES, force=force)
    check_room()
    figures = exported(pages_over_heads(comparison))
    chosen: Sequence[Picture] = _chosen(figures, only, _expected_of_two)
    if label or view:
        chosen = chosen_figures(choosable_of_two(comparison), _groups(chosen, only), label, view)
    year = comparison.sides.a.manifest.created[:4]
    made = _Made(facts_of(comparison), year, manifest_of(comparison))
    return _write(chosen, made, Path(out), force=force, progress=progress or Silent())


class _Made(NamedTuple):
    """How figures were made: for their captions, the year of their entries, the manifest."""

    site: SiteFacts
    year: str
    manifest: str


def _write(
    chosen: Sequence[Picture], made: _Made, out: Path, *, force: bool, progress: Progress
) -> list[str]:
    """Write a folder of figures; their names."""
    progress.stage("figures", len(chosen))
    with replace_folder(out, OutputKind.FIGURES, force=force) as draft:
        for figure in chosen:
            export.write_figure(figure, draft)
            progress.advance(1, 0)
        entries = [latex.entry(figure, made.site, made.year) for figure in chosen]
        texts = {
            "figures.tex": latex.document(chosen, made.site.source),
            "figures.bib": "\n".join(entries),
            "manifest.json": made.manifest,
        }
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
    return [figure.name for figure in chosen]


def study_figures(study: Study) -> list[Figure]:
    """Every figure of a study that is a file as well, in the order of the site."""
    results = results_of(study)
    return exported((*metric_pages(results, study_metrics(results)), *across_pages(results)))


def _profiles(results: Results, only: Sequence[str]) -> Iterator[Drawing]:
    """Attention by offset of the heads that are asked for."""
    for result in results.values():
        for head in heads_of(result.stack):
            if _wanted(profile_name(head), only):
                found = offsets.offsets(result, head)
                if found is not None:
                    yield found.picture


def _singles(results: Results, only: Sequence[str]) -> Iterator[Drawing]:
    """Maps and lines of single sentences that are asked for; ``*`` alone does not ask for them."""
    asking = [pattern for pattern in only if SINGLE.match(pattern)]
    for result in results.values() if asking else ():
        yield from pictures(result, lambda name: _wanted(name, asking))


def _chosen(
    figures: Sequence[Picture],
    only: Sequence[str],
    expected: Callable[[str, Sequence[str]], str],
) -> list[Picture]:
    """The figures whose names match a pattern, in their own order.

    Args:
        expected: what to ask for instead of a pattern that matches none of some names.

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


def _groups(figures: Sequence[Picture], only: Sequence[str]) -> list[list[str]]:
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
    """Names near one that is not there, and what can be asked for."""
    kept = [single for result in results.values() for single in singles(result)]
    if pattern.startswith(PROFILE):
        stacks = [result.stack for result in results.values() if offsets.measured(result)]
        names = [profile_name(head) for stack in stacks for head in heads_of(stack)]
        if not names:
            return f"the study has no {offsets.METRIC}; --metrics {offsets.METRIC} measures it"
    if not SINGLE.match(pattern) or not kept:
        return f"expected a name such as {_near(pattern, names)}, or a pattern such as '*-layers'"
    numbers, heads = sorted({index + 1 for index, _ in kept}), [*dict.fromkeys(h for _, h in kept)]
    kind = pattern.partition("-")[0]
    kind = kind if kind in KINDS else KINDS[0]
    # One sentence for each head and one head for each sentence: all of them may be very many.
    wanted = re.search(r"-S(\d+)", pattern)
    number = int(wanted[1]) if wanted and int(wanted[1]) in numbers else numbers[0]
    near = [single_name(kind, index + 1, head) for index, head in kept if index + 1 == number]
    near += [
        single_name(kind, index + 1, head) for index, head in kept if head_file(head) in pattern
    ]
    return (
        f"expected a name such as {_near(pattern, near)}; maps are kept of "
        f"{counted(len(numbers), 'sentence')} from {numbers[0]} to {numbers[-1]} and of heads "
        f"{head_file(heads[0])} to {head_file(heads[-1])}"
    )


def _near(pattern: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(pattern, names, n=NEAR, cutoff=ALIKE) or names[:NEAR]
    return ", ".join(near)
