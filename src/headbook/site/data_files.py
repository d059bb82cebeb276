"""The data of single pages as scripts and pictures, loaded when a reader asks for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.pages.index import live_data
from headbook.pages.metrics.figures import figure_name, map_data
from headbook.pages.parts.head_card import atlas_data
from headbook.pages.parts.head_list import list_data, values_data
from headbook.pages.parts.page import TemplatePage
from headbook.pages.parts.sentence_maps import (
    FOLDER,
    attention_data,
    has_exact_maps,
    neuron_files,
    neurons_data,
    sheet_picture,
    similarity_data,
)
from headbook.pages.parts.token_paths import paths_data
from headbook.pages.sentence import cited_maps, trajectory_data
from headbook.pages.tokens import types_data
from headbook.report.head_numbers import drawn_numbers
from headbook.report.results import StackResults, study_of
from headbook.report.token_neighbours import hubs
from headbook.report.wording import sentence_file
from headbook.results.formats import head_file
from headbook.schema import Side, heads_of
from headbook.site.head_csv import layer_rows
from headbook.site.markup import script
from headbook.site.search import find_data
from headbook.study.sentence_data import Exemplar, StoredSentence, rows_by_sentence
from headbook.study.study import Study


def write_scripts(results: Mapping[str, StackResults], folder: Path) -> None:
    """Write the data of single pages, which are loaded when a reader asks for them."""
    study = study_of(results)
    for name in ("heads", "sentences"):
        (folder / name).mkdir()
    cards = {name: atlas_data(result) for name, result in results.items()}
    _write(folder / "atlas.js", script("atlas", cards))
    if live := live_data(results):
        _write(folder / "live.js", script("live", live))
    write_list(results, folder)
    (folder / "numbers").mkdir()
    for name, rows in layer_rows(study):
        _write(folder / "numbers" / f"{name}.js", script(f"numbers-{name}", rows))
    write_maps(results, folder / "maps")
    if study.corpus_sums.types:
        _write(folder / "types.js", script("types", types_data(study.corpus_sums.types)))
    by_head: dict[str, list[Exemplar]] = {}
    for exemplar in study.sentence_data.by_weight:
        by_head.setdefault(head_file(exemplar.head), []).append(exemplar)
    for name, exemplars in by_head.items():
        maps = {
            f"{exemplar.ranking}-{exemplar.rank}": _map(study, exemplar) for exemplar in exemplars
        }
        _write(folder / "heads" / f"{name}.js", script(name, maps))
    write_sentences(results, folder)


def write_sentences(results: Mapping[str, StackResults], folder: Path) -> None:
    """Write the data of the pages of sentences."""
    study = study_of(results)
    nearest, tokens = rows_by_sentence(study.nearest), rows_by_sentence(study.tokens)
    near_to_many = {name: result.cached(hubs) for name, result in results.items()}
    for sentence in study.sentence_data.paged:
        _write_sentence(results, sentence, folder / "sentences")
        if not sentence.listed:
            continue
        _write_neurons(study, sentence, folder.parent)
        outputs = {
            name: value
            for name, result in results.items()
            if (value := similarity_data(study.sentence_data, result.stack, sentence)) is not None
        }
        if outputs:
            _write_sentence_data(sentence, "outputs", outputs, folder)
        nearest_rows = nearest(sentence.number)
        if len(nearest_rows):
            _write_sentence_data(
                sentence, "entries", trajectory_data(nearest_rows, near_to_many), folder
            )
        rows = tokens(sentence.number)
        stack_paths = (
            (name, paths_data(result, sentence, rows[rows["stack"] == name]))
            for name, result in results.items()
        )
        paths = {name: value for name, value in stack_paths if value is not None}
        if paths:
            _write_sentence_data(sentence, "paths", paths, folder)


def _write_sentence_data(sentence: StoredSentence, kind: str, value: Any, folder: Path) -> None:
    name = f"{sentence_file(sentence.number)}-{kind}"
    _write(folder / "sentences" / f"{name}.js", script(name, value))


def write_find(
    results: Mapping[str, StackResults], pages: Sequence[TemplatePage], folder: Path
) -> None:
    """Write the data of the search; see `headbook.site.search.find_data`."""
    _write(folder / "find.js", script("find", find_data(results, pages)))


def write_list(results: Mapping[str, StackResults], folder: Path) -> None:
    """Write the list of all heads, and their numbers in a file for each metric."""
    _write(folder / "headlist.js", script("headlist", list_data(results)))
    (folder / "values").mkdir()
    for name, values in values_data(results):
        _write(folder / "values" / f"{name}.js", script(f"values-{name}", values))


def write_maps(results: Mapping[str, StackResults], folder: Path) -> None:
    """Write the heat maps of metrics of several labels, by view and label."""
    folder.mkdir()
    for stack_results in results.values():
        for metric in stack_results.metrics:
            numbers = drawn_numbers(stack_results, metric)
            if numbers is not None and len(stack_results.drawable(metric)) > 1:
                name = figure_name(numbers)
                _write(folder / f"{name}.js", script(f"map-{name}", map_data(numbers)))


def _write_sentence(
    results: Mapping[str, StackResults], sentence: StoredSentence, folder: Path
) -> None:
    """Write the maps of a sentence as a picture, and as numbers unless there are too many."""
    name, by_stack = sentence_file(sentence.number), {}
    for stack_name, result in results.items():
        stack, sentence_data = result.stack, result.study.sentence_data
        maps = sentence_data.maps.get((stack_name, sentence.index))
        if maps is None:
            value = _cited(result, sentence)
        else:
            maps = maps[list(stack.attention_layers)]
            picture = sheet_picture(stack, sentence, maps)
            (folder / f"{name}-{stack_name}.png").write_bytes(picture)
            norms = sentence_data.norms.get((stack_name, sentence.index))
            norms = None if norms is None else norms[list(stack.attention_layers)]
            heads = [[head.layer, head.head] for head in heads_of(stack)]
            value = (
                _visible_rows(result, sentence, maps, norms, heads)
                if has_exact_maps(maps)
                else None
            )
        if value is not None:
            by_stack[stack_name] = value
    if by_stack:
        _write(folder / f"{name}.js", script(f"sentence-{name}", by_stack))


def _cited(results: StackResults, sentence: StoredSentence) -> dict[str, Any] | None:
    """Return the maps of the heads that have a sentence among their exemplars."""
    exemplars = {head: cited_map[0] for head, cited_map in cited_maps(results, sentence).items()}
    if not exemplars:
        return None
    maps = np.array([exemplar.attention for exemplar in exemplars.values()])
    norm_lists = [exemplar.norms for exemplar in exemplars.values()]
    norms = np.array(norm_lists) if all(map(len, norm_lists)) else None
    places = [[head.layer, head.head] for head in exemplars]
    return _visible_rows(results, sentence, maps, norms, places)


def _visible_rows(
    results: StackResults,
    sentence: StoredSentence,
    maps: NDArray[np.uint8],
    norms: NDArray[np.float32] | None,
    places: list[list[int]],
) -> dict[str, Any]:
    """Return maps in the order of ``places``, layer and head of each."""
    stack = results.stack
    return {
        **attention_data(stack, sentence, maps, norms),
        "places": places,
        "heads": stack.n_heads,
        "texts": [_side(sentence, stack.queries), _side(sentence, stack.keys)],
    }


def _write_neurons(study: Study, sentence: StoredSentence, root: Path) -> None:
    """Write queries and keys of a sentence, a file for each layer, if they are stored."""
    for stack in study.manifest.stacks:
        for layer, value in neurons_data(study, stack, sentence):
            (root / FOLDER).mkdir(exist_ok=True)
            path = root / f"{neuron_files(stack, sentence)}{layer:02d}.js"
            _write(path, script(f"neurons-{path.stem}", value))


def _side(sentence: StoredSentence, side: Side) -> str:
    """Return the name of a side on the sentence's page."""
    return str(side) if len(sentence.texts) > 1 else ""


def _map(study: Study, exemplar: Exemplar) -> dict[str, Any]:
    stack = study.manifest.stack(exemplar.head.stack)
    sentence = study.sentence_data.sentences[exemplar.index]
    return attention_data(stack, sentence, exemplar.attention, exemplar.norms)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
