"""Queries and keys that studies keep give the weights that the model itself computes."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headbook
import tiny
import treebank
from bare_model import STACKS, Bare
from headbook import config
from headbook.analysis.rounded_vectors import MAX_WEIGHT_ERROR
from headbook.pages.parts.sentence_maps import neurons_data, reason
from headbook.passes.queries_and_keys import fits_in_memory
from headbook.report.results import stack_results as results_of
from headbook.schema import AttentionStack, Side
from headbook.study.manifest import MissingPart, NotAvailable
from headbook.study.sentence_data import (
    MAX_QUERY_KEY_BYTES,
    UINT8_STEPS,
    LayerKey,
    QueriesAndKeys,
    bytes_needed,
    complete_layers,
)
from headbook.study.study import Study, merge
from html_pages import elements, html_of, text_of
from naive_scores import of_pages, row_of

Folder = Callable[[str], Path]
Made = Callable[..., Study]
LEARNED = "gpt_oss"  # what its softmax gives to no token is not kept
HOOKED = {n: f for n, f in {**tiny.IN_TABLE, **tiny.UNKNOWN}.items() if n != LEARNED}
# One of each kind: absolute positions, causal, rotary and grouped, a window, biases, two texts.
FAMILIES = tiny.by_level(HOOKED)
POSITIONED = {"t5", "deberta", "deberta_v3"}  # scores have parts of positions
SOFT_CAP = 1.5


@pytest.fixture(scope="module")
def made(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small study of a family, with pages of three sentences."""

    @cache
    def of(name: str, **options: Any) -> Study:
        folder = tmp_path_factory.mktemp("input")
        pairs = name in tiny.ALL and tiny.ALL[name].pairs
        file = treebank.write_input(folder, pairs=pairs)
        given: dict[str, Any] = {
            "annotator": "none",
            "importance": "off",
            "metrics": "sink_share",
            "exemplars": 1,
            "sentence_pages": "3",
            "query_key_sentences": 2,
        }
        return headbook.collect([file], model=str(tiny_folder(name)), **(given | options))

    return of


def bare_weights(folder: Path, study: Study, index: int) -> Iterator[tuple[str, int, Any]]:
    """Stack, layer and weights of a sentence by the model alone, in float64."""
    bare = Bare.load(folder, pairs=Side.TARGET in study.sentence_data.sentences[index].texts)
    texts = study.sentence_data.sentences[index].texts
    rows = bare.ids(*(texts[side].text for side in Side if side in texts))
    output = bare.run(rows, output_attentions=True)
    for stack, (field, _, _) in STACKS.items():
        for layer, maps in enumerate(getattr(output, field, None) or ()):
            yield stack, layer, maps[0].numpy()


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_follow_from_what_is_kept(name: str, made: Made, tiny_folder: Folder) -> None:
    """Every weight of every head, to 1e-5, and as the study's own map has it, to half a step."""
    study = made(name, dtype="float64")
    seen: set[LayerKey] = set()
    for index in range(2):
        for stack, layer, weights in bare_weights(tiny_folder(name), study, index):
            seen.add((stack, index, layer))
            kept = study.sentence_data.queries_and_keys[stack, index, layer]
            maps = study.sentence_data.maps[stack, index][layer]
            for head, query in np.ndindex(*weights.shape[:2]):
                row = np.nan_to_num(row_of(kept, head, query).weights)
                np.testing.assert_allclose(row, weights[head, query], rtol=0, atol=1e-5)
                assert (
                    np.abs(row * UINT8_STEPS - maps[head, query]).max() < 0.5 + 1e-5 * UINT8_STEPS
                )
    assert seen == study.sentence_data.queries_and_keys.keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_is_added_but_position_biases(name: str, made: Made) -> None:
    """Elsewhere scores are scaled products, so that the scaling is the model's."""
    for (stack, _, _), kept in made(name).sentence_data.queries_and_keys.items():
        assert bool(kept.added.size) == (name in POSITIONED and stack != "cross")


def test_what_is_added_is_the_model_s_own_position_bias(made: Made, tiny_folder: Folder) -> None:
    network = Bare.load(tiny_folder("t5"), pairs=True).network
    for stack in ("encoder", "decoder"):
        attention = getattr(network, stack).block[0].layer[0].SelfAttention
        for (name, _, _), kept in made(
            "t5", dtype="float64"
        ).sentence_data.queries_and_keys.items():
            if name == stack:
                n = len(kept.seen)
                with torch.no_grad():
                    bias = attention.compute_bias(n, n)[0].numpy()
                seen = np.broadcast_to(kept.seen == 1, bias.shape)
                np.testing.assert_allclose(kept.added[seen], bias[seen], rtol=0, atol=1e-5)


def test_a_soft_cap_is_what_it_changes(
    made: Made, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma 2 squeezes scores: the difference is kept, and the weights come out."""
    options = dict(tiny.ALL["gemma3"].options)
    del options["final_logit_softcapping"]
    capped = tiny.Tiny(
        "gemma2",
        tiny.GEMMA,
        "<bos> $A",
        {**options, "attn_logit_softcapping": SOFT_CAP, "query_pre_attn_scalar": 8},
    )
    monkeypatch.setitem(tiny.ALL, "gemma2", capped)
    study = made("gemma2", dtype="float64")
    assert study.sentence_data.queries_and_keys
    for kept in study.sentence_data.queries_and_keys.values():
        product = np.einsum("hqd,hkd->hqk", kept.queries, kept.keys.repeat(2, 0)) * kept.scaling
        score = (product + kept.added)[:, kept.seen == 1]
        wanted = SOFT_CAP * np.tanh(product / SOFT_CAP)[:, kept.seen == 1]
        np.testing.assert_allclose(score, wanted, rtol=0, atol=1e-5)
        assert np.abs(kept.added).max() > 0.01
    for stack, layer, weights in bare_weights(tiny_folder("gemma2"), study, 0):
        row = row_of(study.sentence_data.queries_and_keys[stack, 0, layer], 1, 3).weights
        np.testing.assert_allclose(np.nan_to_num(row), weights[1, 3], rtol=0, atol=1e-5)


def test_as_many_as_fit_are_kept_by_default(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of bytes on the site decides, by the sizes of the files."""
    study = made("bert", query_key_sentences=None)
    kept = study.sentence_data.queries_and_keys
    listed = [sentence.index for sentence in study.sentence_data.listed]
    assert [*dict.fromkeys(index for _, index, _ in kept)] == listed
    assert len(listed) == 3
    two = sum(each.site_bytes for (_, index, _), each in kept.items() if index in listed[:2])
    monkeypatch.setattr(config, "SITE_QUERY_KEY_BYTES", two)
    few = made("bert", query_key_sentences=None, seed=1)
    assert {index for _, index, _ in few.sentence_data.queries_and_keys} == {*listed[:2]}
    last = few.sentence_data.listed[2]
    assert reason(results_of(few)["self"], last) == (
        f"queries and keys were kept of the first 2 sentences; --query-key-sentences {last.number} "
        "keeps more"
    )
    monkeypatch.setattr(config, "SITE_QUERY_KEY_BYTES", 1)
    none = made("bert", query_key_sentences=None, seed=2)
    assert not none.sentence_data.queries_and_keys


@pytest.mark.parametrize("wanted", [0, 1, 3, 5])
def test_the_first_sentences_with_pages_are_kept(wanted: int, made: Made) -> None:
    study = made("bert", query_key_sentences=wanted)
    assert {index for _, index, _ in study.sentence_data.queries_and_keys} == {
        *range(min(wanted, 3))
    }
    results = results_of(study)["self"]
    assert len(study.sentence_data.listed) == 3
    for sentence in study.sentence_data.listed:
        why = reason(results, sentence)
        if sentence.index < wanted:
            assert not why
        else:
            first = {0: "no sentence", 1: "the first sentence"}[wanted]
            more = f"--query-key-sentences {sentence.number} keeps more"
            assert why == f"queries and keys were kept of {first}; {more}"


@pytest.mark.slow
def test_a_page_without_queries_and_keys_says_how_to_get_them(made: Made, tmp_path: Path) -> None:
    """In one line; the data of the others stand beside, a file a layer."""
    study = made("bert", query_key_sentences=1)
    headbook.render(study, tmp_path / "site")
    files = sorted(file.name for file in (tmp_path / "site/data/neurons").iterdir())
    assert files == ["0001-self-L00.js", "0001-self-L01.js"]
    for number in (sentence.number for sentence in study.sentence_data.listed[:2]):
        html = html_of(tmp_path / f"site/sentences/{number:04}.html")
        [maps] = [box for box in elements(html, "div") if "data-maps" in box.attributes]
        assert ("data-neurons" in maps.attributes) == (number == 1)
        line = (
            "Steps from queries and keys to weights: queries and keys were "
            f"kept of the first sentence; --query-key-sentences {number} keeps more."
        )
        assert (line in text_of(html)) == (number > 1)


def test_a_study_of_an_older_version_says_that_nothing_was_kept(made: Made) -> None:
    study = made("bert")
    options = {k: v for k, v in study.manifest.options.items() if k != "query_key_sentences"}
    old = Study(
        replace(study.manifest, options=options),
        study.corpus_sums,
        replace(study.sentence_data, queries_and_keys={}),
        study.baselines,
    )
    why = reason(results_of(old)["self"], old.sentence_data.sentences[1])
    assert why == "queries and keys were kept of no sentence; --query-key-sentences 2 keeps more"


def test_models_that_the_hook_does_not_serve_say_so(made: Made) -> None:
    study = made("xlnet")
    assert not study.sentence_data.queries_and_keys
    why = reason(results_of(study)["self"], study.sentence_data.sentences[0])
    assert "does not use transformers' attention interface" in why


def test_where_weights_do_not_come_out_again_nothing_is_kept(made: Made) -> None:
    """Numbers of 8 bits are too coarse: the model's own sums are rounded."""
    study = made("bert", dtype="bfloat16")
    assert not study.sentence_data.queries_and_keys
    [gap] = [gap for gap in study.manifest.gaps if gap.key == MissingPart.WEIGHTS]
    assert reason(results_of(study)["self"], study.sentence_data.sentences[0]) == gap.why
    assert gap == NotAvailable("how weights come about", "self", gap.why, MissingPart.WEIGHTS)
    assert "differ by more than 1e-05" in gap.why
    assert not [gap for gap in made("bert").manifest.gaps if gap.key == MissingPart.WEIGHTS]


@pytest.mark.parametrize("name", ["bert", "llama", "bart"])
def test_the_predicted_size_is_that_of_what_is_kept(name: str, made: Made) -> None:
    study = made(name)
    for stack in study.manifest.stacks:
        for index in range(2):
            texts = study.sentence_data.sentences[index].texts
            n, m = (len(texts[side].pieces) for side in (stack.queries, stack.keys))
            kept = [
                each.queries.nbytes + each.keys.nbytes
                for (name, i, _), each in study.sentence_data.queries_and_keys.items()
                if (name, i) == (stack.name, index)
            ]
            assert bytes_needed(stack, n, m) == sum(kept)


def test_a_sentence_that_takes_too_much_is_left_out() -> None:
    """32 layers of 32 heads and 128 dimensions: 32 kB a token and layer."""
    stack = AttentionStack(
        "self", 32, tuple(range(32)), 32, 32, 128, True, Side.SOURCE, Side.SOURCE
    )
    most = MAX_QUERY_KEY_BYTES // (2 * 32 * 32 * 128 * 4)
    assert most == 15
    assert fits_in_memory(stack, most, most)
    assert not fits_in_memory(stack, most + 1, most + 1)


def test_a_sentence_that_lacks_a_layer_is_left_out(made: Made) -> None:
    study = made("bart")
    stacks = {stack.name: stack for stack in study.manifest.stacks}
    queries_and_keys = dict(study.sentence_data.queries_and_keys)
    assert complete_layers(queries_and_keys, stacks) == queries_and_keys
    del queries_and_keys["cross", 1, 0]
    assert complete_layers(queries_and_keys, stacks).keys() == queries_and_keys.keys() - {
        ("cross", 1, 1)
    }


def equal(one: QueriesAndKeys, other: QueriesAndKeys) -> bool:
    return all(
        a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
        for a, b in zip(vars(one).values(), vars(other).values(), strict=True)
    )


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_stored_scores_come_back(name: str, made: Made, tmp_path: Path) -> None:
    study = made(name)
    study.save(tmp_path / "study")
    loaded = Study.load(tmp_path / "study")
    assert (
        loaded.sentence_data.queries_and_keys.keys() == study.sentence_data.queries_and_keys.keys()
    )
    for place, kept in study.sentence_data.queries_and_keys.items():
        assert equal(loaded.sentence_data.queries_and_keys[place], kept)


def test_merged_studies_keep_theirs(made: Made) -> None:
    study = made("bert")
    both = merge([study, study])
    shift = study.manifest.counts["sentences"]
    places = {
        ("self", index + by, layer) for index in (0, 1) for layer in (0, 1) for by in (0, shift)
    }
    assert both.sentence_data.queries_and_keys.keys() == places
    for stack, index, layer in study.sentence_data.queries_and_keys:
        kept = study.sentence_data.queries_and_keys[stack, index, layer]
        assert equal(both.sentence_data.queries_and_keys[stack, index + shift, layer], kept)
    assert not reason(results_of(both)["self"], both.sentence_data.sentences[shift + 1])


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_of_pages_are_those_of_the_model(
    name: str, made: Made, tiny_folder: Folder
) -> None:
    """Within the error that the file states, against the model alone in float64."""
    study = made(name, dtype="float64")
    for index in range(2):
        for stack, layer, weights in bare_weights(tiny_folder(name), study, index):
            kept = study.sentence_data.queries_and_keys[stack, index, layer]
            pages, error = of_pages(kept), kept.rounded().error
            assert error <= MAX_WEIGHT_ERROR
            for head, query in np.ndindex(*weights.shape[:2]):
                row = np.nan_to_num(row_of(pages, head, query).weights)
                np.testing.assert_allclose(row, weights[head, query], rtol=0, atol=error + 1e-5)


def test_pages_get_every_number(made: Made) -> None:
    """What scripts read: integers, and what is added in 32 bits, lowest byte first, row by row."""
    study = made("t5")
    stack = study.manifest.stack("decoder")
    found = dict(neurons_data(study, stack, study.sentence_data.sentences[1]))
    assert found.keys() == {0, 1}
    for layer, data in found.items():
        kept = study.sentence_data.queries_and_keys["decoder", 1, layer]
        assert (np.frombuffer(data["added"], "<f4") == kept.added.ravel()).all()
        rounded = kept.rounded()
        for name, scales in (("queries", "queryScales"), ("keys", "keyScales")):
            numbers = np.frombuffer(data[name], f"i{data['bits'] // 8}")
            vectors = numbers.reshape(vars(kept)[name].shape)
            np.testing.assert_array_equal(vectors, getattr(rounded, name))
            half_steps = np.frombuffer(data[scales], "<f4").reshape(len(vectors), 1, -1) / 2
            steps = np.abs(vectors * (2 * half_steps) - vars(kept)[name])
            assert (steps <= half_steps * 1.0001).all()
        assert [*data["seen"]] == kept.seen.ravel().tolist()
        assert math.isclose(data["scaling"], float(kept.scaling), rel_tol=0)
        assert (data["heads"], data["width"]) == (kept.queries.shape[0], kept.queries.shape[2])
        assert data["keyHeads"] == len(kept.keys)


def test_a_sentence_without_exact_weights_has_no_files(made: Made) -> None:
    """Of a long sentence only the picture of all maps is shown, so that nobody could get there."""
    study = made("bert")
    [stack] = study.manifest.stacks
    sentence = study.sentence_data.sentences[1]
    long = np.zeros((2, 4, 501, 500), np.uint8)
    maps = {**study.sentence_data.maps, ("self", 1): long}
    longer = replace(study, sentence_data=replace(study.sentence_data, maps=maps))
    assert not [*neurons_data(longer, stack, sentence)]
    assert reason(results_of(longer)["self"], sentence) == "its weights are not shown one by one"
    maps["self", 1] = long[:, :, :500]
    shorter = replace(study, sentence_data=replace(study.sentence_data, maps=maps))
    assert [layer for layer, _ in neurons_data(shorter, stack, sentence)] == [0, 1]
