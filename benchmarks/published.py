"""Options of published checkpoints, by type of model, beside sizes; the types used most come first.

An entry stands here only if its options are known for certain; other types are built from the
defaults of their classes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

CLASS_DEFAULTS = "class defaults"


class Checkpoint(NamedTuple):
    """A published checkpoint that a tiny configuration imitates.

    Attributes:
        name: id of the checkpoint on the hub.
        options: options that differ from class defaults, or whose defaults matter here.
    """

    name: str
    options: Mapping[str, Any]


_WINDOWS = ["sliding_attention", "full_attention"]
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 32,
}
PUBLISHED: Mapping[str, Checkpoint] = {
    "bert": Checkpoint("google-bert/bert-base-uncased", {}),
    "gpt2": Checkpoint("openai-community/gpt2", {}),
    "distilbert": Checkpoint("distilbert/distilbert-base-uncased", {"sinusoidal_pos_embds": False}),
    "roberta": Checkpoint("FacebookAI/roberta-base", {"type_vocab_size": 1}),
    "xlm-roberta": Checkpoint("FacebookAI/xlm-roberta-base", {"type_vocab_size": 1}),
    "llama": Checkpoint(
        "meta-llama/Llama-3.2-1B", {"tie_word_embeddings": True, "rope_parameters": _LLAMA3}
    ),
    "qwen2": Checkpoint(
        "Qwen/Qwen2.5-0.5B", {"tie_word_embeddings": True, "use_sliding_window": False}
    ),
    "qwen3": Checkpoint("Qwen/Qwen3-0.6B", {"tie_word_embeddings": True}),
    "t5": Checkpoint("google-t5/t5-small", {}),
    "mpnet": Checkpoint("microsoft/mpnet-base", {}),
    "deberta-v2": Checkpoint(
        "microsoft/deberta-v3-base",
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 16,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "max_relative_positions": -1,
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    "deberta": Checkpoint(
        "microsoft/deberta-base",
        {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "max_relative_positions": -1,
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    "modernbert": Checkpoint(
        "answerdotai/ModernBERT-base", {"local_attention": 8, "layer_types": _WINDOWS[::-1]}
    ),
    "albert": Checkpoint("albert/albert-base-v2", {"num_hidden_groups": 1, "inner_group_num": 1}),
    "electra": Checkpoint("google/electra-small-discriminator", {"embedding_size": 16}),
    "mistral": Checkpoint("mistralai/Mistral-7B-v0.1", {"sliding_window": 8}),
    "mixtral": Checkpoint("mistralai/Mixtral-8x7B-v0.1", {"sliding_window": None}),
    "gemma3_text": Checkpoint(
        "google/gemma-3-1b-it", {"num_key_value_heads": 1, "layer_types": _WINDOWS}
    ),
    "gemma2": Checkpoint(
        "google/gemma-2-2b",
        {
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "layer_types": _WINDOWS,
        },
    ),
    "gemma4_text": Checkpoint(
        "google/gemma-4-E2B-it",
        {
            "num_hidden_layers": 4,
            "layer_types": _WINDOWS * 2,
            "num_kv_shared_layers": 2,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "global_head_dim": 16,
            "use_double_wide_mlp": True,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3n_text": Checkpoint(
        "google/gemma-3n-E2B-it",
        {
            "num_hidden_layers": 4,
            "intermediate_size": [48] * 4,
            "layer_types": _WINDOWS * 2,
            "num_kv_shared_layers": 2,
            "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0],
        },
    ),
    "gemma": Checkpoint("google/gemma-2b", {"num_key_value_heads": 1}),
    "gpt_oss": Checkpoint("openai/gpt-oss-20b", {"layer_types": _WINDOWS}),
    "phi3": Checkpoint(
        "microsoft/Phi-3-mini-128k-instruct",
        {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 32},
    ),
    "phi": Checkpoint("microsoft/phi-2", {"qk_layernorm": False}),
    "gpt_neox": Checkpoint("EleutherAI/pythia-70m", {"use_parallel_residual": True}),
    "gpt_neo": Checkpoint("EleutherAI/gpt-neo-125m", {}),
    "opt": Checkpoint("facebook/opt-125m", {"do_layer_norm_before": True}),
    "bloom": Checkpoint("bigscience/bloom-560m", {}),
    "falcon": Checkpoint(
        "tiiuae/falcon-7b",
        {
            "multi_query": True,
            "parallel_attn": True,
            "new_decoder_architecture": False,
            "alibi": False,
        },
    ),
    "bart": Checkpoint("facebook/bart-base", {}),
    "marian": Checkpoint("Helsinki-NLP/opus-mt-en-de", {"scale_embedding": True}),
    "mt5": Checkpoint("google/mt5-small", {"feed_forward_proj": "gated-gelu"}),
}


def imitated(name: str) -> str:
    """Return the checkpoint that a type's tiny configuration imitates, or `CLASS_DEFAULTS`."""
    return PUBLISHED[name].name if name in PUBLISHED else CLASS_DEFAULTS
