"""Words that sentence vectors move to, against one sentence, one head and one hook at a time."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import headbook
import tiny
from headbook.ablation.ablator import HeadAblator
from headbook.ablation.costs import costs_of
from headbook.ablation.head_sets import HeadGroup
from headbook.ablation.importance import AblationPlan, parameters_of
from headbook.ablation.logit_targets import target_functions
from headbook.ablation.sample import ablation_sample
from headbook.analysis.intervals import BOOTSTRAP_DRAWS, median_interval
from headbook.circuits.towards import (
    MovedVectors,
    measure_towards,
    single_words,
    towards_cost,
    why_no_towards,
)
from headbook.config import Config
from headbook.model.intervention import make_patchable
from headbook.progress import NoProgress
from headbook.run.prepare import prepare
from headbook.schema import Replacement, Side
from headbook.study.ablation.results import AUTO
from headbook.study.circuits import CircuitResults, OutputSpace
from machine import Lines

WORDS = [piece for piece in tiny.PIECES if piece.isalpha() and len(piece) > 2]
TAGS = {
    "the": "DET", "a": "DET", "in": "ADP", "near": "ADP", "and": "CCONJ", ".": "PUNCT",
    "sees": "VERB", "sing": "VERB", "sleep": "VERB", "runs": "VERB", "old": "ADJ", "red": "ADJ",
}  # fmt: skip
TEXTS = (
    "the old dog sees the small bird in the garden .",
    "a red house near the water .",
    "the fisher and the cat sleep near the house",
    "the cat sees the bird",
    "a garden near the old house .",
    "the dog runs and the bird runs",
    "small dog sing in the garden .",
    "the red bird sleep in water",
    "old fisher runs near the red garden",
    "the water and the garden .",
    "a cat runs in the small house",
    "the happiness sees the fisher .",
    "bird and dog and cat sleep",
)
WIDTH = tiny.WIDTH // tiny.HEADS


def write(folder: Path, pooling: str) -> Path:
    """A tiny encoder that pools."""
    tiny.write("bert", folder)
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "texts.conllu"
    blocks = []
    for text in (*TEXTS, TEXTS[0]):  # the first one twice: it counts once
        lines = [f"# text = {text}"]
        for number, word in enumerate(text.split(), 1):
            tag = TAGS.get(word, "NOUN")
            lines.append(f"{number}\t{word}\t_\t{tag}\t_\t_\t{int(number > 1)}\tdep\t_\t_")
        blocks.append("\n".join(lines) + "\n")
    file.write_text("\n".join(blocks) + "\n", encoding="utf-8")
    return file


@contextmanager
def prepared(folder: Path, corpus: Path) -> Iterator[tuple[HeadAblator, Any]]:
    config = Config.of(model=str(folder), dtype="float64", device="cpu")
    with prepare([str(corpus)], config, NoProgress(), None) as run:
        items = [*run.sentences.reread(range(len(run.corpus)))]
        sample = ablation_sample(items, 40 * 16, run.sentences.batch, alike=False)
        heads = make_patchable(run.model, run.architecture, sample.batches[0])
        functions = target_functions(None, Side.SOURCE, None, pooling=run.model.pooling)
        yield HeadAblator(heads, functions), sample


class Plain:
    """All heads one after another; means by kind of token over the other half of the sentences."""

    def __init__(self, folder: Path, pooling: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.network = AutoModel.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager"
        ).eval()
        self.pooling = pooling
        every = [*TEXTS, TEXTS[0]]
        self.ids = [self.tokenizer(text)["input_ids"] for text in every]
        self.half = [
            hashlib.blake2b(np.array(ids, np.int64).tobytes(), digest_size=8).digest()[-1] & 1
            for ids in self.ids
        ]
        self.runs = [self.run(ids) for ids in self.ids]
        vectors = torch.stack([self.run(self.tokenizer(word)["input_ids"])[0] for word in WORDS])
        vectors = vectors - vectors.mean(0)
        self.words = torch.stack([v / v.norm() for v in vectors])

    def run(
        self, ids: list[int], replaced: tuple[int, int, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, list[torch.Tensor], Any]:
        """Return the sentence vector, the outputs of heads by layer, and attention."""
        z: list[torch.Tensor] = []
        hooks = []
        for layer, block in enumerate(self.network.encoder.layer):

            def change(_: Any, args: Any, layer: int = layer) -> Any:
                given = args[0].clone()
                z.append(args[0][0].clone())
                if replaced is not None and replaced[0] == layer:
                    part = slice(replaced[1] * WIDTH, (replaced[1] + 1) * WIDTH)
                    given[0, :, part] = replaced[2]
                return (given,)

            hooks.append(block.attention.output.dense.register_forward_pre_hook(change))
        with torch.no_grad():
            out = self.network(torch.tensor([ids]), output_attentions=True)
        for hook in hooks:
            hook.remove()
        states = out.last_hidden_state[0]
        vector = states[0] if self.pooling == "cls_token" else states.mean(0)
        return vector / vector.norm(), z, out.attentions

    def kind(self, number: int, i: int) -> int:
        """Return 0 for the first token, 1 for special ones, 2 for ordinary ones."""
        return 0 if i == 0 else 1 if i == len(self.ids[number]) - 1 else 2

    def replacement(self, number: int, layer: int, head: int) -> torch.Tensor:
        """Return the mean outputs by kind of token over the other half."""
        part = slice(head * WIDTH, (head + 1) * WIDTH)
        rows: dict[int, list[torch.Tensor]] = {0: [], 1: [], 2: []}
        for other, (_, z, _) in enumerate(self.runs):
            if self.half[other] != self.half[number]:
                for i in range(len(self.ids[other])):
                    rows[self.kind(other, i)].append(z[layer][i, part])
        means = {kind: torch.stack(vectors).mean(0) for kind, vectors in rows.items()}
        return torch.stack([means[self.kind(number, i)] for i in range(len(self.ids[number]))])

    def content(self, number: int) -> dict[int, int]:
        """Row of each content word that is one token."""
        tokens = self.tokenizer.convert_ids_to_tokens(self.ids[number])
        rows = {}
        for i, token in enumerate(tokens):
            alone = i + 1 == len(tokens) or not tokens[i + 1].startswith("##")
            if token in WORDS and alone and TAGS.get(token, "NOUN") in {"NOUN", "VERB", "ADJ"}:
                rows[i] = WORDS.index(token)
        return rows


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_words_and_ranks_equal_those_of_single_hooks(
    pooling: str, corpus: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "bert", pooling)
    plain = Plain(folder, pooling)
    with prepared(folder, corpus) as (ablator, sample):
        results = measure_towards(ablator, sample)
    assert (results.space, results.vocabulary) == (OutputSpace.SENTENCE_VECTORS, len(WORDS))
    assert {*results.exemplars["sentence"]} <= {*range(1, len(TEXTS) + 1)}
    for layer, head in ((0, 1), (1, 2)):
        found = []
        for number in range(len(TEXTS)):
            without = plain.run(
                plain.ids[number], (layer, head, plain.replacement(number, layer, head))
            )[0]
            found.append((plain.runs[number][0] - without, number))
        found.sort(key=lambda pair: -float(pair[0].norm()))
        ranks, others, cosines = [], [], []
        for place, (change, number) in enumerate(found[:12], 1):
            scores = (plain.words @ (change / change.norm())).numpy()
            cosines.append(scores)
            content, n = plain.content(number), len(plain.ids[number])
            weights = plain.runs[number][2][layer][0, head, 1 : n - 1].sum(0)
            key = max(content, key=lambda i: float(weights[i]))
            rank = int((scores > scores[content[key]]).sum()) + 1
            ranks.append(rank)
            rest = {*content.values()} - {content[key]}
            others += [int((scores > scores[row]).sum()) + 1 for row in rest]
            listed = results.exemplars.query(
                f"layer == {layer} and head == {head} and exemplar == {place}"
            )
            first = listed.iloc[0]
            assert [*first[["sentence", "key", "key_token", "key_rank"]]] == [
                number + 1, key, WORDS[content[key]], rank,
            ]  # fmt: skip
            assert first["weight"] == pytest.approx(float(change.norm()), rel=1e-5)
            for kind, sign, count in (("to", -1, 5), ("from", 1, 3)):
                rows, order = listed[listed["kind"] == kind], np.argsort(sign * scores)[:count]
                assert [*rows["token"]] == [WORDS[row] for row in order]
                np.testing.assert_allclose(rows["value"].astype(float), scores[order], atol=1e-5)
        numbers = results.numbers.query(f"layer == {layer} and head == {head}").set_index("metric")
        low, value, high = (
            float(numbers[name]["towards_rank"]) for name in ("low", "value", "high")
        )
        assert value == np.median(ranks)
        assert low <= value <= high
        assert numbers.loc["towards_control", "value"] == np.median(others)
        assert numbers.loc["towards_rank", "n_sentences"] == 12
        mean = np.mean(cosines, 0)
        for kind, sign in (("to", -1), ("from", 1)):
            rows = results.promoted.query(
                f"layer == {layer} and head == {head} and kind == '{kind}'"
            )
            order = np.argsort(sign * mean)[:10]
            assert [*rows["token"]] == [WORDS[row] for row in order]
            np.testing.assert_allclose(rows["value"].astype(float), mean[order], atol=1e-5)


def test_vectors_that_importance_collects_are_those_of_plain_ablation(
    corpus: Path, tmp_path: Path
) -> None:
    """Each head alone, on each sentence, and words that follow from them."""
    folder = write(tmp_path / "bert", "mean_tokens")
    plain = Plain(folder, "mean_tokens")
    with prepared(folder, corpus) as (ablator, sample):
        moved = MovedVectors(ablator, sample)
        assert not moved.change.size
        costs = costs_of(ablator, *parameters_of(ablator.heads.model))
        group = HeadGroup("self", "layer 0", ablator.head_names[: tiny.HEADS], (Replacement.MEAN,))
        plan = AblationPlan(ablator, costs, AUTO, sample, 0, (group,), observe=moved)
        plan.run()
        assert moved.is_complete
        numbers = [int(index) for batch in sample.batches for index in batch.index]
        for column, (_, layer, head) in enumerate(ablator.head_names):
            for row, number in enumerate(numbers):
                replacement = plain.replacement(number, layer, head)
                without = plain.run(plain.ids[number], (layer, head, replacement))[0]
                change = (plain.runs[number][0] - without).numpy()
                np.testing.assert_allclose(moved.change[row, column], change, atol=1e-7)
        collected, own = measure_towards(ablator, sample, moved), measure_towards(ablator, sample)
    for name in ("numbers", "promoted", "exemplars"):
        pd.testing.assert_frame_equal(getattr(collected, name), getattr(own, name))


def test_a_run_ablates_the_heads_of_an_encoder_once(corpus: Path, tmp_path: Path) -> None:
    """With importance or without, words are the same."""
    folder = write(tmp_path / "bert", "mean_tokens")
    studies = []
    for importance, passes in (("auto", "one forward pass"), ("off", "about 9 forward passes")):
        lines = Lines()
        studies.append(
            headbook.collect(
                [corpus], model=str(folder), importance=importance, sentence_pages="0",
                metrics="type_shares,sink_share", progress=lines,
            )
        )  # fmt: skip
        (line,) = [line for line in lines.lines if "sentence vectors move" in line]
        assert passes in line
    pd.testing.assert_frame_equal(studies[0].promoted_tokens, studies[1].promoted_tokens)


def test_a_head_without_output_moves_to_no_word(corpus: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "bert", "mean_tokens")
    network = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        network.encoder.layer[1].attention.output.dense.weight[:, :WIDTH] = 0
    network.save_pretrained(folder)
    with prepared(folder, corpus) as (ablator, sample):
        results: CircuitResults = measure_towards(ablator, sample)
    for table in (results.numbers, results.promoted, results.exemplars):
        heads = {*zip(table["layer"], table["head"], strict=True)}
        assert heads == {*np.ndindex(tiny.LAYERS, tiny.HEADS)} - {(1, 0)}


def test_cost_and_words_are_announced_and_few_sentences_are_a_reason(
    corpus: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "bert", "mean_tokens")
    with prepared(folder, corpus) as (ablator, sample):
        model = ablator.heads.model
        assert [*single_words(model)] == WORDS
        assert why_no_towards(model, 12) == ""
        assert "the sample has 11 different sentences" in why_no_towards(model, 11)
        assert "has 1 different sentence;" in why_no_towards(model, 1)
        costs = costs_of(ablator, *parameters_of(model))
        # Three passes of its own; heads of layer 0 need both layers, those of layer 1 one of two.
        message = towards_cost(ablator.head_names, costs, 13, None)
        assert "about 9 forward passes over 13 sentences" in message
        message = towards_cost(ablator.head_names, costs, 13, MovedVectors(ablator, sample))
        assert "one forward pass over 13 sentences" in message
    bare = tiny.write("bert", tmp_path / "bare")
    with prepared(bare, corpus) as (ablator, _):
        assert why_no_towards(ablator.heads.model, 100) == "the checkpoint is no sentence encoder"


def test_intervals_of_medians_draw_clusters() -> None:
    rng = np.random.default_rng(3)
    cluster = np.repeat(np.arange(11), rng.integers(1, 5, 11))
    values = rng.normal(size=len(cluster))
    times = np.random.default_rng(7).multinomial(11, [1 / 11] * 11, BOOTSTRAP_DRAWS)
    medians = [np.median(np.repeat(values, drawn[cluster])) for drawn in times]
    expected = np.percentile(medians, [2.5, 97.5])
    np.testing.assert_allclose(median_interval(values, cluster, seed=7), expected)
    assert np.isnan(median_interval(values[:3], np.arange(3))).all()
