"""Original encodings of awkward models and texts: each has a clear outcome."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from headbook.inputs import TextRecord
from headbook.metrics import all_metrics, token_metrics
from headbook.model.architecture import probe_architecture
from headbook.model.embedding import Embedding, read_embedding
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.run.collect import collect
from headbook.schema import Side
from headbook.study.study import Study
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch

LOOKUPS = ",".join(m.id for m in token_metrics(all_metrics().values()) if m.spaces)
Folder = Callable[[str], Path]


def study(folder: Path, text: str, place: Path) -> Study:
    """A study of one or more lines."""
    (place / "texts.txt").write_text(text, encoding="utf-8")
    return collect(
        place / "texts.txt",
        model=str(folder),
        dtype="float64",
        annotator="none",
        metrics=f"{LOOKUPS},cosine_to_input",
        importance="off",
        circuits="off",
    )


def read(model: Model) -> Embedding:
    """The embedding of a model's only side."""
    none = Annotator.load("none")
    encoder = SentenceTokenizer(model, limit=16, targets=none)
    (item,) = encoder.tokenize(none.annotate([TextRecord(0, "1", "the cat")]))
    return read_embedding(
        model, probe_architecture(model), Side.SOURCE, Batch.of([item], model.device)
    )


@pytest.mark.parametrize("fault", ["no attribute", "not implemented", "too few rows", "no matrix"])
def test_a_model_without_a_matrix_of_word_embeddings_is_known(
    fault: str, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(tiny_folder("bert")))

    def embeddings() -> object:
        if fault == "not implemented":
            raise NotImplementedError
        if fault == "no attribute":
            return object()
        return torch.nn.Embedding(3, 32) if fault == "too few rows" else torch.nn.LayerNorm(100)

    monkeypatch.setattr(model.network, "get_input_embeddings", embeddings)
    embedding = read(model)
    assert embedding.vocabulary is None
    assert embedding.missing == "the model has no matrix with an embedding for each entry"


@pytest.mark.parametrize("family", ["albert", "albert_wide", "electra_small"])
def test_factorised_embeddings_are_compared_where_they_enter_the_first_layer(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Through the map that stands there, though both widths may be the same."""
    found = study(tiny_folder(family), "the cat sees dogs.\na bird sings.\n", tmp_path)
    (gap,) = [gap for gap in found.manifest.gaps if gap.what.startswith("comparison")]
    assert gap.what == "comparison with token embedding (source side)"
    assert gap.why.endswith("they do not share a space")
    assert found.manifest.failed == ()
    name = "original encoding of a token = what enters layer 0"
    assert name in {check.name for check in found.manifest.checks}
    ranks = found.tokens[found.tokens["metric"] == "vocabulary_rank"]
    assert len(ranks)
    assert set(ranks["space"]) == {"positional"}
    assert ranks["value"].notna().all()


@pytest.mark.parametrize("family", ["albert", "albert_wide"])
def test_the_nearest_entry_of_what_enters_is_the_token_itself(
    family: str, tiny_folder: Folder
) -> None:
    model = load_model(str(tiny_folder(family)), dtype="float64")
    embedding = read(model)
    assert embedding.vocabulary is not None
    none = Annotator.load("none")
    (item,) = SentenceTokenizer(model, limit=16, targets=none).tokenize(
        none.annotate([TextRecord(0, "1", "the cat")])
    )
    batch = Batch.of([item], model.device)
    texts = batch.texts[Side.SOURCE]
    with torch.no_grad():
        states = model.base_model(texts.ids, output_hidden_states=True).hidden_states[0].float()
    near = embedding.vocabulary.compare(states[None], texts, embedding.vocabulary.spaces[0], 1)
    assert torch.equal(near.ids[0, ..., 0], texts.ids)
    torch.testing.assert_close(near.cosines[0, ..., 0], torch.ones_like(near.cosines[0, ..., 0]))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_text_of_one_token_has_every_number_but_what_needs_another_token(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    frame = study(tiny_folder(family), "a\nb\n", tmp_path).tokens
    words = frame[frame["token"].isin(["a", "b"])]
    missing = set(words[words["value"].isna()]["metric"])
    assert missing == {"neighbour_overlap_random"}
    assert words[words["metric"] == "neighbour_overlap_random"]["value"].isna().all()
    assert set(words["metric"]) == {*LOOKUPS.split(","), "cosine_to_input"}


def test_an_average_over_texts_of_one_token_is_missing_and_not_0(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    rows = study(tiny_folder("gpt2"), "a\nb\n", tmp_path).layers
    rows = rows[(rows["metric"] == "neighbour_overlap_random") & rows["label"].str.endswith("/all")]
    assert len(rows)
    assert rows["value"].isna().all()
    assert (rows["n_observations"] == 0).all()


@pytest.mark.parametrize("block", [1, 16 * 90, 1 << 30])
def test_a_vocabulary_larger_than_a_block_gives_the_same(
    block: int, tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the old fisher sees small dogs.\nunhappiness sleeps\n"
    one = study(tiny_folder("bert"), text, tmp_path)
    monkeypatch.setattr("headbook.model.vocabulary.MAX_BLOCK_SCORES", block)
    monkeypatch.setattr("headbook.passes.trajectories.MAX_PENDING_NUMBERS", block)
    other = study(tiny_folder("bert"), text, tmp_path)
    assert one.tokens.drop(columns="value").equals(other.tokens.drop(columns="value"))
    np.testing.assert_allclose(
        one.tokens["value"].to_numpy(float), other.tokens["value"].to_numpy(float), atol=1e-9
    )
    assert list(one.nearest["neighbour"]) == list(other.nearest["neighbour"])
