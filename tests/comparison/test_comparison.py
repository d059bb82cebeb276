"""Two models on the same sentences: differences are the naive ones, and heads find each other."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

import tiny
from grouped_studies import ROWS, write_rows
from headbook.analysis.arrays import Floats
from headbook.comparison.comparison import Comparison, compare
from headbook.comparison.drift import (
    CEILING_LABEL,
    FLOOR_LABEL,
    OUTPUT_DRIFT,
    PATTERN_DRIFT,
    QUERY_KEY,
    WEIGHT_DRIFT,
    rounded,
)
from headbook.comparison.study_pair import pair_studies
from headbook.config import Config
from headbook.errors import StudyError
from headbook.run.collect import collect
from headbook.run.models import model_drift
from headbook.schema import HeadCorrespondence, SinkView
from headbook.study.ablation_tables import EFFECT
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sentence_data import MappedSentence
from headbook.study.study import Study
from naive_comparison import affinity, divergence

TUNING = 5  # steps
SHIFT = 1  # by which heads are permuted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this module's models and sentences are."""
    return tmp_path_factory.mktemp("comparison")


@pytest.fixture(scope="module")
def collected(folder: Path) -> Callable[..., Study]:
    """A study of a model on the grouped sentences."""

    def of(model: Path, first: int = 0, last: int = len(ROWS), **options: Any) -> Study:
        file = write_rows(folder / f"{first}-{last}.jsonl", ROWS[first:last])
        given = {"annotator": "none", "dtype": "float64", "facet": "none", "importance": "auto"}
        return collect(file, model=str(model), **(given | options))

    return of


@pytest.fixture(scope="module")
def a(tiny_folder: Callable[[str], Path], collected: Callable[..., Study]) -> Study:
    """A causal model."""
    return collected(tiny_folder("gpt2"))


@pytest.fixture(scope="module")
def tuned(
    tiny_folder: Callable[[str], Path], folder: Path, collected: Callable[..., Study]
) -> Study:
    """The same, trained on for a few steps."""
    model, tokenizer = loaded(tiny_folder("gpt2"))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for row in ROWS[:TUNING]:
        state = model(**tokenizer(row.text, return_tensors="pt")).last_hidden_state
        (state[:, :-1] - state[:, 1:]).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return collected(written(model, tokenizer, folder / "tuned"))


@pytest.fixture(scope="module")
def permuted(
    tiny_folder: Callable[[str], Path], folder: Path, collected: Callable[..., Study]
) -> Study:
    """The same, the heads of each layer in another order."""
    model, tokenizer = loaded(tiny_folder("gpt2"))
    n_heads, width = model.config.n_head, model.config.n_embd // model.config.n_head
    order = (np.roll(np.arange(n_heads), SHIFT)[:, None] * width + np.arange(width)).reshape(-1)
    every = np.concatenate([order + part * len(order) for part in range(3)])
    with torch.no_grad():
        for layer in model.h:
            layer.attn.c_attn.weight.copy_(layer.attn.c_attn.weight[:, every].clone())
            layer.attn.c_attn.bias.copy_(layer.attn.c_attn.bias[every].clone())
            layer.attn.c_proj.weight.copy_(layer.attn.c_proj.weight[order].clone())
    return collected(written(model, tokenizer, folder / "permuted"))


def loaded(path: Path) -> tuple[Any, Any]:
    """A model and its tokenizer."""
    return AutoModel.from_pretrained(path), AutoTokenizer.from_pretrained(path)


def written(model: Any, tokenizer: Any, path: Path) -> Path:
    """Both in a folder."""
    for part in (model, tokenizer):
        part.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def found(a: Study, tuned: Study) -> Comparison:
    """What training has changed."""
    return compare(a, tuned, rounded=a, null=tuned)


def test_a_model_is_equal_to_itself(a: Study) -> None:
    itself = compare(a, a)
    numbers = itself.heads["self"]
    own = np.array([column.label != CEILING_LABEL for column in numbers.columns])
    values = numbers.value[..., own]
    assert not values[~np.isnan(values)].any()
    p = numbers.p[..., own]
    assert set(p[~np.isnan(p)]) == {1.0}
    matched = itself.matched["self"]
    assert matched.matching.partner.tolist() == [*range(len(matched.a))]
    np.testing.assert_allclose(matched.matching.similarity, 1)
    assert matched.stability == 1
    assert itself.differences["difference"].notna().all()


def test_every_difference_is_that_of_the_tables(found: Comparison) -> None:
    studies = found.sides.a, found.sides.b
    keys = ["stack", "layer", "head", "metric", "view", "label"]
    heads = [study.heads.astype({"view": str}).set_index(keys) for study in studies]
    numbers = found.differences.set_index(keys)
    both = heads[0].index.intersection(heads[1].index).intersection(numbers.index)
    kept = numbers.loc[both]
    assert len(both) > 900  # comparisons within texts need 20 of them
    assert {"attention_distance", "variability", "context_similarity", "induction_score"} <= set(
        both.get_level_values("metric")
    )
    values = [table.loc[both, "value"].to_numpy() for table in heads]
    for column, value in zip("ab", values, strict=True):
        np.testing.assert_allclose(kept[column], value, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(kept["difference"], values[1] - values[0], rtol=1e-4, atol=1e-6)


def test_every_difference_of_tokens_is_that_of_the_tables(found: Comparison) -> None:
    keys = ["stack", "layer", "metric", "label"]
    tables = [each.layers.set_index(keys)["value"] for each in (found.sides.a, found.sides.b)]
    numbers = found.differences
    is_token = numbers["head"].isna() & (numbers["metric"] != PATTERN_DRIFT)
    numbers = numbers[is_token].set_index(keys)
    assert {"cosine_to_input", "mixing_ratio", "vocabulary_rank"} <= set(
        numbers.index.get_level_values("metric")
    )
    values = [table.loc[numbers.index].to_numpy() for table in tables]
    np.testing.assert_allclose(numbers["a"], values[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(numbers["b"], values[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(numbers["difference"], values[1] - values[0], atol=1e-9)


def test_targets_of_removals_keep_their_order(a: Study, tuned: Study) -> None:
    """Whatever the process makes of the hashes of their names."""
    ablation = a.corpus_sums.ablation
    assert ablation is not None
    turned = replace(ablation, changes=dict([*ablation.changes.items()][::-1]))
    other = replace(a, corpus_sums=replace(a.corpus_sums, ablation=turned))
    targets = [
        [c.label.partition("/")[2] for c in compare(study, tuned).heads["self"].columns
         if c.metric == EFFECT]
        for study in (a, other)
    ]  # fmt: skip
    assert len({*targets[0]}) > 1
    assert [*dict.fromkeys(targets[0])] == [*dict.fromkeys(targets[1])][::-1]


def test_intervals_are_paired(found: Comparison) -> None:
    """As by hand, sentence by sentence: each has a bucket of its own."""
    studies = found.sides.a, found.sides.b
    numbers = found.heads["self"]
    column = numbers.column("attention_distance", "raw")
    parts = [part_of(study) for study in studies]
    (n_a, d_a), (n_b, d_b) = parts
    ratio_a, ratio_b = n_a.sum(0) / d_a.sum(0), n_b.sum(0) / d_b.sum(0)
    e = (n_b - ratio_b * d_b) / d_b.mean(0) - (n_a - ratio_a * d_a) / d_a.mean(0)
    error = np.sqrt((e**2).sum(0) * len(e) / (len(e) - 1)) / len(e)
    assert column is not None
    half = (numbers.high - numbers.low)[..., column] / 2
    known = ~np.isnan(half)
    assert known.any()
    reach = half[known] / error[known]
    assert (reach > 2).all()  # Student's t, and wider where sentences are uneven
    assert (reach < 4).all()


def part_of(study: Study) -> tuple[Floats, Floats]:
    """Sums of the attention distance by sentence."""
    for part in study.corpus_sums.buckets["self"]:
        for place, column in enumerate(part.columns):
            if (column.metric, column.view) == ("attention_distance", SinkView.RAW):
                n = part.n[..., place]
                return n, np.broadcast_to(part.d[..., place], n.shape)
    raise AssertionError


@pytest.mark.parametrize("view", [*SinkView])
def test_drift_is_the_naive_one(found: Comparison, view: SinkView) -> None:
    numbers = found.heads["self"]
    column = numbers.column(PATTERN_DRIFT, str(view))
    shape = numbers.value.shape[:2]
    total, rows = np.zeros(shape), np.zeros(shape)
    for one, other in found.sides.mapped():
        maps = [each.maps["self"].astype(np.float64) for each in (one, other)]
        special = one.texts[found.sides.stacks[0].a.queries].special
        for layer, head in np.ndindex(shape):
            for query in range(1, len(special)):
                if special[query]:
                    continue
                pair = [viewed(m[layer, head, query], special, query, view) for m in maps]
                if pair[0] and pair[1]:
                    total[layer, head] += divergence(pair[0], pair[1])
                    rows[layer, head] += 1
    np.testing.assert_allclose(numbers.value[..., column], total / rows, rtol=1e-6)


def viewed(row: Floats, special: tuple[bool, ...], query: int, view: SinkView) -> list[float]:
    """A row of causal attention in a view; empty where too little is left of it."""
    kept = [
        0.0 if view is not SinkView.RAW and (special[key] or key == 0) else float(row[key])
        for key in range(query + 1)
    ]
    if view is not SinkView.RENORM:
        return kept
    return [] if sum(kept) < 0.1 else [weight / sum(kept) for weight in kept]


def test_rounding_and_other_heads_stand_beside_drift(found: Comparison, a: Study) -> None:
    numbers = found.heads["self"]
    own, floor, ceiling = (
        numbers.value[..., numbers.column(PATTERN_DRIFT, "raw", label)]
        for label in ("", FLOOR_LABEL, CEILING_LABEL)
    )
    assert not floor.any()  # the same study was given
    assert (own > 0).all()
    assert ceiling.mean() > own.mean()


def test_permuted_heads_find_each_other(a: Study, permuted: Study) -> None:
    matched = compare(a, permuted, HeadCorrespondence.MATCHED).matched["self"]
    n_heads = a.manifest.stacks[0].n_heads
    place = np.arange(len(matched.a))
    expected = place // n_heads * n_heads + (place % n_heads + SHIFT) % n_heads
    assert matched.matching.partner.tolist() == expected.tolist()
    np.testing.assert_allclose(matched.matching.similarity, 1, atol=1e-3)
    assert matched.matching.mutual.all()


def test_similarity_is_the_naive_one(a: Study, tuned: Study) -> None:
    """Between words; here each token is a word, and the first is the sink."""
    both = pair_studies(a, tuned)
    found = compare(a, tuned).matched["self"]
    total, words = 0.0, 0
    for one, other in both.mapped():
        (text,) = one.texts.values()
        maps = [each.maps["self"][1, 0].astype(np.float64) for each in (one, other)]
        members: dict[int, list[int]] = {}
        for place, word in enumerate(text.words):
            members.setdefault(word, []).append(place)
        members.pop(-1, None)
        free = [places for places in members.values() if 0 not in places]
        for places in members.values():
            rows = []
            for each in maps:
                row = [sum(each[q][k] for q in places for k in keys) / len(places) for keys in free]
                rows.append(row)
            if len(free) > 1 and all(sum(row) >= 0.1 for row in rows):
                total += affinity(*([w / sum(row) for w in row] for row in rows))
                words += 1
    n_heads = a.manifest.stacks[0].n_heads
    value = found.similarity[n_heads, n_heads]
    np.testing.assert_allclose(value, total / words, rtol=1e-6)


def test_studies_of_different_sentences_are_refused(
    a: Study, tiny_folder: Callable[[str], Path], collected: Callable[..., Study]
) -> None:
    other = collected(tiny_folder("gpt2"), 2, len(ROWS), importance="off", metrics="sink_share")
    with pytest.raises(StudyError) as error:
        compare(a, other)
    message = str(error.value)
    assert "only the first has sentences 1 (The fisherman sees the bird.), 2 (The" in message
    assert "\n" not in message


def test_heads_of_other_shapes_do_not_correspond(
    a: Study, tiny_folder: Callable[[str], Path], collected: Callable[..., Study]
) -> None:
    other = collected(tiny_folder("bert"), importance="off", metrics="sink_share")
    found = compare(a, other)
    assert found.sides.mismatch
    assert not found.heads
    assert not found.layers
    assert found.matched["self"].cut == (
        a.manifest.stacks[0].causal != other.manifest.stacks[0].causal
    )
    assert len(found.matching) == len(found.matched["self"].a)
    with pytest.raises(StudyError, match="--heads same: "):
        compare(a, other, HeadCorrespondence.SAME)


def test_outputs_and_weights_of_models_are_compared(
    a: Study, tuned: Study, tiny_folder: Callable[[str], Path], folder: Path
) -> None:
    models = str(tiny_folder("gpt2")), str(folder / "tuned")
    before, after = ((None, Config(model=model)) for model in models)
    found = compare(a, tuned, drift=model_drift(a, tuned, (before, after), trained=True))
    numbers = found.heads["self"]
    networks = [loaded(Path(model))[0] for model in models]
    outputs = [
        naive_outputs(network, [*found.sides.a.map_sample.sentences.values()])
        for network in networks
    ]
    n, d = 0.0, 0
    for one, other in zip(*outputs, strict=True):
        for first, second in zip(one, other, strict=True):
            n += 1 - float(first @ second / (first.norm() * second.norm()))
            d += 1
    column = numbers.column(OUTPUT_DRIFT)
    np.testing.assert_allclose(numbers.value[1, 2, column], n / d, rtol=1e-4)
    n_heads, width = networks[0].config.n_head, networks[0].config.n_embd
    size = width // n_heads
    products = []
    for network in networks:
        weight = network.h[1].attn.c_attn.weight.double().detach()
        query, key = (weight[:, p * width + 2 * size : p * width + 3 * size] for p in (0, 1))
        products.append(query @ key.T)
    naive = float((products[1] - products[0]).norm() / products[0].norm())
    column = numbers.column(WEIGHT_DRIFT, "", QUERY_KEY)
    np.testing.assert_allclose(numbers.value[1, 2, column], naive, rtol=1e-6)
    for metric, label in ((OUTPUT_DRIFT, ""), (WEIGHT_DRIFT, QUERY_KEY)):
        own, floor = (
            numbers.value[..., numbers.column(metric, "", name)] for name in (label, rounded(label))
        )
        assert (floor > 0).all()
        assert (floor < own).all()
        assert floor.max() < 0.01  # bfloat16 keeps eight digits of two
    itself = compare(a, a, drift=model_drift(a, a, (before, before), trained=True))
    for metric, label in ((OUTPUT_DRIFT, ""), (WEIGHT_DRIFT, QUERY_KEY)):
        values = itself.heads["self"].value[..., itself.heads["self"].column(metric, "", label)]
        assert not values.any()


def naive_outputs(network: Any, sentences: list[MappedSentence]) -> list[list[torch.Tensor]]:
    """What head 2 of layer 1 writes for each ordinary token of each sentence."""
    found = []
    width = network.config.n_embd // network.config.n_head
    for sentence in sentences:
        ((side, ids),) = sentence.ids.items()
        rows: list[torch.Tensor] = []
        hook = network.h[1].attn.c_proj.register_forward_pre_hook(
            lambda _, given, rows=rows: rows.extend(given[0][0, :, 2 * width : 3 * width])
        )
        network(torch.from_numpy(ids)[None])
        hook.remove()
        special = sentence.texts[side].special
        found.append([row.detach() for row, away in zip(rows, special, strict=True) if not away])
    return found


def test_losses_are_compared_by_character(folder: Path, collected: Callable[..., Study]) -> None:
    models = [tiny.write(name, folder / f"{name}-lm", head=True) for name in ("gpt2", "llama")]
    a, b = (collected(model, metrics="sink_share") for model in models)
    found = compare(a, b).losses
    assert found is not None
    assert found.sentences == len(ROWS)
    for model, value in zip(models, (found.bits.a, found.bits.b), strict=True):
        bits, characters = naive_bits(model)
        np.testing.assert_allclose(value, bits / characters, rtol=1e-5)
    speechless = replace(b, corpus_sums=CorpusSums(texts=b.corpus_sums.texts))
    assert compare(a, speechless).losses is None


def naive_bits(path: Path) -> tuple[float, int]:
    """Bits of all texts after their first token, and of how many characters they are."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    bits, characters = 0.0, 0
    for row in ROWS:
        given = tokenizer(row.text, return_tensors="pt", return_offsets_mapping=True)
        spans = [(a, b) for a, b in given.pop("offset_mapping")[0].tolist()[1:] if a < b]
        logits = model(**given).logits[0, :-1].detach().log_softmax(-1)
        special = tokenizer.get_special_tokens_mask(
            given["input_ids"][0], already_has_special_tokens=True
        )
        for place, token in enumerate(given["input_ids"][0, 1:].tolist()):
            if not special[place + 1]:
                bits -= float(logits[place, token]) / math.log(2)
        start = spans[0][0]
        characters += spans[-1][1] - (start + (row.text[start] == " "))
    return bits, characters


def test_equal_names_are_told_apart(a: Study) -> None:
    assert len({*pair_studies(a, a).names}) == 2
    rounded = replace(
        a, manifest=replace(a.manifest, model=replace(a.manifest.model, dtype="bfloat16"))
    )
    assert pair_studies(a, rounded).names == (
        f"{a.manifest.model.name} (float64)", f"{a.manifest.model.name} (bfloat16)",
    )  # fmt: skip
