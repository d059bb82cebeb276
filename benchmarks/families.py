"""Every architecture of transformers that reads text, as a tiny random model: right or refused?

Each type is built from a tiny configuration, written to a folder and collected in a process of its
own. What a run reads, in padded batches, is held against what a fresh copy of the model returns for
each text alone.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

import torch
import transformers
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast
from transformers.models.auto import modeling_auto

from configurations import tiny_configuration
from familypage import page
from headbook.errors import HeadbookError
from headbook.inputs import TextRecord
from headbook.model.architecture import OUTPUT_FIELDS, Architecture, probe_architecture
from headbook.model.forward import run_forward
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer, probe_texts
from headbook.passes.model_checks import verify_attention
from headbook.run.collect import collect
from headbook.schema import Side
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch, batches_by_tokens
from tiny import AROUND, BRACKETS, PIECES

SECONDS = 240  # that a type may take
LARGEST = 40_000_000  # parameters
CLOSE = 1e-4
METRICS = "sink_share,attention_distance,cosine_to_input,vocabulary_rank,logit_lens,mixing_ratio"
TEXTS = (
    "the old dog sees a bird .",
    "water !",
    "the cat sees",
    "the old fisherman sees small dogs , sings and sleeps in the garden near a red house .",
    "unhappiness and sleeping ve old runs near the garden , singer , the water and the small red "
    "bird in the old house and the dog sees the cat and the cat sees the dog ? the water .",
    "sing , bird , sing",
    "the dog runs near the water .",
)
KINDS = {
    "MaskedLM": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
    "Seq2SeqLM": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    "CausalLM": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    "ImageTextToText": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    "": modeling_auto.MODEL_MAPPING,
}
READING = (
    "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT",
    "SEQUENCE_CLASSIFICATION", "TEXT_ENCODING", "QUESTION_ANSWERING",
)  # fmt: skip


def types() -> list[str]:
    """Every type of model that reads text."""
    names = [set(getattr(modeling_auto, f"MODEL_FOR_{text}_MAPPING_NAMES")) for text in READING]
    return sorted(set().union(*names) & set(CONFIG_MAPPING.keys()))


def kind_of(name: str) -> str:
    """Return the kind of head of a model type."""
    config = CONFIG_MAPPING[name]
    sees = KINDS["ImageTextToText"]
    if config in sees and "text_config" in (config.sub_configs or {}):
        return "ImageTextToText"  # where there is a head for text alone, it takes a part only
    return next(kind for kind, mapping in KINDS.items() if config in mapping)


def build(name: str, folder: Path) -> None:
    """Write a tiny model of a type, and a tokenizer with special tokens."""
    names = [*BRACKETS.values(), *PIECES]
    config, kind = tiny_configuration(name, len(names)), kind_of(name)
    model_class: Any = KINDS[kind][type(config)]
    model_class = model_class[0] if isinstance(model_class, tuple) else model_class
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class(config).parameters())
    if size > LARGEST:
        raise ValueError(f"{size:,} parameters")
    torch.manual_seed(0)
    model = model_class(config)
    if kind == "Seq2SeqLM" and model.generation_config.decoder_start_token_id is None:
        model.generation_config.decoder_start_token_id = 2
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.normal_(0, 0.35)
            elif weights.is_floating_point():
                weights.add_(0.2 * torch.randn_like(weights))
    model.save_pretrained(folder)
    write_tokenizer(names, AROUND if kind in {"MaskedLM", "Seq2SeqLM", ""} else "[CLS] $A", folder)


def write_tokenizer(names: list[str], around: str, folder: Path) -> None:
    """Write a tokenizer of word pieces."""
    known = {name: number for number, name in enumerate(names)}
    fast = Tokenizer(WordPiece(known, unk_token=BRACKETS["unk_token"]))
    fast.normalizer = normalizers.Lowercase()
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(n, known[n]) for n in around.split() if n != "$A"]
    fast.post_processor = processors.TemplateProcessing(single=around, special_tokens=special)
    PreTrainedTokenizerFast(tokenizer_object=fast, model_max_length=96, **BRACKETS).save_pretrained(
        folder
    )


def check_family(name: str, folder: Path) -> dict[str, Any]:
    """Return the outcome for a model type."""
    row: dict[str, Any] = {"type": name}
    texts, model = folder / "texts.txt", folder / "model"
    texts.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    try:
        build(name, model)
    except Exception as error:  # noqa: BLE001 - what this type needs more
        return row | {"state": "not built", "why": message(error)}
    try:
        study = collect(
            texts,
            model=str(model),
            annotator="none",
            metrics=METRICS,
            device="cpu",
            language="none",
        )
    except HeadbookError as error:
        return row | {"state": "refused", "why": str(error)}
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        at = traceback.extract_tb(error.__traceback__)[-1]
        return row | {"state": "bug", "why": message(error), "at": f"{at.filename}:{at.lineno}"}
    row |= {
        "attention": study.manifest.model.attention,
        "learned_sink": any(stack.learned_sink for stack in study.manifest.stacks),
        "failed": study.manifest.failed,
        "missing": study.manifest.model.missing[:4],
        "lacks": sorted({gap.what for gap in study.manifest.gaps}),
        "apart": apart(model, kind_of(name)),
    }
    row["compared"] = len(row["apart"]) > 1
    right = not (row["failed"] or row["missing"]) and max(row["apart"].values()) <= CLOSE
    return row | {"state": "right" if right else "questionable"}


def apart(folder: Path, kind: str) -> dict[str, float]:
    """Largest difference of the weights that a run reads from the model's own, text by text."""
    model = load_model(str(folder), device="cpu")
    annotator = Annotator.load("none")
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=annotator)
    architecture = verify_attention(model, probe_architecture(model), probe_texts(encoder))
    pairs = model.config.is_encoder_decoder
    sentences = [
        TextRecord(i, id="", text=text, target=text if pairs else None, origin=f"t:{i + 1}")
        for i, text in enumerate(TEXTS)
    ]
    items = encoder.tokenize(annotator.annotate(sentences))
    loader = getattr(transformers, f"AutoModelFor{kind}" if kind in KINDS and kind else "AutoModel")
    fresh = loader.from_pretrained(folder, attn_implementation="eager").eval()
    worst: Counter[str] = Counter({"none returned": 0})
    groups = batches_by_tokens(
        items, 2048, alike=not architecture.padded, shared_length=architecture.shared_length
    )
    for group in groups:
        _compare(model, architecture, Batch.of(group, model.device), fresh.base_model, worst)
    return {name: float(value) for name, value in worst.items()}


def _compare(
    model: Model, architecture: Architecture, batch: Batch, fresh: Any, worst: Counter[str]
) -> None:
    seen: dict[Any, torch.Tensor] = {}
    run_forward(model, architecture, batch, lambda place, a: seen.__setitem__(place, a.weights))
    names = {Side.SOURCE: "input_ids", Side.TARGET: "decoder_input_ids"}
    for row, item in enumerate(batch.items):
        given = {names[side]: torch.from_numpy(t.ids)[None] for side, t in item.tokens.items()}
        with torch.no_grad():
            output = fresh(**given, output_attentions=True)
        for stack in architecture.stacks.values():
            theirs = [
                w for w in getattr(output, OUTPUT_FIELDS[stack.name], None) or () if w is not None
            ]
            places = sorted((c for c in seen if c.stack == stack.name), key=lambda c: c.layer)
            n, m = (len(item.tokens[side]) for side in (stack.queries, stack.keys))
            for place, own in (
                zip(places, theirs, strict=True) if len(theirs) == len(places) else ()
            ):
                error = (seen[place][row, :, :n, :m] - own[0, :, :n, :m]).abs().nan_to_num(9).max()
                worst[stack.name] = max(worst[stack.name], float(error))  # type: ignore[assignment]


def message(error: Exception) -> str:
    """Return the kind of an error and the first lines of its text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def warm_up() -> None:
    """Import what a run imports, once for all processes that are forked from this one."""
    with tempfile.TemporaryDirectory() as folder:
        check_family("bert", Path(folder))


def alone(name: str) -> dict[str, Any]:
    """Return the outcome from a process of its own, which may die or hang."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    row: dict[str, Any] = {"type": name, "state": "bug", "why": "died, or no answer in time"}
    with tempfile.TemporaryDirectory() as folder:
        child = context.Process(target=lambda: theirs.send(check_family(name, Path(folder))))
        child.start()
        theirs.close()
        try:
            if ours.poll(SECONDS):
                row = ours.recv()
        except EOFError:
            pass
        child.kill()
        child.join()
    return row


def main() -> None:
    """Print a line of JSON for each type, then how many are right; with ``--page``, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="types of models; default: all that read text")
    parser.add_argument("--rows", type=Path, help="file of lines; types in it are not tried again")
    parser.add_argument("--page", type=Path, help="file in Markdown, made of all lines")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rows = {row["type"]: row for row in stored(asked.rows)}
    warm_up()
    for name in asked.types or types():
        if name in rows:
            continue
        rows[name] = alone(name)
        line = json.dumps(rows[name]) + "\n"
        sys.stdout.write(line)
        sys.stdout.flush()
        if asked.rows:
            with asked.rows.open("a", encoding="utf-8") as file:
                file.write(line)
    sys.stdout.write(json.dumps(Counter(row["state"] for row in rows.values())) + "\n")
    if asked.page:
        asked.page.write_text(page([*rows.values()]), encoding="utf-8")


def stored(file: Path | None) -> list[dict[str, Any]]:
    """Lines of an earlier call."""
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
