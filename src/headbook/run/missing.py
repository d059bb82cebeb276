"""Measures that a study cannot have, and why; texts too long for tables of all token pairs.

Long texts count in all sums over layers of all texts. They have no page, are no exemplars, and are
not in the sample, unless all texts are long: then metrics that need tables of all heads are not
measured.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from headbook.analysis import intervals
from headbook.attention.flow import attention_blocks
from headbook.inputs import Corpus
from headbook.metrics.base import (
    AnchorMetric,
    ContextMetric,
    FlowMetric,
    HeadMetric,
    Metric,
    Need,
    PairMetric,
    SampledMetric,
    TokenMetric,
)
from headbook.metrics.ids import ROLLOUT_SELF_MEASURED
from headbook.model.architecture import Architecture
from headbook.model.embedding import Embedding
from headbook.model.load import Model
from headbook.model.logit_lens import LogitLens, NoLogitLens
from headbook.model.packing import Passages
from headbook.model.tokenizer import SentenceTokenizer
from headbook.passes.head_sums import RANKING_SAMPLE
from headbook.report.wording import SPACES, STATES
from headbook.schema import EmbeddingSpace, IntervalRule, ResidualPoint, Side
from headbook.study.corpus_sums import CorpusSums
from headbook.study.manifest import MissingPart, NotAvailable
from headbook.text.annotate import WordFrequencies

LENS_NAME = "logit lens"
# Needs, the parts that pages leave out, and the counts that show whether texts have them.
ANNOTATION_NEEDS = (
    (Need.TAGS, MissingPart.TAGS, "tagged"),
    (Need.TREE, MissingPart.TREE, "parsed"),
)


def find_gaps(
    model: Model,
    architecture: Architecture,
    metrics: Iterable[Metric],
    embeddings: Mapping[Side, Embedding],
    counts: Mapping[str, int],
    *,
    lens: LogitLens | NoLogitLens,
    rarities: Mapping[Side, WordFrequencies],
    pack: int | None = None,
) -> tuple[NotAvailable, ...]:
    """Return the measures that a study cannot have, and why.

    Args:
        model: the loaded model.
        architecture: attention layers of the model, and the parts that were found in it.
        metrics: metrics that are measured.
        embeddings: embeddings of each side.
        counts: numbers of sentences and tokens, by side and annotation.
        lens: logit lens of the model, or the reason why it has none.
        rarities: word frequencies of each side.
        pack: largest number of tokens of a passage; None if sentences were not joined.
    """
    metrics = list(metrics)
    return (
        *_architecture_gaps(model, architecture),
        *_layer_gaps(architecture),
        *_space_gaps(embeddings, metrics),
        *_lens_gaps(architecture, metrics, lens),
        *_annotation_gaps(architecture, metrics, counts),
        *_value_gaps(model, architecture, metrics),
        *_context_gaps(architecture, metrics, counts, pack),
        *_rarity_gaps(architecture, metrics, rarities),
        *_cross_attention_gaps(architecture, metrics),
        *_flow_gaps(architecture, metrics),
    )


def _architecture_gaps(model: Model, architecture: Architecture) -> Iterator[NotAvailable]:
    kind = model.config.model_type
    if not architecture.hooked:
        yield NotAvailable(
            "queries, keys and values", "",
            f"{architecture.unhooked}; the weights come from output_attentions",
            MissingPart.QUERIES,
        )  # fmt: skip
    if not architecture.layers:
        yield NotAvailable(
            "states of tokens", "", f"the layers of '{kind}' do not pass on one vector per token"
        )
    else:
        why = architecture.ends.failed or (
            f"where attention blocks of '{kind}' end was not found: nothing that a module reads "
            "is what heads give, added to the residual"
        )
        what = f"states {STATES[ResidualPoint.MID]}"
        for name, in_layers in _stacks_without(architecture, architecture.ends.sites):
            yield NotAvailable(f"{what}{in_layers}", name, why)


def _stacks_without(
    architecture: Architecture, sites: Collection[tuple[str, int]]
) -> Iterator[tuple[str, str]]:
    """Yield stacks in which a part was not found, with a phrase for the layers if not in all.

    A part that was not found in any layer of the model gives one empty name.
    """
    calls = architecture.calls
    if not any((call.stack, call.layer) in sites for call in calls):
        yield "", ""
        return
    for name in architecture.stacks:
        layers = [call.layer for call in calls if call.stack == name]
        without = [str(layer) for layer in sorted(layers) if (name, layer) not in sites]
        if without:
            yield name, "" if len(without) == len(layers) else f" of layers {', '.join(without)}"


def _layer_gaps(architecture: Architecture) -> Iterator[NotAvailable]:
    for name, stack in architecture.stacks.items():
        without = sorted(set(range(stack.n_layers)) - set(stack.attention_layers))
        if without:
            yield NotAvailable(
                f"attention of layers {', '.join(map(str, without))}", name,
                "these layers have none",
            )  # fmt: skip


def _space_gaps(
    embeddings: Mapping[Side, Embedding], metrics: Iterable[Metric]
) -> Iterator[NotAvailable]:
    if not any(isinstance(metric, TokenMetric) and metric.spaces for metric in metrics):
        return
    for side, embedding in embeddings.items():
        if embedding.missing:
            spaces = embedding.vocabulary.spaces if embedding.vocabulary else ()
            comparisons = (
                f"comparison with {SPACES[space]}"
                for space in EmbeddingSpace
                if space not in spaces
            )
            what = " and ".join(comparisons) if spaces else "vocabulary metrics"
            yield NotAvailable(f"{what} ({side} side)", "", embedding.missing)


def _lens_gaps(
    architecture: Architecture, metrics: Iterable[Metric], lens: LogitLens | NoLogitLens
) -> Iterator[NotAvailable]:
    if not any(isinstance(metric, TokenMetric) and Need.HEAD in metric.needs for metric in metrics):
        return
    if isinstance(lens, NoLogitLens):
        yield NotAvailable(LENS_NAME, "", lens.why)
        return
    for name in architecture.stacks:
        if name != lens.stack:
            yield NotAvailable(
                LENS_NAME, name, "the language-model head reads the decoder's layers only"
            )


def _annotation_gaps(
    architecture: Architecture, metrics: Iterable[Metric], counts: Mapping[str, int]
) -> Iterator[NotAvailable]:
    needed = _needs(metrics)
    for name, stack in architecture.stacks.items():
        for need, key, count_name in ANNOTATION_NEEDS:
            applies = need is Need.TAGS or not stack.crosses
            if need in needed and applies and not counts.get(f"{stack.keys}.{count_name}"):
                option = "--annotator" if stack.keys is Side.SOURCE else "--target-annotator"
                yield NotAvailable(
                    need.value, name,
                    f"the {stack.keys} texts have none; give a spaCy pipeline with {option}, "
                    "or CoNLL-U", key,
                )  # fmt: skip


def _needs(metrics: Iterable[Metric]) -> set[Need]:
    """Return everything that metrics of heads and of attention flow need."""
    head_metrics = [metric for metric in metrics if isinstance(metric, HeadMetric | FlowMetric)]
    return {need for metric in head_metrics for need in metric.needs}


def _value_gaps(
    model: Model, architecture: Architecture, metrics: Iterable[Metric]
) -> Iterator[NotAvailable]:
    if Need.VALUES not in _needs(metrics):
        return
    kind = model.config.model_type
    why = (
        architecture.ends.failed
        or f"what heads of '{kind}' give goes into no linear map, as it is or by a gate or norm"
        if architecture.hooked
        else architecture.unhooked
    )
    for name, in_layers in _stacks_without(architecture, architecture.ends.projections):
        for stack in [name] if name else architecture.stacks:
            yield NotAvailable(
                f"{Need.VALUES}{in_layers}", stack, why, "" if in_layers else MissingPart.VALUES
            )


def _context_gaps(
    architecture: Architecture,
    metrics: Iterable[Metric],
    counts: Mapping[str, int],
    pack: int | None,
) -> Iterator[NotAvailable]:
    """Yield gaps of metrics that need head outputs, or texts of several sentences."""
    heads = [metric for metric in metrics if isinstance(metric, HeadMetric)]
    needs = _needs(heads)
    passage_metrics = [metric.title for metric in heads if Need.PASSAGES in metric.needs]
    least = [metric for metric in heads if has_least_texts(metric)]
    in_passages = [metric.title for metric in least if Need.PASSAGES in metric.needs]
    compared = [metric for metric in least if metric.title not in in_passages]
    for name, stack in architecture.stacks.items():
        if Need.OUTPUTS in needs and not architecture.hooked:
            yield NotAvailable(Need.OUTPUTS, name, architecture.unhooked, MissingPart.OUTPUTS)
        elif Need.PASSAGES in needs and not counts.get(f"{stack.queries}.joined"):
            why = f"every {stack.queries} text counts as one sentence; --pack joins as many as fit"
            if pack:
                why = f"no document has two sentences that fit into {pack} tokens together"
            yield NotAvailable(listed_titles(passage_metrics), name, why, MissingPart.PASSAGES)
        elif in_passages and counts[f"{stack.queries}.joined"] < intervals.MIN_COMPARED:
            yield NotAvailable(
                listed_titles(in_passages), name,
                f"{counts[f'{stack.queries}.joined']} passages have several sentences; at least "
                f"{intervals.MIN_COMPARED} are needed", MissingPart.PASSAGES,
            )  # fmt: skip
        if compared and architecture.hooked and counts["sentences"] < intervals.MIN_COMPARED:
            yield NotAvailable(
                listed_titles([metric.title for metric in compared]),
                name,
                f"{counts['sentences']} texts; at least {intervals.MIN_COMPARED} are needed",
            )


def has_least_texts(metric: HeadMetric) -> bool:
    """Whether a metric compares pairs within texts, so that few texts give no value."""
    return metric.spread(metric.headline) in {IntervalRule.FEW, IntervalRule.COMPARED}


def listed_titles(titles: Sequence[str]) -> str:
    """Return titles as a list in words."""
    *others, last = titles
    return f"{', '.join(others)} and {last}" if others else last


def _rarity_gaps(
    architecture: Architecture, metrics: Iterable[Metric], rarities: Mapping[Side, WordFrequencies]
) -> Iterator[NotAvailable]:
    if Need.FREQUENCIES not in _needs(metrics):
        return
    for name, stack in architecture.stacks.items():
        if missing := rarities[stack.keys].missing:
            option = "--language" if stack.keys is Side.SOURCE else "--target-language"
            yield NotAvailable(Need.FREQUENCIES.value, name, f"{missing}; see {option}")


def _cross_attention_gaps(
    architecture: Architecture, metrics: Iterable[Metric]
) -> Iterator[NotAvailable]:
    for name, stack in architecture.stacks.items():
        for metric in metrics:
            if isinstance(metric, HeadMetric) and stack.crosses and not metric.applies(stack):
                why = "positions and words of two texts do not compare"
                yield NotAvailable(metric.title, name, why, metric.id)
            elif isinstance(metric, FlowMetric) and stack.crosses:
                yield NotAvailable(metric.title, name, "all keys are of another text", metric.id)


def _flow_gaps(architecture: Architecture, metrics: Iterable[Metric]) -> Iterator[NotAvailable]:
    """Yield gaps of flow metrics that are weighted by value vectors.

    They need layers whose parts are known, and attention in all layers. A stack without any known
    values has a gap for its values already, and none here.
    """
    known_blocks, values = attention_blocks(architecture), architecture.ends.projections
    measured = [m for m in metrics if isinstance(m, FlowMetric) and Need.VALUES in m.needs]
    for name, stack in architecture.stacks.items():
        layers = [call.layer for call in architecture.calls if call.stack == name]
        if stack.crosses or not any((name, layer) in values for layer in layers):
            continue
        all_known = all((name, layer) in known_blocks for layer in layers)
        for metric in measured:
            if not all_known:
                why = "what the state after attention is made of is not known in each layer"
                yield NotAvailable(metric.title, name, why, metric.id)
            elif metric.id == ROLLOUT_SELF_MEASURED and len(layers) < stack.n_layers:
                why = "what layers without attention bring to a token is not measured"
                yield NotAvailable(metric.title, name, why, metric.id)


# Metrics that need tables of all heads, which long texts do not have.
ALL_HEADS_METRICS = (SampledMetric, ContextMetric, AnchorMetric, PairMetric)


@dataclass(frozen=True)
class LongTexts:
    """Texts that are too long for tables of all pairs of tokens.

    Attributes:
        texts: indices of the texts.
        most: tokens of the longest text that is not too long.
        every: whether all texts are too long.
    """

    texts: frozenset[int] = frozenset()
    most: int = 0
    every: bool = False

    @classmethod
    def of(cls, sentences: Corpus | Passages, encoder: SentenceTokenizer, most: int) -> "LongTexts":
        """Find the long texts of a corpus.

        No text is read if the limit of the model is below the limit of long texts.

        Args:
            sentences: texts of the corpus.
            encoder: tokenizer of the model.
            most: tokens of the longest text that is not too long.
        """
        if encoder.limit <= most:
            return cls(most=most)
        sizes = zip(sentences, encoder.lengths(sentences), strict=True)
        texts = frozenset(s.index for s, length in sizes if max(length.values()) > most)
        return cls(texts, most, len(texts) == len(sentences))

    def measurable(self, metrics: Iterable[Metric]) -> Iterator[Metric]:
        """Return the metrics that can be measured: not those of all heads if all texts are long."""
        return (
            metric
            for metric in metrics
            if not self.every or not isinstance(metric, ALL_HEADS_METRICS)
        )

    def within(self, indices: Iterable[int]) -> list[int]:
        """Return the indices of texts that may be in a sample, in the order given."""
        return [index for index in indices if self.every or index not in self.texts]

    def smallest(self, corpus_sums: CorpusSums, size: int) -> frozenset[int]:
        """Return the sentences with the smallest hashes; long ones only if all are long."""
        sample = next(iter(corpus_sums.heads.values())).sample
        sampled = sample.first(RANKING_SAMPLE if self.texts else size).index.tolist()
        return frozenset(self.within(sampled)[:size] or [self.first_short])

    @property
    def first_short(self) -> int:
        """Index of the first text that is not long; the caller ensures that there is one."""
        return next(index for index in count() if index not in self.texts)

    @property
    def reason(self) -> str:
        """Sentence for the pages: texts too long for the memory that is allowed."""
        n_texts = len(self.texts)
        noun = "text has" if n_texts == 1 else "texts have"
        texts = "every text has" if self.every else f"{n_texts:,} {noun}"
        return (
            f"{texts} more than {self.most:,} tokens, and the memory for maps of all heads is too "
            "small; --memory allows more"
        )

    def gaps(self, metrics: Iterable[Metric]) -> Iterator[NotAvailable]:
        """Yield the measures that a study lacks because of long texts.

        Args:
            metrics: all requested metrics.
        """
        if not self.texts:
            return
        why = self.reason
        yield NotAvailable("maps and pages of long texts", "", why)
        if self.every:
            yield from (
                NotAvailable(m.title, "", why, m.id)
                for m in metrics
                if isinstance(m, ALL_HEADS_METRICS)
            )
        else:
            yield NotAvailable("long texts in the sample", "", why)
