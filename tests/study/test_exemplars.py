"""Which sentences a head's page shows: as plain loops rank them, whatever the batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import treebank
from bare_model import Bare, given
from headbook.run.collect import collect
from headbook.study.sentence_data import Ranking
from headbook.study.study import Study, merge
from single_head import Viewed

Folder = Callable[[str], Path]
Chosen = dict[Ranking, list[tuple[int, int, float]]]
QueriesAndKeys = dict[tuple[int, int], float]
OPTIONS: dict[str, Any] = {
    "dtype": "float64",
    "annotator": "none",
    "metrics": "variability,sink_share",
    "exemplars": 2,
    "sentence_pages": "1",
    "importance": "off",
    "circuits": "off",
}
# The second tree once more at the end: it must not stand twice.
TREES = (*treebank.TREES, treebank.TREES[1])
FIRST = 10


class Seen(NamedTuple):
    """One head in one sentence, the sink masked: its weights by query and key.

    Those of queries with several keys stand apart: others have nothing to choose from.
    """

    cells: dict[tuple[int, int], float]
    queries: int
    chosen: dict[tuple[int, int], float]


def looked(folder: Path) -> dict[tuple[int, int], list[Seen]]:
    """By layer and head, every sentence."""
    bare = Bare.load(folder)
    found: dict[tuple[int, int], list[Seen]] = {}
    for tree in TREES:
        for _, layer, head, attention in bare.looks(given(tree)):
            rows = Viewed(attention, "nosink").rows
            cells = {(r.query, key): w for r in rows for key, w in r.weights.items()}
            several = {r.query for r in rows if len(r.weights) > 1}
            chosen = {at: w for at, w in cells.items() if at[0] in several}
            found.setdefault((layer, head), []).append(Seen(cells, len(rows), chosen))
    return found


def ranked(scores: dict[int, float]) -> list[tuple[int, int, float]]:
    """Rank, sentence and score, the best first; the repeated one left out."""
    order = sorted((s for s in scores if s < len(TREES) - 1), key=lambda s: (-scores[s], s))
    return [(rank, s, scores[s]) for rank, s in enumerate(order, start=1)]


def moved(sentences: list[Seen]) -> dict[int, float]:
    """The share of all deviation from the mean map that each sentence makes."""
    corners = [
        {at: w for at, w in sentence.cells.items() if max(at) < FIRST} for sentence in sentences
    ]
    places = {at for corner in corners for at in corner}
    mean = {}
    for at in places:
        there = [corner[at] for corner in corners if at in corner]
        mean[at] = sum(there) / len(there)
    away = [sum(abs(w - mean[at]) for at, w in corner.items()) for corner in corners]
    return {n: each / sum(away) for n, each in enumerate(away)}


def wanted(sentences: list[Seen]) -> Chosen:
    best = ranked({n: max(s.chosen.values()) for n, s in enumerate(sentences) if s.chosen})
    mass = {n: sum(s.cells.values()) / s.queries for n, s in enumerate(sentences) if s.queries}

    def near(part: float, number: int) -> list[tuple[int, int, float]]:
        value = (1 - part) * (len(best) - 1)
        chosen = sorted(best, key=lambda each: (round(abs(each[0] - 1 - value), 6), each[0]))
        return sorted(chosen[:number])

    return {
        Ranking.STRONGEST: best[:2],
        Ranking.Q90: near(0.9, 2),
        Ranking.Q75: near(0.75, 2),
        Ranking.MEDIAN: near(0.5, 3),
        Ranking.MASS: ranked(mass)[:2],
        Ranking.VARIABILITY: ranked(moved(sentences))[:2],
    }


def chosen(study: Study, layer: int, head: int) -> Chosen:
    found: Chosen = {ranking: [] for ranking in Ranking}
    for e in study.sentence_data.exemplars:
        if e.head[1:] == (layer, head):
            found[e.ranking].append((e.rank, e.index, e.score))
    return found


def same(found: Chosen, expected: Chosen) -> None:
    for ranking, rows in expected.items():
        assert [row[:2] for row in found[ranking]] == [row[:2] for row in rows], ranking
        for one, other in zip(found[ranking], rows, strict=True):
            assert one[2] == pytest.approx(other[2], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_every_ranking_is_that_of_plain_loops(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Strictly by rank, ties to the earlier sentence, the same sentence once."""
    file = treebank.write_trees(tmp_path / "trees.conllu", TREES)
    study = collect(file, model=str(tiny_folder(family)), **OPTIONS)
    for (layer, head), sentences in looked(tiny_folder(family)).items():
        same(chosen(study, layer, head), wanted(sentences))
        for exemplar in study.sentence_data.by_weight:
            if exemplar.head[1:] == (layer, head):
                weights = sentences[exemplar.index].chosen
                pair = exemplar.query, exemplar.key
                assert weights[pair] == pytest.approx(max(weights.values()), abs=1e-6)


def test_splits_change_no_ranking(tiny_folder: Folder, tmp_path: Path) -> None:
    """A merged study shows what its parts kept: by variability others may have come before."""
    model = str(tiny_folder("bert"))
    parts = [
        treebank.write_trees(tmp_path / f"{name}.conllu", trees)
        for name, trees in (("a", TREES[:3]), ("b", TREES[3:]))
    ]
    whole = collect(parts, model=model, **OPTIONS)
    one_by_one = collect(parts, model=model, **OPTIONS, batch_tokens=1)
    studies = [collect(part, model=model, **OPTIONS) for part in parts]
    studies[0].save(tmp_path / "stored")
    merged = merge([Study.load(tmp_path / "stored"), studies[1]])
    for (layer, head), sentences in looked(tiny_folder("bert")).items():
        expected = chosen(whole, layer, head)
        same(chosen(one_by_one, layer, head), expected)
        found = chosen(merged, layer, head)
        every = {row[:2]: row[2] for row in ranked(moved(sentences))}
        for rank, index, score in found.pop(Ranking.VARIABILITY):
            assert score == pytest.approx(every[rank, index], rel=1e-5, abs=1e-5)
        same(found, {ranking: expected[ranking] for ranking in found})
