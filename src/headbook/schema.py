"""Vocabulary of the tables: the values of their columns, and the keys of their numbers.

Columns hold stacks, states, replacements, ablation targets, sides and Universal Dependencies; a
number is identified by metric, view and label.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from itertools import product
from typing import NamedTuple

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM",
    "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip
# Universal dependency relations, with the subtypes of English treebanks; any other subtype counts
# as its relation.
RELATIONS = (
    "acl", "acl:relcl", "advcl", "advmod", "amod", "appos", "aux", "aux:pass", "case", "cc",
    "ccomp", "clf", "compound", "compound:prt", "conj", "cop", "csubj", "dep", "det", "discourse",
    "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list", "mark", "nmod", "nmod:poss",
    "nsubj", "nsubj:pass", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum",
    "vocative", "xcomp",
)  # fmt: skip
# Parts of speech of content words and of function words.
CONTENT = frozenset({"ADJ", "ADV", "INTJ", "NOUN", "NUM", "PROPN", "VERB"})
FUNCTION = frozenset({"ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "SCONJ"})
UNICODE_WORDS = "none (words by Unicode UAX #29)"  # name of the annotator without a pipeline
# Thresholds of high similarity of two tokens: a top share of all pairs of a head, or a cosine.
TOP_PAIR_SHARES = {"top 1 %": 0.01, "top 5 %": 0.05}
SIMILARITY_LABELS = (*TOP_PAIR_SHARES, "0.9")
# Rules that propose sentence ends: from a head's similarities or attention, or without a model.
HEAD_RULES = ("similarity", "attention")
SEGMENTATION_RULES = (*HEAD_RULES, "punctuation", "even")
# Metrics by which groups and minimal pairs of sentences are compared, if measured.
MAIN_METRICS = (
    "attention_distance", "relative_entropy", "sink_share", "attention_to", "dependency_alignment",
)  # fmt: skip
MAX_SINK_MASS = 0.9  # Vig & Belinkov, footnote 4: a row with more than this on the sink is noise
MILLION = 1_000_000  # attention on a learned sink is stored in whole millionths of a row
# In keys of counts: texts that begin or end with what the tokenizer adds there; tokens for text
# that the vocabulary lacks; texts that consist mostly of them.
DOUBLED, UNKNOWN, UNREADABLE = "doubled", "unknown", "unreadable"
MAX_DISTANCE = 32  # tokens; larger distances are counted together
DISTANCES = ("all", *map(str, range(1, MAX_DISTANCE)), f"{MAX_DISTANCE}+")
GAP_TOKENS = 10  # tokens compared on each side of a gap between two tokens
# Distances of pairs of tokens within one sentence of a passage, and of two sentences.
CONTEXT_DISTANCES = (
    "all",
    *(f"{side}:{d}" for side in ("within", "across") for d in DISTANCES[1:]),
)
# Roles of special tokens: those that begin a text, such as [CLS], and those that end a sentence.
SPECIAL_ROLES = ("start", "separator")
# Classes of tokens over which token metrics are averaged.
CLASSES = (
    "all", "content", "function", "initial", "continuation", "special", *SPECIAL_ROLES, *UPOS,
)  # fmt: skip
# Label of an average over all tokens of text without the outlier dimensions of each state.
NO_OUTLIERS = "no_outliers"
COMPARED_CLASSES = ("all", "content", "function", "special")  # classes in comparisons of models
DIRECTIONS = ("to_head", "to_dependent")
PAIR_REGIONS = ("first text", "second text")  # names of the two texts of a pair
MAX_REGIONS = 8  # names of regions that the texts of a corpus may have
MAX_OWN_NAMES = 40  # of a corpus, outside Universal Dependencies, that are counted separately
OTHER = "other"  # name under which the remaining names are counted


REGION_PAIR = "{}→{}"  # label of an ordered pair of regions
OTHER_REGION, NO_REGION = -1, -2  # of ordinary tokens outside all regions, and of special tokens


def regions_of(label: str) -> tuple[str, str]:
    """Return the regions of queries and keys of a label of `AnnotationScheme.region_pairs`."""
    queries, _, keys = label.partition("→")
    return queries, keys


def universal_relation(relation: str) -> str:
    """Return a relation as `AnnotationScheme` names it: a subtype only if `RELATIONS` has it."""
    return relation if relation in RELATIONS else relation.partition(":")[0] or relation


def relation_of(label: str) -> tuple[str, str]:
    """Return relation and direction of a label, such as ``nsubj`` and ``to_head``, or ``""``."""
    relation, _, direction = label.rpartition(":")
    return relation, direction


@dataclass(frozen=True)
class AnnotationScheme:
    """The names of parts of speech, relations and regions that a corpus is annotated with.

    Attributes:
        tags: `UPOS`, then the corpus's own tags, most frequent first.
        relations: `RELATIONS`, then the corpus's own relations, most frequent first.
        regions: names of the regions of texts, such as the two texts of pairs; empty without any.
    """

    tags: tuple[str, ...] = UPOS
    relations: tuple[str, ...] = RELATIONS
    regions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        tags: Mapping[str, int],
        relations: Mapping[str, int],
        regions: tuple[str, ...] = (),
    ) -> "AnnotationScheme":
        """Return the scheme of a corpus.

        Args:
            tags, relations: frequencies of names outside Universal Dependencies.
            regions: names of the regions of its texts.
        """
        return cls((*UPOS, *_own_names(tags)), (*RELATIONS, *_own_names(relations)), regions)

    @property
    def labels(self) -> tuple[str, ...]:
        """Relations with direction: all relations to the head, then all to the dependent."""
        return tuple(f"{name}:{direction}" for direction in DIRECTIONS for name in self.relations)

    @property
    def region_pairs(self) -> tuple[str, ...]:
        """Labels of the ordered pairs of regions: from the region of queries to that of keys."""
        return tuple(REGION_PAIR.format(*pair) for pair in product(self.regions, repeat=2))

    def tag_number(self, tag: str, without: int) -> int:
        """Return the index of a tag in `tags`, or ``without`` if it has none."""
        return self._tag_numbers.get(tag, _other_number(self._tag_numbers, tag, without))

    def relation_number(self, relation: str, without: int) -> int:
        """Return the index of a relation in `relations`, or ``without`` if it has none."""
        numbers = self._relation_numbers
        return numbers.get(universal_relation(relation), _other_number(numbers, relation, without))

    @cached_property
    def _tag_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.tags)}

    @cached_property
    def _relation_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.relations)}


def _own_names(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the `MAX_OWN_NAMES` most frequent names, then `OTHER` if there are more."""
    names = sorted(counts, key=lambda name: (-counts[name], name))
    if len(names) <= MAX_OWN_NAMES:
        return tuple(names)
    return (*(name for name in names[:MAX_OWN_NAMES] if name != OTHER), OTHER)


def _other_number(numbers: Mapping[str, int], name: str, without: int) -> int:
    return numbers.get(OTHER, without) if name else without


class ModelKind(StrEnum):
    """Architecture of a transformer."""

    ENCODER = "encoder-only"
    DECODER = "decoder-only"
    ENCODER_DECODER = "encoder-decoder"


# Endings of the names of classes with a classification head.
TEXT_CLASSIFIER, TOKEN_CLASSIFIER = "ForSequenceClassification", "ForTokenClassification"


class Side(StrEnum):
    """Side of a text pair that a sequence of tokens belongs to."""

    SOURCE = "source"
    TARGET = "target"


class SinkView(StrEnum):
    """Treatment of the attention sink: special tokens and, in causal stacks, position 0."""

    RAW = "raw"
    """Weights as the model computes them."""
    NOSINK = "nosink"
    """Sink keys removed; rows no longer sum to 1."""
    RENORM = "renorm"
    """Sink keys removed and each row divided by its remaining sum."""


class IntervalRule(IntEnum):
    """Rule for the confidence interval of a metric, by how its values vary between sentences."""

    USUAL = 0
    """Most sentences have a value above the lower bound."""
    RARE = 1
    """Many sentences have the lowest value and others the highest: each is one observation."""
    CLASSES = 2
    """An average over a class of tokens, many of which may be in a few unusual sentences."""
    FEW = 3
    """A few sentences decide the value in any sample: no interval reaches its nominal coverage.

    As for `COMPARED`, there is no value with fewer than `analysis.intervals.MIN_COMPARED` texts.
    """
    CONTINUOUS = 4
    """Each sentence changes the value a little; a value without variation has no interval."""
    CONSTANT = 5
    """A value that is equal for all sentences by construction, without an interval."""
    COMPARED = 6
    """A comparison of two kinds of pairs within a text; texts without both take no part."""


class Baseline(StrEnum):
    """Controls that a model is compared with."""

    UNTRAINED = "untrained"
    """The model's architecture with random weights."""
    SHUFFLED = "shuffled"
    """The corpus with the words of each sentence in random order."""
    NO_SEPARATORS = "no_separators"
    """The passages without the separators between their sentences."""


class BaselineRun(NamedTuple):
    """A baseline with its seed, written ``untrained 0`` in files."""

    baseline: Baseline
    seed: int

    def __str__(self) -> str:
        return f"{self.baseline} {self.seed}"

    @classmethod
    def parse(cls, text: str) -> "BaselineRun":
        """Return the baseline with the seed of a text such as ``untrained 0``.

        Raises:
            ValueError: the text names no baseline and seed.
        """
        baseline, seed = text.split()
        return cls(Baseline(baseline), int(seed))


class ResidualPoint(StrEnum):
    """Point of the residual stream, within a layer, at which a token's state is read."""

    PRE = "input"
    """Input of layer 0."""
    MID = "mid"
    """Attention block output plus the residual it is added to."""
    POST = "out"
    """Output of the layer."""


class EmbeddingSpace(StrEnum):
    """Encoding of vocabulary entries that a state is compared with."""

    POSITIONAL = "positional"
    """Output of the embedding block for each entry at the token's own position."""
    RAW = "raw"
    """The word embedding alone."""


class RolloutKind(StrEnum):
    """Share of the attention block in a layer, as attention rollout assumes it."""

    HALF = "half"
    """One half in every layer."""
    MEASURED = "measured"
    """One minus the mixing ratio, measured for each token."""


class Replacement(StrEnum):
    """Vector that replaces a head's output when the head is ablated."""

    MEAN = "mean"
    """Mean head output over query tokens of the same class, in the other half of the sentences."""
    ZERO = "zero"
    """The zero vector."""
    POSITION_MEAN = "position_mean"
    """Mean head output at the same position, in the other half of the sentences."""
    RESAMPLE = "resample"
    """Head output at the same position in three other sentences of similar length."""
    UNIFORM = "uniform"
    """Mean of the values of all visible keys."""
    SINK_ONLY = "sink_only"
    """Head output if all of the attention were on the sink."""
    WITHOUT_SINK = "without_sink"
    """Head output without the sink's keys; the other keys keep their weights."""


class AblationTarget(StrEnum):
    """Quantity of a model's output whose change under ablation is measured."""

    LOSS = "loss"
    """Minus the log probability of the next token, in nats."""
    MASKED_LOSS = "masked_loss"
    """Minus the log probability of masked tokens, in nats."""
    KL = "kl"
    """KL divergence of the whole model's distribution from the ablated model's, in nats."""
    LOGIT = "logit"
    """Logit of the true token minus the mean of all logits; lower is worse."""
    STATE = "state"
    """1 minus the cosine of a token's final states with and without the head."""
    EMBEDDING = "embedding"
    """1 minus the cosine of a text's embeddings with and without the head."""
    LABEL = "label"
    """Minus the log probability of the true label of a text or token, in nats."""
    ACCURACY = "accuracy"
    """Share of the labels that are right; the change is the whole model's share minus the other."""
    PREFERENCE = "preference"
    """Log probability of the acceptable sentence of a pair minus that of the other; lower is worse.

    Changes are those of the whole model minus the ablated one, as for `ANSWER`.
    """
    ANSWER = "answer"
    """Logit of the answer minus the logit of the wrong answer; lower is worse."""
    PATCHING = "patching"
    """Difference of the two logits in a run with the head output of another run."""


class HeadCorrespondence(StrEnum):
    """Choice of the heads of two models that are compared with each other."""

    AUTO = "auto"
    """Heads with equal numbers if sizes and vocabulary agree, else matched heads."""
    SAME = "same"
    """Heads with equal numbers."""
    MATCHED = "matched"
    """Heads whose attention is most similar."""


STACK_NAMES = ("self", "encoder", "decoder", "cross")


@dataclass(frozen=True)
class AttentionStack:
    """One kind of attention in a model: ``self``, or ``encoder``, ``decoder`` and ``cross``.

    Attributes:
        n_layers: number of layers, including layers without attention; layers count from 0.
        attention_layers: indices of the layers that have attention, ascending.
        n_heads: query heads of a layer; the largest number if layers differ.
        n_key_heads: key and value heads; fewer than ``n_heads`` in grouped-query attention.
        causal: whether a query sees only its own and earlier positions.
        queries, keys: sides of the texts in rows and columns of attention.
        learned_sink: whether the softmax has an additional learned logit that belongs to no token,
            so that a row sums to less than 1.
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
        """Key under which attention rows are counted, if the softmax has a learned sink."""
        return f"{self.name}.rows"

    @property
    def learned_counted(self) -> str:
        """Key under which the attention on the learned sink is counted, in millionths of a row."""
        return f"{self.name}.learned_sink"

    @property
    def default_view(self) -> SinkView:
        """The view that pages show first."""
        return SinkView.NOSINK if self.causal else SinkView.RAW


Place = tuple[int, int]  # layer and head  # layer and head


class HeadName(NamedTuple):
    """A head of a model; layer and head are counted from 0."""

    stack: str
    layer: int
    head: int


# Names of heads: stack (optional), layer and head, as in ``decoder-L3-H5``.
HEAD_PATTERN = re.compile(r"(?:([a-z]+)-)?L?(\d+)\W*H?(\d+)")


def parse_head(name: str) -> tuple[str | None, int, int] | None:
    """Return stack, layer and head of the name of a head, as on pages; None for another text."""
    match = HEAD_PATTERN.fullmatch(name)
    return None if match is None else (match[1], int(match[2]), int(match[3]))


def heads_of(stack: AttentionStack) -> list[HeadName]:
    """Return the heads of a stack, layer by layer; layers without attention have none."""
    heads = range(stack.n_heads)
    return [HeadName(stack.name, layer, head) for layer in stack.attention_layers for head in heads]


class HeadKey(NamedTuple):
    """Key of one number of a head: metric, sink view and label."""

    metric: str
    view: SinkView
    label: str


class TokenKey(NamedTuple):
    """Key of one number of a layer's tokens; ``label`` is a class of tokens or `NO_OUTLIERS`."""

    metric: str
    state: ResidualPoint
    space: EmbeddingSpace | None
    label: str

    @property
    def words(self) -> str:
        """The key without its metric, as written in tables: ``mid/positional/NOUN``."""
        return "/".join(part for part in (self.state, self.space, self.label) if part)


# Names of splits and claims in the table ``tests``, by which pages find rows.
ALL, HELD_OUT_SPLIT = "all", "held_out"  # splits
HIGHEST, LOWEST = "highest of all heads", "lowest of all heads"  # claims
ON_CHOICE = "on the choice half"  # of the claims above: the head that one half chooses
RELATION = "relation"  # a head against the best surface rule for a relation
ABLATION = "ablation"
LAYER_RATIO = "layer of largest effect"
