"""Passes over sentences that are read again: the sample, and the sentences that pages show."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from headbook.memory import trim_memory
from headbook.metrics import (
    anchor_metrics,
    context_metrics,
    flow_metrics,
    head_metrics,
    layer_metrics,
    layer_pair_metrics,
    pair_metrics,
    sampled_metrics,
    token_metrics,
)
from headbook.metrics.base import HeadMetric
from headbook.metrics.ids import NEAREST_TOKENS, VOCABULARY_RANK
from headbook.model.embedding import Embedding, read_embedding
from headbook.model.logit_lens import LogitLens, NoLogitLens
from headbook.passes.anchors import AnchorAccumulator, anchor_sums
from headbook.passes.attention_flow import FlowTracker
from headbook.passes.batch_sums import BucketAccumulator, bucket_sums
from headbook.passes.head_outputs import HeadOutputMeasures, HeadOutputSums, SimilarityThresholds
from headbook.passes.head_pairs import HeadPairDistances
from headbook.passes.observers import PassObserver, PassResults, run_pass
from headbook.passes.public_demo import PublicDemo, demo_weights
from headbook.passes.sample_statistics import SampleFits, SampleStatistics
from headbook.passes.sentence_maps import MapSampler, SentencePass
from headbook.passes.state_geometry import StateCollector, StateGeometry, WordUses
from headbook.passes.token_affinities import tracked_tokens
from headbook.passes.trajectories import TokenTracker
from headbook.run.prepare import Run
from headbook.run.sentences import ChosenSentences, count_tokens
from headbook.schema import Side
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sentence_data import MapSample, SentenceData
from headbook.study.sums.state_geometry import StateMeans
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence


def measure_sample(run: Run, items: Sequence[TokenizedSentence], budget: int) -> CorpusSums:
    """Return what is measured on the sample, in one pass over its sentences or two.

    The second pass needs results of the first: which outputs of a head count as similar, which
    heads are closest to each other, and what fits to the whole sample give.
    """
    model, architecture, metrics = run.model, run.architecture, run.metrics
    pair, context = tuple(pair_metrics(metrics)), tuple(context_metrics(metrics))
    anchors, geometry = tuple(anchor_metrics(metrics)), state_collector(run, items)
    pairs = HeadPairDistances(model, architecture, pair) if pair else None
    outputs = thresholds = None
    if context or anchors:
        outputs = HeadOutputMeasures(model, architecture, context, anchors, run.config.seed)
        thresholds = SimilarityThresholds(outputs, outputs.step(items))
    flow = flow_tracker(run, {item.sentence.index for item in items}, ())
    statistics = sample_statistics(run, items)
    fitted = tuple(m for m in sampled_metrics(run.metrics) if m.sample_fit is not None)
    fits = SampleFits(architecture, fitted) if fitted else None
    observers = (fits or statistics, pairs, geometry, thresholds, flow)
    run.progress.stage("sample", count_tokens(items))
    # Distances between heads have a budget of their own, unless memory ran out with it.
    pair_budget = budget
    if pairs:
        pair_budget = pairs.max_batch_tokens(max(item.length for item in items))
        if budget < run.config.batch_tokens:
            pair_budget = min(pair_budget, budget)
    batches = run.sentences.batches(items, pair_budget)
    requested = [observer for observer in observers if observer is not None]
    sums = observe(run, batches, requested).corpus_sums
    sums += geometry.sums() if geometry else CorpusSums()
    nearest_pairs = pairs.second_pass(sums.distances) if pairs else None
    second_observers: list[PassObserver] = [nearest_pairs] if nearest_pairs else []
    if statistics and fits:
        second_observers.append(replace(statistics, fits=fits.fits()))
    buckets: dict[str, BucketAccumulator] = {}
    anchor_pairs: dict[str, AnchorAccumulator] = {}
    if outputs and thresholds:
        buckets = bucket_accumulators(run, outputs.metrics)
        anchor_pairs = {
            name: AnchorAccumulator(stack, anchors, items, run.config.seed)
            for name, stack in architecture.stacks.items()
            if anchors
        }
        limits = thresholds.limits()
        second_observers.append(HeadOutputSums(outputs, limits, buckets, anchor_pairs))
    if second_observers:
        run.progress.stage("sample again", count_tokens(items))
        batches = run.sentences.batches(items, pair_budget if nearest_pairs else budget)
        sums += observe(run, batches, second_observers).corpus_sums
    return sums + bucket_sums(buckets) + anchor_sums(anchor_pairs, model.token_strings)


def sample_statistics(run: Run, items: Sequence[TokenizedSentence]) -> SampleStatistics | None:
    """Return the observer of statistics of single sentences and of tokens, if any are requested."""
    metrics = tuple(sampled_metrics(run.metrics))
    by_token = head_metrics(run.metrics) and not run.is_baseline and not run.long.every
    stacks = run.architecture.stacks if by_token else {}
    tracked = {name: tracked_tokens(stack, items) for name, stack in stacks.items()}
    if not metrics and not tracked:
        return None
    size = run.config.sample_sentences
    return SampleStatistics(run.model, run.architecture, metrics, size, tracked)


def state_collector(run: Run, items: Sequence[TokenizedSentence]) -> StateCollector | None:
    """Return the observer of state geometry, if metrics of layers are requested."""
    metrics, pairs = tuple(layer_metrics(run.metrics)), tuple(layer_pair_metrics(run.metrics))
    geometry = StateGeometry(run.model, run.architecture, metrics, pairs, run.config.seed)
    return geometry.gathering(items) if (metrics or pairs) and geometry.stacks else None


def flow_tracker(run: Run, sampled: Collection[int], listed: Collection[int]) -> FlowTracker:
    """Return the observer of attention flow, which passes over batches without flow metrics."""
    metrics = tuple(flow_metrics(run.metrics))
    return FlowTracker(run.model, run.architecture, metrics, listed, sampled)


def read_embeddings(run: Run, items: Iterable[TokenizedSentence]) -> dict[Side, Embedding]:
    """Return the original embeddings of each side, with positions for its longest text."""
    config, sentences = run.config, [*items]
    exact = config.vocabulary_precision == "float32" or config.dtype == "float64"
    coarse = None if exact else getattr(torch, config.vocabulary_precision)
    embeddings = {}
    for side in sentences[0].tokens:
        longest = max(sentences, key=lambda item: len(item.tokens[side]))
        batch = run.sentences.batch([longest])
        n_types = 1 + max(max(item.tokens[side].types, default=0) for item in sentences)
        embeddings[side] = read_embedding(
            run.model, run.architecture, side, batch, coarse, n_types=n_types
        )
    return embeddings


@dataclass(frozen=True, eq=False)
class SentenceMeasures:
    """Measures of single sentences.

    Attributes:
        sums: sums over the sentences of the vocabulary metrics.
        sentence_data: values, maps and neighbours of the sentences that pages show.
        map_sample: maps for comparisons with other models.
    """

    sums: CorpusSums
    sentence_data: SentenceData
    map_sample: MapSample


def measure_sentences(
    run: Run,
    chosen: ChosenSentences,
    items: Mapping[int, TokenizedSentence],
    embeddings: Mapping[Side, Embedding],
    lens: LogitLens | NoLogitLens,
    *,
    state_means: Mapping[str, StateMeans],
    budget: int,
) -> SentenceMeasures:
    """Measure single sentences, many in a batch to save time on products with the vocabulary."""
    paged, listed = chosen.paged, frozenset(chosen.listed)
    maps = MapSampler(run.architecture.stacks, (items[index] for index in chosen.candidates))
    compares_words = NEAREST_TOKENS in {metric.id for metric in run.metrics}
    uses = WordUses(run.architecture.stacks, (items[index] for index in listed if compares_words))
    observers: tuple[PassObserver, ...] = (
        SentencePass(
            run.architecture,
            paged,
            listed,
            chosen.exemplars,
            alike=bool(context_metrics(run.metrics)),
            traced=chosen.traced,
        ),
        TokenTracker(
            run.model,
            run.architecture,
            tuple(token_metrics(run.metrics)),
            listed,
            chosen.sampled,
            embeddings,
            lens if isinstance(lens, LogitLens) else None,
            state_means,
        ),
        flow_tracker(run, (), listed),
        maps,
        uses,
        *demo_observer(run, embeddings, listed),
    )
    sums, data_parts = CorpusSums(), list[SentenceData]()
    tracked = {*listed, *chosen.sampled, *maps.indices}
    for stage, indices in (("sentences", tracked), ("exemplars", paged - tracked)):
        if indices:
            batch_items = [items[index] for index in sorted(indices)]
            run.progress.stage(stage, count_tokens(batch_items))
            results = observe(run, run.sentences.batches(batch_items, budget), observers)
            sums += results.corpus_sums
            data_parts += results.sentence_data_parts
    data_parts.append(SentenceData(uses=uses.table()))
    return SentenceMeasures(sums, SentenceData.join(data_parts).sorted(), maps.sample())


def demo_observer(
    run: Run, embeddings: Mapping[Side, Embedding], listed: Collection[int]
) -> tuple[PublicDemo, ...]:
    """Return the observer of the public demo's computation on the first listed sentence.

    Nothing if the model is not like BERT, or if no metric follows tokens by their vocabulary.
    """
    if not listed or VOCABULARY_RANK not in {metric.id for metric in run.metrics}:
        return ()
    weights = demo_weights(run.model, run.architecture, embeddings)
    return () if weights is None else (PublicDemo(weights, min(listed)),)


def observe(run: Run, batches: Iterable[Batch], observers: Sequence[PassObserver]) -> PassResults:
    """Run the model once over batches, for several observers, and merge their results."""

    def results(batch: Batch) -> PassResults:
        trim_memory()
        return run_pass(run.model, run.architecture, batch, observers)

    return PassResults.merge(map(results, batches))


def bucket_accumulators(
    run: Run, metrics: Sequence[HeadMetric], *, once: bool = False
) -> dict[str, BucketAccumulator]:
    """Return empty sums by hash bucket for each stack; none for a baseline or without metrics."""
    if run.is_baseline or not metrics:
        return {}
    stacks = run.architecture.stacks.items()
    return {name: BucketAccumulator(stack, metrics, once=once) for name, stack in stacks}
