"""Where each architecture closes its embedding block: one small table.

Everything else about a model is found by watching it run; a family that is not here gets all
metrics but those of the positional space, and the site says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headbook.model.model import text_config
from headbook.terms import Side


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
        types: ``model_type`` of the configurations it covers.
        norms: by side, the path from the body to the norm that closes the embedding block; a
            side without one adds positions to the word embedding and no more.
        through: path from the body to the linear map between that norm and the first layer; models
            of the family whose word embeddings are as wide as their states may lack it.
        scale: path from the body to the factor of the word embedding, if it has one.
    """

    types: frozenset[str]
    norms: Mapping[Side, str] = field(default_factory=dict)
    scale: str = ""
    through: str = ""


def _one(types: str, norm: str = "", through: str = "") -> Family:
    norms = {Side.SOURCE: norm} if norm else {}
    return Family(frozenset(types.split()), norms, through=through)


_PAIR = {
    Side.SOURCE: "encoder.layernorm_embedding",
    Side.TARGET: "decoder.layernorm_embedding",
}
FAMILIES = (
    _one(
        "bert roberta xlm-roberta camembert electra",
        norm="embeddings.LayerNorm",
        through="embeddings_project",  # of ELECTRA
    ),
    _one("distilbert", norm="embeddings.LayerNorm"),
    _one("albert", norm="embeddings.LayerNorm", through="encoder.embedding_hidden_mapping_in"),
    _one("modernbert", norm="embeddings.norm"),
    _one("gpt2 gpt_neox opt t5 llama mistral qwen2 qwen3 gemma gpt_oss gemma2 gemma3_text"),
    Family(frozenset({"bart"}), _PAIR, "shared.embed_scale"),
    Family(frozenset({"marian"}), scale="encoder.embed_scale"),
)


def family_of(config: Any) -> Family | None:
    """The family of a model's configuration, or None where the table has none.

    A model that sees has that of its text part; paths that lead from the body would not fit there.
    """
    text = text_config(config)
    for family in FAMILIES:
        if config.model_type in family.types:
            return family
        if text.model_type in family.types and not (family.norms or family.scale):
            return family
    return None
