"""Outputs of notebook cells: a study, the card of a head, a sentence, and charts.

Each output is the HTML of the site's templates with pictures and styles inside one element, without
scripts and links: it is shown wherever the notebook is, also without the files of a site.
"""

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headbook.charts import Figure, Plot, images
from headbook.charts.axes import altair_chart
from headbook.comparison.checkpoints import Checkpoints
from headbook.comparison.comparison import Comparison
from headbook.errors import ConfigError
from headbook.metrics import all_metrics
from headbook.notebook.styles import style_of
from headbook.pages.checkpoints.checkpoints import checkpoints_page
from headbook.pages.checkpoints.parts import DrawnCheckpoints
from headbook.pages.head import head_pages
from headbook.pages.index import overview_page
from headbook.pages.metric import has_page, metric_pages, study_metrics
from headbook.pages.parts.atlas import map_sheets, one_map_sheet
from headbook.pages.parts.page import SiteFacts
from headbook.pages.parts.sentence_maps import sheet_picture
from headbook.pages.sentence import sentence_pages
from headbook.report.results import StackResults, stack_results
from headbook.report.wording import visible
from headbook.schema import heads_of, parse_head
from headbook.site.figures import choosable_of_study, chosen_figures, study_figures
from headbook.site.html import Printer
from headbook.site.markup import picture
from headbook.site.page_writer import PageWriter
from headbook.site.sites import pages_over_heads
from headbook.site.writer import exported
from headbook.study.manifest import Manifest
from headbook.study.sentence_access import some_sentences
from headbook.study.study import Study

LINK = re.compile(r'(<a\b[^>]*?) href="[^"]*"')
# Targets of links; styles know claims by their ids, to light the heads of each.
TARGET = re.compile(r' id="(?!c\d)[^"]*"')
NAMED_LINK = re.compile(r'(<a\b[^>]*?) aria-label="([^"]*)"')
ROOT_DIGITS = 12  # of the hash in the class of an output's root
MAX_WIDTH = 160  # columns of a line of text: two lines of a terminal
N_SUGGESTIONS = 3  # names that the message on an unknown figure suggests


class NotebookView:
    """Part of a study that notebooks show as HTML and terminals as text.

    Args:
        html: one element without scripts that needs no other file.
        lines: the same content in a few lines; long ones are cut.
    """

    def __init__(self, html: str, lines: Iterable[str]) -> None:
        self._html = html
        self._text = visible("\n".join(_cut(line) for line in lines if line))

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        """Return the content as text."""
        return self._text


def _cut(text: str) -> str:
    """Return a text as one line, cut where it would fill more than two lines of a terminal."""
    line, width = " ".join(text.split()), 0
    for place, character in enumerate(line):
        width += 2 if unicodedata.east_asian_width(character) in {"F", "W"} else 1
        if width >= MAX_WIDTH:
            return f"{line[:place].rstrip()}…"
    return line


def study_html(study: Study) -> str:
    """Return the overview of a study: summary, claims, and the wall of all heads."""
    results = _results(study)
    page = overview_page(results)
    page = replace(page, walls=tuple(replace(wall, mosaic=False) for wall in page.walls))
    return _html(study.manifest, "study", page, page.styles, map_sheets(results.values()))


def head_view(study: Study, layer: int | str, head: int | None, stack: str | None) -> NotebookView:
    """Return the card of a head; see `Study.head`."""
    if isinstance(layer, str) and head is None:
        own_stack, layer, head = parse_head(layer) or (None, layer, head)
        stack = own_stack or stack
    results = _results(study)[_stack_name(study, "head", stack)]
    heads = heads_of(results.stack)
    name = next((each for each in heads if (each.layer, each.head) == (layer, head)), None)
    if name is None or not _are_whole(layer, head):
        layers = [*dict.fromkeys(each.layer for each in heads)]
        raise ConfigError(
            f"study.head: got layer {layer!r}, head {head!r}, expected layer {_range(layers)} and "
            f"head {_range(range(results.stack.n_heads))}, both counted from 0, or a name such as "
            "'L0-H1'"
        )
    place = heads.index(name)
    page = next(head_pages(results, slice(place, place + 1)))
    maps, classes = one_map_sheet(results, name.layer, name.head)
    lines = [
        f"{page.title} of {study.manifest.model.name} ({page.stack_title})",
        page.text.text,
        page.evidence.text,
        *(f"Strongest: {e.query} → {e.key} {e.weight}" for e in page.exemplars.first[:1]),
    ]
    html = _html(study.manifest, "head", replace(page, map=classes), page.styles, maps)
    return NotebookView(html, lines)


def sentence_view(study: Study, index: int) -> NotebookView:
    """Return a sentence with its maps; see `Study.sentence`."""
    results, indices = _results(study), [each.index for each in study.sentence_data.paged]
    if index not in indices or not _are_whole(index):
        raise ConfigError(
            f"study.sentence: got {index!r}, expected the index of a sentence with stored maps: "
            f"{some_sentences(indices)}"
        )
    place = indices.index(index)
    page = next(sentence_pages(results, slice(place, place + 1)))
    stacks, sentence = [], study.sentence_data.sentences[index]
    for each in page.stacks:
        stack = results[each.stack].stack
        maps = study.sentence_data.maps.get((each.stack, index))
        if maps is not None:
            picture = sheet_picture(stack, sentence, maps[[*stack.attention_layers]])
            sheet = images.inline(picture)
            each = replace(each, sheet=sheet)  # noqa: PLW2901
        stacks.append(each)
    starts = [each.start for each in stacks if each.start]
    lines = [
        f"{page.title} of {study.manifest.model.name}",
        *(text.text for text in study.sentence_data.sentences[index].texts.values()),
        *(
            f"{start.name}: {start.token} → {key.token} {key.value}"
            for start in starts
            for key in start.ranked[:1]
        ),
    ]
    html = _html(study.manifest, "sentence", replace(page, stacks=tuple(stacks)), page.styles)
    return NotebookView(html, lines)


def plot(study: Study, name: str, stack: str | None, label: str, view: str) -> Any:
    """Return a chart of the site; see `Study.plot`."""
    if not isinstance(name, str) or not name:
        raise ConfigError(_unknown_figure(study, _results(study), str(name), stack))
    results: Mapping[str, StackResults] = _results(study)
    if stack is not None:
        chosen = _stack_name(study, "plot", stack)
        results = {chosen: results[chosen]}
    metrics = [metric for metric in study_metrics(results) if metric.id == name]
    pages = metric_pages(results, metrics)
    figures = sorted(exported(pages), key=lambda figure: isinstance(figure, Plot))  # maps first
    if not metrics:
        figures = [figure for figure in study_figures(study) if figure.name == name]
    if not figures:
        raise ConfigError(_unknown_figure(study, results, name, stack))
    if label or view:
        figures = chosen_figures(choosable_of_study(results), [[figures[0].name]], label, view)
    of_heads = [figure for figure in figures if isinstance(figure, Figure)]
    if of_heads:  # of a metric, the heat map
        return altair_chart(of_heads[0].spec)
    figure = figures[0]
    return NotebookView(
        _html(study.manifest, "chart", figure, ("plots", "analysis")), [figure.caption]
    )


def figure_names(study: Study) -> list[str]:
    """Return the names of all charts of a study; see `Study.figures`."""
    results = _results(study)
    metrics = [metric.id for metric in study_metrics(results) if has_page(results, metric)]
    return [*metrics, *(figure.name for figure in study_figures(study))]


def _are_whole(*numbers: object) -> bool:
    """Whether all numbers are whole, also those of numpy."""
    return all(isinstance(number, int | np.integer) for number in numbers)


def _unknown_figure(
    study: Study, results: Mapping[str, StackResults], name: str, stack: str | None
) -> str:
    measured = study.manifest.options.get("metrics", "all")
    measured = [*all_metrics()] if measured == "all" else measured.split(",")
    if name in all_metrics():
        where = "this study" if stack is None else f"stack {stack!r}"
        return (
            f"study.plot: {where} has no numbers of {name} that a chart shows; expected a metric "
            "of the study"
            + ("" if name in measured else f"; metrics=[{name!r}, ...] of collect adds one")
        )
    names = figure_names(study)
    near = difflib.get_close_matches(name, names, n=N_SUGGESTIONS, cutoff=0.4)
    return (
        f"study.plot: got {name!r}, expected the id of a metric or the name of a figure, such as "
        f"{', '.join(near or names[:N_SUGGESTIONS])}"
    )


def _results(study: Study) -> Mapping[str, StackResults]:
    """Return the results of all stacks, which a study computes once for all its outputs."""
    kept: dict[str, Any] = vars(study)
    if "_results" not in kept:
        kept["_results"] = stack_results(study)
    results: Mapping[str, StackResults] = kept["_results"]
    return results


def _stack_name(study: Study, method: str, stack: str | None) -> str:
    names = [each.name for each in study.manifest.stacks]
    if stack is not None and stack not in names:
        raise ConfigError(f"study.{method}: got stack {stack!r}, expected {' or '.join(names)}")
    return stack or names[0]


def _range(numbers: Any) -> str:
    numbers = [*numbers]
    gaps = len(numbers) != numbers[-1] - numbers[0] + 1
    return ", ".join(map(str, numbers)) if gaps else f"{numbers[0]} to {numbers[-1]}"


def comparison_html(comparison: Comparison) -> str:
    """Return the overview of a comparison: how the models differ, and where heads do."""
    page = next(each for each in pages_over_heads(comparison) if each.path == "index.html")
    return _html(comparison.sides.a.manifest, "comparison", page, page.styles)


def checkpoints_html(checkpoints: Checkpoints) -> str:
    """Return the overview of the checkpoints of a training: which head learnt what, and when."""
    manifest = checkpoints.frames[0].manifest
    page = checkpoints_page(DrawnCheckpoints(checkpoints), checkpoints.title)
    return _html(manifest, "checkpoints", page, page.styles)


def _html(
    manifest: Manifest, template: str, page: Any, names: tuple[str, ...], maps: str = ""
) -> str:
    """Return an output as one element with its style.

    Args:
        manifest: manifest of the study, or of the first of several.
        template: name of a template in ``templates/notebook``.
        page: the page of the site, or the chart, that the template prints.
        names: names of the page's style sheets.
        maps: rules with the mean maps of heads.
    """
    site = SiteFacts.of(manifest, sentence_pages=False)
    frame = {"site": site, "manifest": manifest, "root": "", "static": True}
    writer = PageWriter(Path(), "", frame)
    printer = Printer(writer.environment, "", None, frame, joins_units=False)
    body = writer.render(f"notebook/{template}.html", page=page, printer=printer)
    body = TARGET.sub("", LINK.sub(r"\1", body))
    body = NAMED_LINK.sub(r'\1 role="img" title="\2" aria-label="\2"', body)
    # A root class of its own: the style of an output concerns no other output of a notebook.
    root = f"o-{hashlib.sha256((body + maps).encode()).hexdigest()[:ROOT_DIGITS]}"
    output = partial(writer.render, "notebook/output.html", body=picture(body), root_class=root)
    tiles = max(max(stack.n_layers, stack.n_heads) for stack in manifest.stacks)
    sheets = [name for name in names if name != "maps"]
    style = picture(style_of(output(style=""), root, sheets, maps, tiles))
    return output(style=style).strip()
