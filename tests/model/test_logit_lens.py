"""The logit lens: the model's own norm and head on every layer, against plain formulas."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.special
import torch
from numpy.typing import NDArray

import tiny
import treebank
from bare_model import Bare, bare_with_head, given
from headbook.model.architecture import probe_architecture
from headbook.model.load import load_model
from headbook.model.logit_lens import LogitLens, NoLogitLens, make_logit_lens
from headbook.model.tokens.strings import TokenStrings
from headbook.run.collect import collect
from headbook.schema import IntervalRule
from headbook.study.study import Study
from naive_ratios import Part, ratio
from naive_tokens import record


class Case(NamedTuple):
    """A kind of model; ``single``: its softmax is in float32 whatever the weights are."""

    family: str
    untied: bool = False
    single: bool = False


CASES = {
    "encoder": Case("bert"),
    "encoder, untied": Case("bert", untied=True),
    "encoder, long head": Case("distilbert"),
    "causal": Case("gpt2"),
    "causal, untied": Case("gpt2", untied=True),
    "rotary, untied": Case("llama", single=True),
    "parallel, untied": Case("gpt_neox", single=True),
    "soft caps": Case("gemma3", single=True),
    "encoder-decoder": Case("bart"),
    "encoder-decoder, untied": Case("bart", untied=True),
    "encoder-decoder, scaled": Case("t5"),
}
LEVELS = tiny.by_level(CASES, lambda name: CASES[name].family)

Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A tiny model with its language-model head."""

    @cache
    def of(name: str) -> Path:
        case = CASES[name]
        path = tmp_path_factory.mktemp("model") / case.family
        return tiny.write(case.family, path, head=True, untied=case.untied)

    return of


pytestmark = pytest.mark.usefixtures("of_any_number")

Floats = NDArray[np.float64]
IDS = "logit_lens,logit_lens_rank,logit_lens_probability,logit_lens_kl"
TREES = (treebank.TREES[0], treebank.TREES[2], treebank.TREES[5])
DOUBLE, SINGLE = 1e-9, 1e-5
CAP = 3.0  # of the logits of Gemma, in tiny.py


@pytest.fixture(scope="module")
def study(folder: Made, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Study]:
    """The study of a case, in float64."""

    @cache
    def of(name: str) -> Study:
        path = tmp_path_factory.mktemp("input")
        file = (
            treebank.write_pairs(path / "pairs.jsonl")
            if tiny.ALL[CASES[name].family].pairs
            else treebank.write_trees(path / "trees.conllu", TREES)
        )
        return collect(
            file,
            model=str(folder(name)),
            dtype="float64",
            annotator="none",
            metrics=IDS,
            importance="off",
        )

    return of


class Readout(NamedTuple):
    """A sentence of a bare model: logits of each layer, and what should be said.

    Attributes:
        logits: *Shape:* ``(layer, token, entry)``; of the last layer the model's own.
        true: the right entry at each token, None without one.
        special: whether a token stands for no text.
    """

    stack: str
    logits: Floats
    true: list[int | None]
    special: list[bool]


# By model type: the layers, and what is done to a state behind them, as the papers' code has it.
LAYERS = {
    "bert": "encoder.layer",
    "distilbert": "transformer.layer",
    "gpt2": "h",
    "llama": "layers",
    "gpt_neox": "layers",
    "gemma3_text": "layers",
    "bart": "decoder.layers",
    "t5": "decoder.block",
}


def by_hand(network: Any, x: torch.Tensor) -> Any:
    """Norm and head of each family, written out."""
    kind, body = network.config.model_type, network.base_model
    if kind == "bert":
        return network.cls.predictions(x)
    if kind == "distilbert":
        y = torch.nn.functional.gelu(network.vocab_transform(x))
        return network.vocab_projector(network.vocab_layer_norm(y))
    if kind == "bart":
        return network.lm_head(x) + network.final_logits_bias
    if kind == "t5":
        y = network.decoder.final_layer_norm(x)
        return network.lm_head(y * network.config.d_model**-0.5)
    norms = {"gpt2": "ln_f", "gpt_neox": "final_layer_norm"}
    y = body.get_submodule(norms.get(kind, "norm"))(x)
    logits: torch.Tensor = network.get_output_embeddings()(y)
    if kind == "gemma3_text":
        logits = CAP * torch.tanh(logits / CAP)
    return logits


def sentences(model: Bare, family: str) -> Iterator[Readout]:
    """What the bare model says of every sentence after every layer."""
    pairs = tiny.ALL[family].pairs
    for texts in treebank.PAIRS if pairs else ((given(tree).text,) for tree in TREES):
        rows = model.ids(*texts)
        _, out = record(model, rows)
        own = model.run(rows).logits[0].numpy()
        states = [out[f"{LAYERS[model.network.config.model_type]}.{i}"] for i in range(tiny.LAYERS)]
        with torch.no_grad():
            logits = [by_hand(model.network, torch.from_numpy(s)[None])[0].numpy() for s in states]
        np.testing.assert_allclose(logits[-1], own, rtol=SINGLE, atol=SINGLE)
        masked = family in {"bert", "distilbert"}
        words = {model.tokenizer.unk_token_id, model.tokenizer.mask_token_id}
        if model.tokenizer.unk_token == model.tokenizer.eos_token:
            words = set()
        special = [i in {*model.tokenizer.all_special_ids} - words for i in rows[-1]]
        true: list[int | None] = [*rows[-1]] if masked else [*rows[-1][1:], None]
        yield Readout("decoder" if pairs else "self", np.stack([*logits[:-1], own]), true, special)


def numbers(logits: Floats, final: Floats, true: int | None) -> dict[str, float]:
    """The four metrics at one token and layer."""
    p, last = scipy.special.softmax(logits), scipy.special.softmax(final)
    return {
        "logit_lens": float(p.max()),
        "logit_lens_rank": np.nan if true is None else float(sum(logits > logits[true])),
        "logit_lens_probability": np.nan if true is None else float(p[true]),
        "logit_lens_kl": float(sum(scipy.special.rel_entr(last, p))),
    }


@pytest.mark.parametrize("name", LEVELS)
def test_the_lens_equals_the_formulas_in_every_layer(
    name: str, study: Callable[[str], Study], folder: Made
) -> None:
    case = CASES[name]
    tolerance = SINGLE if case.single else DOUBLE
    series = study(name).tokens.set_index(["metric", "sentence", "layer", "position"])["value"]
    model = bare_with_head(folder(name), case.family)
    seen = 0
    for number, readout in enumerate(sentences(model, case.family), start=1):
        assert set(study(name).tokens["stack"]) == {readout.stack}
        for layer, of_layer in enumerate(readout.logits):
            for index, logits in enumerate(of_layer):
                wanted = numbers(logits, readout.logits[-1, index], readout.true[index])
                for metric, value in wanted.items():
                    came = series[metric, number, layer, index]
                    assert came == pytest.approx(value, abs=tolerance, nan_ok=True), metric
                    seen += 1
    assert seen == len(series)
    assert set(study(name).tokens["state"]) == {"out"}
    assert set(study(name).tokens["space"]) == {""}


@pytest.mark.parametrize("name", ["encoder", "causal", "encoder-decoder"])
def test_the_ten_entries_are_the_head_of_a_full_sort(
    name: str, study: Callable[[str], Study], folder: Made
) -> None:
    model = bare_with_head(folder(name), CASES[name].family)
    near = study(name).nearest
    groups = dict(iter(near.groupby(["sentence", "layer", "position"])))
    for number, readout in enumerate(sentences(model, CASES[name].family), start=1):
        for (layer, place), logits in zip(
            np.ndindex(readout.logits.shape[:2]),
            readout.logits.reshape(-1, readout.logits.shape[2]),
            strict=True,
        ):
            rows = groups.pop((number, layer, place))
            best = np.argsort(-logits)[:10]
            assert set(rows["space"]) == {"logits"}
            assert list(rows["neighbour"]) == TokenStrings(model.tokenizer).of(best)
            np.testing.assert_allclose(
                rows["cosine"].to_numpy(float), scipy.special.softmax(logits)[best], atol=DOUBLE
            )
    assert not groups


@pytest.mark.parametrize("name", ["causal", "encoder-decoder"])
def test_averages_leave_out_the_token_that_has_no_next(
    name: str, study: Callable[[str], Study], folder: Made
) -> None:
    model = bare_with_head(folder(name), CASES[name].family)
    rows = study(name).layers
    for metric in IDS.split(","):
        of_metric = rows[(rows["metric"] == metric) & (rows["label"] == "out/all")]
        for layer in range(tiny.LAYERS):
            parts = []
            for readout in sentences(model, CASES[name].family):
                values = [
                    numbers(readout.logits[layer, i], readout.logits[-1, i], true)[metric]
                    for i, true in enumerate(readout.true)
                    if not readout.special[i]
                ]
                kept = [v for v in values if not np.isnan(v)]
                kept = [np.log10(1 + v) for v in kept] if "rank" in metric else kept
                parts.append(Part(sum(kept), len(kept), len(kept)))
            row = of_metric[of_metric["layer"] == layer].iloc[0]
            wanted = ratio(parts, (0, np.inf), IntervalRule.CLASSES)
            assert row["value"] == pytest.approx(wanted.value, abs=DOUBLE)
            assert row["n_observations"] == wanted.events


@pytest.mark.parametrize("name", LEVELS)
def test_the_last_layer_reproduces_the_logits_and_diverges_from_nothing(
    name: str, study: Callable[[str], Study]
) -> None:
    (check,) = [c for c in study(name).manifest.checks if "last layer" in c.name]
    assert check.error <= 1e-12
    tokens = study(name).tokens
    last = tokens[(tokens["metric"] == "logit_lens_kl") & (tokens["layer"] == tiny.LAYERS - 1)]
    assert (last["value"] == 0).all()
    first = tokens[(tokens["metric"] == "logit_lens_kl") & (tokens["layer"] == 0)]
    assert first["value"].min() > 0


@pytest.mark.parametrize("name", ["encoder", "causal", "rotary, untied", "encoder-decoder"])
def test_small_blocks_and_small_batches_change_nothing(
    name: str, study: Callable[[str], Study], folder: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headbook.model.logit_lens.MAX_BLOCK_LOGITS", 700)
    monkeypatch.setattr("headbook.passes.trajectories.MAX_PENDING_NUMBERS", 1)
    trees = study(name).manifest.inputs[0].name.endswith("conllu")
    path = folder(name).parent
    file = (
        treebank.write_trees(path / "t.conllu", TREES)
        if trees
        else treebank.write_pairs(path / "p.jsonl")
    )
    again = collect(
        file,
        model=str(folder(name)),
        dtype="float64",
        annotator="none",
        metrics=IDS,
        importance="off",
        batch_tokens=1,
    )
    tolerance = SINGLE if CASES[name].single else DOUBLE
    one, two = (s.tokens.reset_index(drop=True) for s in (study(name), again))
    assert one.drop(columns="value").equals(two.drop(columns="value"))
    np.testing.assert_allclose(
        two["value"].to_numpy(float), one["value"].to_numpy(float), rtol=0, atol=tolerance
    )


@pytest.mark.parametrize("family", tiny.by_level(tiny.ALL))
def test_every_architecture_reproduces_its_logits_and_works_on_as_before(
    family: str, tmp_path: Path
) -> None:
    model = load_model(str(tiny.write(family, tmp_path, head=True)), dtype="float64")
    architecture = probe_architecture(model)
    lens = make_logit_lens(model, architecture)
    assert isinstance(lens, LogitLens)
    ids = torch.arange(3, 10).repeat(2, 1)
    rows = {"input_ids": ids} | ({"decoder_input_ids": ids} if tiny.ALL[family].pairs else {})
    with torch.inference_mode():
        wanted = model.network(**rows).logits
    left: list[Any] = []
    handle = architecture.layers[lens.stack][-1].register_forward_hook(
        lambda _, __, output: left.append(output)
    )
    with torch.inference_mode():
        model.network(**rows)
    handle.remove()
    state = left[-1] if isinstance(left[-1], torch.Tensor) else left[-1][0]
    found = lens.logits(state.reshape(-1, state.shape[-1])).reshape(wanted.shape)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    with torch.inference_mode():
        assert torch.equal(model.network(**rows).logits, wanted)


@pytest.mark.parametrize(
    "family", tiny.by_level(["bert", "gpt2", "llama", "gpt_neox", "albert", "phi"])
)
def test_a_checkpoint_without_a_head_has_no_lens_and_the_study_says_so(
    family: str, tiny_folder: Made, tmp_path: Path
) -> None:
    file = treebank.write_trees(tmp_path / "trees.conllu", TREES)
    found = collect(
        file, model=str(tiny_folder(family)), annotator="none", metrics=f"{IDS},confidence"
    )
    (gap,) = [gap for gap in found.manifest.gaps if gap.what == "logit lens"]
    assert "head" in gap.why
    assert found.tokens.empty
    assert not [c for c in found.manifest.checks if "logits" in c.name]
    assert "logit_lens" not in set(found.layers["metric"])


@pytest.mark.parametrize("name", LEVELS)
def test_a_head_changes_no_number_of_the_body(name: str, folder: Made, tmp_path: Path) -> None:
    case = CASES[name]
    with_head = load_model(str(folder(name)), dtype="float64")
    assert with_head.headless == ""
    bare = Bare.load(folder(name), pairs=tiny.ALL[case.family].pairs).network.base_model
    ids = torch.arange(3, 10).repeat(2, 1)
    rows = {"input_ids": ids} | ({"decoder_input_ids": ids} if tiny.ALL[case.family].pairs else {})
    with torch.inference_mode():
        assert torch.equal(with_head.base_model(**rows)[0], bare(**rows)[0])


def test_a_random_head_counts_as_absent_even_where_the_configuration_names_it(
    tmp_path: Path,
) -> None:
    from safetensors.torch import load_file, save_file

    path = tiny.write("bert", tmp_path, head=True)
    weights = load_file(path / "model.safetensors")
    del weights["cls.predictions.transform.dense.weight"]
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    model = load_model(str(path))
    assert model.headless.endswith("(cls.predictions.transform.dense.weight is missing)")
    assert type(model.network).__name__ == "BertModel"
    assert isinstance(make_logit_lens(model, probe_architecture(model)), NoLogitLens)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_head_without_numbers_is_called_so(tmp_path: Path, value: float) -> None:
    """A head that reads its last layer alone is not said to read more than that."""
    from safetensors.torch import load_file, save_file

    path = tiny.write("bert", tmp_path, head=True)
    weights = load_file(path / "model.safetensors")
    weights["cls.predictions.bias"][:] = value
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    model = load_model(str(path))
    lens = make_logit_lens(model, probe_architecture(model))
    assert isinstance(lens, NoLogitLens)
    assert lens.why.startswith("the head of 'bert' gives infinite or missing numbers: see that")
