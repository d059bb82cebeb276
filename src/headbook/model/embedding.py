"""The embedding block of a model, with its norm and scale by architecture.

All other parts of a model are found by observing a pass. An architecture that is not in `FAMILIES`
gets all metrics except those of the positional space, and the site says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from headbook.model.architecture import Architecture
from headbook.model.devices import read_bias, read_parameter, read_weight
from headbook.model.forward import observe_states, run_forward
from headbook.model.load import Model, text_config, word_embedding
from headbook.model.vocabulary import LayerNormWeights, LinearWeights, VocabularyEmbeddings
from headbook.schema import ResidualPoint, Side
from headbook.text.batch import Batch


@dataclass(frozen=True)
class EmbeddingLayout:
    """Embedding block of a family of architectures.

    Attributes:
        types: ``model_type`` of the family's configurations.
        norms: by side, the path from the base model to the norm at the end of the embedding block;
            a side without norm only adds positions to the word embedding.
        scale: path from the base model to the factor of the word embedding, if any.
        through: path from the base model to the linear map between norm and first layer, if any;
            models whose word embeddings are as wide as their states may lack it.
    """

    types: frozenset[str]
    norms: Mapping[Side, str] = field(default_factory=dict)
    scale: str = ""
    through: str = ""


def _source_layout(model_types: str, norm: str = "", through: str = "") -> EmbeddingLayout:
    norms = {Side.SOURCE: norm} if norm else {}
    return EmbeddingLayout(frozenset(model_types.split()), norms, through=through)


_BART_NORMS = {
    Side.SOURCE: "encoder.layernorm_embedding",
    Side.TARGET: "decoder.layernorm_embedding",
}
FAMILIES = (
    _source_layout(
        "bert roberta xlm-roberta camembert electra",
        norm="embeddings.LayerNorm",
        through="embeddings_project",  # of ELECTRA
    ),
    _source_layout("distilbert", norm="embeddings.LayerNorm"),
    _source_layout(
        "albert", norm="embeddings.LayerNorm", through="encoder.embedding_hidden_mapping_in"
    ),
    _source_layout("deberta deberta-v2", norm="embeddings.LayerNorm"),
    _source_layout("modernbert", norm="embeddings.norm"),
    _source_layout(
        "gpt2 gpt_neox opt t5 llama mistral qwen2 qwen3 gpt_oss gemma gemma2 gemma3_text "
        "gemma4_text"
    ),
    EmbeddingLayout(frozenset({"bart"}), _BART_NORMS, "shared.embed_scale"),
    EmbeddingLayout(frozenset({"marian"}), scale="encoder.embed_scale"),
)


def embedding_layout(config: Any) -> EmbeddingLayout | None:
    """Return the embedding layout of a model's configuration, or None if unknown.

    A multimodal model has the layout of its text model, unless that has paths, which would not fit.
    """
    text_model = text_config(config)
    for family in FAMILIES:
        if config.model_type in family.types:
            return family
        if text_model.model_type in family.types and not (family.norms or family.scale):
            return family
    return None


# Length of position vectors, relative to the embeddings, up to which they are only rounding.
MAX_ROUNDING_LENGTH = 1e-6


@dataclass(frozen=True)
class Embedding:
    """Original encodings to compare the states of one side with.

    Attributes:
        vocabulary: the original encodings; None if states and word embeddings do not share a space.
        missing: reason why a space does not apply; empty if both do.
    """

    vocabulary: VocabularyEmbeddings | None
    missing: str = ""


def read_embedding(
    model: Model,
    architecture: Architecture,
    side: Side,
    batch: Batch,
    coarse: torch.dtype | None = None,
    *,
    n_types: int = 1,
) -> Embedding:
    """Read the original encodings of one side.

    Position vectors are the difference between the embedding block's sum and the word embeddings in
    the given batch, with each type of tokens.

    Args:
        batch: one sentence as long as any that will be compared.
        coarse: number format of the product with the vocabulary; None for that of the states.
        n_types: number of types of tokens in the texts that will be compared.
    """
    words = _word_embedding(model, side)
    if words is None:
        return Embedding(None, "the model has no matrix with an embedding for each entry")
    stack = next(n for n, s in architecture.stacks.items() if s.queries is s.keys is side)
    inside: dict[str, torch.Tensor] = {}

    def keep(name: str, _: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        if name == stack and state is ResidualPoint.PRE:
            inside["input"] = vectors

    family = embedding_layout(model.config)
    path = family.norms.get(side, "") if family else ""
    norm = model.base_model.get_submodule(path) if path else None
    handle = norm and norm.register_forward_pre_hook(lambda _, args: inside.update(sum=args[0]))
    sums: list[torch.Tensor] = []
    try:
        with observe_states(model, architecture, keep):
            for number in range(n_types):
                run_forward(model, architecture, _with_type(batch, side, number))
                sums.append(inside.get("sum", inside.get("input", torch.empty(1, 0)))[0])
    finally:
        if handle is not None:
            handle.remove()
    through = _through(model, family)
    width = words.shape[1] if through is None else len(through.weight)
    if "input" not in inside or inside["input"].shape[-1] != width:
        return Embedding(None, _elsewhere(inside.get("input"), words))
    ids = batch.texts[side].ids
    words = words[: len(model.tokenizer)].to(batch.texts[side].share.dtype)
    if family is None:
        return Embedding(
            VocabularyEmbeddings(words, coarse=coarse),
            "where this architecture adds positions is not in the table",
        )
    scale = _scale(model, family.scale)
    added = torch.cat([each.to(words.dtype) - scale * words[ids[0]] for each in sums])
    if norm is None and through is None and _only_scaled(sums[0], words[ids[0]]):
        return Embedding(
            VocabularyEmbeddings(words, coarse=coarse), "the model adds no positions at its input"
        )
    closing = _norm(norm, words) if norm else None
    through = through and LinearWeights(*(part.to(words.dtype) for part in through))
    missing = "" if through is None else _elsewhere(inside["input"], words)
    encodings = VocabularyEmbeddings(words, scale, added, closing, through, coarse, n_types)
    return Embedding(encodings, missing)


def _with_type(batch: Batch, side: Side, number: int) -> Batch:
    """Return a batch of which all tokens of one side have one type."""
    texts = batch.texts[side]
    typed = replace(texts, types=torch.full_like(texts.types, number))
    return replace(batch, texts={**batch.texts, side: typed})


def _only_scaled(sums: torch.Tensor, words: torch.Tensor) -> bool:
    """Whether the embedding block only multiplied word embeddings by a number, as in Gemma."""
    max_share = max(MAX_ROUNDING_LENGTH, torch.finfo(sums.dtype).eps)
    sums = sums.to(words.dtype)
    factor = (sums * words).sum() / (words * words).sum()
    difference = (sums - factor * words).norm(dim=-1)
    return bool(difference.max() <= max_share * sums.norm(dim=-1).max())


def _word_embedding(model: Model, side: Side) -> torch.Tensor | None:
    """Return the word embeddings of a side, ``(entry, width)``, or None without a matrix."""
    network = model.network.get_decoder() if side is Side.TARGET else model.network
    weight = word_embedding(network)
    return weight if weight is not None and len(weight) >= len(model.tokenizer) else None


def _scale(model: Model, path: str) -> float:
    """Return the factor of the word embedding; 1 if the architecture has none."""
    value = model.base_model
    for name in filter(None, path.split(".")):
        value = getattr(value, name)
    return float(value) if path else 1.0


def _through(model: Model, family: EmbeddingLayout | None) -> LinearWeights | None:
    """Return the linear map between the embedding block's norm and the first layer, or None."""
    path = family.through if family else ""
    module: Any = dict(model.base_model.named_modules()).get(path) if path else None
    if module is None:
        return None
    bias = read_bias(module)
    assert bias is not None
    return LinearWeights(read_weight(module), bias)


def _norm(module: Any, like: torch.Tensor) -> LayerNormWeights:
    gain, bias = read_weight(module).to(like.dtype), read_parameter(module, "bias")
    bias = torch.zeros_like(gain) if bias is None else bias.to(like.dtype)
    epsilon = getattr(module, "eps", getattr(module, "variance_epsilon", None))
    assert epsilon is not None
    return LayerNormWeights(gain, bias, float(epsilon))


def _elsewhere(states: torch.Tensor | None, words: torch.Tensor) -> str:
    if states is None:
        return "the layers of this architecture do not hand on one vector a token"
    if states.shape[-1] == words.shape[1]:
        return "a linear map leads from word embeddings to states: they do not share a space"
    return (
        f"word embeddings have {words.shape[1]} dimensions and states {states.shape[-1]}: "
        "they do not share a space"
    )
