"""What a model is compared with: twins without training, and shuffled words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import treebank
from headbook.errors import ConfigError
from headbook.inputs import TextRecord, Word
from headbook.model.load import load_model, untrained_copy
from headbook.run.collect import collect
from headbook.run.sentences import baseline_runs
from headbook.schema import Baseline, BaselineRun, Side
from headbook.study.study import Study
from headbook.text.annotate import shuffle_words

Folder = Callable[[str], Path]
WORDS = (Word(0, 3, "DET", 1, "det"), Word(4, 7, "NOUN", 2, "nsubj"), Word(8, 12, "VERB"))


def sentence() -> TextRecord:
    return TextRecord(3, id="x", text="the cat sees", words=WORDS, target="rot und blau")


def test_shuffled_words_keep_their_tags_and_heads() -> None:
    orders = set()
    for seed in range(20):
        mixed = shuffle_words(sentence(), seed)
        assert mixed.words is not None
        spelt = [mixed.text[w.start : w.end] for w in mixed.words]
        orders.add(tuple(spelt))
        tags = {"the": "DET", "cat": "NOUN", "sees": "VERB"}
        heads = {"the": "cat", "cat": "sees"}
        for word, text in zip(mixed.words, spelt, strict=True):
            assert word.upos == tags[text]
            assert (spelt[word.head] if word.head >= 0 else None) == heads.get(text)
        assert mixed.text == " ".join(spelt)
        assert sorted((mixed.target or "").split()) == ["blau", "rot", "und"]
        assert mixed == shuffle_words(sentence(), seed)
    assert len(orders) == 6


def test_a_text_without_spaces_stays_without() -> None:
    mixed = shuffle_words(TextRecord(0, id="", text="abcd", words=(Word(0, 2), Word(2, 4))), seed=1)
    assert mixed.text in {"abcd", "cdab"}


def test_an_option_names_kinds_and_seeds() -> None:
    assert [*baseline_runs("none", 3)] == []
    assert [*baseline_runs("shuffled,untrained", 2)] == [
        (Baseline.UNTRAINED, 0),
        (Baseline.UNTRAINED, 1),
        (Baseline.SHUFFLED, 0),
    ]


def test_an_untrained_twin_has_the_same_shape_and_other_weights(tiny_folder: Folder) -> None:
    model = load_model(str(tiny_folder("bert")))
    before = torch.get_rng_state()
    one, other = untrained_copy(model, 0), untrained_copy(model, 1)
    assert torch.equal(before, torch.get_rng_state())
    for name, mine in model.network.state_dict().items():
        assert one.network.state_dict()[name].shape == mine.shape
    matrix = "encoder.layer.0.attention.self.query.weight"
    matrices = [
        m.network.state_dict()[matrix] for m in (model, one, other, untrained_copy(model, 0))
    ]
    assert torch.equal(matrices[1], matrices[3])
    assert not torch.equal(matrices[0], matrices[1])
    assert not torch.equal(matrices[1], matrices[2])


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_an_untrained_twin_has_the_number_formats_of_the_model(
    dtype: str, tiny_folder: Folder
) -> None:
    """Frequencies of rotary positions keep their precision when weights are rounded."""
    model = load_model(str(tiny_folder("llama")), dtype=dtype)
    other = untrained_copy(model, 0)
    for mine, theirs in (
        (model.network.named_parameters(), other.network.named_parameters()),
        (model.network.named_buffers(), other.network.named_buffers()),
    ):
        assert {n: p.dtype for n, p in mine} == {n: p.dtype for n, p in theirs}
    frequencies = [dict(m.network.named_buffers())["rotary_emb.inv_freq"] for m in (model, other)]
    assert torch.equal(*frequencies)


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Study:
    file = treebank.write_trees(tmp_path_factory.mktemp("trees") / "trees.conllu")
    return collect(
        file,
        model=str(tiny_folder("bert")),
        annotator="none",
        control="untrained,shuffled",
        control_seeds=2,
        importance="off",
    )


def test_every_metric_is_there_for_every_twin(study: Study) -> None:
    assert list(map(str, study.baselines)) == ["untrained 0", "untrained 1", "shuffled 0"]
    own = set(study.heads["metric"])
    for name, table in study.compared.groupby("baseline"):
        assert set(table["metric"]) == own, name
        assert len(table) == len(study.heads)


def test_an_untrained_twin_is_nearly_uniform_and_this_model_is_not(study: Study) -> None:
    def entropy(baseline_run: str) -> float:
        table = study.compared if baseline_run else study.heads
        rows = table[(table["metric"] == "relative_entropy") & (table["view"] == "raw")]
        rows = rows[rows["baseline"] == baseline_run] if baseline_run else rows
        return float(rows["value"].mean())

    assert entropy("untrained 0") > 0.99
    assert entropy("") < 0.9


def test_twins_are_stored_with_the_study(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path / "study")
    loaded = Study.load(tmp_path / "study")
    assert list(loaded.baselines) == list(study.baselines)
    assert all(
        BaselineRun.parse(str(baseline_run)) == baseline_run for baseline_run in loaded.baselines
    )
    np.testing.assert_array_equal(loaded.compared["value"], study.compared["value"])


def test_passages_without_separators_are_their_sentences_with_spaces(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    """The control has the numbers of texts that a user joins by hand."""
    file, pack = treebank.write_trees(tmp_path / "trees.conllu"), 40
    options: dict[str, Any] = {"model": str(tiny_folder("bert")), "annotator": "none"}
    options |= {"metrics": "attention_distance,separator_attention", "dtype": "float64"}
    options |= {"importance": "off", "circuits": "off"}
    packed = collect(file, pack=pack, control="no_separators", sentence_pages="20", **options)
    stored = [s.texts[Side.SOURCE].text for s in packed.sentence_data.sentences.values()]
    assert any("[SEP] " in text for text in stored)
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(text.replace("[SEP] ", " ") for text in stored), encoding="utf-8")
    joined = collect(lines, **options).heads
    keys = ["metric", "layer", "head", "view", "label"]
    tables = (packed.compared, joined, packed.heads)
    control, by_hand, own = (table.set_index(keys)["value"] for table in tables)
    np.testing.assert_allclose(control, by_hand[control.index], rtol=1e-9)
    inner = own.index.get_level_values("label") == "inner_separator"
    assert own[inner].notna().all()
    assert control[own.index][inner].isna().all()


def test_separators_are_those_of_passages(tiny_folder: Folder, tmp_path: Path) -> None:
    file = treebank.write_trees(tmp_path / "trees.conllu")
    with pytest.raises(ConfigError, match="expected no_separators beside"):
        collect(file, model=str(tiny_folder("bert")), control="no_separators")
