"""Context similarity of stored outputs: against plain loops, and what becomes of it in studies."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headbook
import tiny
import treebank
from bare_model import Bare, Given
from headbook.errors import ConfigError
from headbook.pages.parts.sentence_maps import has_outputs, sentence_starts, similarity_data
from headbook.passes.token_outputs import rounded_outputs
from headbook.schema import Side
from headbook.study import sentence_access
from headbook.study.study import Study, merge
from headbook.study.token_outputs import MAX_COSINE_ERROR, NO_OUTPUT, cosines_of
from naive_head_outputs import Written
from single_head import Viewed

Folder = Callable[[str], Path]
Made = Callable[..., Study]
PACK = 40  # tokens of a passage
ROUNDING = 1e-6  # of cosines in float32


@pytest.fixture(scope="module")
def made(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small study of a family, with pages of three sentences."""

    @cache
    def of(name: str, **options: Any) -> Study:
        pairs = name in tiny.ALL and tiny.ALL[name].pairs
        file = treebank.write_input(tmp_path_factory.mktemp("input"), pairs=pairs)
        given: dict[str, Any] = {
            "annotator": "none",
            "importance": "off",
            "circuits": "off",
            "metrics": "sink_share",
            "exemplars": 1,
            "sentence_pages": "3",
            "dtype": "float64",
        }
        return headbook.collect([file], model=str(tiny_folder(name)), **(given | options))

    return of


def naive_matrices(study: Study, bare: Bare, index: int) -> Iterator[tuple[Any, bool, Any]]:
    """Every head's cosines by plain loops, with and without the mean; NaN where there is none."""
    texts = study.sentence_data.sentences[index].texts
    sides = [Given(texts[side].text, []) for side in Side if side in texts]
    for stack, layer, head, attention in bare.looks(*sides):
        written = Written(Viewed(attention, "raw"))
        n = len(attention.queries.tokens)
        for centred, pairs in ((False, written.similar), (True, written.away)):
            matrix = np.full((n, n), np.nan)
            for (i, j), value in pairs.items():
                matrix[i, j] = matrix[j, i] = value
                matrix[i, i] = matrix[j, j] = 1
            yield (stack, layer, head), centred, matrix


def check_study(study: Study, bare: Bare) -> None:
    """All matrices of the first three pages are those of plain loops, within the tolerance."""
    seen = set()
    for sentence in study.sentence_data.listed[:3]:
        for place, centred, wanted in naive_matrices(study, bare, sentence.index):
            stack, layer, head = place
            found, tokens = study.similarity(sentence.index, layer, head, stack, centred=centred)
            assert len(tokens) == len(found)
            assert (np.isnan(found) == np.isnan(wanted)).all()
            assert np.nanmax(np.abs(found - wanted)) <= MAX_COSINE_ERROR + ROUNDING
            seen.add(stack)
    assert seen == {stack.name for stack in study.manifest.stacks}


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "bart"])
def test_similarities_are_those_of_plain_loops(name: str, made: Made, tiny_folder: Folder) -> None:
    """Special tokens have none, nor a causal text's first token; a layer has all its heads."""
    study = made(name)
    check_study(study, Bare.load(tiny_folder(name), pairs=tiny.ALL[name].pairs))
    stack, one = study.manifest.stacks[0], study.similarity(1, 1, 2)
    assert np.array_equal(study.similarity(1, 1).cosines[2], one.cosines, equal_nan=True)
    text = study.sentence_data.sentences[1].texts[stack.queries]
    assert one.tokens == text.pieces
    assert np.isnan(one.cosines[[*text.special]]).all()


def test_passages_have_theirs_with_the_places_where_sentences_begin(
    made: Made, tiny_folder: Folder
) -> None:
    study = made("bert", pack=PACK)
    check_study(study, Bare.load(tiny_folder("bert")))
    texts = [s.texts[Side.SOURCE] for s in study.sentence_data.listed]
    joined = [text for text in texts if len(text.parts) > 1]
    assert joined
    for text in joined:
        starts = sentence_starts(text)
        assert len(starts) == len(text.parts) - 1
        for place, (start, _) in zip(starts, text.parts[1:], strict=True):
            assert text.pieces[place - 1] == "[SEP]"
            assert text.spans[place][0] == start
        assert all(a < b for a, b in pairwise(starts))


def random_outputs(mean: float, smallest: float) -> tuple[Any, Any, Any]:
    """Outputs of three heads, their deviations, and which of them count: not the first."""
    draw = np.random.default_rng(3)
    outputs = draw.normal(size=(3, 12, 8)) + mean * draw.normal(size=(3, 1, 8))
    outputs[:, ::4] *= smallest
    counted = np.ones((3, 12), bool)
    counted[:, 0] = False
    outputs[~counted] = 0
    centre = outputs.sum(1, keepdims=True) / 11
    return outputs, np.where(counted[..., None], outputs - centre, 0), counted


@pytest.mark.parametrize(("mean", "smallest"), [(0, 1), (100, 1), (1, 0.05), (0, 0.02)])
def test_no_cosine_is_off_by_more_than_the_tolerance(mean: float, smallest: float) -> None:
    """Neither where all outputs are nearly alike nor where some are much shorter than others."""
    outputs, centred, counted = random_outputs(mean, smallest)
    kept = rounded_outputs(outputs, centred, counted)
    zeros = np.zeros(3)
    for vectors, is_centred in ((outputs, False), (centred, True)):
        wanted = cosines_of(zeros, vectors, counted, centred=True)
        found = kept.similarity(centred=is_centred)
        assert (np.isnan(found) == np.isnan(wanted)).all()
        assert np.nanmax(np.abs(found - wanted)) <= MAX_COSINE_ERROR
    assert (kept.deviations[:, 0, 0] == NO_OUTPUT).all()
    assert kept.deviations.shape == (3, 12, 8)


def test_outputs_take_no_more_digits_than_cosines_need() -> None:
    """About eight bits where outputs have equal lengths, however long their mean."""
    for mean in (0, 1000):
        kept = rounded_outputs(*random_outputs(mean, 1))
        assert np.abs(kept.deviations[:, 1:]).max() < 2**8


def test_equal_outputs_are_alike_and_have_no_centred_similarity() -> None:
    """As of a head that attends evenly: what is left beside the mean is rounding."""
    outputs = np.broadcast_to(np.arange(1.0, 5), (1, 6, 4))
    kept = rounded_outputs(outputs, np.zeros((1, 6, 4)), np.ones((1, 6), bool))
    assert np.allclose(kept.similarity(centred=False), 1)
    assert np.isnan(kept.similarity(centred=True)).all()


def test_a_text_without_tokens_that_count_has_none() -> None:
    kept = rounded_outputs(np.zeros((2, 2, 4)), np.zeros((2, 2, 4)), np.zeros((2, 2), bool))
    assert np.isnan(kept.similarity(centred=False)).all()


def test_stored_and_merged_studies_keep_theirs(made: Made, tmp_path: Path) -> None:
    study = made("bart")
    study.save(tmp_path / "study")
    loaded = Study.load(tmp_path / "study")
    both = merge([study, loaded])
    shift = study.manifest.counts["sentences"]
    for stack in ("encoder", "decoder", "cross"):
        for centred in (False, True):
            wanted = study.similarity(1, 1, stack=stack, centred=centred).cosines
            for other, index in ((loaded, 1), (both, 1), (both, 1 + shift)):
                found = other.similarity(index, 1, stack=stack, centred=centred).cosines
                assert np.array_equal(found, wanted, equal_nan=True)


def test_pages_get_every_number(made: Made) -> None:
    """Axis by axis, two bytes a number: an even code is half of it, an odd one is below 0."""
    study = made("gpt2")
    [stack] = study.manifest.stacks
    data = similarity_data(study.sentence_data, stack, study.sentence_data.sentences[1])
    assert data is not None
    kept = [study.sentence_data.outputs["self", 1, layer] for layer in stack.attention_layers]
    tokens, axes = data["tokens"], data["axes"]
    assert tokens == [*range(1, kept[0].deviations.shape[1])]  # the first one sees itself alone
    low, high = (np.frombuffer(data[name], np.uint8).astype(int) for name in ("low", "high"))
    codes = low + 256 * high
    values = np.where(codes % 2, -(codes + 1) // 2, codes // 2)
    numbers = iter(values)
    found = np.zeros((len(kept), stack.n_heads, len(tokens), axes))
    for axis in range(axes):
        for layer, head in np.ndindex(found.shape[:2]):
            for t in range(max(0, axis - 1), len(tokens)):
                found[layer, head, t, axis] = next(numbers)
    assert next(numbers, None) is None
    assert np.array_equal(found, [each.deviations[:, tokens] for each in kept])
    means = np.frombuffer(data["mean"], "<f4").reshape(found.shape[:2])
    assert np.array_equal(means, [each.mean for each in kept])


def test_models_without_values_have_no_similarity(made: Made) -> None:
    """One line in Python, no switch on pages."""
    study = made("xlnet", dtype="float32")
    [stack] = study.manifest.stacks
    assert not has_outputs(study.sentence_data, stack, study.sentence_data.sentences[0])
    message = r"got none, expected head outputs, which this model does not show$"
    with pytest.raises(ConfigError, match=message) as caught:
        study.similarity(0, 0)
    assert "\n" not in str(caught.value)


def test_sentences_with_too_many_numbers_say_so(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentence_access, "MAX_OUTPUT_BYTES", 1000)
    monkeypatch.setattr("headbook.passes.sentence_maps.MAX_OUTPUT_BYTES", 1000)
    study = made("bert", exemplars=2)  # not the study of other tests
    assert not study.sentence_data.outputs
    with pytest.raises(ConfigError, match="got a longer one, expected at most 0 MB of outputs"):
        study.similarity(0, 0)


@pytest.mark.parametrize(
    "wrong", [(0, 99, 0), (0, 0, 99), (10**6, 0, 0), ("x", 0, 0), (0, 0, 0, "cross")]
)
def test_wrong_places_are_refused_by_name(wrong: Any, made: Made) -> None:
    with pytest.raises(ConfigError, match=r"^study.similarity: got"):
        made("bert").similarity(*wrong)
