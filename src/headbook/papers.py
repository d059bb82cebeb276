"""Figures alone, as a paper takes them: pictures, their data, LaTeX and BibTeX."""

import difflib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from headbook import export, latex
from headbook.charts import Drawing, Figure, Picture
from headbook.errors import ConfigError
from headbook.folders import check_replaceable, written_whole
from headbook.progress import Progress, Silent
from headbook.results import results as results_of
from headbook.shown import heads_of
from headbook.site import across_pages, exported
from headbook.study import Study
from headbook.views.metric import metric_pages, study_metrics
from headbook.views.offsets import offsets, profile_name
from headbook.views.page import SiteFacts

NEAR = 3  # names that are offered for one that is not there
ALIKE = 0.4  # from 0 to 1, how near they are at least


def write_figures(
    study: Study | str | Path,
    out: str | Path,
    only: Sequence[str] = (),
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> list[str]:
    """Write a study's figures into a folder, without its site.

    Each figure is an SVG, a PDF and a CSV file; ``figures.tex`` has an environment for each,
    ``figures.bib`` an entry. The same study gives the same bytes every time.

    Args:
        study: a study, or the folder of a stored one.
        out: folder to write; it appears when it is complete.
        only: names of figures, ``*`` and ``?`` standing for any letters; without one, all figures
            that the site has as files. Attention by offset of single heads is drawn where a name
            asks for it, such as ``profile-L02-H03``.
        force: replace a folder of Headbook that stands there.
        progress: told how many figures are done.

    Returns:
        The names of the figures, in the order of the site.

    Raises:
        ConfigError: no figure has such a name.
        StudyError: the stored study cannot be read.
        OutputError: ``out`` may not be replaced, or cannot be written.
    """
    check_replaceable(Path(out), force=force)
    if not isinstance(study, Study):
        study = Study.load(study)
    chosen = _chosen([*study_figures(study), *_profiles(study, only)], only)
    progress = progress or Silent()
    progress.stage("figures", len(chosen))
    with written_whole(Path(out), force=force) as draft:
        for figure in chosen:
            export.write_figure(figure, draft)
            progress.advance(1, 0)
        site = SiteFacts.of(study.manifest, sentence_pages=False)
        year = study.manifest.created[:4]
        entries = [latex.entry(figure, site, year) for figure in chosen]
        texts = {
            "figures.tex": latex.document(chosen, site.source),
            "figures.bib": "\n".join(entries),
            "manifest.json": study.manifest.to_json() + "\n",
        }
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
    return [figure.name for figure in chosen]


def study_figures(study: Study) -> list[Figure]:
    """Every figure of a study that is a file as well, in the order of the site."""
    results = results_of(study)
    return exported((*metric_pages(results, study_metrics(results)), *across_pages(results)))


def _profiles(study: Study, only: Sequence[str]) -> Iterator[Drawing]:
    """Attention by offset of the heads that are asked for."""
    for results in results_of(study).values():
        for head in heads_of(results.stack):
            if any(fnmatchcase(profile_name(head), pattern) for pattern in only):
                found = offsets(results, head)
                if found is not None:
                    yield found.picture


def _chosen(figures: Sequence[Picture], only: Sequence[str]) -> list[Picture]:
    """The figures whose names match a pattern, in their own order.

    Raises:
        ConfigError: a pattern matches none.
    """
    names = [figure.name for figure in figures]
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=NEAR, cutoff=ALIKE) or names[:NEAR]
            raise ConfigError(
                f"--only: {pattern!r} is the name of no figure; expected a name such as "
                f"{', '.join(near)}, or a pattern such as '*-layers'"
            )
    wanted = only or ("*",)
    return [f for f in figures if any(fnmatchcase(f.name, pattern) for pattern in wanted)]
