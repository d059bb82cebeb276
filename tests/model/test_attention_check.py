"""What is read is the attention that the model itself computes, or the run says that it is not."""

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, LlavaForConditionalGeneration, T5ForConditionalGeneration
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

import tiny
from headbook.attention.views import mask_of_call
from headbook.config import Config
from headbook.errors import ModelError
from headbook.inputs import TextRecord
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.attention_hook import AttentionCall
from headbook.model.forward import run_forward
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer, probe_texts
from headbook.pages.parts.run_facts import learned_sink
from headbook.passes.model_checks import eager_attention, verify_attention
from headbook.passes.self_checks import learned_share
from headbook.results.formats import percent
from headbook.run.collect import collect
from headbook.schema import Side
from headbook.study.study import Study, merge
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch, batches_by_tokens
from headbook.text.tokens import TokenizedSentence

Folder = Callable[[str], Path]
SLOW = pytest.mark.slow
TEXTS = (
    "the cat sees the old dog", "water", "the small red bird sings near the old house .",
    "old water runs", "the old dog sleeps", "dog",
)  # fmt: skip
WEIGHTS = "rows of attention + share of the learned sink = 1"
APPLIED = "weights times values = what heads give, the learned sink nothing"

# What they do, and a part of the line that says so.
REFUSED = {
    "granite_swa": "not what it applies to its values",
    "diffllama": "subtracts the results",
    "squeezebert": "not what it applies to its values",
    "yoso": "attends in another way",
    "longformer": "attends in another way",
    "canine": "its own code .* fails on text alone",
    "blip": "its own code .*pixel_values",
    "nystromformer_few": "its own code .* fails",
    "led": "no attention weights in encoder",
    "prophetnet": "no attention weights in cross",
    "longt5": "no attention weights in encoder",
    "rwkv": "attends in another way",
}
QUICK = {"granite_swa", "diffllama", "squeezebert", "longformer", "blip", "led"}
# By what padding would change: convolutions over tokens, and a mask that is not asked for.
UNPADDED = ["mobilebert", *(pytest.param(n, marks=SLOW) for n in ("convbert", "fsmt"))]


def settled(folder: Path) -> tuple[Model, Architecture, SentenceTokenizer]:
    """A model as a run begins with it."""
    model = load_model(str(folder), device="cpu")
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    return model, verify_attention(model, probe_architecture(model), probe_texts(encoder)), encoder


def items_of(encoder: SentenceTokenizer) -> list[TokenizedSentence]:
    """The texts, those of a pair with themselves."""
    pairs = encoder.model.config.is_encoder_decoder
    sentences = [
        TextRecord(i, id="", text=text, target=text if pairs else None, origin=f"t:{i + 1}")
        for i, text in enumerate(TEXTS)
    ]
    return list(encoder.tokenize(Annotator.load("none").annotate(sentences)))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """The texts as a file."""
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def with_sink(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of a model whose softmax has a sink of its own."""
    file = tmp_path_factory.mktemp("input") / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return collect(
        file, model=str(tiny_folder("gpt_oss")), dtype="float64", annotator="none",
        metrics="sink_share,attention_distance,head_distance",
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=SLOW) for n in REFUSED]
)
def test_attention_that_cannot_be_shown_is_refused_in_one_line(
    name: str, tiny_folder: Folder
) -> None:
    with pytest.raises(ModelError, match=REFUSED[name]) as message:
        settled(tiny_folder(name))
    assert "\n" not in str(message.value)
    assert tiny.OTHERS[name].type in str(message.value)


@pytest.mark.soak
@pytest.mark.slow
def test_such_a_line_ends_with_code_two(tiny_folder: Folder, texts: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "headbook", "build", str(texts), "--model",
        str(tiny_folder("longformer")), "--out", str(tmp_path / "site"), "--quiet",
    ]  # fmt: skip
    message = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (message.returncode, message.stdout) == (2, "")
    assert re.fullmatch("headbook: model '.*longformer.*\n", message.stderr)
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("name", UNPADDED)
def test_where_padding_changes_attention_there_is_none(name: str, tiny_folder: Folder) -> None:
    model, architecture, encoder = settled(tiny_folder(name))
    assert not architecture.padded
    items = items_of(encoder)
    sizes = [len(group) for group in batches_by_tokens(items, 2048, alike=True)]
    assert 1 in sizes
    assert max(sizes) > 1
    for group in batches_by_tokens(items, 2048, alike=True):
        batch = Batch.of(group, model.device)
        attentions: dict[object, AttentionCall] = {}
        run_forward(model, architecture, batch, attentions.__setitem__)
        for row, item in enumerate(batch.items):
            alone = eager_attention(model, architecture, Batch.of([item], model.device))
            assert alone.keys() == attentions.keys()
            for call, theirs in alone.items():
                torch.testing.assert_close(
                    attentions[call].weights[row], theirs[0], rtol=0, atol=2e-5
                )


@pytest.mark.slow
def test_padding_does_change_it(tiny_folder: Folder) -> None:
    """Else nothing is shown by leaving it out."""
    model, architecture, encoder = settled(tiny_folder("mobilebert"))
    items = items_of(encoder)
    attentions: dict[object, AttentionCall] = {}
    batch = Batch.of(items, model.device)
    run_forward(model, architecture, batch, attentions.__setitem__)
    row = [item.sentence.text for item in batch.items].index("water")
    alone = eager_attention(model, architecture, Batch.of([batch.items[row]], model.device))
    n = len(batch.items[row].tokens[Side.SOURCE])
    assert (
        max(
            float((attentions[call].weights[row, :, :n, :n] - theirs[0]).abs().max())
            for call, theirs in alone.items()
        )
        > 0.01
    )


def test_a_study_without_padding_says_so_and_its_checks_hold(
    tiny_folder: Folder, texts: Path
) -> None:
    study = collect(
        texts, model=str(tiny_folder("mobilebert")), annotator="none", metrics="sink_share"
    )
    assert study.manifest.failed == ()
    assert "without padding" in study.manifest.model.attention


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_others_keep_their_batches_and_their_hook(name: str, tiny_folder: Folder) -> None:
    _, architecture, _ = settled(tiny_folder(name))
    assert architecture.padded
    assert architecture.hooked
    assert not any(stack.learned_sink for stack in architecture.stacks.values())


def eager_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention that is not GPT-2's: without a scale."""
    scores = query @ key.transpose(-1, -2)
    weights = (scores if attention_mask is None else scores + attention_mask).softmax(-1)
    return (weights @ value).transpose(1, 2), weights


class Elsewhere(GPT2Attention):
    """GPT-2's attention, next to another function of the name that the hook asks for."""


def test_where_the_interface_computes_something_else_the_models_own_weights_are_read(
    tiny_folder: Folder,
) -> None:
    model = load_model(str(tiny_folder("gpt2")), device="cpu")
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    for block in model.base_model.h:
        block.attn.__class__ = Elsewhere
    before = probe_architecture(model)
    assert before.hooked
    architecture = verify_attention(model, before, probe_texts(encoder))
    assert not architecture.hooked
    assert re.search(r"stack self, layer 0 .* differs by \d", architecture.unhooked)
    fresh = AutoModel.from_pretrained(tiny_folder("gpt2"), attn_implementation="eager").eval()
    (item, *_) = items_of(encoder)
    batch = Batch.of([item], model.device)
    attentions: dict[object, AttentionCall] = {}
    run_forward(model, architecture, batch, attentions.__setitem__)
    with torch.no_grad():
        theirs = fresh(batch.texts[Side.SOURCE].ids, output_attentions=True).attentions
    for call, weights in zip(architecture.calls, theirs, strict=True):
        torch.testing.assert_close(attentions[call].weights, weights, rtol=0, atol=1e-5)


def test_rows_and_the_learned_sink_are_the_models_softmax(tiny_folder: Folder) -> None:
    """The sink's share, from the model's parameters by hand."""
    model, architecture, encoder = settled(tiny_folder("gpt_oss"))
    assert architecture.stacks["self"].learned_sink
    batch = Batch.of(items_of(encoder), model.device)
    attentions: dict[object, AttentionCall] = {}
    run_forward(model, architecture, batch, attentions.__setitem__)
    valid = batch.texts[Side.SOURCE].valid
    for call, layer in zip(architecture.calls, model.base_model.layers, strict=True):
        a, module = attentions[call], layer.self_attn
        assert a.query is not None
        assert a.key is not None
        assert a.mask is not None
        keys = a.key.repeat_interleave(2, 1)
        scores = a.query @ keys.mT * module.scaling + a.mask
        sinks = module.sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        share = torch.cat([scores, sinks], -1).softmax(-1)[..., -1]
        mine = learned_share(a)
        torch.testing.assert_close(mine.mT[valid], share.mT[valid], rtol=0, atol=1e-5)
        left = 1 - a.weights.sum(-1)
        torch.testing.assert_close(left.mT[valid], share.mT[valid], rtol=0, atol=1e-5)
        assert float(share.mT[valid].max()) > 0.05  # nothing is proved by a sink that takes nothing


def test_a_learned_sink_is_checked_told_and_counts_as_sink(with_sink: Study) -> None:
    manifest = with_sink.manifest
    assert manifest.failed == ()
    assert {WEIGHTS, APPLIED} <= {check.name for check in manifest.checks}
    (stack,) = manifest.stacks
    assert stack.learned_sink
    share = manifest.learned_share(stack)
    assert 0.01 < share < 0.99
    reported = learned_sink(manifest, stack)
    assert reported.startswith(f"{percent(share)} of the mass goes to the learned sink")
    heads = with_sink.heads
    least = heads[(heads["metric"] == "sink_share") & (heads["view"] == "raw")]["value"].mean()
    assert least > share  # position 0 is sink, too


def test_what_the_learned_sink_takes_adds_up_over_studies(with_sink: Study) -> None:
    both = merge([with_sink, with_sink])
    (stack,) = both.manifest.stacks
    assert both.manifest.learned_share(stack) == with_sink.manifest.learned_share(stack)


def test_heads_are_as_far_apart_as_their_rows_with_the_learned_sink(
    with_sink: Study, tiny_folder: Folder
) -> None:
    model, architecture, encoder = settled(tiny_folder("gpt_oss"))
    rows: list[list[list[float]]] = [[] for _ in range(2 * tiny.HEADS)]
    for item in items_of(encoder):
        found = eager_attention(model, architecture, Batch.of([item], model.device))
        for layer, call in enumerate(architecture.calls):
            for head, maps in enumerate(found[call][0].double().tolist()):
                ordinary = [i for i in range(len(maps)) if not item.tokens[Side.SOURCE].special[i]]
                rows[layer * tiny.HEADS + head] += [[*maps[i], 1 - sum(maps[i])] for i in ordinary]
    pairs = with_sink.pairs
    pairs = pairs[(pairs["metric"] == "head_distance") & (pairs["view"] == "raw")]
    assert len(pairs) == 28
    names = ["layer", "head", "other_layer", "other_head"]
    for place, value in zip(pairs[names].to_numpy(int).tolist(), pairs["value"], strict=True):
        one, other = (rows[place[at] * tiny.HEADS + place[at + 1]] for at in (0, 2))
        apart = [divergence(p, q) for p, q in zip(one, other, strict=True)]
        assert value == pytest.approx(sum(apart) / len(apart), abs=1e-4)


def divergence(p: list[float], q: list[float]) -> float:
    """Of Jensen and Shannon, in nats."""
    mixed = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return entropy(mixed) - (entropy(p) + entropy(q)) / 2


def entropy(p: list[float]) -> float:
    return -sum(a * math.log(a) for a in p if a > 0)


@pytest.mark.parametrize("name", ["gpt_oss", "llama4"])
def test_what_is_visible_is_what_has_weight(name: str, tiny_folder: Folder) -> None:
    """In windows and chunks, too."""
    model, architecture, encoder = settled(tiny_folder(name))
    batch = Batch.of(items_of(encoder), model.device)
    attentions: dict[object, AttentionCall] = {}
    run_forward(model, architecture, batch, attentions.__setitem__)
    side = batch.texts[Side.SOURCE]
    kinds = set()
    for call in architecture.calls:
        a = attentions[call]
        open_ = mask_of_call(a, architecture.stacks["self"], side, side)
        given = (a.weights > 0).any(1) & side.valid[:, None, :]
        assert torch.equal(open_[side.valid], given[side.valid])
        kinds.add(int(open_.sum()))
    assert len(kinds) == 2  # a layer sees less than the other


@pytest.mark.parametrize("name", ["xlm", pytest.param("xlnet", marks=SLOW)])
def test_half_a_layer_is_not_taken_for_a_layer(name: str, tiny_folder: Folder) -> None:
    """Its list of modules holds attention blocks; what they give is no state of a token."""
    _, architecture, _ = settled(tiny_folder(name))
    assert architecture.layers == {}


def test_a_decoders_states_are_those_of_its_own_layers(tiny_folder: Folder) -> None:
    """Encoder and decoder have as many."""
    model, architecture, _ = settled(tiny_folder("mvp"))
    assert architecture.products
    assert architecture.layers["encoder"] == tuple(model.network.get_encoder().layers)
    assert architecture.layers["decoder"] == tuple(model.network.get_decoder().layers)


@pytest.mark.parametrize("name", ["gemma3_sees", pytest.param("llava", marks=SLOW)])
def test_the_text_part_of_a_model_that_sees_is_collected(
    name: str, tiny_folder: Folder, texts: Path
) -> None:
    metrics = "sink_share,cosine_to_input,anisotropy,logit_lens_rank,mixing_ratio"
    study = collect(texts, model=str(tiny_folder(name)), annotator="none", metrics=metrics)
    manifest = study.manifest
    assert manifest.failed == ()
    assert manifest.model.missing == ()
    assert manifest.stacks[0].n_layers == tiny.LAYERS
    assert {"cosine_to_input", "logit_lens_rank", "mixing_ratio"} <= set(study.tokens["metric"])
    assert "anisotropy" in set(study.geometry["metric"])


@pytest.mark.slow
def test_the_text_part_alone_gives_the_same_numbers(
    tiny_folder: Folder, texts: Path, tmp_path: Path
) -> None:
    whole, part = tiny_folder("llava"), tmp_path / "llama"
    both = LlavaForConditionalGeneration.from_pretrained(whole)
    both.model.language_model.save_pretrained(part)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (part / file).write_bytes((whole / file).read_bytes())
    metrics = "sink_share,attention_to,mixing_ratio"
    one, other = (
        collect(texts, model=str(path), annotator="none", metrics=metrics, circuits="off")
        for path in (whole, part)  # which has no language-model head
    )
    assert one.heads.equals(other.heads)
    assert one.tokens.equals(other.tokens)


@pytest.mark.slow
def test_a_written_target_has_tokens_of_the_vocabulary_alone(
    tiny_folder: Folder, texts: Path, tmp_path: Path
) -> None:
    """An embedding may have rows that no token uses; a random model would write them, too."""
    folder = tmp_path / "t5"
    shutil.copytree(tiny_folder("t5"), folder)
    network = T5ForConditionalGeneration.from_pretrained(folder)
    network.resize_token_embeddings(2000)
    torch.manual_seed(0)
    torch.nn.init.normal_(network.shared.weight, 0, 0.35)
    network.save_pretrained(folder)
    study = collect(
        texts, model=str(folder), annotator="none", metrics="vocabulary_rank", importance="off",
        circuits="off",
    )  # fmt: skip
    pieces = [
        text.pieces for s in study.sentence_data.sentences.values() for text in s.texts.values()
    ]
    assert all(piece is not None for each in pieces for piece in each)
    assert study.manifest.count(Side.TARGET, "generated") == len(TEXTS)


@pytest.mark.slow
def test_longer_texts_that_are_attended_to_in_pieces_are_refused_in_one_line(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    """Up to the length of a piece all is seen, and right."""
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    short.write_text("the cat sees the dog\nwater\n", encoding="utf-8")
    long.write_text("the cat sees the dog " * 11 + "\n", encoding="utf-8")
    config = Config(model=str(tiny_folder("reformer")), annotator="none", metrics="sink_share")
    assert collect(short, config=config).manifest.failed == ()
    with pytest.raises(ModelError, match=r"for 57 queries .* 'reformer' .* max_length=|own code"):
        collect(long, config=config)
