"""A trained encoder-decoder: PyPI's ``annalog`` 1.0.6 as a folder of transformers' Marian.

It was trained to turn molecules, written as SMILES, into similar ones. The weights are the
package's own, under the MIT licence; nothing of its code is run. Its decoder begins with ``<sos>``,
for which the tokenizer has no role.
"""

import collections
import io
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import MarianConfig, PreTrainedTokenizerFast

PACKAGE = "annalog"
LAYERS = 3
UNKNOWN, PAD, START, END = "<unk>", "<pad>", "<sos>", "<eos>"
SYMBOL = Regex(r"\[[^\]]+\]|Br|Cl|%\d\d|.")  # of SMILES
DRUGS = (
    "CC(=O)Oc1ccccc1C(=O)O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "O=C(C)Nc1ccc(O)cc1", "c1ccc2c(c1)cccc2Cl", "CCOC(=O)c1ccc(N)cc1", "COc1ccc2[nH]cc(CCN)c2c1",
    "FC(F)(F)c1ccc(Cl)cc1N", "CC1=CC(=O)c2ccccc2C1=O", "Clc1ccc(cc1)C(c1ccccc1)N1CCNCC1",
)  # fmt: skip
ATTENTION = {"fc_q": "q_proj", "fc_k": "k_proj", "fc_v": "v_proj", "fc_o": "out_proj"}


def packed() -> list[Path]:
    """Return the files of the package; none where it is not installed."""
    try:
        return [Path(str(file.locate())) for file in files(PACKAGE) or []]
    except PackageNotFoundError:
        return []


def write(folder: Path) -> Path:
    """Write model and tokenizer into a new folder, and return it."""
    folder.mkdir(parents=True)
    tensors, vocabulary = _tensors(_named("Lev_extended.pt")), _vocabulary()
    weights = dict(_renamed(tensors))
    assert len(weights) == len(tensors)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    size, width = weights["lm_head.weight"].shape
    MarianConfig(
        architectures=["MarianMTModel"], vocab_size=size, decoder_vocab_size=size, d_model=width,
        encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=512, decoder_ffn_dim=512,
        activation_function="relu", scale_embedding=True, share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False, dropout=0.0,
        max_position_embeddings=len(weights["model.encoder.embed_positions.weight"]),
        pad_token_id=vocabulary[PAD], eos_token_id=vocabulary[END],
        forced_eos_token_id=vocabulary[END], decoder_start_token_id=vocabulary[START],
    ).save_pretrained(folder)  # fmt: skip
    _tokenizer(vocabulary).save_pretrained(folder)
    return folder


def write_copies(file: Path, copies: int = 1) -> Path:
    """Write molecules as sources, themselves as targets, with the links of their symbols.

    A symbol is a word. A source begins with ``<sos>``, as those that the model was trained on.
    """
    cut = pre_tokenizers.Split(SYMBOL, "isolated")
    rows = ["source\ttarget\talignment"]
    for drug in DRUGS:
        symbols = [symbol for symbol, _ in cut.pre_tokenize_str(drug)]
        links = " ".join(f"{place + 1}-{place}" for place in range(len(symbols)))
        rows.append("\t".join([f"{START} {' '.join(symbols)}", " ".join(symbols), links]))
    file.write_text("\n".join([rows[0], *(rows[1:] * copies)]) + "\n")
    return file


def _named(name: str) -> Path:
    return next(file for file in packed() if file.name == name)


def _tensors(checkpoint: Path) -> Mapping[str, torch.Tensor]:
    """Read a checkpoint of torch whose pickle names classes that are not installed."""
    archive = zipfile.ZipFile(checkpoint)
    root = archive.namelist()[0].partition("/")[0]

    def rebuilt(storage: tuple[Any, ...], offset: int, *shape: tuple[int, ...]) -> torch.Tensor:
        data = np.frombuffer(archive.read(f"{root}/data/{storage[2]}"), np.float32)
        flat = torch.from_numpy(data.copy())
        return flat.as_strided(shape[0], shape[1], offset).contiguous()

    class Reader(pickle.Unpickler):
        """Makes an empty class of every other name, so that nothing of the file is run."""

        def find_class(self, module: str, name: str) -> Any:
            if name == "_rebuild_tensor_v2":
                return lambda storage, offset, size, stride, *_: rebuilt(
                    storage, offset, size, stride
                )
            return collections.OrderedDict if name == "OrderedDict" else type(name, (), {})

        def persistent_load(self, pid: Any) -> Any:
            return pid

    found: Mapping[str, torch.Tensor] = Reader(io.BytesIO(archive.read(f"{root}/data.pkl"))).load()
    return found


def _vocabulary() -> dict[str, int]:
    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            assert (module, name) == ("collections", "OrderedDict")
            return collections.OrderedDict

    with _named("stereo_experiment_vocab_ttf.pkl").open("rb") as stream:
        entries: dict[str, int] = dict(Reader(stream).load()["stoi"])
    return entries


def _renamed(old: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the weights under the names of Marian."""
    for side in ("encoder", "decoder"):
        yield f"model.{side}.embed_tokens.weight", old[f"{side}.tok_embedding.weight"]
        yield f"model.{side}.embed_positions.weight", old[f"{side}.pos_embedding.weight"]
        for name, part in ((n, p) for n in range(LAYERS) for p in ("weight", "bias")):
            a, b = f"{side}.layers.{name}", f"model.{side}.layers.{name}"
            for x, y in _modules(side):
                yield f"{b}.{y}.{part}", old[f"{a}.{x}.{part}"]
    yield "lm_head.weight", old["decoder.fc_out.weight"]
    yield "final_logits_bias", old["decoder.fc_out.bias"][None]


def _modules(side: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the modules of a layer, old and new."""
    crosses = side == "decoder"
    blocks = {"self_attention": "self_attn"}
    blocks |= {"encoder_attention": "encoder_attn"} if crosses else {}
    for block, own in blocks.items():
        yield from ((f"{block}.{old}", f"{own}.{new}") for old, new in ATTENTION.items())
    yield "self_attn_layer_norm", "self_attn_layer_norm"
    yield "ff_layer_norm", "final_layer_norm"
    if crosses:
        yield "enc_attn_layer_norm", "encoder_attn_layer_norm"
    yield "positionwise_feedforward.fc_1", "fc1"
    yield "positionwise_feedforward.fc_2", "fc2"


def _tokenizer(vocabulary: dict[str, int]) -> Any:
    fast = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(SYMBOL, "isolated")]
    )
    fast.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in (UNKNOWN, PAD, START, END)]
    )
    fast.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, vocabulary[END])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, unk_token=UNKNOWN, pad_token=PAD, eos_token=END
    )
