"""Where each architecture keeps what the residual states need: one small table.

Paths lead from a layer to a module inside it. Everything else about a model is found by watching
it run (`anatomy`); a family that is not here gets all metrics but those of the ``mid`` state and
of the positional space, and the site says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headbook.terms import Side


@dataclass(frozen=True)
class Site:
    """Where one attention block of a layer ends.

    Attributes:
        projection: the output projection W_O; its input is the heads' outputs side by side.
        after: the module whose input is the ``mid`` state; None where attention and feed-forward
            run in parallel and no module reads their sum.
        block: the module whose output is added to the residual; by default the projection.
        residual: the module whose output is that residual; by default the layer's own input.
        parallel: the feed-forward module that runs beside the attention block, if any.
        closed: whether ``after`` is a norm that the residual itself goes through (post-norm).
    """

    projection: str
    after: str | None
    block: str = ""
    residual: str = ""
    parallel: str = ""
    closed: bool = False


@dataclass(frozen=True)
class Family:
    """One architecture, or one of its variants.

    Attributes:
        types: ``model_type`` of the configurations it covers.
        sites: attention blocks by stack; ``self`` in models with one stack.
        norms: by side, the path from the body to the norm that closes the embedding block; a
            side without one adds positions to the word embedding and no more.
        through: path from the body to the linear map between that norm and the first layer; models
            of the family whose word embeddings are as wide as their states may lack it.
        scale: path from the body to the factor of the word embedding, if it has one.
        where: values that the configuration must hold, to tell variants apart.
    """

    types: frozenset[str]
    sites: Mapping[str, Site]
    norms: Mapping[Side, str] = field(default_factory=dict)
    scale: str = ""
    through: str = ""
    where: Mapping[str, object] = field(default_factory=dict)

    def fits(self, config: Any) -> bool:
        """Whether a configuration is of this family and variant."""
        return config.model_type in self.types and all(
            getattr(config, key, None) == value for key, value in self.where.items()
        )


def _one(types: str, site: Site, norm: str = "", through: str = "", **where: object) -> Family:
    norms = {Side.SOURCE: norm} if norm else {}
    return Family(frozenset(types.split()), {"self": site}, norms, through=through, where=where)


def _bart_like(types: str, *, norms: bool, scale: str) -> Family:
    block = Site("self_attn.out_proj", after="self_attn_layer_norm", closed=True)
    cross = Site(
        "encoder_attn.out_proj",
        after="encoder_attn_layer_norm",
        residual="self_attn_layer_norm",
        closed=True,
    )
    places = {
        Side.SOURCE: "encoder.layernorm_embedding",
        Side.TARGET: "decoder.layernorm_embedding",
    }
    return Family(
        frozenset(types.split()),
        {"encoder": block, "decoder": block, "cross": cross},
        places if norms else {},
        scale,
    )


FAMILIES = (
    _one(
        "bert roberta xlm-roberta camembert electra",
        Site("attention.output.dense", after="attention.output.LayerNorm", closed=True),
        norm="embeddings.LayerNorm",
        through="embeddings_project",  # of ELECTRA
    ),
    _one(
        "distilbert",
        Site("attention.out_lin", after="sa_layer_norm", closed=True),
        norm="embeddings.LayerNorm",
    ),
    _one(
        "albert",
        Site(
            "albert_layers.0.attention.dense",
            after="albert_layers.0.attention.LayerNorm",
            closed=True,
        ),
        norm="embeddings.LayerNorm",
        through="encoder.embedding_hidden_mapping_in",
        inner_group_num=1,
    ),
    _one("modernbert", Site("attn.Wo", after="mlp_norm"), norm="embeddings.norm"),
    _one("gpt2", Site("attn.c_proj", after="ln_2")),
    _one(
        "gpt_neox",
        Site("attention.dense", after=None, parallel="mlp"),
        use_parallel_residual=True,
    ),
    _one(
        "gpt_neox",
        Site("attention.dense", after="post_attention_layernorm"),
        use_parallel_residual=False,
    ),
    _one("opt", Site("self_attn.out_proj", after="final_layer_norm"), do_layer_norm_before=True),
    _one(
        "opt",
        Site("self_attn.out_proj", after="self_attn_layer_norm", closed=True),
        do_layer_norm_before=False,
    ),
    _one(
        "llama mistral qwen2 qwen3 gemma gpt_oss",
        Site("self_attn.o_proj", after="post_attention_layernorm"),
    ),
    _one(
        "gemma2 gemma3_text",
        Site(
            "self_attn.o_proj",
            after="pre_feedforward_layernorm",
            block="post_attention_layernorm",
        ),
    ),
    Family(
        frozenset({"t5"}),
        {
            "encoder": Site("layer.0.SelfAttention.o", after="layer.1.layer_norm"),
            "decoder": Site("layer.0.SelfAttention.o", after="layer.1.layer_norm"),
            "cross": Site(
                "layer.1.EncDecAttention.o", after="layer.2.layer_norm", residual="layer.0"
            ),
        },
    ),
    _bart_like("bart", norms=True, scale="shared.embed_scale"),
    _bart_like("marian", norms=False, scale="encoder.embed_scale"),
)


def family_of(config: Any) -> Family | None:
    """The family of a model's configuration, or None where the table has none.

    A model that sees has that of its text part; paths that lead from the body would not fit there.
    """
    text = text_config(config)
    for family in FAMILIES:
        if family.fits(config) or (family.fits(text) and not (family.norms or family.scale)):
            return family
    return None


def text_config(config: Any) -> Any:
    """The configuration of what reads text: its own part in models that see or hear, too."""
    try:
        return config.get_text_config()
    except ValueError:  # several parts read text
        return config
