"""The public demo's computation against plain numpy, and its section on Methods."""

from pathlib import Path

import numpy as np
import pytest

import tiny
from bare_model import Bare
from block_parts import every
from headbook.pages.methods_parts.public_demo import public_demo_question
from headbook.pages.parts.blocks import Table
from headbook.report.results import stack_results
from headbook.results.number import Number
from headbook.study.study import Study
from sites import Site, make_study

TEXTS = ("the old gardener sees the bird", "water", "the dog sleeps near the house")


def study_of_texts(place: Path, family: str) -> Study:
    """Return a study in which two sentences have pages."""
    inputs = place / "texts.txt"
    inputs.write_text("\n".join(TEXTS), encoding="utf-8")
    return make_study(
        inputs, tiny.write(family, place / "model"), sentence_pages="2", control="none",
        metrics="cosine_to_input,vocabulary_rank", importance="off", circuits="off",
    )  # fmt: skip


def demo(folder: Path, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and numbers of nearer entries as the demo's code has them, in numpy."""
    bare = Bare.load(folder)
    (ids,) = bare.ids(text)
    output = bare.run([ids], output_attentions=True, output_hidden_states=True)
    weights = {name: part.detach().numpy() for name, part in bare.network.named_parameters()}
    words = weights["embeddings.word_embeddings.weight"][: len(bare.tokenizer)]
    first = 0 if bare.network.embeddings.position_embeddings.padding_idx is None else 2
    encodings = words + weights["embeddings.position_embeddings.weight"][first]
    encodings = encodings / np.linalg.norm(encodings, axis=1, keepdims=True)
    cosines, nearer = [], []
    for layer, attention in enumerate(output.attentions):
        block = f"encoder.layer.{layer}.attention"
        state, maps = output.hidden_states[layer][0].numpy(), attention[0].numpy()
        values = state @ weights[f"{block}.self.value.weight"]  # x W, not x W^T, and no bias
        width = values.shape[1] // len(maps)
        heads = [maps[h] @ values[:, h * width : (h + 1) * width] for h in range(len(maps))]
        sums = state + np.concatenate(heads, 1) @ weights[f"{block}.output.dense.weight"]
        scores = sums / np.linalg.norm(sums, axis=1, keepdims=True) @ encodings.T
        own = scores[np.arange(len(ids)), ids]
        cosines.append(own)
        nearer.append((scores > own[:, None]).sum(1))
    return np.stack(cosines), np.stack(nearer)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_table_has_the_demos_numbers_of_the_first_listed_sentence(
    family: str, tmp_path: Path
) -> None:
    study = study_of_texts(tmp_path, family)
    table = study.public_demo
    number = min(sentence.number for sentence in study.sentence_data.listed)
    assert {*table["sentence"]} == {number}
    cosines, nearer = demo(tmp_path / "model", TEXTS[number - 1])
    assert len(table) == cosines.size
    cells = table["layer"], table["position"]
    np.testing.assert_allclose(table["demo_cosine"], cosines[cells], atol=1e-6)
    np.testing.assert_array_equal(table["demo_nearer"], nearer[cells])
    assert nearer.any()
    tokens = study.tokens.query("metric == 'cosine_to_input' and state == 'mid'")
    own = tokens[tokens["sentence"] == number].set_index(["layer", "position"])["value"]
    np.testing.assert_array_equal(table["cosine"], own.loc[[*zip(*cells, strict=True)]])
    assert np.abs(table["cosine"] - table["demo_cosine"]).max() > 0.01
    assert table["nearer"].notna().all()
    study.save(tmp_path / "study")
    assert Study.load(tmp_path / "study").public_demo.equals(table)


def test_methods_shows_one_token_by_both_computations(encoder_site: Site) -> None:
    question = public_demo_question(encoder_site.results)
    assert question is not None
    (table,) = every(Table, question)
    numbers = [[cell for cell in line if isinstance(cell, Number)] for line in table.rows]
    assert len(numbers) == tiny.LAYERS
    rows = encoder_site.study.public_demo
    for layer, line in enumerate(numbers):
        (address,) = {number.row for number in line}
        key = dict(address.key)
        values = rows[(rows[[*key]] == [*key.values()]).all(axis=1)]
        assert len(values) == 1
        assert key["layer"] == layer
        assert [n.value for n in line] == [
            values[name].item() for name in ("cosine", "nearer", "demo_cosine", "demo_nearer")
        ]


@pytest.mark.parametrize("kind", ["decoder", "pair"])
def test_other_models_have_no_such_section(kind: str, request: pytest.FixtureRequest) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    assert site.study.public_demo.empty
    assert public_demo_question(site.results) is None


@pytest.mark.parametrize("family", ["albert", "modernbert", "gpt2"])
def test_maps_that_are_not_square_or_fused_give_no_table(family: str, tmp_path: Path) -> None:
    study = study_of_texts(tmp_path, family)
    assert study.public_demo.empty
    assert public_demo_question(stack_results(study)) is None
