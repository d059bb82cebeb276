"""Results with chosen numbers: sums made by hand, for whatever reads a study's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HashSample, RatioSums, TopK
from headbook.report.results import StackResults
from headbook.schema import AttentionStack, BaselineRun, HeadKey, ModelKind, SinkView, TokenKey
from headbook.study.corpus_sums import CorpusSums, HeadSums, HeadTable, PositionSums, TokenSums
from headbook.study.manifest import SCHEMA, Manifest, ModelFacts
from headbook.study.sentence_data import SentenceData
from headbook.study.study import Study
from headbook.study.sums.buckets import HeadBuckets
from headbook.study.sums.word_samples import StrongestWords
from layers import SELF

Floats = NDArray[np.float64]
SENTENCES = 100  # 50 in each half


@dataclass(frozen=True)
class Fake:
    """What a metric says in one view and label.

    Attributes:
        heads: *Shape:* ``(layer, head)``.
        uniform: of uniform attention, in every layer.
        spread: how far each sentence's value is from that, up and down in turn.
        second: values on the second half of the sentences, where they are others.
    """

    heads: Any
    uniform: float = 0.0
    spread: float = 0.01
    second: Any = None

    def each(self, sentences: int) -> Floats:
        """Values of every sentence. *Shape:* ``(sentence, layer, head)``."""
        first = np.array(self.heads, dtype=float)
        second = first if self.second is None else np.array(self.second, dtype=float)
        halves = np.stack([first, second])[half_of(sentences)]
        return halves + self.spread * up_and_down(sentences)[:, None, None]


def half_of(sentences: int) -> NDArray[np.int64]:
    """0, 0, 1, 1, and so on."""
    return np.arange(sentences) // 2 % 2


def up_and_down(sentences: int) -> Floats:
    """1, -1, 1, -1, and so on."""
    return np.where(np.arange(sentences) % 2, -1.0, 1.0)


def _ratios(values: Floats) -> RatioSums:
    """Each sentence counts once; one without a value takes no part."""
    there = (~np.isnan(values)).astype(float)
    return RatioSums.of(np.nan_to_num(values), there, there, half_of(len(values)))


def head_table(numbers: Mapping[HeadKey, Fake], sentences: int) -> HeadTable:
    """Return the sums of these numbers."""
    values = np.stack([fake.each(sentences) for fake in numbers.values()], -1)
    there = (~np.isnan(values)).astype(float)
    known = np.nan_to_num(values)
    even = np.array([fake.uniform for fake in numbers.values()])
    layers = RatioSums.of(known.sum(2), there.sum(2), there.sum(2), half_of(sentences))
    uniform = _ratios(np.broadcast_to(even, (sentences, values.shape[1], len(numbers))).copy())
    return HeadTable(tuple(numbers), _ratios(values), layers, uniform)


def fake_results(
    numbers: Mapping[HeadKey, Fake],
    *,
    baseline_runs: Mapping[BaselineRun, Mapping[HeadKey, Fake]] | None = None,
    tokens: Mapping[TokenKey, tuple[Any, float]] | None = None,
    stack: str = "self",
    causal: bool = False,
    sentences: int = SENTENCES,
    model: str = "fake",
) -> StackResults:
    """Return the results of one stack.

    Args:
        baseline_runs: numbers of what the model is compared with.
        tokens: averages over tokens by layer, and their spread.
    """
    table = head_table(numbers, sentences)
    n_layers, n_heads = table.heads.value.shape[:2]
    of = replace(
        SELF,
        name=stack,
        n_layers=n_layers,
        attention_layers=tuple(range(n_layers)),
        n_heads=n_heads,
        causal=causal,
    )
    sums = HeadSums(
        table,
        TopK.zero(1, 1),
        HashSample.zero(1, 1),
        PositionSums.zero(of),
        TopK.zero(1, 1),
        _found(sentences),
    )
    corpus_sums = CorpusSums(
        heads={stack: sums},
        tokens=_tokens(stack, tokens or {}, sentences),
        buckets={stack: (head_buckets(numbers, sentences),)},
    )
    compared = {
        n: {stack: head_table(baseline_run, sentences)}
        for n, baseline_run in (baseline_runs or {}).items()
    }
    study = Study(manifest(of, sentences, model), corpus_sums, SentenceData(), compared)
    return StackResults(study, of)


def head_buckets(numbers: Mapping[HeadKey, Fake], sentences: int) -> HeadBuckets:
    """Return these numbers by bucket: one a sentence, odd in the second half."""
    values = np.stack([fake.each(sentences) for fake in numbers.values()], -1)
    keys = 2 * np.arange(sentences) + half_of(sentences)
    known = (~np.isnan(values)).astype(float)
    return HeadBuckets(2 * sentences, keys, np.nan_to_num(values), known, columns=tuple(numbers))


def _found(sentences: int) -> StrongestWords:
    """As many sentences as there are, of one word each, without relations."""
    nothing = np.full(sentences, -1, np.int16)
    return StrongestWords(
        size=sentences,
        causal=False,
        content_hash=np.arange(sentences, dtype=np.uint64),
        index=np.arange(sentences),
        lengths=np.ones(sentences, np.int64),
        strongest=np.full((sentences, 1, 1), -1, np.int16),
        tag=nothing,
        relation=nothing,
        head=nothing,
        asked=np.zeros(sentences, np.uint8),
    )


def _tokens(
    stack: str, tokens: Mapping[TokenKey, tuple[Any, float]], sentences: int
) -> dict[str, TokenSums]:
    if not tokens:
        return {}
    fakes = [Fake([values], spread=spread) for values, spread in tokens.values()]
    values = np.stack([fake.each(sentences)[:, 0] for fake in fakes], -1)
    return {stack: TokenSums(tuple(tokens), _ratios(values))}


def manifest(stack: AttentionStack, sentences: int, model: str) -> Manifest:
    """Return a manifest with few facts."""
    facts = ModelFacts(
        name=model, revision="", architecture="", kind=ModelKind.ENCODER, parameters=0,
        dtype="float64",
        device="cpu", limit=64, tokenizer="", tokenizer_sha256="", special_tokens="", attention="",
        missing=(), unexpected=(),
    )  # fmt: skip
    return Manifest(
        schema=SCHEMA, headbook="", created="2023-11-14", title="", notes="",
        options={"sample_sentences": 40}, model=facts, stacks=(stack,), annotators={}, inputs=(),
        counts={"sentences": sentences}, versions={}, checks=(), checked_sentences=0, gaps=(),
    )  # fmt: skip


# A stack of which nothing is known.
NO_ESTIMATES = {HeadKey("attention_distance", SinkView.RAW, ""): Fake(np.full((2, 2), np.nan))}
