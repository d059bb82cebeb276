"""The data of single pages as scripts and pictures, loaded when a reader asks for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headbook.charts.ink import ink
from headbook.numbers.results import StackResults
from headbook.stored.shown import STEPS, Exemplar, ShownSentence, rows_of
from headbook.stored.study import Study
from headbook.terms import Side
from headbook.views.atlas import many_heads, sheet, sheet_file
from headbook.views.entries import story_data
from headbook.views.find import find_data
from headbook.views.grid import grid_data, map_data
from headbook.views.headvalues import list_data, values_data
from headbook.views.inspector import atlas_data
from headbook.views.instance import attention_data, exact
from headbook.views.matrices import matrix_pictures
from headbook.views.neurons import FOLDER, neuron_files, neurons_data
from headbook.views.page import Page
from headbook.views.sentencestack import TILE
from headbook.views.tokentypes import types_data
from headbook.wording import head_file, sentence_file
from headbook.writing import images
from headbook.writing.markup import script


def write_scripts(results: Mapping[str, StackResults], folder: Path) -> None:
    """The data of single pages, loaded when a reader asks for it."""
    study = next(iter(results.values())).study
    for name in ("heads", "sentences"):
        (folder / name).mkdir()
    write_matrices(results, folder / "similar")
    grids = {name: grid_data(r) for name, r in results.items()}
    _write(folder / "grid.js", script("grid", grids))
    _write(folder / "map.js", script("map", map_data(results, grids)))
    cards = {name: atlas_data(r) for name, r in results.items()}
    _write(folder / "atlas.js", script("atlas", cards))
    for name, each in results.items():
        if many_heads(each) and (picture := sheet(each)):
            (folder.parent / sheet_file(name)).write_bytes(picture)
    write_list(results, folder)
    if study.survey.types:
        _write(folder / "types.js", script("types", types_data(study.survey.types)))
    by_head: dict[str, list[Exemplar]] = {}
    for exemplar in study.portrait.exemplars:
        by_head.setdefault(head_file(exemplar.head), []).append(exemplar)
    for name, exemplars in by_head.items():
        value = {f"{e.ranking}-{e.rank}": _map(study, e) for e in exemplars}
        _write(folder / "heads" / f"{name}.js", script(name, value))
    nearest = rows_of(study.nearest)
    for sentence in study.portrait.listed:
        _write_sentence(study, sentence, folder / "sentences")
        _write_neurons(study, sentence, folder.parent)
        near = nearest(sentence.number)
        if len(near):
            name = f"{sentence_file(sentence.number)}-entries"
            stories = script(name, story_data(near))
            _write(folder / "sentences" / f"{name}.js", stories)


def write_find(study: Study, pages: Sequence[Page], folder: Path) -> None:
    """What the overview's search looks through; see `headbook.views.find.find_data`."""
    _write(folder / "find.js", script("find", find_data(study, pages)))


def write_list(results: Mapping[str, StackResults], folder: Path) -> None:
    """All heads, and their numbers in a file a metric."""
    _write(folder / "headlist.js", script("headlist", list_data(results)))
    (folder / "values").mkdir()
    for name, values in values_data(results):
        _write(folder / "values" / f"{name}.js", script(f"values-{name}", values))


def write_matrices(results: Mapping[str, StackResults], folder: Path) -> None:
    """The distances of all heads as pictures, where they were measured."""
    for each in results.values():
        for name, picture in matrix_pictures(each):
            folder.mkdir(exist_ok=True)
            (folder / name).write_bytes(picture)


def _write_sentence(study: Study, sentence: ShownSentence, folder: Path) -> None:
    """All maps of a sentence: as a picture, and as numbers unless there are too many."""
    name, found = sentence_file(sentence.number), {}
    for stack in study.manifest.stacks:
        maps = study.portrait.maps.get((stack.name, sentence.index))
        if maps is None:
            continue
        maps = maps[list(stack.attention_layers)]
        picture, _ = images.sheet(maps, ink(STEPS + 1), side=TILE)
        (folder / f"{name}-{stack.name}.png").write_bytes(picture)
        if exact(maps):
            layers = list(stack.attention_layers)
            norms = study.portrait.norms.get((stack.name, sentence.index))
            found[stack.name] = {
                **attention_data(stack, sentence, maps, None if norms is None else norms[layers]),
                "layers": layers,
                "heads": maps.shape[1],
                "texts": [_side(sentence, stack.queries), _side(sentence, stack.keys)],
            }
    if found:
        _write(folder / f"{name}.js", script(f"sentence-{name}", found))


def _write_neurons(study: Study, sentence: ShownSentence, root: Path) -> None:
    """Queries and keys of a sentence, a file a layer, where they were kept."""
    for stack in study.manifest.stacks:
        for layer, value in neurons_data(study, stack, sentence):
            (root / FOLDER).mkdir(exist_ok=True)
            path = root / f"{neuron_files(stack, sentence)}{layer:02d}.js"
            _write(path, script(f"neurons-{path.stem}", value))


def _side(sentence: ShownSentence, side: Side) -> str:
    """A side as the sentence's page names it."""
    return str(side) if len(sentence.texts) > 1 else ""


def _map(study: Study, exemplar: Exemplar) -> dict[str, Any]:
    stack = study.manifest.stack(exemplar.head.stack)
    sentence = study.portrait.sentences[exemplar.index]
    return attention_data(stack, sentence, exemplar.attention, exemplar.norms)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
