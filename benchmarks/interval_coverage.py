"""How often 95 % intervals hold the truth: ``python benchmarks/interval_coverage.py CORPUS``.

The corpus is taken for the whole world. Studies of some of its sentences, drawn with replacement,
give intervals; the share of them that hold the whole corpus's value is their coverage. Their width
is divided by that of the middle 95 % of the studies' values. Every sentence is measured once, by
itself, so that studies are but weighted sums. Left out: metrics that need the vocabulary, the
geometry of states (jackknife), random sequences, and passages.

A cell is *at a bound* if its true value is within `NEAR_BOUND` of a bound, or if the value of more
than `OFTEN` of the studies is at one. Widths of such cells say nothing, since the middle 95 % of
values may have none; their coverage is printed apart.

``python benchmarks/interval_coverage.py --simulated`` measures simulated cells instead.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, RatioSums
from headbook.analysis.arrays import MIN_NUMERATOR, divide
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
from headbook.schema import HeadKey, IntervalRule, Side, TokenKey
from headbook.study.corpus_sums import SENTENCE_ROW, HeadTable, SampleSums, TokenSums
from headbook.text.annotate import Annotator, WordFrequencies
from headbook.text.batch import Batch

SIZES = (30, 64, 128)
SEED = 0
NEAR_BOUND = 1e-3  # distance of a true value from a bound
OFTEN = 0.025  # share of studies
N, D = FIELDS.index("n"), FIELDS.index("d")
INDEX = "index.json"  # names of the columns that a folder keeps

Floats = NDArray[np.float64]
Limits = tuple[float, float]
Sentences = tuple[Floats, Floats]  # numerators and denominators
Draw = Callable[[np.random.Generator, int], Sentences]


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


class Counts(NamedTuple):
    """Sums over cells, for one number of sentences.

    Attributes:
        coverage, width: sums over cells that are not at a bound and have an interval in half of the
            studies or more.
        cells: number of these cells.
        bound_coverage: sum of the coverage of cells at a bound.
        bound_cells: number of cells at a bound.
        printed, valued: numbers of intervals and of values, over all cells and studies.
    """

    coverage: float
    width: float
    cells: float
    bound_coverage: float
    bound_cells: float
    printed: float
    valued: float

    def __add__(self, other: object) -> "Counts":
        assert isinstance(other, Counts)
        return Counts(*(a + b for a, b in zip(self[:], other[:], strict=True)))

    def summary(self) -> dict[str, float | None]:
        """Return means over cells; None without cells."""
        quotients = {
            "coverage": (self.coverage, self.cells),
            "width": (self.width, self.cells),
            "at_bound": (self.bound_coverage, self.bound_cells),
            "printed": (self.printed, self.valued),
        }
        return {
            k: round(top / below, 3) if below else None for k, (top, below) in quotients.items()
        }


NOTHING = Counts(0, 0, 0, 0, 0, 0, 0)


def main() -> None:
    """Print the table: a line of JSON for each metric and view."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--sentences", type=int, default=2001)
    parser.add_argument("--studies", type=int, default=400)
    parser.add_argument("--only", nargs="*", default=[], help="metrics")
    parser.add_argument("--labels", action="store_true", help="a line for every label")
    parser.add_argument("--sums", type=Path, help="folder that keeps the sums of sentences")
    parser.add_argument("--simulated", action="store_true", help="simulated cells alone")
    given = parser.parse_args()
    if given.simulated:
        for name, counts in simulated(given.studies):
            tell(name, counts)
        return
    if not given.sums or not (given.sums / INDEX).exists():
        kept = keep(given.sums, measured(given))
    else:
        kept = read(given.sums, given.only)
    draws: list[Floats] = []
    pooled: dict[str, list[Counts]] = {}
    for column in kept:
        draws = draws or [drawn(len(column.n), size, given.studies) for size in SIZES]
        counts = [covered(column, weights) for weights in draws]
        name = f"{column.metric} {column.view}"
        before = pooled.get(name, [NOTHING] * len(SIZES))
        pooled[name] = [a + b for a, b in zip(before, counts, strict=True)]
        if given.labels:
            tell(f"{name} {column.label}", counts)
    for name, counts in pooled.items():
        tell(name, counts)


def tell(name: str, counts: Sequence[Counts]) -> None:
    """Print coverage, width and how often there is an interval, by number of sentences."""
    by_size = {str(n): of_size.summary() for n, of_size in zip(SIZES, counts, strict=True)}
    print(json.dumps({"what": name.strip(), **by_size}), flush=True)  # noqa: T201


def drawn(sentences: int, size: int, studies: int) -> Floats:
    """How often each study has each sentence. *Shape:* ``(study, sentence)``."""
    random = np.random.default_rng(SEED + size)
    return random.multinomial(size, np.full(sentences, 1 / sentences), studies).astype(float)


def covered(column: Column, weights: Floats) -> Counts:
    """Compare the intervals of all cells with the truth, in studies of one size."""
    n, d = column.n, column.d
    if (d == d[:, :1]).all():  # most heads share denominators: one product serves all
        d = d[:, :1]
    there, present = (d > 0).astype(float), (np.abs(n) > MIN_NUMERATOR).astype(float)
    powers = [n, d, n * n, d * d, n * d, there, d, present]  # as in FIELDS
    shape = len(weights), n.shape[1]
    sums = np.stack([np.broadcast_to(weights @ part, shape) for part in powers])[:, None]
    metric = all_metrics()[column.metric]
    truth = divide(n.sum(0), d.sum(0))
    return compared(RatioSums(sums), truth, metric.limits, metric.spread(column.label))


def compared(ratios: RatioSums, truth: Floats, limits: Limits, rule: IntervalRule) -> Counts:
    """Compare intervals with the truth.

    Args:
        ratios: sums of every study. *Shape* of cells: ``(study, cell)``.
        truth: true values. *Shape:* ``(cell,)``.
    """
    value, (low, high) = ratios.value, ratios.interval(limits, rule)
    printed, valued = ~np.isnan(low), ~np.isnan(value)
    near = 1e-6 * np.abs(truth) + 1e-9
    hits = printed & (low <= truth + near) & (high >= truth - near)
    n_printed = printed.sum(0)
    coverage = divide(hits.sum(0), n_printed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cells without any value
        ends = np.nanquantile(value, (0.025, 0.975), axis=0)
        width = np.nanmean(np.where(printed, high - low, np.nan), 0)
    ideal = ends[1] - ends[0]
    at = [np.abs(value - end) < 1e-12 for end in limits]
    at_bound = (at[0] | at[1]).mean(0) > OFTEN
    for end in limits:
        at_bound |= np.abs(truth - end) < NEAR_BOUND
    enough = n_printed >= len(value) / 2
    used = enough & ~at_bound & (ideal > 0)
    return Counts(
        float(coverage[used].sum()),
        float(divide(width, ideal)[used].sum()),
        float(used.sum()),
        float(coverage[enough & at_bound].sum()),
        float((enough & at_bound).sum()),
        float(n_printed.sum()),
        float(valued.sum()),
    )


def measured(given: argparse.Namespace) -> Iterator[Column]:
    """Yield the numbers of every sentence of a corpus."""
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
    return columns(model, probe_architecture(model), metrics, batches)


def keep(folder: Path | None, measured_columns: Iterator[Column]) -> Iterator[Column]:
    """Yield columns, and keep them in a folder if there is one."""
    names = []
    for number, column in enumerate(measured_columns):
        if folder:
            folder.mkdir(exist_ok=True)
            np.savez(folder / f"{number}.npz", n=column.n, d=column.d)
            names.append([column.metric, column.view, column.label])
        yield column
    if folder:
        (folder / INDEX).write_text(json.dumps(names))


def read(folder: Path, only: Sequence[str]) -> Iterator[Column]:
    """Yield the columns that a folder keeps, of some metrics or all."""
    for number, (metric, view, label) in enumerate(json.loads((folder / INDEX).read_text())):
        if only and metric not in only:
            continue
        sums = np.load(folder / f"{number}.npz")
        n = sums["n"].astype(np.float64)
        d = np.broadcast_to(sums["d"].astype(np.float64), n.shape)
        yield Column(metric, view, label, n, d)


class Simulation(NamedTuple):
    """A kind of simulated cell.

    Attributes:
        draw: draws numerators and denominators of sentences, with the generator and their number.
        limits, rule: bounds and interval rule of the number.
    """

    draw: Draw
    limits: Limits
    rule: IntervalRule = IntervalRule.USUAL


def lengths(random: np.random.Generator, count: int) -> Floats:
    """Draw numbers of tokens, as uneven as those of English sentences."""
    return np.clip(np.round(random.lognormal(2.6, 0.65, count)), 2, 120)


def skewed(deviation: float) -> Draw:
    """Return a draw of values that are lognormal from sentence to sentence."""

    def draw(random: np.random.Generator, count: int) -> Sentences:
        d = lengths(random, count)
        return d * random.lognormal(0, deviation, count), d

    return draw


def beta(share: float, strength: float) -> Draw:
    """Return a draw of shares that have a beta distribution over sentences."""

    def draw(random: np.random.Generator, count: int) -> Sentences:
        d = lengths(random, count)
        return d * random.beta(share * strength, (1 - share) * strength, count), d

    return draw


def counted(share: float, tokens: float) -> Draw:
    """Return a draw of counts among few tokens of each sentence, often none."""

    def draw(random: np.random.Generator, count: int) -> Sentences:
        d = random.poisson(tokens, count)
        return random.binomial(d, share).astype(float), d.astype(float)

    return draw


def growing(random: np.random.Generator, count: int) -> Sentences:
    """Draw values that grow in proportion to the length of the sentence."""
    d = lengths(random, count)
    return d**2 * random.lognormal(0, 0.2, count), d


def whole_sentences(random: np.random.Generator, count: int) -> Sentences:
    """Draw shares that are 1 in a twentieth of the sentences and 0 in the others."""
    d = lengths(random, count)
    return d * (random.random(count) < 0.05), d


SHARE, AMOUNT = (0.0, 1.0), (0.0, np.inf)
SIMULATIONS = {
    "lognormal, deviation 0.3": Simulation(skewed(0.3), AMOUNT),
    "lognormal, deviation 0.7": Simulation(skewed(0.7), AMOUNT),
    "lognormal, deviation 1.2": Simulation(skewed(1.2), AMOUNT),
    "grows with length": Simulation(growing, AMOUNT),
    "share of 0.1": Simulation(beta(0.1, 5), SHARE),
    "share of 0.02": Simulation(beta(0.02, 5), SHARE),
    "share of 0.98": Simulation(beta(0.98, 5), SHARE),
    "3 % of 13 tokens": Simulation(counted(0.03, 13), SHARE),
    "5 % of 0.6 tokens": Simulation(counted(0.05, 0.6), SHARE),
    "5 % of 0.6 tokens, rare": Simulation(counted(0.05, 0.6), SHARE, IntervalRule.RARE),
    "5 % of sentences, rare": Simulation(whole_sentences, SHARE, IntervalRule.RARE),
}
POPULATION = 1_000_000  # simulated sentences that give the truth


def simulated(studies: int) -> Iterator[tuple[str, list[Counts]]]:
    """Yield counts of every kind of simulated cell."""
    for name, (draw, limits, rule) in SIMULATIONS.items():
        random = np.random.default_rng(SEED)
        n, d = draw(random, POPULATION)
        truth = np.array([n.sum() / d.sum()])
        counts = []
        for size in SIZES:
            rows = random.integers(0, POPULATION, (size, studies))
            ratios = RatioSums.of(n[rows], d[rows], d[rows], np.zeros(size, np.int64))
            cells = RatioSums(ratios.sums[..., None])
            counts.append(compared(cells, truth, limits, rule))
        yield name, counts


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
        second, tables = HeadOutputSums(context, first.limits()), Tables()
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
            if not table.columns:
                continue
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
    for name, view, width, _ in parts[0].columns:
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
