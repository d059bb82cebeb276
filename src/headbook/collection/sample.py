"""What is not measured on all sentences: metrics of the sample, and those of random sequences.

The sample are the sentences with the smallest hashes, the same for every metric and in any order
of the input.
"""

from collections.abc import Collection, Sequence
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING

from headbook.collection.texts import tokens_of
from headbook.metrics import (
    anchor_metrics,
    attention_metrics,
    context_metrics,
    flow_metrics,
    head_metrics,
    layer_metrics,
    layer_pair_metrics,
    pair_metrics,
    sampled_metrics,
)
from headbook.metrics.base import AttentionMetric, Source
from headbook.model.sequences import RANDOM_TOKENS, random_sequences
from headbook.passes.context import ContextSampler, FirstLook, SecondLook
from headbook.passes.corpuspass import CorpusPass
from headbook.passes.flowpass import FlowTracker
from headbook.passes.geometry import Gathering, Geometer
from headbook.passes.pairs import PairSampler
from headbook.passes.sampler import Sampler
from headbook.passes.tables.affinitytable import items_of
from headbook.passes.tables.buckettable import BucketTable, sums_of
from headbook.passes.watch import Watcher
from headbook.study.summaries.sums import CorpusSums
from headbook.text.tokens import Encoded

if TYPE_CHECKING:
    from headbook.collection.run import Run


def of_sample(run: "Run", smallest: Collection[int]) -> CorpusSums:
    """What is taken on the sample: in one pass, or in two.

    What heads write is looked at twice: first for what is similar, then for the rest.

    Args:
        smallest: the sentences of the sample, by index.
    """
    # Before it is known what is done, so that sentences are parsed in the same groups.
    items = [*run.texts.again(smallest)]
    sums: CorpusSums = run.part(CorpusSums, "sample", partial(_both_looks, run, smallest, items))
    return sums


def _both_looks(run: "Run", smallest: Collection[int], items: Sequence[Encoded]) -> CorpusSums:
    pairs, geometry, context = _pairs(run), _geometry(run, items), _context(run)
    first = FirstLook(context, context.step(items)) if context else None
    watchers = (_sampler(run, items), pairs, geometry, first, flows(run, smallest, ()))
    asked = [watcher for watcher in watchers if watcher is not None]
    run.progress.stage("sample", tokens_of(items))
    budget = pairs.tokens(max(item.length for item in items)) if pairs else None
    sums = run.look(run.texts.in_batches(items, budget), asked).corpus_sums
    sums += geometry.sums() if geometry else CorpusSums()
    near = pairs.nearest(sums.distances) if pairs else None
    again: list[Watcher] = [near] if near else []
    buckets: dict[str, BucketTable] = {}
    if context is not None and first is not None:
        buckets = run.buckets(context.metrics)
        again.append(SecondLook(context, first.thresholds(), buckets))
    if again:
        run.progress.stage("sample again", tokens_of(items))
        batches = run.texts.in_batches(items, budget if near else None)
        sums += run.look(batches, again).corpus_sums
    return sums + sums_of(buckets)


def _sampler(run: "Run", items: Sequence[Encoded]) -> Sampler | None:
    """Statistics of single sentences, and sums of tokens and pairs of tokens."""
    metrics = tuple(sampled_metrics(run.metrics))
    summed = run.tokens and head_metrics(run.metrics) and not run.long.every
    stacks = run.architecture.stacks if summed else {}
    wanted = {name: items_of(stack, items) for name, stack in stacks.items()}
    if not metrics and not wanted:
        return None
    return Sampler(run.model, run.architecture, metrics, run.config.sample_sentences, wanted)


def _pairs(run: "Run") -> PairSampler | None:
    """Every two heads."""
    metrics = tuple(pair_metrics(run.metrics))
    return PairSampler(run.model, run.architecture, metrics) if metrics else None


def _geometry(run: "Run", items: Sequence[Encoded]) -> Gathering | None:
    """The shape of the states, over sentences of the sample."""
    metrics, pairs = tuple(layer_metrics(run.metrics)), tuple(layer_pair_metrics(run.metrics))
    geometer = Geometer(run.model, run.architecture, metrics, pairs, run.config.seed)
    asked = (metrics or pairs) and geometer.stacks
    return geometer.gathering(items) if asked else None


def _context(run: "Run") -> ContextSampler | None:
    """What heads write."""
    metrics, anchors = context_metrics(run.metrics), anchor_metrics(run.metrics)
    given = tuple(metrics), tuple(anchors), run.config.seed
    return ContextSampler(run.model, run.architecture, *given) if metrics or anchors else None


def flows(run: "Run", sampled: Collection[int], listed: Collection[int]) -> FlowTracker:
    """What follows attention from token to token; no sentence where nobody asks for it."""
    metrics = tuple(flow_metrics(run.metrics))
    return FlowTracker(run.model, run.architecture, metrics, listed, sampled)


def of_random(run: "Run") -> CorpusSums:
    """The metrics that are taken on random sequences."""
    metrics = tuple(attention_metrics(run.metrics, Source.RANDOM))
    if not metrics:
        return CorpusSums()
    sums: CorpusSums = run.part(CorpusSums, "random", partial(_random, run, metrics))
    return sums


def _random(run: "Run", metrics: tuple[AttentionMetric, ...]) -> CorpusSums:
    buckets = run.buckets(metrics, once=True)
    corpus_pass = CorpusPass(run.model, run.architecture, metrics, (), exemplars=1, buckets=buckets)
    run.progress.stage("random sequences", RANDOM_TOKENS)
    sequences = run.texts.in_batches(random_sequences(run.texts.encoder, run.config.seed))
    heads = reduce(add, map(corpus_pass.corpus_sums, sequences)).heads
    random = CorpusSums(random={name: sums.table for name, sums in heads.items()})
    return random + sums_of(buckets)
