"""How often 95 % intervals hold the truth: ``python benchmarks/interval_coverage.py CORPUS``.

The corpus is taken for the whole world. Studies of some of its sentences, drawn with replacement,
give intervals; the share of them that hold the whole corpus's value is their coverage. Every
sentence is measured once, by itself, so that studies are but weighted sums. Left out: metrics that
need the vocabulary, the geometry of states (jackknife), random sequences, and passages.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, RatioSums
from headbook.analysis.arrays import MIN_NUMERATOR
from headbook.inputs import open_corpus
from headbook.metrics import (
    all_metrics,
    attention_metrics,
    context_metrics,
    flow_metrics,
    sampled_metrics,
    token_metrics,
)
from headbook.metrics.base import Metric, SampledMetric, Source
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.passes.attention_flow import FlowTracker
from headbook.passes.corpus_pass import CorpusPass
from headbook.passes.head_outputs import HeadOutputMeasures, HeadOutputSums, SimilarityThresholds
from headbook.passes.observers import run_pass
from headbook.passes.sample_statistics import SampleStatistics
from headbook.schema import HeadKey, Side, TokenKey
from headbook.study.corpus_sums import SENTENCE_ROW, HeadTable, SampleSums, TokenSums
from headbook.text.annotate import Annotator, WordFrequencies
from headbook.text.batch import Batch

SIZES = (60, 200, 500)
SEED = 0
N, D = FIELDS.index("n"), FIELDS.index("d")

Floats = NDArray[np.float64]


class Column(NamedTuple):
    """One number of every head or layer, sentence by sentence.

    Attributes:
        n, d: numerators and denominators. *Shape:* ``(sentence, cell)``.
    """

    metric: str
    view: str
    label: str
    n: Floats
    d: Floats


def main() -> None:
    """Print the table: a line of JSON for each metric."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--sentences", type=int, default=2001)
    parser.add_argument("--studies", type=int, default=400)
    parser.add_argument("--only", nargs="*", default=[], help="metrics")
    parser.add_argument("--labels", action="store_true", help="a line for every label")
    given = parser.parse_args()
    model = load_model(given.model)
    with open_corpus([given.corpus]) as corpus:
        rarities = {Side.SOURCE: WordFrequencies.load("en", (s.text for s in corpus))}
        annotator = Annotator.load("embedded")
        encoder = SentenceTokenizer(
            model, limit=model.max_length, targets=annotator, rarities=rarities
        )
        some = [s for s in corpus if s.index < given.sentences]
        items = [*encoder.tokenize(annotator.annotate(some))]
    batches = [Batch.of([item], model.device, torch.float32) for item in items]
    metrics = [m for name, m in all_metrics().items() if not given.only or name in given.only]
    pooled: dict[str, list[tuple[Floats, ...]]] = {}
    draw = [drawn(len(batches), size, given.studies) for size in SIZES]
    for column in columns(model, probe_architecture(model), metrics, batches):
        found = [covered(column, weights) for weights in draw]
        pooled.setdefault(column.metric, []).append(tuple(each.sum(0) for each in found))
        if given.labels:
            tell([column.metric, column.view, column.label], [each.sum(0) for each in found])
    for name, parts in pooled.items():
        tell([name], [np.sum(each, 0) for each in zip(*parts, strict=True)])


def tell(name: list[str], counts: Sequence[Floats]) -> None:
    """Print coverage where there is an interval, and how often there is one, by size."""
    reported = {
        str(size): {
            "coverage": round(hits / there, 3) if there else None,
            "printed": round(there / asked, 3) if asked else None,
        }
        for size, (hits, there, asked) in zip(SIZES, counts, strict=True)
    }
    print(json.dumps({"what": " ".join(filter(None, name)), **reported}), flush=True)  # noqa: T201


def drawn(sentences: int, size: int, studies: int) -> Floats:
    """How often each study has each sentence. *Shape:* ``(study, sentence)``."""
    random = np.random.default_rng(SEED + size)
    return random.multinomial(size, np.full(sentences, 1 / sentences), studies).astype(float)


def covered(column: Column, weights: Floats) -> Floats:
    """Cells that hold the truth, that have an interval, and that have a value, by study.

    *Shape:* ``(study, 3)``.
    """
    n, d = column.n, column.d
    there, present = (d > 0).astype(float), (np.abs(n) > MIN_NUMERATOR).astype(float)
    powers = [n, d, n * n, d * d, n * d, there, d, present]  # as in FIELDS
    sums = np.stack([weights @ part for part in powers])[:, None]
    metric = all_metrics()[column.metric]
    ratios = RatioSums(sums)
    low, high = ratios.interval(metric.limits, metric.spread(column.label))
    truth = np.divide(n.sum(0), d.sum(0), out=np.full(n.shape[1], np.nan), where=d.sum(0) > 0)
    near = 1e-6 * np.abs(truth) + 1e-9
    printed, asked = ~np.isnan(low), ~np.isnan(ratios.value)
    hits = printed & (low <= truth + near) & (high >= truth - near)
    return np.stack([part.sum(1) for part in (hits, printed, asked)], -1).astype(float)


def columns(
    model: Model, architecture: Architecture, metrics: Sequence[Metric], batches: Sequence[Batch]
) -> Iterator[Column]:
    """Everything that is measured, sentence by sentence."""
    heads, tokens = tuple(attention_metrics(metrics, Source.ALL)), tuple(token_metrics(metrics))
    corpus_pass = CorpusPass(
        model, architecture, heads, tuple(t for t in tokens if not t.sampled), 1
    )
    tables = Tables()
    for batch in batches:
        corpus_sums = corpus_pass.batch_sums(batch)
        tables.take({name: head.table for name, head in corpus_sums.heads.items()}, "heads")
        tables.take(corpus_sums.tokens, "layers")
    yield from tables.columns()
    context = HeadOutputMeasures(model, architecture, tuple(context_metrics(metrics)), (), SEED)
    if context.metrics:
        first = SimilarityThresholds(context, context.step(batch.items[0] for batch in batches))
        for batch in batches:
            run_pass(model, architecture, batch, [first])
        second, tables = HeadOutputSums(context, first.thresholds()), Tables()
        for batch in batches:
            tables.take(
                run_pass(model, architecture, batch, [second]).corpus_sums.head_outputs, "heads"
            )
        yield from tables.columns()
    flows = FlowTracker(model, architecture, tuple(flow_metrics(metrics)), (), range(len(batches)))
    if flows.metrics:
        tables = Tables()
        for batch in batches:
            tables.take(run_pass(model, architecture, batch, [flows]).corpus_sums.flows, "layers")
        yield from tables.columns()
    sampler = SampleStatistics(model, architecture, tuple(sampled_metrics(metrics)), len(batches))
    if sampler.metrics:
        parts = [
            run_pass(model, architecture, batch, [sampler]).corpus_sums.sampled for batch in batches
        ]
        for name in parts[0]:
            yield from _finished([part[name] for part in parts])


class Tables:
    """Numerators and denominators of tables, sentence by sentence, in single precision."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], Sequence[HeadKey | TokenKey]] = {}
        self._sums: dict[tuple[str, str], list[NDArray[np.float32]]] = {}

    def take(self, tables: Mapping[str, HeadTable | TokenSums], part: str) -> None:
        """Take in the tables of one sentence, by stack."""
        for stack, table in tables.items():
            self._names[stack, part] = table.columns
            sums = getattr(table, part).sums[[N, D]].sum(1)
            sums = sums.reshape(2, -1, sums.shape[-1]).astype(np.float32)
            self._sums.setdefault((stack, part), []).append(sums)

    def columns(self) -> Iterator[Column]:
        """Yield the columns that some sentence has."""
        for place, names in self._names.items():
            sums = self._sums.pop(place)
            for number, name in enumerate(names):
                n, d = np.stack([each[..., number] for each in sums], 1).astype(np.float64)
                if d.any():
                    yield Column(name.metric, str(name[1]), name.label, np.where(d > 0, n, 0), d)


def _finished(parts: Sequence[SampleSums]) -> Iterator[Column]:
    """Yield the columns of metrics that need all sentences at once, with their result fixed."""
    payload = np.concatenate([part.stats.payload for part in parts]).astype(np.float64)
    start = 0
    for name, view, width in parts[0].columns:
        stats = payload[..., start : start + width]
        start += width
        metric = all_metrics()[name]
        assert isinstance(metric, SampledMetric)
        layers = [
            metric.finish(each[:, :SENTENCE_ROW], each[:, SENTENCE_ROW])
            for each in np.moveaxis(stats, 1, 0)
        ]
        flat = partial(np.concatenate, axis=1)
        n = flat([layer.numerator[:, :-1] for layer in layers])
        d = flat(
            [np.broadcast_to(layer.denominator, layer.numerator.shape)[:, :-1] for layer in layers]
        )
        for index, label in enumerate(metric.labels):
            if d[..., index].any():
                above = np.where(d[..., index] > 0, n[..., index], 0)
                yield Column(name, str(view), label, above, d[..., index])


if __name__ == "__main__":
    main()
