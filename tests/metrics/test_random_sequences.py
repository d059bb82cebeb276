"""Metrics of random, repeated sequences, against plain loops over `output_attentions`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tiny
from bare_model import STACKS, Bare
from headbook.model.load import load_model
from headbook.model.tokenizer import N_RANDOM_SEQUENCES, SentenceTokenizer, random_sequences
from headbook.run.collect import collect
from headbook.schema import Side
from headbook.text.annotate import Annotator
from naive_ratios import Part, ratio

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("of_any_number")]

Folder = Callable[[str], Path]
SCORES = {"duplicate_score": 0, "induction_score": 1}  # how far behind the twin the key stands


def sequences(folder: Path) -> list[list[list[int]]]:
    """The ids of every sequence, by side."""
    model = load_model(str(folder), dtype="float64")
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    return [
        [item.tokens[side].ids.tolist() for side in Side if side in item.tokens]
        for item in random_sequences(encoder, seed=0)
    ]


@pytest.mark.parametrize(
    "name", ["bert", "gpt2", "llama", pytest.param("bart", marks=pytest.mark.slow)]
)
def test_scores_equal_the_naive_computation(name: str, tiny_folder: Folder, tmp_path: Path) -> None:
    folder = tiny_folder(name)
    (tmp_path / "some.txt").write_text("the cat sees\nthe dog runs\n")
    metrics = "duplicate_score,induction_score,previous_score"
    study = collect(
        tmp_path / "some.txt",
        model=str(folder),
        dtype="float64",
        metrics=metrics,
        importance="off",
        circuits="off",
    )
    bare = Bare.load(folder, pairs=tiny.ALL[name].pairs)
    special = set(bare.tokenizer.all_special_ids)
    parts: dict[tuple[str, str, int, int], list[Part]] = {}
    for rows in sequences(folder):
        output = bare.run(rows, output_attentions=True)
        for stack, (field, side, keys) in STACKS.items():
            if side != keys:
                continue
            for layer, maps in enumerate(getattr(output, field, None) or ()):
                for head, weights in enumerate(maps[0].tolist()):
                    for metric, part in naive(rows[side], weights, special).items():
                        parts.setdefault((metric, stack, layer, head), []).append(part)
    table = study.heads.set_index(["metric", "stack", "layer", "head"])
    assert len(table) > 0
    for where, row in table.iterrows():
        wanted = ratio(parts[where], (0, 1))  # type: ignore[index]
        np.testing.assert_allclose(
            row[["value", "low", "high"]].to_numpy(float), wanted[:3], rtol=1e-5, atol=1e-5
        )
        assert row["n_sentences"] == N_RANDOM_SEQUENCES
    causal = {s.name for s in study.manifest.stacks if s.causal}
    assert set(table.loc["duplicate_score"].index.get_level_values("stack")) == {
        s.name for s in study.manifest.stacks if not s.crosses
    }
    for metric in ("induction_score", "previous_score"):
        frame = table[table.index.get_level_values("metric") == metric]
        assert set(frame.index.get_level_values("stack")) == causal


def naive(ids: list[int], weights: list[list[float]], special: set[int]) -> dict[str, Part]:
    """The three scores of one head on one sequence."""
    n = len(ids)
    found = {}
    for metric, step in SCORES.items():
        mass = [
            weights[i][j + step]
            for i in range(n)
            for j in range(i)
            if ids[i] == ids[j] and ids[i] not in special
        ]
        found[metric] = Part(sum(mass), len(mass), len(mass))
    mass = [
        weights[i][i - 1]
        for i in range(1, n)
        if ids[i] not in special and ids[i - 1] not in special
    ]
    return {**found, "previous_score": Part(sum(mass), len(mass), len(mass))}


def test_every_sequence_is_a_run_of_different_tokens_twice(tiny_folder: Folder) -> None:
    rows = [sides[0] for sides in sequences(tiny_folder("gpt2"))]
    assert len(rows) == N_RANDOM_SEQUENCES
    for row in rows:
        half = len(row) // 2
        assert row[:half] == row[half:]
        assert len(set(row)) == half
    assert len(set(map(tuple, rows))) == N_RANDOM_SEQUENCES
