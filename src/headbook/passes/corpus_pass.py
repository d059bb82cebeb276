"""The pass over all sentences; it keeps only sums, the best exemplars and samples."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from headbook.attention.token_states import TokenStates
from headbook.attention.views import ViewMasks
from headbook.errors import NonFiniteStateError
from headbook.metrics.base import AttentionMetric, TokenMetric
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.forward import observe_states, run_forward
from headbook.model.load import Model
from headbook.passes.batch_sums import BucketAccumulator, TokenAccumulator, TokenTypeAccumulator
from headbook.passes.class_flows import ClassFlowAccumulator
from headbook.passes.head_sums import HeadAccumulator
from headbook.passes.state_geometry import StateMeanAccumulator
from headbook.schema import (
    DOUBLED,
    MILLION,
    UNKNOWN,
    UNREADABLE,
    AttentionStack,
    ResidualPoint,
    Side,
    SinkView,
)
from headbook.study.corpus_sums import CorpusSums
from headbook.study.groups import Facets
from headbook.study.sums.buckets import SentenceSet
from headbook.study.sums.token_sums import PATH_METRIC
from headbook.text.annotate import is_unspaced
from headbook.text.batch import Batch


@dataclass(frozen=True)
class CorpusPass:
    """A pass that measures batches with the metrics chosen for a run.

    Attributes:
        heads, tokens: metrics of heads and of tokens.
        exemplars: number of exemplars of each head.
        facets: groups of sentences.
        buckets: sums by hash bucket of each stack.
        state_means: whether states are summed over all tokens of text.
    """

    model: Model
    architecture: Architecture
    heads: tuple[AttentionMetric, ...]
    tokens: tuple[TokenMetric, ...]
    exemplars: int
    facets: Facets = field(default_factory=Facets)
    buckets: Mapping[str, BucketAccumulator] = field(default_factory=dict)
    state_means: bool = False

    def batch_sums(self, batch: Batch) -> CorpusSums:
        """Run the model over a batch and return the sums of all metrics."""
        stacks, texts = self.architecture.stacks, batch.texts
        tokens = {
            name: TokenAccumulator(stack, self.tokens, batch) for name, stack in stacks.items()
        }
        types_wanted = any(metric.id == PATH_METRIC for metric in self.tokens)
        types = {
            name: TokenTypeAccumulator(stack, batch, self.model.token_strings)
            for name, stack in stacks.items()
            if types_wanted and not stack.crosses
        }
        means = {
            name: StateMeanAccumulator(stack, batch)
            for name, stack in stacks.items()
            if self.state_means
        }
        inputs: dict[str, torch.Tensor] = {}
        heads = {
            name: HeadAccumulator(stack, self.heads, batch, self.facets, self.buckets.get(name))
            for name, stack in stacks.items()
        }
        class_flows = {
            name: ClassFlowAccumulator(stack, batch)
            for name, stack in stacks.items()
            if not stack.crosses
        }
        view_masks = ViewMasks(batch, stacks)

        learned_sinks: Counter[str] = Counter()

        def on_attention(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
            heads[place.stack].add(place.layer, attention, view_masks)
            if place.stack in class_flows:
                scope = view_masks.get(place.stack, attention)[SinkView.NOSINK]
                class_flows[place.stack].add(place.layer, attention.weights, scope)
            if stacks[place.stack].learned_sink:
                learned_sinks.update(count_learned_sink(stacks[place.stack], batch, attention))

        def on_state(stack: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
            check_finite(batch, stacks[stack], layer, state, vectors)
            vectors = vectors.to(texts[stacks[stack].queries].share.dtype)
            if stack in means:
                means[stack].add(layer, state, vectors)
            if state is ResidualPoint.PRE:
                inputs[stack] = vectors
                return
            token_states = TokenStates(vectors[None], inputs[stack], texts[stacks[stack].queries])
            for metric in self.tokens:
                values = metric.measure(token_states, None)[0]
                tokens[stack].add(metric, layer, state, None, values)
                if metric.id == PATH_METRIC and stack in types:
                    types[stack].add(layer, state, values)

        with observe_states(self.model, self.architecture, on_state):
            run_forward(self.model, self.architecture, batch, on_attention)
        return CorpusSums(
            heads={name: accumulator.sums(self.exemplars) for name, accumulator in heads.items()},
            tokens={name: accumulator.sums() for name, accumulator in tokens.items()},
            token_buckets={name: accumulator.buckets() for name, accumulator in tokens.items()},
            types={name: accumulator.sums() for name, accumulator in types.items()},
            counts=count_batch(batch) + learned_sinks,
            texts=_sentence_set(batch) if self.buckets else None,
            class_flows={name: accumulator.sums() for name, accumulator in class_flows.items()},
            state_means={name: accumulator.sums() for name, accumulator in means.items()},
        )


def _sentence_set(batch: Batch) -> SentenceSet:
    tokens = np.array([item.length for item in batch.items])
    return SentenceSet.of(batch.text_hash, batch.index, tokens)


def check_finite(
    batch: Batch, stack: AttentionStack, layer: int, state: ResidualPoint, vectors: torch.Tensor
) -> None:
    """Raise an error if the states of a batch are not finite.

    Args:
        vectors: states of all tokens. *Shape:* ``(sentence, token, width)``.

    Raises:
        SentenceError: tokens' states are infinite or NaN; with the sentences, layer and state.
    """
    # A sum is finite only if all numbers are; it takes a thirtieth of the time of testing each.
    if vectors.sum().isfinite():
        return
    is_wrong = ~vectors.isfinite().all(-1) & batch.texts[stack.queries].valid
    if not is_wrong.any():
        return
    place = "input" if state is ResidualPoint.PRE else f"layer {layer}, state '{state}'"
    messages = dict[int, str]()
    for row in is_wrong.any(1).nonzero().flatten().tolist():
        sentence, token = batch.items[row].sentence, int(is_wrong[row].nonzero()[0])
        origin_and_id = filter(None, (sentence.origin, sentence.id))
        name = (
            f"sentence {' '.join(origin_and_id)}"
            if sentence.text
            else "a sequence of random tokens"
        )
        messages[sentence.index] = (
            f"{name}: token {token} has an infinite state or none (stack {stack.name}, "
            f"{place}); expected numbers: check that the weights are whole, or try --dtype float32"
        )
    raise NonFiniteStateError(messages)


def count_learned_sink(
    stack: AttentionStack, batch: Batch, attention: attention_hook.AttentionCall
) -> Counter[str]:
    """Count rows of ordinary tokens, and the attention missing in them in millionths of a row."""
    ordinary = batch.texts[stack.queries].ordinary
    missing_mass = 1 - attention.weights.double().sum(-1).movedim(1, -1)[ordinary]
    share = round(float(missing_mass.clamp(min=0).sum()) * MILLION)
    return Counter({stack.rows_counted: missing_mass.numel(), stack.learned_counted: share})


def count_batch(batch: Batch) -> Counter[str]:
    """Count the sentences, words, tokens and tags of a batch, by side."""
    counts: Counter[str] = Counter(sentences=len(batch.items))
    single_text = Side.TARGET not in batch.texts
    unread = sum(single_text and item.sentence.target is not None for item in batch.items)
    if unread:
        counts["unread_targets"] = unread
    if pairs := sum(item.sentence.is_pair for item in batch.items):
        counts["pairs"] = pairs
    for side, texts in batch.texts.items():
        tagged = (texts.share.unsqueeze(-1) * texts.tags).sum((0, 1)).round().long()
        counts.update(
            {
                f"{side}.tag.{tag}": count
                for tag, count in zip(texts.scheme.tags, tagged.tolist(), strict=True)
                if count
            }
        )
        pieces = texts.pieces
        masks = {
            "tokens": texts.valid,
            "special": texts.special,
            "words": pieces > 0,
            "split_words": pieces > 1,
            "joined": texts.joined,
            "tagged": texts.tagged,
            "parsed": texts.parsed,
        }
        counts.update({f"{side}.{name}": int(mask.sum()) for name, mask in masks.items()})
        for item in batch.items:
            tokens = item.tokens[side]
            counts[f"{side}.cut_sentences"] += tokens.lost > 0
            counts[f"{side}.cut_tokens"] += tokens.lost
            counts[f"{side}.left_out"] += tokens.left_out
            counts[f"{side}.generated"] += tokens.generated
            if is_unspaced(tokens.text):
                counts[f"{side}.unspaced"] += 1
            counts[f"{side}.{UNKNOWN}"] += tokens.unknown
            counts[f"{side}.{UNREADABLE}"] += 2 * tokens.unknown > int((~tokens.special).sum())
            counts.update(f"{side}.{DOUBLED}.{end}" for end in tokens.doubled)
    return counts
