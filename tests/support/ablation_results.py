"""Ablation results with chosen changes of sentences."""

import numpy as np

from headbook.analysis.accumulators import RatioSums
from headbook.schema import AblationTarget, HeadName
from headbook.study.ablation.results import (
    AblationReason,
    AblationResults,
    AttributionKey,
    HeadSet,
    HeadSetKind,
)

SENTENCES, TOKENS, LOSS = 60, 10, 2.0  # the margin is 0.01 nats a token

APART = 0.2  # distance between sentences: the margin of cosines is 0.002


def ablation_results(
    effects: np.ndarray, target: str = AblationTarget.LOSS, guess: np.ndarray | None = None
) -> AblationResults:
    """Heads with given changes per token. *Shape* of the effects: ``(sentence, head)``."""
    sentences, heads = effects.shape
    key = np.sort(np.random.default_rng(1).integers(0, 2**63, sentences).astype(np.uint64))
    counts = np.full(sentences, float(TOKENS))
    guess = effects.mean(0) if guess is None else guess
    d = np.full((1, heads, 1), 1.0)
    return AblationResults(
        level="full",
        heads=tuple(HeadName("self", 0, head) for head in range(heads)),
        chosen=np.full(heads, int(AblationReason.SELECTED)),
        content_hash=key,
        counts={target: counts},
        unablated={} if target == AblationTarget.STATE else {target: counts * LOSS},
        sets=tuple(HeadSet(HeadSetKind.HEAD, "self", f"L0-H{h}", 0, "mean") for h in range(heads)),
        members=np.eye(heads, dtype=bool),
        changes={target: effects * TOKENS},
        direct=np.full(effects.shape, np.nan),
        columns=(AttributionKey("attribution_estimate", "mean", target, ""),),
        estimates=RatioSums.of(guess[None, :, None], d, d, np.zeros(1, np.int64)),
        sentence_distance={target: APART}
        if target in {AblationTarget.STATE, AblationTarget.EMBEDDING}
        else {},
    )


def around(*means: float, spread: float = 0.01, seed: int = 0) -> np.ndarray:
    """Return changes of all sentences, their mean exactly as given."""
    noise = np.random.default_rng(seed).normal(size=(SENTENCES, len(means))) * spread
    found: np.ndarray = noise - noise.mean(0) + np.array(means)
    return found
