"""The values that table columns take.

Stacks, states, replacements, targets, sides, Universal Dependencies; and the keys of numbers
(metric, view, label).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import NamedTuple

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM",
    "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip
# Universal dependency relations, with the subtypes that English analyses tell apart; a subtype
# that is not here counts as its relation.
RELATIONS = (
    "acl", "acl:relcl", "advcl", "advmod", "amod", "appos", "aux", "aux:pass", "case", "cc",
    "ccomp", "clf", "compound", "compound:prt", "conj", "cop", "csubj", "dep", "det", "discourse",
    "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list", "mark", "nmod", "nmod:poss",
    "nsubj", "nsubj:pass", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum",
    "vocative", "xcomp",
)  # fmt: skip
CONTENT = frozenset({"ADJ", "ADV", "INTJ", "NOUN", "NUM", "PROPN", "VERB"})
# What counts as high similarity of two tokens: a share of all pairs of a head, or a cosine.
TOP_PAIR_SHARES = {"top 1 %": 0.01, "top 5 %": 0.05}
SIMILARITY_LABELS = (*TOP_PAIR_SHARES, "0.9")
# How ends of sentences are proposed: by what heads do, and, beside it, without a model.
HEAD_RULES = ("similarity", "attention")
SEGMENTATION_RULES = (*HEAD_RULES, "punctuation", "even")
# What groups and pairs are compared by, where it is measured.
MAIN_METRICS = (
    "attention_distance", "relative_entropy", "sink_share", "attention_to", "dependency_alignment",
)  # fmt: skip
MAX_SINK_MASS = 0.9  # Vig & Belinkov, footnote 4: a row with more than this on the sink is noise
MILLION = 1_000_000
MAX_DISTANCE = 32  # tokens from which on distances are counted together
DISTANCES = ("all", *map(str, range(1, MAX_DISTANCE)), f"{MAX_DISTANCE}+")
# Classes of tokens over which token metrics are averaged.
CLASSES = ("all", "content", "function", "initial", "continuation", "special", *UPOS)
COMPARED_CLASSES = ("all", "content", "function", "special")  # by which models are compared
FUNCTION = frozenset({"ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "SCONJ"})
DIRECTIONS = ("to_head", "to_dependent")
MOST_OWN = 40  # names of a corpus outside Universal Dependencies that are told apart
OTHER = "other"  # what the rest of them count as


def universal_relation(relation: str) -> str:
    """Return a relation as `AnnotationScheme` names it: a subtype only if `RELATIONS` has it."""
    return relation if relation in RELATIONS else relation.partition(":")[0] or relation


def relation_of(label: str) -> tuple[str, str]:
    """Relation and direction of a label: ``nsubj:pass`` and ``to_head``; both may be empty."""
    relation, _, direction = label.rpartition(":")
    return relation, direction


@dataclass(frozen=True)
class AnnotationScheme:
    """The names of parts of speech and relations that a corpus is annotated with.

    Attributes:
        tags: `UPOS`, then the corpus's own, most frequent first.
        relations: `RELATIONS`, then the corpus's own in the same order.
    """

    tags: tuple[str, ...] = UPOS
    relations: tuple[str, ...] = RELATIONS

    @classmethod
    def of(cls, tags: Mapping[str, int], relations: Mapping[str, int]) -> "AnnotationScheme":
        """The scheme of a corpus.

        Args:
            tags, relations: names outside Universal Dependencies, with how often they occur.
        """
        return cls((*UPOS, *_own(tags)), (*RELATIONS, *_own(relations)))

    @property
    def labels(self) -> tuple[str, ...]:
        """Each relation with its direction: all of them to the head, then to the dependent."""
        return tuple(f"{name}:{direction}" for direction in DIRECTIONS for name in self.relations)

    def tag_number(self, tag: str, without: int) -> int:
        """The place of a tag, ``without`` where it has none."""
        return self._tag_numbers.get(tag, _other(self._tag_numbers, tag, without))

    def relation_number(self, relation: str, without: int) -> int:
        """The place of a relation, ``without`` where it has none."""
        numbers = self._relation_numbers
        return numbers.get(universal_relation(relation), _other(numbers, relation, without))

    @cached_property
    def _tag_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.tags)}

    @cached_property
    def _relation_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.relations)}


def _own(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Names by frequency, then by name; those beyond the first `MOST_OWN` as one."""
    names = sorted(counts, key=lambda name: (-counts[name], name))
    if len(names) <= MOST_OWN:
        return tuple(names)
    return (*(name for name in names[:MOST_OWN] if name != OTHER), OTHER)


def _other(numbers: Mapping[str, int], name: str, without: int) -> int:
    return numbers.get(OTHER, without) if name else without


class ModelKind(StrEnum):
    """What sort of transformer a model is."""

    ENCODER = "encoder-only"
    DECODER = "decoder-only"
    ENCODER_DECODER = "encoder-decoder"


class Side(StrEnum):
    """Which text a sequence of tokens comes from."""

    SOURCE = "source"
    TARGET = "target"


class SinkView(StrEnum):
    """What becomes of the attention sink: special tokens and, in causal stacks, position 0."""

    RAW = "raw"
    """Weights as the model computes them."""
    NOSINK = "nosink"
    """Sink keys removed; rows no longer sum to 1."""
    RENORM = "renorm"
    """Sink keys removed and each row divided by what is left."""


class IntervalRule(IntEnum):
    """What is known beforehand of how a number varies from sentence to sentence."""

    USUAL = 0
    """Most sentences have some of it."""
    RARE = 1
    """Many sentences lack it and others are full of it: each is one observation, no more."""
    CLASSES = 2
    """An average over a class of tokens, of which a few unusual sentences may be full."""
    FEW = 3
    """A few sentences decide it, however many there are: no interval holds what it says."""
    CONTINUOUS = 4
    """Each sentence moves it a little; a number that none moves is constant by construction."""
    CONSTANT = 5
    """The same for every sentence by construction: a value without an interval."""


class Baseline(StrEnum):
    """What a model is compared with."""

    UNTRAINED = "untrained"
    """The same architecture with random weights."""
    SHUFFLED = "shuffled"
    """The same words in random order."""


class BaselineRun(NamedTuple):
    """One thing that a model is compared with; as text ``untrained 0``, as files have it."""

    baseline: Baseline
    seed: int

    def __str__(self) -> str:
        return f"{self.baseline} {self.seed}"

    @classmethod
    def parse(cls, text: str) -> "BaselineRun":
        """The twin that files call so.

        Raises:
            ValueError: no twin is called so.
        """
        baseline, seed = text.split()
        return cls(Baseline(baseline), int(seed))


class ResidualPoint(StrEnum):
    """Where in a layer a token's vector is read."""

    PRE = "input"
    """What enters layer 0."""
    MID = "mid"
    """Attention block output plus the residual it is added to."""
    POST = "out"
    """Output of the layer."""


class EmbeddingSpace(StrEnum):
    """Which original encodings of the vocabulary a state is compared with."""

    POSITIONAL = "positional"
    """What the embedding block would give each entry at the token's own position."""
    RAW = "raw"
    """The word embedding alone."""


class RolloutKind(StrEnum):
    """What rollout takes a layer's attention block to keep of each token."""

    HALF = "half"
    """One half, everywhere."""
    MEASURED = "measured"
    """What the mixing ratio leaves."""


class Replacement(StrEnum):
    """What stands in place of a head's output where the head is taken away."""

    MEAN = "mean"
    """Its mean over query tokens of the same class, in the other half of the sentences."""
    ZERO = "zero"
    """Nothing."""
    POSITION_MEAN = "position_mean"
    """Its mean at the same position, in the other half of the sentences."""
    RESAMPLE = "resample"
    """What it gives at the same position in three other sentences of similar length."""
    UNIFORM = "uniform"
    """The mean of the values of all visible keys."""
    SINK_ONLY = "sink_only"
    """What it would give if all of its attention were on the sink."""
    WITHOUT_SINK = "without_sink"
    """What it gives without the sink's keys; the others keep their weights."""


class AblationTarget(StrEnum):
    """What of a model's answer changes where a head is taken away."""

    LOSS = "loss"
    """Minus the log probability of the next token, in nats."""
    MASKED_LOSS = "masked_loss"
    """The same of masked tokens."""
    KL = "kl"
    """Divergence of what the whole model says from what it says without the head, in nats."""
    LOGIT = "logit"
    """Logit of the true token above the mean of all logits: less of it is worse."""
    STATE = "state"
    """1 minus the cosine of a token's last states."""
    EMBEDDING = "embedding"
    """1 minus the cosine of a text's vectors."""


class HeadCorrespondence(StrEnum):
    """Which heads of two models are held against each other."""

    AUTO = "auto"
    """Those with the same number, where sizes and vocabulary agree; else matched ones."""
    SAME = "same"
    """Those with the same number."""
    MATCHED = "matched"
    """Those that attend most alike."""


@dataclass(frozen=True)
class AttentionStack:
    """One kind of attention in a model: ``self``, or ``encoder``, ``decoder`` and ``cross``.

    Attributes:
        n_layers: layers, those without attention included; layers count from 0.
        attention_layers: indices of the layers that have attention, ascending.
        n_heads: query heads of a layer (the largest number, where layers differ).
        n_key_heads: key and value heads; fewer than ``n_heads`` in grouped-query attention.
        causal: whether a query sees only its own and earlier positions.
        queries, keys: the texts that rows and columns of attention stand for.
        learned_sink: whether the softmax has a logit of its own that stands for no token, so that
            a row adds up to less than 1.
    """

    name: str
    n_layers: int
    attention_layers: tuple[int, ...]
    n_heads: int
    n_key_heads: int
    head_width: int
    causal: bool
    queries: Side
    keys: Side
    learned_sink: bool = False

    @property
    def crosses(self) -> bool:
        """Whether queries and keys come from different texts."""
        return self.queries != self.keys

    @property
    def rows_counted(self) -> str:
        """The name under which rows of attention are counted, where the softmax has a sink."""
        return f"{self.name}.rows"

    @property
    def learned_counted(self) -> str:
        """The name under which what such a sink takes is counted, in millionths of a row."""
        return f"{self.name}.learned_sink"

    @property
    def default_view(self) -> SinkView:
        """The view that pages show first."""
        return SinkView.NOSINK if self.causal else SinkView.RAW


class HeadKey(NamedTuple):
    """What one number of a head is."""

    metric: str
    view: SinkView
    label: str


class TokenKey(NamedTuple):
    """What one number of a layer's tokens is; ``label`` is a class of tokens."""

    metric: str
    state: ResidualPoint
    space: EmbeddingSpace | None
    label: str

    @property
    def words(self) -> str:
        """What it is beside its metric, as labels of tables say it: ``mid/positional/NOUN``."""
        return "/".join(part for part in (self.state, self.space, self.label) if part)
