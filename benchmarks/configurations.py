"""Tiny configurations of every architecture, by the names that transformers gives to sizes."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from transformers import CONFIG_MAPPING

from published import PUBLISHED

WIDTH, LAYERS, HEADS = 32, 2, 4


def _all(value: int, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


SIZES: dict[str, Any] = {
    **_all(
        WIDTH,
        "hidden_size d_model n_embd dim emb_dim embed_dim model_dim true_hidden_size "
        "word_embed_proj_dim out_hidden_size projection_dim lru_width image_size",
    ),
    **_all(
        LAYERS,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
        "num_decoder_layers num_encoder_layers depth e_layers num_blocks num_encoder_blocks "
        "num_experts_per_tok moe_topk moe_k top_k_experts moe_top_k num_experts_per_token "
        "num_key_value_heads swa_num_key_value_heads num_global_key_value_heads index_n_heads "
        "linear_num_key_heads mamba_expand",
    ),
    **_all(
        HEADS,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
        "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads "
        "attention_heads num_experts num_local_experts n_routed_experts moe_num_experts "
        "num_routed_experts qk_rope_head_dim qk_nope_head_dim swa_num_attention_heads rotary_dim "
        "n_mamba_heads linear_num_value_heads shape_size",
    ),
    **_all(
        48,
        "intermediate_size ffn_dim d_ff d_inner n_inner encoder_ffn_dim decoder_ffn_dim "
        "hidden_dim ffn_hidden_size shared_expert_intermediate_size shared_intermediate_size "
        "intermediate_size_mlp dense_ffn_hidden_size block_ff_dim",
    ),
    **_all(
        128,
        "max_position_embeddings n_positions max_target_positions max_seq_len n_ctx seq_length "
        "max_encoder_position_embeddings max_decoder_position_embeddings "
        "original_max_position_embeddings vocab_size_per_layer_input",
    ),
    **_all(
        16,
        "moe_intermediate_size expert_ffn_hidden_size embedding_size q_lora_rank kv_lora_rank "
        "o_lora_rank expert_dim patch_size block_size",
    ),
    **_all(
        8,
        "head_dim d_kv d_head v_head_dim kv_channels attention_head_dim global_head_dim "
        "qk_head_dim swa_head_dim swa_v_head_dim sliding_window attention_window "
        "local_window_size attention_chunk_size attention_window_size hidden_size_per_layer_input "
        "mamba_n_heads mamba_d_head mamba_d_state mamba_num_heads mamba_head_dim ssm_state_size "
        "linear_key_head_dim linear_value_head_dim index_head_dim",
    ),
    **_all(
        1,
        "n_group topk_group n_shared_experts num_shared_experts first_k_dense_replace o_groups "
        "moe_layer_start_index mamba_n_groups n_groups",
    ),
    **_all(0, "num_kv_shared_layers pad_token_id hash_seed"),
    "attention_dropout": 0.0,
    "index_topk": 64,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 2,
    "coordinate_size": 6,
}
ROTARY = {"rope_type": "default", "type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
_PICTURE = {"<image>": 59, "<|extra_200|>": 58}
_SEES = {"model_type": "clip_vision_model", "num_hidden_layers": 1, "hidden_size": 768}
_GROUPS = "q_groups k_groups v_groups post_attention_groups intermediate_groups output_groups"
OTHERWISE: Mapping[str, dict[str, Any]] = {
    "squeezebert": {"embedding_size": WIDTH, **_all(1, _GROUPS)},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "esmc": {"num_key_value_heads": HEADS},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "longcat_flash": {"num_key_value_heads": HEADS, "head_dim": 4},
    "layoutlmv3": {"visual_embed": False},
    "lilt": {"hidden_size": 48},
    "luke": {"entity_vocab_size": 100, "entity_emb_size": WIDTH},
    "perceiver": {"num_latents": 8, "d_latents": WIDTH, "num_self_attends_per_block": 2},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"]},
    "gemma3n_text": {
        "intermediate_size": [48, 48],
        "layer_types": ["sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.0, 0.0],
    },
    "xmod": {"default_language": "en_XX"},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "unlimited_ocr_text": {"num_key_value_heads": HEADS},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "num_hidden_layers": 3,
    },
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"]},
    "chameleon": {"vocabulary_map": _PICTURE},
    "emu3": {"vocabulary_map": _PICTURE},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "granite4_vision": {
        "deepstack_layer_map": [],
        "spatial_target_layers": [],
        "downsample_rate": "1/2",
        "vision_config": {**_SEES, "hidden_size": 64, "num_attention_heads": 4},
    },
    "inkling2_vision": {"text_hidden_size": WIDTH},
    "inkling2_audio": {"text_hidden_size": WIDTH},
    "molmo2_adapter": {"vision_feature_layer": [-1, -2], "text_hidden_size": WIDTH},
    "molmo2": {"image_patch_id": 59},
    "muse_spark_audio": {"num_hidden_layers": 4, "hidden_sizes": [8, 16, 16, 32]},
    "radio": {"video_temporal_patch_size": 2},
    "nemotron3_5_transcribe_word_timestamp": {"audio_hidden_size": WIDTH},
    "vibevoice_acoustic_tokenizer_encoder": {"num_filters": 2, "depths": [1] * 7},
    "dots3_note_audio_encoder": {"adapter_input_size": WIDTH},
    "dots3_note_vision_encoder": {"per_layer_config": {}},
    "emu3_vqgan": {"base_channels": 32, "codebook_size": 16},
    "fast_vlm": {"vision_config": _SEES},
    "perception_lm": {"vision_config": _SEES},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8},
    "zaya": {"num_experts_per_tok": 1},
    "glm5_next_text": {"qk_rope_head_dim": 0},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROTARY}},
    "neomme": {"head_dim": 16},
    "glm4v_moe_text": {"rope_parameters": {**ROTARY, "partial_rotary_factor": 1.0}},
    "ernie4_5_vl_moe_text": {"rope_parameters": {**ROTARY, "mrope_section": [1, 1, 2]}},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 59},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 59},
    "qwen4_exp_text": {
        "ngram_vocab_size_base": 64,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 64,
        "indexer_compress_ratio": 2,
    },
    "blt": {"encoder_hash_byte_group_vocab": 64},
    "janus_vqgan": {"num_embeddings": 16, "latent_channels": 8, "base_channels": 32},
    "gemma4_unified_text": {"layer_types": ["full_attention", "full_attention"]},
}
IN_THREE = ("glm", "ernie", "vl", "omni", "hunyuan")  # positions have a height and a width, too


def tiny_configuration(name: str, size: int) -> Any:
    """Return a tiny configuration of an architecture, its parts included.

    It has the options of a published checkpoint if they are known, else those of its class.

    Args:
        size: of the vocabulary.

    Raises:
        Exception: of any kind, where the architecture asks for more than sizes.
    """
    published = PUBLISHED[name].options if name in PUBLISHED else {}
    return _tiny(CONFIG_MAPPING[name], size, {**OTHERWISE.get(name, {}), **published})


def _tiny(kind: Any, size: int, otherwise: Mapping[str, Any] | None = None) -> Any:
    fields = {*getattr(kind, "__dataclass_fields__", ()), *getattr(kind, "attribute_map", ())}
    own = {key: value for key, value in {**SIZES, "vocab_size": size}.items() if key in fields}
    default = _default(kind)
    for key, value in own.items():
        was = _was(default, key)
        if isinstance(was, list | tuple):
            own[key] = [value] * (LAYERS if key == "attention_window" else len(was))
    if "kv_lora_rank" in fields:
        own["num_key_value_heads"] = HEADS
    own |= _rotary(kind, default, fields)
    kinds = _was(default, "layer_types")
    if kinds and "layer_types" in getattr(kind, "__dataclass_fields__", ()):
        own |= _layer_types(list(dict.fromkeys(kinds)), own)
    parts = {
        key: _tiny(type(part), size, OTHERWISE.get(part.model_type, {})).to_dict()
        for key in getattr(kind, "sub_configs", None) or ()
        if hasattr(part := _was(default, key), "__dataclass_fields__")
    }
    if kind.model_type == "encoder-decoder":
        parts["decoder"] |= {"is_decoder": True, "add_cross_attention": True}
    # Copies: some configurations add to what they are given.
    return kind(**deepcopy({**own, **parts, **(otherwise or {})}))


def _rotary(kind: Any, default: Any, fields: set[str]) -> dict[str, Any]:
    """Rotary positions in three directions, where an architecture has them."""
    if not {"rope_parameters", "rope_scaling"} & fields:
        return {}
    was = _was(default, "rope_parameters")
    reported = isinstance(was, dict) and "mrope_section" in was
    if "vision" in kind.model_type:
        return {}
    return (
        {"rope_parameters": ROTARY}
        if reported or any(p in kind.model_type for p in IN_THREE)
        else {}
    )


def _layer_types(kinds: list[str], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer of each kind, and their number under the names that it has."""
    chosen = [*kinds, *kinds][: max(LAYERS, len(kinds))]
    names = {"num_hidden_layers", "n_layers", "num_layers"} & own.keys()
    return {"layer_types": chosen, **dict.fromkeys(names, len(chosen))}


def _default(kind: Any) -> Any:
    try:
        return kind()
    except Exception:  # noqa: BLE001 - some have no default
        return None


def _was(default: Any, key: str) -> Any:
    """Return a default, where the configuration gives one for all layers."""
    try:
        return getattr(default, key, None)
    except Exception:  # noqa: BLE001 - another in each layer
        return None
