"""Tiny random models with their tokenizers: every architecture, offline, in milliseconds."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE, WordPiece
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

LAYERS, HEADS, WIDTH = 2, 4, 32
PAIRS = {"t5", "bart", "marian", "mvp", "fsmt", "led", "longt5", "prophetnet"}
ABSENT = 4  # rows of the embedding that no token uses, as padded vocabularies have them

PIECES = (
    *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
    ".", ",", "!", "?", "the", "cat", "dog", "sees", "small", "bird", "red", "house", "and",
    "fisher", "##man", "un", "##happi", "##ness", "sleep", "##ing", "in", "old", "runs", "near",
    "garden", "##er", "water", "sing", "ve",
)  # fmt: skip

Roles = Mapping[str, str]
BRACKETS: Roles = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ROBERTA: Roles = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
    "cls_token": "<s>",
    "sep_token": "</s>",
}
END_OF_TEXT: Roles = {"eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
LLAMA: Roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
OPT: Roles = {"bos_token": "</s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
GEMMA: Roles = {
    "pad_token": "<pad>",
    "eos_token": "<eos>",
    "bos_token": "<bos>",
    "unk_token": "<unk>",
}
T5: Roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


@dataclass(frozen=True)
class Tiny:
    """One architecture.

    Attributes:
        type: the configuration's ``model_type``.
        roles: the tokenizer's special tokens; ids in this order.
        template: what stands around a text, ``$A``.
        options: of the configuration, beside sizes.
    """

    type: str
    roles: Roles
    template: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pairs(self) -> bool:
        """Whether it is an encoder-decoder."""
        return self.type in PAIRS


def _sizes(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 48,
        "max_position_embeddings": 72,
        **more,
    }


def _pair_sizes(**more: Any) -> dict[str, Any]:
    return {
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 72,
        **more,
    }


WINDOW = 4  # of the layers with local attention
_GPT2 = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 72}
_GROUPED = _sizes(num_key_value_heads=2, head_dim=8)
_DISTIL = {
    "dim": WIDTH,
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "hidden_dim": 48,
    "max_position_embeddings": 72,
}
_T5 = {
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "relative_attention_num_buckets": 8,
}
_NEO = {
    "hidden_size": WIDTH,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "intermediate_size": 48,
    "max_position_embeddings": 72,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 4,
}
_DEBERTA = _sizes(
    relative_attention=True,
    pos_att_type=["p2c", "c2p"],
    position_buckets=16,
    share_att_key=True,
    norm_rel_ebd="layer_norm",
    max_relative_positions=-1,
    position_biased_input=False,
)
_GEMMA4 = _sizes(
    head_dim=8, global_head_dim=16, sliding_window=WINDOW, final_logit_softcapping=30.0
)
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
AROUND, BEFORE, AFTER, BARE = "[CLS] $A [SEP]", "<s> $A", "$A </s>", "$A"

IN_TABLE = {
    "bert": Tiny("bert", BRACKETS, AROUND, _sizes()),
    "roberta": Tiny("roberta", ROBERTA, "<s> $A </s>", _sizes()),
    "distilbert": Tiny("distilbert", BRACKETS, AROUND, _DISTIL),
    "albert": Tiny("albert", BRACKETS, AROUND, _sizes(embedding_size=16)),
    "electra": Tiny("electra", BRACKETS, AROUND, _sizes(embedding_size=WIDTH)),
    "electra_small": Tiny("electra", BRACKETS, AROUND, _sizes(embedding_size=16)),
    "deberta": Tiny(
        "deberta",
        BRACKETS,
        AROUND,
        _sizes(
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            max_relative_positions=16,
            position_biased_input=False,
        ),
    ),
    "deberta_v3": Tiny("deberta-v2", BRACKETS, AROUND, _DEBERTA),
    "modernbert": Tiny(
        "modernbert",
        BRACKETS,
        AROUND,
        _sizes(
            local_attention=WINDOW,
            global_attn_every_n_layers=2,
            cls_token_id=2,
            sep_token_id=3,
        ),
    ),
    "gpt2": Tiny("gpt2", END_OF_TEXT, BARE, _GPT2),
    "gpt_neox": Tiny("gpt_neox", END_OF_TEXT, BARE, _sizes()),
    "gpt_neox_serial": Tiny("gpt_neox", END_OF_TEXT, BARE, _sizes(use_parallel_residual=False)),
    "opt": Tiny("opt", OPT, "</s> $A", _sizes(ffn_dim=48, word_embed_proj_dim=WIDTH)),
    "opt_after": Tiny(
        "opt",
        OPT,
        "</s> $A",
        _sizes(ffn_dim=48, word_embed_proj_dim=WIDTH, do_layer_norm_before=False),
    ),
    "llama": Tiny("llama", LLAMA, BEFORE, _GROUPED),
    "mistral": Tiny("mistral", LLAMA, BEFORE, {**_GROUPED, "sliding_window": WINDOW}),
    "qwen2": Tiny("qwen2", END_OF_TEXT, BARE, _GROUPED),
    "gemma3": Tiny(
        "gemma3_text",
        GEMMA,
        "<bos> $A",
        {
            **_GROUPED,
            "sliding_window": WINDOW,
            "final_logit_softcapping": 3.0,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "gpt_oss": Tiny(
        "gpt_oss",
        LLAMA,
        BEFORE,
        _sizes(
            **_EXPERTS,
            num_key_value_heads=2,
            head_dim=8,
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    "t5": Tiny("t5", T5, AFTER, _T5),
    "bart": Tiny("bart", ROBERTA, "<s> $A </s>", _pair_sizes(scale_embedding=True)),
    "marian": Tiny("marian", T5, AFTER, _pair_sizes(scale_embedding=True)),
}
UNKNOWN = {"phi": Tiny("phi", END_OF_TEXT, BARE, _sizes())}  # served by the hook, not in the table
_LATENT = {"num_key_value_heads": HEADS, "head_dim": 8}
_PAIR = _pair_sizes(attention_window=4)
_VISION = {**_sizes(num_hidden_layers=1), "image_size": 8, "patch_size": 4}
_READS = {**_GROUPED, "vocab_size": 0}  # of a text part
# Told apart by what is done with their attention; written by `write`, in no list of families.
OTHERS = {
    "albert_wide": Tiny("albert", BRACKETS, AROUND, _sizes(embedding_size=WIDTH)),
    "bitnet": Tiny("bitnet", LLAMA, BEFORE, _GROUPED),  # a norm before its output projection
    "qwen3_next": Tiny(  # a gate for each number of its heads' outputs
        "qwen3_next",
        END_OF_TEXT,
        BARE,
        {**_GROUPED, "layer_types": ["full_attention"] * LAYERS, "mlp_only_layers": [0, 1]},
    ),
    "laguna": Tiny(  # a gate for each head
        "laguna", LLAMA, BEFORE, {**_GROUPED, "mlp_layer_types": ["dense"] * LAYERS}
    ),
    "neomme": Tiny(  # what lies along a token's own value is taken away
        "neomme", BRACKETS, AROUND, {**_GROUPED, "head_dim": 16}
    ),
    "doge": Tiny("doge", LLAMA, BEFORE, _GROUPED),  # residuals with learned weights
    "ibert": Tiny("ibert", ROBERTA, "<s> $A </s>", _sizes()),  # linear maps of its own class
    "granite": Tiny("granite", LLAMA, BEFORE, {**_GROUPED, "residual_multiplier": 0.3}),
    "cohere": Tiny("cohere", LLAMA, BEFORE, _GROUPED),
    "olmo2": Tiny("olmo2", LLAMA, BEFORE, _GROUPED),
    "mbart": Tiny("mbart", ROBERTA, "<s> $A </s>", _pair_sizes()),
    "jamba": Tiny(
        "jamba",
        LLAMA,
        BEFORE,
        _sizes(
            num_key_value_heads=2,
            attn_layer_period=2,
            attn_layer_offset=1,
            mamba_d_state=4,
            num_experts=1,
            num_experts_per_tok=1,
        ),
    ),
    "granite_swa": Tiny("granite_swa", LLAMA, BEFORE, _sizes(num_key_value_heads=2)),
    "llama4": Tiny(
        "llama4_text",
        LLAMA,
        BEFORE,
        _sizes(
            **_EXPERTS,
            num_key_value_heads=2,
            head_dim=8,
            intermediate_size_mlp=48,
            attention_chunk_size=WINDOW,
            layer_types=["chunked_attention", "full_attention"],
        ),
    ),
    "diffllama": Tiny("diffllama", LLAMA, BEFORE, _sizes(**_LATENT)),
    "convbert": Tiny("convbert", BRACKETS, AROUND, _sizes(embedding_size=WIDTH)),
    "mobilebert": Tiny("mobilebert", BRACKETS, AROUND, _sizes(embedding_size=16)),
    "nystromformer": Tiny("nystromformer", BRACKETS, AROUND, _sizes()),
    "nystromformer_few": Tiny("nystromformer", BRACKETS, AROUND, _sizes(num_landmarks=16)),
    "squeezebert": Tiny(
        "squeezebert",
        BRACKETS,
        AROUND,
        _sizes(
            embedding_size=WIDTH,
            **dict.fromkeys(
                (
                    "q_groups",
                    "k_groups",
                    "v_groups",
                    "post_attention_groups",
                    "intermediate_groups",
                    "output_groups",
                ),
                1,
            ),
        ),
    ),
    "yoso": Tiny("yoso", BRACKETS, AROUND, _sizes()),
    "longformer": Tiny("longformer", BRACKETS, AROUND, _sizes(attention_window=[4, 4])),
    "canine": Tiny("canine", BRACKETS, AROUND, _sizes()),
    "funnel": Tiny("funnel", BRACKETS, AROUND, {"d_model": WIDTH, "block_sizes": [1, 1]}),
    "reformer": Tiny(
        "reformer",
        BRACKETS,
        AROUND,
        {
            "hidden_size": WIDTH,
            "num_attention_heads": HEADS,
            "attention_head_size": 8,
            "feed_forward_size": 48,
            "axial_pos_embds": False,
            "attn_layers": ["local", "local"],
            "local_attn_chunk_length": 36,
            "max_position_embeddings": 72,
        },
    ),
    "rwkv": Tiny("rwkv", BRACKETS, AROUND, {"hidden_size": WIDTH, "num_hidden_layers": LAYERS}),
    "xlm": Tiny("xlm", BRACKETS, AROUND, {"emb_dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS}),
    "deberta_v2": Tiny(  # a convolution beside its first layer, as in v2-xlarge
        "deberta-v2", BRACKETS, AROUND, {**_DEBERTA, "conv_kernel_size": 3, "conv_act": "gelu"}
    ),
    # Keys and values of earlier layers, heads of two widths, and states of single layers (E2B).
    "gemma4": Tiny(
        "gemma4_text",
        GEMMA,
        "<bos> $A",
        {
            **_GEMMA4,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "num_key_value_heads": 1,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 400,
            "use_double_wide_mlp": True,
        },
    ),
    # Values that are keys before their norm (31B).
    "gemma4_large": Tiny(
        "gemma4_text",
        GEMMA,
        "<bos> $A",
        {
            **_GEMMA4,
            "layer_types": ["sliding_attention", "full_attention"],
            "attention_k_eq_v": True,
            "num_key_value_heads": 2,
            "num_global_key_value_heads": 1,
            "hidden_size_per_layer_input": 0,
        },
    ),
    "gemma3n": Tiny(
        "gemma3n_text",
        GEMMA,
        "<bos> $A",
        {
            **_GROUPED,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "sliding_window": WINDOW,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 400,
            "laurel_rank": 8,
            "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0],
        },
    ),
    "gemma3_both_ways": Tiny(
        "gemma3_text",
        {**GEMMA, "mask_token": "<mask>"},
        "<bos> $A",
        {
            **_GROUPED,
            "use_bidirectional_attention": True,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "albert_inner": Tiny(  # two layers in each group
        "albert",
        BRACKETS,
        AROUND,
        _sizes(embedding_size=16, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2),
    ),
    # Other frequencies of positions beyond 16 tokens (Phi-3; Qwen).
    "longrope": Tiny(
        "llama",
        LLAMA,
        BEFORE,
        {
            **_GROUPED,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0, 1.0, 1.0, 1.0],
                "long_factor": [2.0, 4.0, 8.0, 16.0],
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "dynamic": Tiny(
        "llama",
        LLAMA,
        BEFORE,
        {
            **_GROUPED,
            "max_position_embeddings": 16,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
        },
    ),
    "xlnet": Tiny(
        "xlnet",
        BRACKETS,
        AROUND,
        {"d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 48},
    ),
    "mvp": Tiny("mvp", ROBERTA, "<s> $A </s>", _pair_sizes()),
    "fsmt": Tiny("fsmt", T5, AFTER, _pair_sizes(src_vocab_size=0, tgt_vocab_size=0)),
    "led": Tiny("led", ROBERTA, "<s> $A </s>", _PAIR),
    "longt5": Tiny("longt5", T5, AFTER, {**_T5, "encoder_attention_type": "local"}),
    "prophetnet": Tiny(
        "prophetnet",
        T5,
        AFTER,
        {
            "hidden_size": WIDTH,
            "num_encoder_layers": LAYERS,
            "num_decoder_layers": LAYERS,
            "num_encoder_attention_heads": HEADS,
            "num_decoder_attention_heads": HEADS,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 72,
        },
    ),
    "blip": Tiny(
        "blip",
        BRACKETS,
        AROUND,
        {"text_config": _sizes(vocab_size=0), "vision_config": _VISION},
    ),
    "gemma3_sees": Tiny(
        "gemma3",
        GEMMA,
        "<bos> $A",
        {"text_config": {**_READS, "sliding_window": WINDOW}, "vision_config": _VISION},
    ),
    "llava": Tiny(
        "llava",
        LLAMA,
        BEFORE,
        {
            "text_config": {"model_type": "llama", **_READS},
            "vision_config": {"model_type": "clip_vision_model", **_VISION},
        },
    ),
}
FALLBACK = {  # they do not ask transformers for their attention
    "gpt_neo": Tiny("gpt_neo", END_OF_TEXT, BARE, _NEO),
    "mpnet": Tiny("mpnet", ROBERTA, "<s> $A </s>", _sizes()),
}
ALL = {**IN_TABLE, **UNKNOWN, **FALLBACK}
T = TypeVar("T")
COMMON = {"bert", "gpt2", "llama", "t5", "bart", "marian"}


def by_level(names: Iterable[T], family: Callable[[T], str] = str) -> "list[ParameterSet]":
    """Return families as parameters of a test; those beyond the common ones are soak tests.

    Args:
        names: families, or what else has one.
        family: the family of a name.
    """
    return [
        pytest.param(name, marks=[] if family(name) in COMMON else pytest.mark.soak)
        for name in names
    ]


def write(
    name: str,
    folder: Path,
    seed: int = 0,
    *,
    head: bool = False,
    untied: bool = False,
    untrained: bool = False,
) -> Path:
    """Write a tiny model and its tokenizer into a folder, and return it.

    Args:
        head: with the language-model head, which encoder-decoders always have.
        untied: with a head that has its own weights, whatever the family does.
        untrained: with the weights that transformers starts training with, which are small.
    """
    tiny = {**ALL, **OTHERS}[name]
    tokenizer = _tokenizer(tiny)
    tokenizer.save_pretrained(folder)
    options: dict[str, Any] = {**tiny.options, **_special(tokenizer, tiny)}
    if untied:
        options["tie_word_embeddings"] = False
    config = CONFIG_MAPPING[tiny.type](**_sized(options, len(tokenizer) + ABSENT))
    torch.manual_seed(seed)
    logging.disable_progress_bar()
    loader: Any = AutoModelForSeq2SeqLM if tiny.pairs else AutoModel
    if "text_config" in tiny.options:
        loader = AutoModelForImageTextToText
    elif head and not tiny.pairs:
        causal = type(config) not in MODEL_FOR_MASKED_LM_MAPPING
        loader = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    model = loader.from_config(config)
    if not untrained:
        _randomise(model)
    model.save_pretrained(folder)
    return folder


def _sized(options: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Options with the size of the vocabulary, in the text part where there is one."""
    sized = {key: size for key in options if key.endswith("vocab_size")}
    if "text_config" in options:
        return {**options, "text_config": {**options["text_config"], "vocab_size": size}}
    return {**options, **(sized or {"vocab_size": size})}


def _special(tokenizer: Any, tiny: Tiny) -> dict[str, int | None]:
    found = {name: getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    special: dict[str, int | None] = {f"{name}_token_id": token for name, token in found.items()}
    if tiny.pairs:
        special["decoder_start_token_id"] = found["eos" if tiny.type == "bart" else "pad"]
        special["forced_eos_token_id"] = None
    return special


def _tokenizer(tiny: Tiny) -> Any:
    """Return a tokenizer: byte-level if the family has no special tokens, else WordPiece."""
    fast = _bytes(tiny) if tiny.template == BARE else _pieces(tiny)
    return PreTrainedTokenizerFast(tokenizer_object=fast, model_max_length=64, **tiny.roles)


def _bytes(tiny: Tiny) -> Tokenizer:
    fast = Tokenizer(BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[*dict.fromkeys(tiny.roles.values())],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator([" the old fisher sees small dogs, sings and sleeps"] * 2, trainer)
    return fast


def _pieces(tiny: Tiny) -> Tokenizer:
    names = [*dict.fromkeys(tiny.roles.values()), *PIECES]
    vocabulary = {name: number for number, name in enumerate(names)}
    fast = Tokenizer(WordPiece(vocabulary, unk_token=tiny.roles["unk_token"]))
    fast.normalizer = normalizers.Lowercase()
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(
        single=tiny.template,
        special_tokens=[(n, vocabulary[n]) for n in tiny.template.split() if n != "$A"],
    )
    return fast


def _randomise(model: torch.nn.Module) -> None:
    """Weights so large that attention is uneven; no bias and no gain that could be left out."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.35)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
