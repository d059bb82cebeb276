"""What heads promote, against plain hooks on the models of transformers and whole matrices."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, isnan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import hand_model
import tiny
from headbook.ablation.logit_targets import target_functions
from headbook.ablation.sample import ablation_sample
from headbook.circuits.outputs import measure_outputs
from headbook.circuits.sample_outputs import NO_SUM, SampleOutputs
from headbook.circuits.token_directions import TOLERANCE
from headbook.circuits.unembedding import POST_NORM, TRANSFORM
from headbook.config import Config
from headbook.errors import ModelError
from headbook.model.architecture import AttentionPlace
from headbook.model.logit_lens import LogitLens, make_logit_lens
from headbook.progress import NoProgress
from headbook.run.prepare import prepare
from headbook.schema import ResidualPoint
from headbook.study.circuits import CircuitResults, OutputSpace
from headbook.text.batch import Batch

pytestmark = pytest.mark.usefixtures("of_any_number")

TEXTS = (
    "the old dog sees the small bird in the garden .",
    "a red house , the cat and the old fisher .",
    "the fisher sings and sleeps near water !",
    "the cat and the bird sleep in the red house",
    "a garden near the house , the water and the dog",
    "the dog sees the bird and the fisher runs ?",
    "small birds sing near the old garden",
    "the red bird sleeps . the dog runs",
)
TARGETS = TEXTS[::-1]
END = {"gpt2": "attn.c_proj", "llama": "self_attn.o_proj", "bert": "attention.output.dense"}
SMALL = 2e-5  # contributions are in single precision


@dataclass
class Measured:
    """Results of a tiny model, with the objects behind them."""

    results: CircuitResults
    outputs: SampleOutputs
    batches: list[Batch]
    folder: Path


@contextmanager
def measured(folder: Path, texts: Path) -> Iterator[Measured]:
    config = Config.of(model=str(folder), dtype="float64", annotator="none", device="cpu")
    with prepare([str(texts)], config, NoProgress(), None) as run:
        items = [*run.sentences.reread(range(len(run.corpus)))]
        architecture, batch = run.architecture, run.sentences.batch
        sample = ablation_sample(items, 40 * 16, batch, alike=not architecture.padded)
        found = make_logit_lens(run.model, architecture)
        side = architecture.stacks[
            "decoder" if "decoder" in architecture.stacks else "self"
        ].queries
        lens = found if isinstance(found, LogitLens) else None
        functions = target_functions(lens, side, run.model.tokenizer.mask_token_id)
        the = run.model.tokenizer(" the" if "gpt2" in folder.name else "the")["input_ids"]
        ordinary = [t for t in the if t not in run.model.tokenizer.all_special_ids][:1]
        slots = np.array([*ordinary, -1])
        keys = {
            call: np.tile(slots, (architecture.stacks[call.stack].n_heads, 1))
            for call in architecture.calls
        }
        outputs = SampleOutputs(run.model, architecture, lens, functions, keys)
        results = measure_outputs(outputs, sample.batches)
        yield Measured(results, outputs, [*sample.batches], folder)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    rows = [f'"{source}","{target}"' for source, target in zip(TEXTS, TARGETS, strict=True)]
    file.write_text("\n".join(["source,target", *rows]), encoding="utf-8")
    return file


class Plain:
    """Contributions of a model by whole matrices, one sentence and one head at a time."""

    def __init__(self, it: Measured, family: str) -> None:
        loader: Any = {"bert": AutoModelForMaskedLM}.get(family, AutoModelForCausalLM)
        self.network = loader.from_pretrained(
            it.folder, dtype=torch.float64, attn_implementation="eager"
        ).eval()
        self.it, self.family = it, family
        self.items = sorted(it.outputs.items, key=lambda item: item.sentence.index)
        self.batch_of = {
            item.sentence.index: (batch, row)
            for batch in it.batches
            for row, item in enumerate(batch.items)
        }
        self.sentences = [self._run(item) for item in self.items]
        # Written out for each family; the transform of BERT has a test of its own.
        head = self.network.get_output_embeddings().weight.T.double()
        if family == "bert":
            directions = it.outputs.directions
            assert directions is not None
            self.unembedding = directions.matrix.double()
        else:
            gain = (
                self.network.transformer.ln_f.weight
                if family == "gpt2"
                else self.network.model.norm.weight
            )
            self.unembedding = gain[:, None] * head
            self.unembedding = self.unembedding - self.unembedding.mean(1, keepdim=True)

    def _run(self, item: Any) -> dict[str, Any]:
        tokens = next(iter(item.tokens.values()))
        ids = torch.tensor(tokens.ids)[None]
        batch, row = self.batch_of[item.sentence.index]
        prepared = self.it.outputs._functions.prepare_batch(batch)
        side = self.it.outputs.side
        given = prepared.texts[side].ids[row, : len(tokens)][None]
        seen: dict[int, torch.Tensor] = {}
        last: list[torch.Tensor] = []
        hooks = []
        layer = 0
        for name, module in self.network.named_modules():
            if name.endswith(END[self.family]):
                hooks.append(
                    module.register_forward_pre_hook(
                        lambda _, args, layer=layer: seen.__setitem__(layer, args[0][0])
                    )
                )
                layer += 1
            if name.endswith(("ln_f", "model.norm")):
                hooks.append(
                    module.register_forward_pre_hook(lambda _, args: last.append(args[0][0]))
                )
        with torch.no_grad():
            out = self.network(given, output_attentions=True)
        for hook in hooks:
            hook.remove()
        n = len(tokens)
        masked = (given != ids)[0].numpy()
        ordinary = ~tokens.special
        queries = [i for i in range(1, n) if ordinary[i] and (self.family != "bert" or masked[i])]
        sigma = torch.ones(n, dtype=torch.float64)
        centre = torch.zeros(n, 1, dtype=torch.float64)
        if self.family == "gpt2":
            x = last[0]
            sigma = (x.var(-1, unbiased=False) + 1e-5).sqrt()
        if self.family == "llama":
            sigma = (last[0].square().mean(-1) + self.network.config.rms_norm_eps).sqrt()
        causal = self.family != "bert"
        true = (
            {i: int(ids[0, i + 1]) for i in queries if i + 1 < n}
            if causal
            else {i: int(ids[0, i]) for i in queries}
        )
        keys = [j for j in range(n) if ordinary[j] and not masked[j] and (j > 0 or not causal)]
        half = hashlib.blake2b(tokens.ids.tobytes(), digest_size=8).digest()[-1] & 1
        return {
            "ids": ids[0].tolist(), "queries": queries, "keys": keys, "sigma": sigma, "true": true,
            "z": seen, "A": [a[0] for a in out.attentions], "half": half, "centre": centre,
            "p": out.logits[0].softmax(-1), "number": item.sentence.index + 1,
        }  # fmt: skip

    def z(self, sentence: dict[str, Any], layer: int, head: int, i: int) -> Any:
        """Return the output of a head at a query."""
        width = tiny.WIDTH // tiny.HEADS
        return sentence["z"][layer][i, head * width : (head + 1) * width]

    def written(self, layer: int, head: int, z: torch.Tensor) -> Any:
        """Return one vector as the stream gets it, centred where the last norm centres."""
        width = tiny.WIDTH // tiny.HEADS
        end = next(
            module
            for name, module in self.network.named_modules()
            if name.endswith(END[self.family]) and f".{layer}." in name
        )
        weight = end.weight if self.family == "gpt2" else end.weight.T
        o = z @ weight[head * width : (head + 1) * width]
        return o - o.mean() if self.family == "gpt2" else o

    def mean(self, layer: int, head: int, half: int) -> torch.Tensor:
        """Return the mean output of a head at the queries of one half."""
        rows = [
            self.z(s, layer, head, i)
            for s in self.sentences
            if s["half"] == half
            for i in s["queries"]
        ]
        return torch.stack(rows).mean(0)

    def contribution(self, s: dict[str, Any], layer: int, head: int, i: int) -> Any:
        """Return the contribution to each token of the vocabulary."""
        z = self.z(s, layer, head, i) - self.mean(layer, head, 1 - s["half"])
        entries = len(self.it.outputs.model.tokenizer)
        return (
            (self.written(layer, head, z) / s["sigma"][i] @ self.unembedding)[:entries]
            .detach()
            .numpy()
        )


def rows_of(table: pd.DataFrame, layer: int, head: int, **more: Any) -> pd.DataFrame:
    chosen = table[(table["layer"] == layer) & (table["head"] == head)]
    for name, value in more.items():
        chosen = chosen[chosen[name] == value]
    return chosen


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_exemplars_equal_whole_matrices(family: str, texts: Path, tmp_path: Path) -> None:
    folder = tiny.write(family, tmp_path / family, head=True)
    with measured(folder, texts) as it:
        plain, names = Plain(it, family), it.outputs.model.token_strings
        for layer, head in ((0, 1), (1, 3)):
            found = []
            for s in plain.sentences:
                cells = [
                    (float(s["A"][layer][head, i, j]), i, j)
                    for i in s["queries"]
                    for j in s["keys"]
                    if i != j
                ]
                if cells and max(cells)[0] > 0:
                    best = max(cells, key=lambda cell: cell[0])
                    found.append((best, s))
            found.sort(key=lambda pair: -pair[0][0])
            ranks = []
            for number, ((weight, i, j), s) in enumerate(found, 1):
                listed = rows_of(it.results.exemplars, layer, head, exemplar=number)
                first, d = listed.iloc[0], plain.contribution(s, layer, head, i)
                rank = int((d > d[s["ids"][j]]).sum()) + 1
                ranks.append(rank)
                assert [*first[["sentence", "query", "key", "key_rank"]]] == [
                    s["number"],
                    i,
                    j,
                    rank,
                ]
                assert first["weight"] == pytest.approx(weight, rel=SMALL, abs=SMALL)
                for kind, sign, count in (("promoted", -1, 5), ("suppressed", 1, 3)):
                    rows, order = listed[listed["kind"] == kind], np.argsort(sign * d)[:count]
                    assert [*rows["token"]] == names.of(order)
                    np.testing.assert_allclose(
                        rows["value"].astype(float), d[order], rtol=SMALL, atol=SMALL
                    )
                if i in s["true"]:
                    assert first["true_token"] == names[s["true"][i]]
                    assert first["true_contribution"] == pytest.approx(
                        d[s["true"][i]], rel=SMALL, abs=SMALL
                    )
                    probability = float(s["p"][i, s["true"][i]])
                    assert first["true_probability"] == pytest.approx(
                        probability, rel=SMALL, abs=SMALL
                    )
                else:
                    assert first["true_token"] == ""
            numbers = rows_of(it.results.numbers, layer, head).set_index("label")["value"]
            size = len(it.outputs.model.tokenizer)
            assert numbers[""] == np.median(ranks)
            assert numbers["in top 10"] == sum(rank <= 10 for rank in ranks)
            assert numbers["in bottom 10"] == sum(rank > size - 10 for rank in ranks)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_promoted_tokens_are_chosen_on_one_half_and_measured_on_the_other(
    family: str, texts: Path, tmp_path: Path
) -> None:
    folder = tiny.write(family, tmp_path / family, head=True)
    with measured(folder, texts) as it:
        plain, names = Plain(it, family), it.outputs.model.token_strings
        for layer, head in ((0, 2), (1, 0)):
            longest: list[list[tuple[dict[str, Any], int]]] = []
            for half in (0, 1):
                queries = [
                    (s, i) for s in plain.sentences if s["half"] == half for i in s["queries"]
                ]

                def length(
                    query: tuple[dict[str, Any], int], layer: int = layer, head: int = head
                ) -> float:
                    s, i = query
                    z = plain.z(s, layer, head, i) - plain.mean(layer, head, 1 - s["half"])
                    width = tiny.WIDTH // tiny.HEADS
                    own = it.outputs.output_weights(AttentionPlace("self", layer), width)[head]
                    return float((own.double() @ z).norm())

                queries.sort(key=length, reverse=True)
                longest.append(queries[: ceil(len(queries) / 10)])
            mean, held_out = (
                np.mean([plain.contribution(s, layer, head, i) for s, i in half], 0)
                for half in longest
            )
            for kind, sign in (("promoted", -1), ("suppressed", 1)):
                rows, order = (
                    rows_of(it.results.promoted, layer, head, kind=kind),
                    np.argsort(sign * mean)[:10],
                )
                assert [*rows["token"]] == names.of(order)
                np.testing.assert_allclose(rows["value"], held_out[order], rtol=SMALL, atol=SMALL)
                assert {*rows["n_sentences"]} == {len({s["number"] for s, _ in longest[1]})}


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_read_tokens_promote_what_their_values_do(family: str, texts: Path, tmp_path: Path) -> None:
    folder = tiny.write(family, tmp_path / family, head=True)
    with measured(folder, texts) as it:
        plain, names = Plain(it, family), it.outputs.model.token_strings
        entry = int(it.outputs.key_tokens[AttentionPlace("self", 1)][0, 0])
        values: dict[tuple[int, int], torch.Tensor] = {}
        network = plain.network
        for s in plain.sentences:
            with torch.no_grad():
                out = network(torch.tensor([s["ids"]]), output_hidden_states=True)
            if family == "gpt2":
                block = network.transformer.h[1]
                v = block.attn.c_attn(block.ln_1(out.hidden_states[1]))[0, :, 2 * tiny.WIDTH :]
                heads = v.unflatten(1, (tiny.HEADS, -1))
            else:
                block = network.model.layers[1]
                v = block.self_attn.v_proj(block.input_layernorm(out.hidden_states[1]))[0]
                heads = v.unflatten(1, (2, -1)).repeat_interleave(2, 1)
            values |= {(s["number"], j): heads[j] for j in range(len(s["ids"]))}
        for head in range(tiny.HEADS):
            total, mass, sentences = np.zeros(len(it.outputs.model.tokenizer)), 0.0, set()
            for s in plain.sentences:
                for i in s["queries"]:
                    for j in s["keys"]:
                        if s["ids"][j] == entry and j <= i:
                            weight = float(s["A"][1][head, i, j])
                            o = plain.written(1, head, values[s["number"], j][head]) / s["sigma"][i]
                            total += weight * (o @ plain.unembedding)[: len(total)].detach().numpy()
                            mass += weight
                            sentences.add(s["number"])
            rows = rows_of(it.results.promoted, 1, head, kind="read")
            order = np.argsort(-total / mass)[:5]
            assert {*rows["key_token"]} == {names[entry]}
            assert [*rows["token"]] == names.of(order)
            np.testing.assert_allclose(rows["value"], (total / mass)[order], rtol=SMALL, atol=SMALL)
            assert {*rows["n_sentences"]} == {len(sentences)}


@pytest.mark.parametrize("family", tiny.by_level(["gpt2", "llama", "t5", "gpt_neox", "granite"]))
def test_contributions_add_up_to_the_centred_logits(
    family: str, texts: Path, pairs: Path, tmp_path: Path
) -> None:
    folder = tiny.write(family, tmp_path / family, head=True)
    with measured(folder, pairs if family == "t5" else texts) as it:
        assert it.outputs.error < 1e-4
        assert it.results.remarks == ()
        assert it.results.space is OutputSpace.UNEMBEDDING


def test_a_contribution_that_is_left_out_is_found(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_parts = SampleOutputs._summed_parts

    def without_embedding(outputs: SampleOutputs, calls: Any, points: Any, valid: Any) -> Any:
        total, adds_up = all_parts(outputs, calls, points, valid)
        return total - points[outputs.stack, 0, ResidualPoint.PRE], adds_up

    monkeypatch.setattr(SampleOutputs, "_summed_parts", without_embedding)
    folder = tiny.write("gpt2", tmp_path / "gpt2", head=True)
    with pytest.raises(ModelError, match=NO_SUM) as found, measured(folder, texts):
        pass
    by = re.search(r"differ by (\S+) of .* more than (\S+)$", str(found.value))
    assert by is not None
    assert float(by[1]) > 10 * float(by[2]) == 10 * TOLERANCE


def test_models_with_norms_behind_blocks_are_called_approximate(
    pairs: Path, tmp_path: Path
) -> None:
    with measured(tiny.write("bart", tmp_path / "bart"), pairs) as it:
        assert isnan(it.outputs.error)
        assert it.results.remarks == (POST_NORM,)
        assert {*it.results.numbers["stack"]} == {"decoder", "cross"}


def test_heads_of_encoder_decoders_promote_by_the_unembedding_of_the_decoder(
    pairs: Path, tmp_path: Path
) -> None:
    folder = tiny.write("t5", tmp_path / "t5")
    network: Any = AutoModelForSeq2SeqLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    norm, width = network.decoder.final_layer_norm, network.config.d_kv
    head_weight = network.lm_head.weight.T * tiny.WIDTH**-0.5  # of tied embeddings
    unembedding = norm.weight[:, None] * head_weight
    unembedding = unembedding - unembedding.mean(1, keepdim=True)
    with measured(folder, pairs) as it:
        names, outputs = it.outputs.model.token_strings, it.outputs
        assert {*it.results.exemplars["stack"]} == {"decoder", "cross"}
        ends = {
            "decoder": network.decoder.block[1].layer[0].SelfAttention.o,
            "cross": network.decoder.block[1].layer[1].EncDecAttention.o,
        }
        runs = []
        for item in outputs.items:
            source, target = (tokens for tokens in item.tokens.values())
            seen: dict[str, torch.Tensor] = {}
            hooks = [
                end.register_forward_pre_hook(
                    lambda _, args, name=name, seen=seen: seen.__setitem__(name, args[0][0])
                )
                for name, end in ends.items()
            ]
            hooks.append(
                norm.register_forward_pre_hook(
                    lambda _, args, seen=seen: seen.__setitem__("last", args[0][0])
                )
            )
            with torch.no_grad():
                network(
                    input_ids=torch.tensor(source.ids)[None],
                    decoder_input_ids=torch.tensor(target.ids)[None],
                )
            for hook in hooks:
                hook.remove()
            queries = [i for i in range(1, len(target)) if not target.special[i]]
            runs.append((seen, queries, item))
        for stack, end in ends.items():
            for row in it.results.exemplars.query(
                f"stack == '{stack}' and layer == 1 and head == 2"
            ).to_dict("records"):
                number = next(
                    n for n, run in enumerate(runs) if run[2].sentence.index + 1 == row["sentence"]
                )
                part = slice(2 * width, 3 * width)
                other = [n for n in range(len(runs)) if outputs.half[n] != outputs.half[number]]
                mean = torch.cat([runs[n][0][stack][runs[n][1]][:, part] for n in other]).mean(0)
                seen = runs[number][0]
                sigma = (seen["last"][row["query"]].square().mean() + norm.variance_epsilon).sqrt()
                o = (seen[stack][row["query"], part] - mean) @ end.weight.T[part]
                d = (o / sigma @ unembedding)[: len(outputs.model.tokenizer)].detach().numpy()
                order = np.argsort(-d if row["kind"] == "promoted" else d)
                assert row["token"] == names[int(order[row["rank"] - 1])]
                assert row["value"] == pytest.approx(
                    d[order[row["rank"] - 1]], rel=SMALL, abs=SMALL
                )
                side = runs[number][2].tokens[outputs.architecture.stacks[stack].keys]
                key_id = int(side.ids[row["key"]])
                assert (row["key_token"], row["key_rank"]) == (
                    names[key_id],
                    int((d > d[key_id]).sum()) + 1,
                )


def test_the_transform_of_a_masked_head_is_its_mean_derivative(texts: Path, tmp_path: Path) -> None:
    folder = tiny.write("bert", tmp_path / "bert", head=True)
    with measured(folder, texts) as it:
        assert it.results.remarks == (POST_NORM, TRANSFORM)
        network, batch = it.outputs.model.network, it.batches[0]
        prepared = it.outputs._functions.prepare_batch(batch).texts[it.outputs.side]
        with torch.no_grad():
            states = network.bert(prepared.ids, attention_mask=prepared.valid.long())
        rows = states.last_hidden_state[prepared.valid][:64]
        transform = network.cls.predictions.transform
        found = torch.stack([torch.autograd.functional.jacobian(transform, row) for row in rows])
        directions = it.outputs.directions
        assert directions is not None
        expected = found.mean(0).T @ network.get_output_embeddings().weight.T
        expected -= expected.mean(1, keepdim=True)
        assert (directions.matrix - expected).abs().max() < 1e-3 * expected.abs().max()


def test_permuted_heads_have_permuted_tables(texts: Path, tmp_path: Path) -> None:
    folder = tiny.write("gpt2", tmp_path / "gpt2", head=True)
    order = [2, 0, 3, 1]
    network: Any = AutoModelForCausalLM.from_pretrained(folder)
    columns = torch.arange(tiny.WIDTH).view(tiny.HEADS, -1)[order].flatten()
    with torch.no_grad():
        for block in network.transformer.h:
            parts = torch.cat([columns + k * tiny.WIDTH for k in range(3)])
            block.attn.c_attn.weight.copy_(block.attn.c_attn.weight[:, parts].clone())
            block.attn.c_attn.bias.copy_(block.attn.c_attn.bias[parts].clone())
            block.attn.c_proj.weight.copy_(block.attn.c_proj.weight[columns].clone())
    other = tiny.write("gpt2", tmp_path / "gpt2-permuted", head=True)
    network.save_pretrained(other)
    with measured(folder, texts) as a, measured(other, texts) as b:
        for name in ("numbers", "promoted", "exemplars"):
            before, after = getattr(a.results, name), getattr(b.results, name)
            after = after.assign(head=after["head"].map(dict(enumerate(order))))
            after = after.sort_values(["layer", "head"], kind="stable", ignore_index=True)
            pd.testing.assert_frame_equal(before, after, rtol=1e-4, atol=1e-5)


def test_a_head_that_copies_promotes_what_it_attends_to(tmp_path: Path) -> None:
    folder = hand_model.write(tmp_path / "hand")
    file = tmp_path / "texts.txt"
    file.write_text(hand_model.texts(), encoding="utf-8")
    with measured(folder, file) as it:
        numbers = it.results.numbers
        copies = numbers[numbers["head"] == hand_model.COPIES].set_index("label")["value"]
        assert copies[""] == 1
        assert copies["in top 10"] == 12
        exemplars = it.results.exemplars
        first = exemplars.query(f"head == {hand_model.COPIES} and kind == 'promoted' and rank == 1")
        assert [*first["token"]] == [*first["key_token"]]
        for table in (numbers, exemplars, it.results.promoted):
            assert hand_model.IDLE not in {*table["head"]}


def test_models_without_a_vocabulary_are_read_by_input_embeddings(
    texts: Path, tmp_path: Path
) -> None:
    folder = tiny.write("bert", tmp_path / "bert")
    with measured(folder, texts) as it:
        results, outputs = it.results, it.outputs
        assert results.space is OutputSpace.INPUT_EMBEDDINGS
        assert results.numbers.empty
        words = outputs.model.network.get_input_embeddings().weight[: len(outputs.model.tokenizer)]
        words = torch.nn.functional.normalize(words - words.mean(0), dim=-1)
        z = torch.cat(outputs.outputs[AttentionPlace("self", 1)])
        queries = np.concatenate(outputs.queries)
        half = np.array(outputs.half)[queries[:, 0]]
        weight = outputs.output_weights(AttentionPlace("self", 1), z.shape[-1])
        for row in rows_of(results.exemplars, 1, 2).to_dict("records"):
            place = next(
                n
                for n, item in enumerate(outputs.items)
                if item.sentence.index + 1 == row["sentence"]
            )
            query = int(
                np.flatnonzero((queries[:, 0] == place) & (queries[:, 1] == row["query"]))[0]
            )
            o = weight[2] @ (z[query, 2] - z[half != half[query], 2].mean(0))
            cosines = words.double() @ (o / o.norm()).double()
            best = cosines.argsort(descending=row["kind"] == "promoted")[row["rank"] - 1]
            assert row["token"] == outputs.model.token_strings[int(best)]
            assert row["value"] == pytest.approx(float(cosines[best]), rel=SMALL, abs=SMALL)


def test_unknown_outputs_are_an_error_of_one_line(texts: Path, tmp_path: Path) -> None:
    folder = tiny.write("xlm", tmp_path / "xlm")
    with (
        pytest.raises(ModelError, match="outputs of heads are unknown") as error,
        measured(folder, texts),
    ):
        pass
    assert "\n" not in str(error.value)
