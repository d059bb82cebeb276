"""Models that a program holds: read like those of a name, and left as they were."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

import headbook
import tiny
from headbook.errors import ConfigError, HeadbookError, ModelError, StudyError
from headbook.model.devices import pick_device
from headbook.model.load import load_model
from headbook.progress import NoProgress
from headbook.resources import demo_model
from headbook.run.objects import ModelObject
from headbook.run.weights_hash import weights_hash
from headbook.study.study import merge

TEXTS = ["the cat sees a small bird .", "the dog runs near the house .", "a fisherman sleeps ."]
PAIRS = [(text, "der Hund sieht .") for text in TEXTS]
QUICK: dict[str, Any] = {
    "metrics": "attention_distance,attention_to,output_norm_share,cosine_to_input",
    "annotator": "none",
    "importance": "off",
    "circuits": "off",
    "sentence_pages": 1,
}
LOADERS = {
    "bert": AutoModelForMaskedLM,
    "gpt2": AutoModelForCausalLM,
    "llama": AutoModelForCausalLM,
    "t5": AutoModelForSeq2SeqLM,
}
Pair = tuple[Any, Any]  # a model and its tokenizer
Make = Callable[..., Pair]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def of(family: str) -> Path:
        place = tmp_path_factory.getbasetemp() / f"objects-{family}"
        return place if place.exists() else tiny.write(family, place, head=family != "t5")

    return of


@pytest.fixture
def make(folder: Callable[[str], Path]) -> Make:
    def of(family: str, loader: Any = None, **options: Any) -> Pair:
        place = folder(family)
        model = (loader or LOADERS[family]).from_pretrained(place, **options)
        return model, AutoTokenizer.from_pretrained(place)

    return of


class Messages(NoProgress):
    """What is printed; raises an error when a stage begins, if that is wanted."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.lines, self.stages = failing, list[str](), list[str]()

    def stage(self, name: str, amount: int) -> None:
        """Note the stage, or fail."""
        self.stages.append(name)
        if name == self.failing:
            raise RuntimeError(name)

    def message(self, text: str) -> None:
        """Note the line."""
        self.lines.append(text)


def state_of(model: torch.nn.Module) -> list[Any]:
    """All that a run could change: values, identities, versions, gradients, modes and hooks."""
    parameters = [
        (
            name, id(p), p.data_ptr(), p._version, p.dtype, p.device, p.requires_grad, id(p.grad),
            p.detach().numpy().tobytes(), p.grad.numpy().tobytes() if p.grad is not None else b"",
        )
        for name, p in model.named_parameters()
    ]  # fmt: skip
    buffers = [(name, id(b), b.numpy().tobytes()) for name, b in model.named_buffers()]
    modules = [
        (
            name, id(m), m.training, [*m._forward_hooks.items()], [*m._forward_pre_hooks.items()],
            [*m._backward_hooks], id(m.forward.__func__), "forward" in vars(m),
            getattr(getattr(m, "config", None), "_attn_implementation", ""),
        )
        for name, m in model.named_modules()
    ]  # fmt: skip
    config: Any = model.config
    return [parameters, buffers, modules, config.to_dict(), config._attn_implementation]


@pytest.mark.parametrize("failing", ["", "corpus", "sample", "sentences", "importance"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_the_object_is_left_as_it_was(family: str, failing: str, make: Make) -> None:
    """Also after an exception, and with a loss that still waits for its backward pass."""
    model, tokenizer = make(family, attn_implementation="sdpa" if family != "t5" else None)
    model.register_forward_hook(lambda *_: None)
    next(model.parameters()).requires_grad_(False)
    ids = tokenizer(TEXTS[0], return_tensors="pt").input_ids
    expected = model(input_ids=ids, labels=ids).logits
    model.train()
    model(input_ids=ids, labels=ids).loss.backward()  # gradients that are there before
    torch.manual_seed(0)
    loss = model(input_ids=ids, labels=ids).loss
    vocabulary = tokenizer.get_vocab()
    before = state_of(model)
    inputs = PAIRS if family == "t5" else TEXTS
    options = QUICK | {"importance": "auto" if failing == "importance" else "off"}
    if failing:
        with pytest.raises(RuntimeError, match=failing):
            headbook.collect(
                inputs, model=model, tokenizer=tokenizer, progress=Messages(failing), **options
            )
    else:
        headbook.collect(inputs, model=model, tokenizer=tokenizer, **options)
    assert state_of(model) == before
    assert tokenizer.get_vocab() == vocabulary
    loss.backward()  # fails if weights were changed in place and back
    assert torch.equal(model.eval()(input_ids=ids, labels=ids).logits, expected)


@pytest.mark.parametrize("family", LOADERS)
def test_numbers_are_those_of_the_model_by_its_name(
    family: str, make: Make, folder: Callable[[str], Path]
) -> None:
    inputs = PAIRS if family == "t5" else TEXTS
    model, tokenizer = make(family)
    by_object = headbook.collect(inputs, model=model, tokenizer=tokenizer, **QUICK)
    by_name = headbook.collect(inputs, model=str(folder(family)), **QUICK)
    assert by_object.heads.equals(by_name.heads)
    assert by_object.words.equals(by_name.words)
    facts, named = by_object.manifest.model, by_name.manifest.model
    assert facts.name == named.name == folder(family).name
    assert (facts.architecture, facts.limit, facts.attention) == (
        named.architecture, named.limit, named.attention
    )  # fmt: skip
    assert facts.configuration["model_type"] == family
    assert not named.configuration
    assert str(folder(family)) not in by_object.manifest.to_json()


def test_dtype_is_the_objects_own_unless_another_is_asked(make: Make) -> None:
    model, tokenizer = make("llama", dtype=torch.bfloat16)
    own = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, **QUICK)
    exact = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, dtype="float32", **QUICK)
    assert (own.manifest.model.dtype, exact.manifest.model.dtype) == ("bfloat16", "float32")
    assert own.manifest.model.revision == exact.manifest.model.revision
    assert not own.heads["value"].equals(exact.heads["value"])
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_rotary_frequencies_keep_their_precision_in_another_dtype(
    make: Make, folder: Callable[[str], Path]
) -> None:
    """As in a checkpoint that is loaded in that number format."""
    model, tokenizer = make("llama")
    by_object = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, dtype="bfloat16", **QUICK)
    by_name = headbook.collect(TEXTS, model=str(folder("llama")), dtype="bfloat16", **QUICK)
    assert by_object.heads.equals(by_name.heads)


def test_a_model_in_training_mode_is_known_and_read_without_dropout(make: Make) -> None:
    model, tokenizer = make("bert")
    quiet, training = Messages(), Messages()
    first = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, progress=quiet, **QUICK)
    model.train()
    second = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, progress=training, **QUICK)
    assert quiet.lines == []
    assert training.lines == [
        f"{first.manifest.model.name}: the model is in training mode; it is read in evaluation "
        "mode, without dropout, and stays in training mode itself"
    ]
    assert "hash of the weights" in training.stages
    assert first.heads.equals(second.heads)


@pytest.mark.parametrize("loader", [AutoModel, AutoModelForSequenceClassification])
def test_objects_without_a_language_model_head_are_read(loader: Any, make: Make) -> None:
    """With the control of random weights, and ablations of states."""
    model, tokenizer = make("bert", loader)
    options = QUICK | {
        "control": "untrained",
        "control_seeds": 1,
        "importance": "auto",
        "metrics": f"{QUICK['metrics']},logit_lens_rank",
    }
    study = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, **options)
    assert set(study.compared["baseline"]) == {"untrained 0"}
    lost = headbook.ablate(TEXTS, model, heads=["L0-H1"], tokenizer=tokenizer)
    assert [*lost["target"]] == ["state", "embedding"]
    reason = f"the model is a {type(model).__name__} without a language-model head"
    assert any(gap.why == reason for gap in study.manifest.gaps)


def test_an_object_without_a_name_is_named_by_its_class_or_the_caller(make: Make) -> None:
    named, tokenizer = make("gpt2")
    model = type(named)(named.config)
    model.config.name_or_path = ""
    study = headbook.collect(TEXTS, model, tokenizer, **QUICK)
    name = f"GPT2LMHeadModel of {sum(p.numel() for p in model.parameters()):,} parameters"
    assert study.manifest.model.name == name
    assert study.manifest.options["model"] == name
    assert study.manifest.title == f"Attention heads of {name}"
    study = headbook.collect(TEXTS, model, tokenizer, name="mine", **QUICK)
    assert study.manifest.model.name == "mine"
    with pytest.raises(ConfigError, match="name: got 'mine' with a model's name"):
        headbook.collect(TEXTS, "demo", name="mine")


def test_studies_are_merged_and_runs_resumed_by_the_hash(make: Make, tmp_path: Path) -> None:
    model, tokenizer = make("gpt2")
    texts = [f"{text} {number}" for number in range(90) for text in TEXTS]
    options = QUICK | {"metrics": "attention_distance", "sentence_pages": 0}

    def part(texts: list[str], **more: Any) -> headbook.Study:
        return headbook.collect(texts, model=model, tokenizer=tokenizer, **options, **more)

    one, two = part(TEXTS[:2]), part(TEXTS[2:])
    assert merge([one, two]).manifest.counts["sentences"] == 3
    one.save(tmp_path / "study")
    assert headbook.Study.load(tmp_path / "study").manifest == one.manifest
    work = tmp_path / "work"
    first, again = part(texts, work=work), part(texts, work=work)
    assert first.heads.equals(again.heads)
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight[0, 0] += 1
    with pytest.raises(StudyError, match="two studies that differ in model's revision"):
        _ = merge([one, part(TEXTS[2:])])
    with pytest.raises(HeadbookError, match="model revision"):
        part(texts, work=work)


def test_the_hash_is_of_names_and_bytes_and_hashes_shared_weights_once(make: Make) -> None:
    model, _ = make("gpt2")
    first = weights_hash(model, NoProgress())
    assert first == weights_hash(model.train(), NoProgress())
    assert first != weights_hash(model.to(torch.float64), NoProgress())
    model.to(torch.float32)
    assert first == weights_hash(model, NoProgress())
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    assert first != weights_hash(model, NoProgress())  # the same numbers, no longer shared


def test_a_sentence_encoder_brings_its_tokenizer_and_its_pooling() -> None:
    library = pytest.importorskip("sentence_transformers", reason="not installed")
    encoder = library.SentenceTransformer(str(demo_model()), device="cpu")
    by_object = headbook.collect(TEXTS, model=encoder, **QUICK)
    by_name = headbook.collect(TEXTS, model="demo", **QUICK)
    assert by_object.manifest.model.pooling == by_name.manifest.model.pooling == "mean"
    assert by_object.heads.equals(by_name.heads)


def test_models_inside_other_objects_are_read(make: Make) -> None:
    """Those of several devices, compiled ones, and pipelines, which bring their tokenizer."""
    model, tokenizer = make("gpt2")
    wrapped = torch.nn.DataParallel(model), torch.compile(model)
    for each in wrapped:
        assert ModelObject.of(each, tokenizer).network is model
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer)
    source = ModelObject.of(pipe)
    assert (source.network, source.tokenizer) == (model, tokenizer)


def test_objects_of_sentence_transformers_are_read(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers", reason="not installed")
    encoder = library.SentenceTransformer(str(demo_model()), device="cpu")
    own = type("Own", (library.SentenceTransformer,), {})(str(demo_model()), device="cpu")
    for each in (own, torch.compile(encoder)):
        source = ModelObject.of(each)
        assert (type(source.network).__name__, source.pooling) == ("BertModel", "mean")
    classifier = AutoModelForSequenceClassification.from_pretrained(folder("bert"), num_labels=1)
    classifier.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder("bert")).save_pretrained(tmp_path)
    source = ModelObject.of(library.CrossEncoder(str(tmp_path), device="cpu"))
    assert type(source.network).__name__ == "BertForSequenceClassification"
    study = headbook.collect(TEXTS, model=source.network, tokenizer=source.tokenizer, **QUICK)
    assert study.manifest.model.architecture == "BertForSequenceClassification"


def test_modules_of_another_library_are_refused(make: Make) -> None:
    model, tokenizer = make("gpt2")
    kind = type("AttentionBridge", (torch.nn.Identity,), {"__module__": "transformer_lens.parts"})
    model.transformer.drop = kind()
    with pytest.raises(ModelError, match=r"modules of transformer_lens.*before it was wrapped"):
        ModelObject.of(model, tokenizer)


def test_a_window_without_keys_is_named(tmp_path: Path) -> None:
    place = tiny.write("mistral", tmp_path / "mistral", head=True)
    model = AutoModelForCausalLM.from_pretrained(place, sliding_window=0)
    tokenizer = AutoTokenizer.from_pretrained(place)
    with pytest.raises(ModelError, match="sliding_window = 0") as error:
        headbook.collect(TEXTS, model=model, tokenizer=tokenizer, **QUICK)
    assert "\n" not in str(error.value)


def test_adapters_of_peft_are_merged_in_the_copy_alone(make: Make) -> None:
    peft = pytest.importorskip("peft", reason="the extra 'peft' is not installed")
    base, tokenizer = make("gpt2")
    plain = headbook.collect(TEXTS, model=base, tokenizer=tokenizer, **QUICK)
    lora = peft.LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False)
    model = peft.get_peft_model(base, lora)
    before = state_of(model)
    adapted = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, **QUICK)
    assert state_of(model) == before
    assert adapted.manifest.model.name.endswith(" with adapter default")
    assert adapted.manifest.model.configuration["adapters"]["default"]["r"] == 2
    assert adapted.manifest.model.architecture == plain.manifest.model.architecture
    assert not adapted.heads["value"].equals(plain.heads["value"])
    with model.disable_adapter():
        disabled = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, **QUICK)
    assert disabled.heads["value"].equals(plain.heads["value"])
    merged = headbook.collect(TEXTS, model=model.merge_and_unload(), tokenizer=tokenizer, **QUICK)
    assert adapted.heads["value"].equals(merged.heads["value"])
    assert adapted.manifest.model.revision == merged.manifest.model.revision
    prompts = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    with pytest.raises(ModelError, match=r"virtual tokens.*; expected an adapter that changes"):
        headbook.collect(
            TEXTS, model=peft.get_peft_model(make("gpt2")[0], prompts), tokenizer=tokenizer
        )


def test_load_model_and_objects_agree_on_devices(make: Make) -> None:
    model, tokenizer = make("bert")
    source = ModelObject.of(model, tokenizer)
    loaded = source.load(dtype="float32", device="auto", progress=NoProgress())
    assert loaded.device == torch.device("cpu")
    assert loaded.network.dtype == load_model("demo", device="cpu").network.dtype
    assert pick_device(source.device) == loaded.device
    pointers = {p.data_ptr() for p in model.parameters()}
    assert {p.data_ptr() for p in loaded.network.parameters()} == pointers  # no second copy


LINES: dict[str, tuple[Callable[[Any, Any], dict[str, Any]], str]] = {
    "no tokenizer": (
        lambda model, _: {"model": model},
        "model 'gpt2': got an object without its tokenizer; expected tokenizer=, for example "
        "AutoTokenizer.from_pretrained('gpt2')",
    ),
    "a tokenizer of another model": (
        lambda model, tokenizer: {
            "model": model,
            "tokenizer": (tokenizer.add_tokens([f"new{n}" for n in range(100)]), tokenizer)[1],
        },
        "model 'gpt2': its tokenizer has 390 entries, its embedding 294; expected the tokenizer "
        "that the model was trained with (tokenizer=)",
    ),
    "a tokenizer that is none": (
        lambda model, _: {"model": model, "tokenizer": len},
        "tokenizer: got an object of type builtin_function_or_method; expected a tokenizer of "
        "transformers",
    ),
    "a tokenizer by name": (
        lambda model, _: {"model": model, "tokenizer": "gpt2"},
        "tokenizer: got a name with a model object, or an object with a model's name; expected "
        "two objects, or two names",
    ),
    "a tokenizer for a name": (
        lambda _, tokenizer: {"model": "demo", "tokenizer": tokenizer},
        "tokenizer: got a name with a model object, or an object with a model's name; expected "
        "two objects, or two names",
    ),
    "a model that is none": (
        lambda _, tokenizer: {"model": torch.nn.Linear(2, 2), "tokenizer": tokenizer},
        "model: got an object of type Linear; expected a PreTrainedModel of transformers, a "
        "PeftModel, or the name of a model",
    ),
    "workers": (
        lambda model, tokenizer: {"model": model, "tokenizer": tokenizer, "workers": 2},
        "workers: got 2 with a model object, which only this process has; expected the model's "
        "name or folder (model.save_pretrained), or no such option",
    ),
    "ray": (
        lambda model, tokenizer: {"model": model, "tokenizer": tokenizer, "engine": "ray"},
        "engine: got 'ray' with a model object, which only this process has; expected the "
        "model's name or folder (model.save_pretrained), or no such option",
    ),
    "a revision": (
        lambda model, tokenizer: {"model": model, "tokenizer": tokenizer, "revision": "main"},
        "revision: got 'main' with a model object, which only this process has; expected the "
        "model's name or folder (model.save_pretrained), or no such option",
    ),
    "a state that cannot be copied": (
        lambda model, tokenizer: {
            "model": (vars(model).update(kept=[2 * next(model.parameters())]), model)[1],
            "tokenizer": tokenizer,
        },
        "model 'gpt2': the object cannot be copied without its weights (Only Tensors created "
        "explicitly by the user (graph leaves) support the deepcopy protocol at the moment.",
    ),
}


@pytest.mark.parametrize("case", LINES)
def test_objects_that_do_not_fit_are_told_in_one_line(case: str, make: Make) -> None:
    model, tokenizer = make("gpt2")
    model.config.name_or_path = "gpt2"
    arguments, line = LINES[case]
    with pytest.raises((ModelError, ConfigError)) as error:
        headbook.collect(TEXTS, **arguments(model, tokenizer), **QUICK)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_a_base_that_peft_has_changed_is_named_with_its_adapter(
    make: Make,
) -> None:
    """Its layers are those of the adapted model, which cannot be compared with itself."""
    peft = pytest.importorskip("peft", reason="the extra 'peft' is not installed")
    base, tokenizer = make("gpt2")
    lora: Any = peft.get_peft_model(base, peft.LoraConfig(target_modules=["c_attn"], r=2))
    assert headbook.collect(TEXTS, base, tokenizer, **QUICK).manifest.model.name.endswith(
        "with adapter default"
    )
    with pytest.raises(ConfigError, match="models: got two objects with the same layers"):
        headbook.compare(TEXTS, (base, lora), tokenizer)
    with lora.disable_adapter():
        study = headbook.collect(TEXTS, lora, tokenizer, **QUICK)
    assert "adapter" not in study.manifest.model.name
