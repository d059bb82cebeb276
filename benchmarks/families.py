"""Every architecture of transformers that reads text, as a tiny random model: right or refused?

Each type is built from a tiny configuration, written to a folder and collected in a process of its
own. What Headbook reads is held against what a fresh copy of the model returns, text by text.
"""

import argparse
import faulthandler
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch
import transformers
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast
from transformers.models.auto import configuration_auto, modeling_auto

from headbook.collection import collect
from headbook.errors import HeadbookError
from headbook.network.anatomy import examine
from headbook.network.capture import forward
from headbook.network.model import load_model
from headbook.text.batch import Batch
from headbook.text.texts import Texts
from headbook.terms import Side
from tiny import BRACKETS, PIECES
from views import Marks

SECONDS, MEMORY = 90, 8 << 30
LARGEST = 40_000_000  # parameters
WIDTH, LAYERS, HEADS = 32, 2, 4
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim", "hidden_dim_", "model_dim", "true_hidden_size"), WIDTH),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers", "depth", "e_layers", "num_blocks", "num_encoder_blocks"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads", "attention_heads"), HEADS),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "d_inner", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim", "ffn_hidden_size", "shared_expert_intermediate_size", "shared_intermediate_size", "intermediate_size_mlp", "dense_ffn_hidden_size", "block_ff_dim", "block_auto_adjust_ff_dim_"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "n_ctx", "seq_length", "max_encoder_position_embeddings", "max_decoder_position_embeddings", "original_max_position_embeddings"), 128),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "embedding_size", "q_lora_rank", "kv_lora_rank", "o_lora_rank", "expert_dim"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "moe_top_k", "num_experts_per_token"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "num_shared_experts", "first_k_dense_replace", "o_groups", "moe_layer_start_index"), 1),
    "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "d_head": 8, "v_head_dim": 8, "kv_channels": 8, "attention_head_dim": 8, "global_head_dim": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "qk_head_dim": 8, "swa_head_dim": 8, "swa_v_head_dim": 8, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "num_global_key_value_heads": 2,
    "rotary_dim": 4, "word_embed_proj_dim": WIDTH, "image_size": 32, "patch_size": 16, "sliding_window": 8, "attention_window": 8, "local_window_size": 8,
    "vocab_size_per_layer_input": 128, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_num_heads": 8, "mamba_head_dim": 8,"mamba_n_groups":1, "ssm_state_size": 8, "n_groups": 1, "n_mamba_heads": 4, "mamba_expand": 2,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "attention_dropout": 0.0, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 64,
    "out_hidden_size": WIDTH, "projection_dim": WIDTH, "lru_width": WIDTH, "attention_window_size": 8, "block_size": 16, "hash_seed": 0,
}  # fmt: skip
SPECIAL = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
OVER: dict[str, dict[str, Any]] = {}
TEXTS = (
    "the old dog sees a bird .",
    "water !",
    "the cat sees",
    "the old fisherman sees small dogs , sings and sleeps in the garden near a red house .",
    "unhappiness and sleeping ve old runs near the garden , singer , the water and the small red "
    "bird in the old house and the dog sees the cat and the cat sees the dog ? the water .",
    "sing , bird , sing",
)


def tokenizer(*, closes: bool) -> PreTrainedTokenizerFast:
    names = [*BRACKETS.values(), *PIECES]
    known = {name: number for number, name in enumerate(names)}
    fast = Tokenizer(WordPiece(known, unk_token="[UNK]"))
    fast.normalizer = normalizers.Lowercase()
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    around = "[CLS] $A [SEP]" if closes else "[CLS] $A"
    special = [(n, known[n]) for n in around.split() if n != "$A"]
    fast.post_processor = processors.TemplateProcessing(single=around, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=fast, model_max_length=96, **BRACKETS)


def tiny_config(name: str, size: int, depth: int = 0) -> Any:
    kind = CONFIG_MAPPING[name]
    return _tiny(kind, size, OVER.get(name, {}))


def _tiny(kind: Any, size: int, over: dict[str, Any] | None = None) -> Any:
    fields = set(getattr(kind, "__dataclass_fields__", {})) | set(getattr(kind, "attribute_map", {}))
    own = {k: v for k, v in {**SIZES, **SPECIAL, "vocab_size": size}.items() if k in fields}
    default = None
    try:
        default = kind()
    except Exception:
        pass
    for key, value in list(own.items()):
        was = getattr(default, key, None)
        if isinstance(was, (list, tuple)) and not isinstance(value, (list, tuple)):
            own[key] = [value] * (LAYERS if key == "attention_window" else len(was))
    parts = {}
    for key, sub in (getattr(kind, "sub_configs", {}) or {}).items():
        part = getattr(default, key, None)
        real = type(part) if part is not None else sub
        if hasattr(real, "__dataclass_fields__") and part is not None:
            parts[key] = _tiny(real, size).to_dict()
    return kind(**{**own, **parts, **(over or {})})


MAPPINGS = (
    ("MaskedLM", modeling_auto.MODEL_FOR_MASKED_LM_MAPPING),
    ("Seq2SeqLM", modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING),
    ("CausalLM", modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING),
    ("ImageTextToText", modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING),
    ("", modeling_auto.MODEL_MAPPING),
)


def build(name: str, folder: Path) -> str:
    probe = len(PIECES) + len(BRACKETS)
    config = tiny_config(name, probe)
    label, mapping = next((l, m) for l, m in MAPPINGS if type(config) in m)
    kind = mapping[type(config)]
    if isinstance(kind, tuple):
        kind = kind[0]
    with torch.device("meta"):
        size = sum(p.numel() for p in kind(config).parameters())
    if size > LARGEST:
        raise ValueError(f"{size:,} parameters")
    tok = tokenizer(closes=label in {"MaskedLM", "Seq2SeqLM", ""})
    torch.manual_seed(0)
    model = kind(config)
    if label == "Seq2SeqLM" and model.generation_config.decoder_start_token_id is None:
        model.generation_config.decoder_start_token_id = 2
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.ndim > 1:
                p.normal_(0, 0.35)
            elif p.is_floating_point():
                p.add_(0.2 * torch.randn_like(p))
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return type(model).__name__


def judge(name: str, metrics: str) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="families-"))
    row: dict[str, Any] = {"type": name}
    try:
        row["class"] = build(name, folder / "model")
    except BaseException as error:
        return row | {"state": "unbuilt", "why": _said(error)}
    texts = folder / "texts.txt"
    texts.write_text("\n".join(TEXTS) + "\n")
    try:
        study = collect(texts, model=str(folder / "model"), annotator="none", metrics=metrics, device="cpu", language="none")
    except HeadbookError as error:
        return row | {"state": "refused", "why": _said(error).replace(str(folder), "")}
    except BaseException as error:
        where = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)][-3:]
        return row | {"state": "bug", "why": _said(error), "where": where}
    bad = [(c.name, c.stack, round(c.error, 5)) for c in study.manifest.checks if not c.passed]
    row |= {"attention": study.manifest.model.attention, "stacks": [s.name for s in study.manifest.stacks], "failed": bad}
    row["gaps"] = [g.what + ": " + g.why for g in study.manifest.gaps if g.what in ("states of tokens", "logit lens")]
    try:
        row["apart"] = apart(folder / "model", label_of(name))
    except BaseException as error:
        row["apart"] = _said(error)
    right = not bad and isinstance(row["apart"], dict) and all(v < 1e-4 for v in row["apart"].values())
    return row | {"state": "right" if right else "questionable"}


def label_of(name: str) -> str:
    kind = CONFIG_MAPPING[name]
    return next(l for l, m in MAPPINGS if kind in m)


FIELD = {"self": "attentions", "encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}


def apart(folder: Path, label: str) -> dict[str, float]:
    """Largest difference of the weights in one padded batch from the model's own, text by text."""
    model = load_model(str(folder), device="cpu")
    anatomy = examine(model)
    rows = [model.tokenizer(t)["input_ids"] for t in TEXTS]
    sides = [Side.SOURCE, Side.TARGET] if model.body.config.is_encoder_decoder else [Side.SOURCE]
    made = {
        side: Texts.of([Marks(len(r), ids=r).tokens() for r in (rows if side is Side.SOURCE else [r[: len(r) // 2 + 1] for r in rows])], torch.device("cpu"))
        for side in sides
    }
    batch = Batch((), made, torch.zeros(len(rows)).numpy(), torch.zeros(len(rows)).numpy())
    seen: dict[Any, Any] = {}
    forward(model, anatomy, batch, lambda place, a: seen.__setitem__(place, a.weights))
    loader = getattr(transformers, "AutoModelForImageTextToText" if label == "ImageTextToText" else "AutoModelForSeq2SeqLM" if label == "Seq2SeqLM" else "AutoModel")
    fresh = loader.from_pretrained(folder, attn_implementation="eager").eval()
    worst: dict[str, float] = {}
    for i, r in enumerate(rows):
        given = {"input_ids": torch.tensor([r])}
        if len(sides) == 2:
            given["decoder_input_ids"] = torch.tensor([r[: len(r) // 2 + 1]])
        with torch.no_grad():
            out = fresh(**given, output_attentions=True)
        for stack in anatomy.stacks:
            theirs = getattr(out, FIELD[stack])
            theirs = [t for t in theirs if t is not None]
            mine = [v for k, v in sorted(((k.layer, v) for k, v in seen.items() if k.stack == stack))] if False else [seen[k] for k in sorted((k for k in seen if k.stack == stack), key=lambda k: k.layer)]
            for a, b in zip(mine, theirs, strict=True):
                n, m = made[anatomy.stacks[stack].queries].valid[i].sum(), made[anatomy.stacks[stack].keys].valid[i].sum()
                b = b[0][:, :n, :m] if b.shape[-1] <= m + 1 else b[0]
                d = float((a[i, :, :n, :m] - b[..., :m]).abs().nan_to_num(9).max())
                worst[stack] = max(worst.get(stack, 0.0), d)
    return worst


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: " + " ".join(str(error).split())[:300]


def _child(name: str, metrics: str, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY * 3, MEMORY * 3))
    pipe.send(judge(name, metrics))


def types() -> list[str]:
    names = set()
    for part in ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQUENCE_CLASSIFICATION", "TEXT_ENCODING", "QUESTION_ANSWERING"):
        names |= set(getattr(modeling_auto, f"MODEL_FOR_{part}_MAPPING_NAMES"))
    return sorted(names & set(configuration_auto.CONFIG_MAPPING_NAMES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--metrics", default="sink_share,attention_distance,cosine_to_input,vocabulary_rank,logit_lens,mixing_ratio")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    found = []
    for name in given.types or types():
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(name, given.metrics, theirs))
        child.start()
        theirs.close()
        row: dict[str, Any] = {"type": name, "state": "bug", "why": "no answer in time"}
        try:
            if ours.poll(SECONDS):
                row = ours.recv()
        except EOFError:
            row["why"] = "process died"
        child.kill()
        child.join()
        found.append(row)
        print(json.dumps(row), flush=True)
    if given.out:
        given.out.write_text("\n".join(map(json.dumps, found)) + "\n")


if __name__ == "__main__":
    main()
