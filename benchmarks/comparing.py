"""How often comparisons of two models err, by simulation.

Usage: python benchmarks/comparing.py [--only coverage errors power lone medians] [--families 300]
       python benchmarks/comparing.py --only pairs --corpus FILE [--worlds 20] [--pairs itself ...]

Every sentence has a length, 5 to 40 tokens, and weighs as much; both models measure the same
sentences, so that their values go up and down together. `coverage`: how often 95 % intervals of
paired differences hold the truth, and how often they lie on one side of it, on sentences and on
buckets of four. `errors`: how often any cell (head and label) is said to differ where none does,
among 30 and among 600. `power`: of 180 changes among 600 cells, how many are found, and how many
discoveries are false or of the wrong sign. `lone`: how often a single change by one standard
deviation of a sentence is found among 600 cells. All three stand beside the bootstrap of the
largest t, the rule before. `medians`: how often intervals of the difference of medians over 72 and
270 heads hold the truth.

`pairs`: how often pages claim a difference of two models that do not differ. Each world has random
sentences of a corpus with trees and tags, and two models: the model and itself, the model and a
copy with noise of 1e-4 of each weight or with weights rounded to bfloat16 (differences beyond the
rounding floor), or two networks of its shape with random weights (counterparts).
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import nulls
from headbook.analysis.arrays import Floats, divide
from headbook.analysis.multiple_testing import ALPHA, bootstrap_counts
from headbook.analysis.paired import (
    ClusterSums,
    PairedDifferences,
    differences,
    medians,
    paired_tests,
)
from headbook.comparison.comparison import Comparison, compare
from headbook.comparison.difference_claims import difference_claims
from headbook.comparison.drift import drift_summary
from headbook.comparison.matching_claims import matching_claims
from headbook.comparison.number_claims import supported_numbers
from headbook.metrics import ids
from headbook.model.load import load_model
from headbook.run.collect import collect
from headbook.schema import HeadCorrespondence
from headbook.study.study import Study

HEADS, BUCKET = 144, 4  # of `coverage`
OTHERS = (72, 270)  # heads of two models of other shapes
KINDS, SIZES = ("plain", "skewed"), (64, 256)
NOISES = ("normal", "exponential", "lognormal", "unlike", "rare")
DEVIATIONS = {"normal": 1, "exponential": 1, "lognormal": 2.16, "unlike": 2.33, "rare": 1}
RAREST = 0.05  # share of sentences in which the rarest cell counts
SMALL, CELLS = 30, 600  # cells of a family
PLANTED, CHANGED_SHARE = 4.0, 0.3  # size of changes in standard errors, share of changed cells
LONE = 150  # cell that alone changes; if cells are rare, it counts in 47 % of the sentences
WEIGHT_NOISE = 1e-4  # of each weight, in standard deviations
PAIRS = {
    "itself": "a model and itself",
    "noise": "a model and its copy with noise",
    "rounded": "a model and its copy in bfloat16",
    "seeds": "two networks with random weights",
}
DIFFERENT = ("numbers", "heads", "layers")  # claims on heads that differ
MATCHED_CLAIMS = ("pair", "counterparts")  # claims on heads that attend alike
METRICS = (
    ids.ATTENTION_DISTANCE, ids.RELATIVE_ENTROPY, ids.ATTENTION_TO,
    ids.SINK_SHARE, ids.POS_RECEIVED, ids.RELATION_ACCURACY, ids.COSINE_TO_INPUT,
)  # fmt: skip
RULES = ("q", "held-out half alone", "largest t")


def models(
    rng: np.random.Generator, kind: str, clusters: int, cells: int, sentences: int = 1
) -> tuple[ClusterSums, ClusterSums]:
    """Two models that differ in nothing but noise.

    Values of a sentence share a part, and one model's noise is twice as large. Skewed ones are
    lognormal, with the same mean in both.

    Args:
        sentences: in each cluster.
    """
    shape = (clusters, sentences, cells)
    tokens = rng.integers(5, 41, (clusters, sentences, 1)).astype(float)
    common = rng.normal(size=shape)
    noise = [common + scale * rng.normal(size=shape) for scale in (0.5, 1.0)]
    if kind == "skewed":
        noise = [
            np.exp(each - (1 + scale**2) / 2) for each, scale in zip(noise, (0.5, 1.0), strict=True)
        ]
    weight = np.broadcast_to(tokens, shape).sum(1)
    one, other = (ClusterSums((each * tokens).sum(1), weight) for each in noise)
    return one, other


def held(found: PairedDifferences) -> tuple[float, float, float]:
    """Shares of intervals that hold 0, that lie below and above it."""
    there = ~np.isnan(found.low)
    below, above = (found.high < 0)[there].mean(), (found.low > 0)[there].mean()
    return float(1 - below - above), float(below), float(above)


def coverage(families: int) -> dict[str, float]:
    """Of intervals of differences whose truth is 0."""
    rng, found = np.random.default_rng(0), dict[str, float]()
    for kind in KINDS:
        for clusters in SIZES:
            for sentences, unit in ((1, "sentences"), (BUCKET, "buckets of four")):
                sums = models(rng, kind, clusters, HEADS * families // sentences, sentences)
                shares = held(differences(*sums))
                for name, share in zip(("hold it", "below", "above"), shares, strict=True):
                    found[f"{kind}, {clusters} {unit}, {name}"] = share
    return found


def worlds(
    rng: np.random.Generator, kind: str, clusters: int, change: Floats
) -> tuple[ClusterSums, ClusterSums]:
    """Return two models whose heads differ by given changes and by noise.

    Changes are in standard deviations of the noise of a sentence. Noise is normal, exponential or
    lognormal; or the difference of two lognormal numbers of unlike spread (`models`); or normal, in
    cells of which most are rare (`presence`).

    Args:
        kind: one of `NOISES`.
        change: difference of each cell. *Shape:* ``(cell,)``.
    """
    shape = (clusters, len(change))
    tokens = np.broadcast_to(rng.integers(5, 41, (clusters, 1)).astype(float), shape)
    tokens = tokens * (rng.random(shape) < presence(kind, len(change)))
    common = rng.normal(size=shape)
    first, second = common, common + _noise(rng, kind, shape) + change * DEVIATIONS[kind]
    return ClusterSums(first * tokens, tokens), ClusterSums(second * tokens, tokens)


def presence(kind: str, cells: int) -> Floats:
    """Return the share of sentences in which each cell counts. *Shape:* ``(cell,)``."""
    return np.geomspace(1, RAREST, cells) if kind == "rare" else np.ones(cells)


def _noise(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Floats:
    """Return noise with a mean of 0 and the standard deviation of `DEVIATIONS`."""
    noise: Floats = rng.normal(size=shape)
    if kind == "exponential":
        noise = rng.exponential(size=shape) - 1
    elif kind == "lognormal":
        noise = np.exp(noise) - np.exp(0.5)
    elif kind == "unlike":
        first, second = noise + rng.normal(size=shape), noise + 0.5 * rng.normal(size=shape)
        noise = np.exp(first - 1) - np.exp(second - 0.625)
    return noise


def largest_t_p(a: ClusterSums, b: ClusterSums) -> Floats:
    """Return p by the bootstrap of the largest t of all cells, the rule before this one."""
    ratios = [divide(m.n.sum(0), m.d.sum(0)) for m in (a, b)]
    first, second = (
        divide(m.n - ratio * m.d, m.d.sum(0)) for m, ratio in zip((a, b), ratios, strict=True)
    )
    residuals, draws = second - first, bootstrap_counts(len(a.n))

    def t(total: Floats, squares: Floats) -> Floats:
        """Return the size of t."""
        spread = np.maximum(squares - total**2 / len(a.n), 0)
        return np.asarray(np.sqrt(divide(total**2 * (len(a.n) - 1) / len(a.n), spread)))

    value = ratios[1] - ratios[0]
    observed = t(value, (residuals**2).sum(0) + value**2 / len(a.n))
    drawn = np.nan_to_num(t(draws @ residuals, draws @ residuals**2)).max(1)
    p: Floats = (1 + (drawn[:, None] >= observed).sum(0)) / (1 + len(drawn))
    return p


class Tested(NamedTuple):
    """P values of a world by two rules, and by the test on the held-out half alone."""

    q: Floats
    held_out: Floats
    largest_t: Floats


def tested(a: ClusterSums, b: ClusterSums) -> Tested:
    """Return the p values of all cells of two models as one family."""
    compared = differences(a, b)
    tests = paired_tests(a, b, compared, np.arange(len(a.n)))
    p = Tested(*(np.full(compared.value.shape, 1.0) for _ in Tested._fields))
    apart = (compared.low > 0) | (compared.high < 0)
    p.q[apart] = np.nan_to_num(tests.q, nan=1.0)[apart]
    p.held_out[apart] = np.nan_to_num(tests.held_out_p, nan=1.0)[apart]
    known = ~np.isnan(compared.low)  # the rule before tested all cells with an interval
    sums = [ClusterSums(m.n[:, known], m.d[:, known]) for m in (a, b)]
    p.largest_t[known] = largest_t_p(*sums)
    return p


def rejections(
    where: str, drawn: Iterable[tuple[ClusterSums, ClusterSums]], cells: slice
) -> dict[str, float]:
    """Return the share of pairs of models in which any of some cells is said to differ, by rule."""
    found = [[(p[cells] < ALPHA).any() for p in tested(a, b)] for a, b in drawn]
    shares = zip(RULES, np.mean(found, 0), strict=True)
    return {f"{where}, {name}": float(share) for name, share in shares}


def errors(families: int) -> dict[str, float]:
    """Shares of families of cells that do not differ in which any is said to."""
    rng, shares = np.random.default_rng(0), dict[str, float]()
    for kind in NOISES:
        for clusters in SIZES:
            for cells in (SMALL, CELLS):
                where, none = f"{kind}, {clusters} sentences, {cells} cells", np.zeros(cells)
                drawn = (worlds(rng, kind, clusters, none) for _ in range(families))
                shares |= rejections(where, drawn, slice(None))
    return shares


def power(families: int) -> dict[str, float]:
    """Shares of changed cells that are found, of false discoveries and of wrong signs."""
    rng, shares = np.random.default_rng(0), dict[str, float]()
    for kind in NOISES:
        for clusters in SIZES:
            counts = np.zeros((2, 4))  # rule; found, all found, false, of the wrong sign
            size = PLANTED / np.sqrt(clusters * presence(kind, CELLS))
            n_changed = 0
            for _ in range(families):
                changed = rng.random(CELLS) < CHANGED_SHARE
                change = np.where(changed, size * rng.choice([-1, 1], CELLS), 0)
                a, b = worlds(rng, kind, clusters, change)
                tests, value = tested(a, b), differences(a, b).value
                n_changed += int(changed.sum())
                for rule, p in enumerate((tests.q, tests.largest_t)):
                    found = p < ALPHA
                    wrong = found & changed & (value * change < 0)
                    sums = found & changed, found, found & ~changed, wrong
                    counts[rule] += [part.sum() for part in sums]
            for name, (right, every, false, wrong) in zip(("q", "largest t"), counts, strict=True):
                where = f"{kind}, {clusters} sentences, {name}"
                shares[f"{where}, power"] = right / n_changed
                shares[f"{where}, false discoveries"] = false / max(every, 1)
                shares[f"{where}, wrong signs"] = wrong / max(every, 1)
    return shares


def lone(families: int) -> dict[str, float]:
    """Shares of families in which the one cell that differs is found."""
    rng, shares = np.random.default_rng(0), dict[str, float]()
    change = np.zeros(CELLS)
    change[LONE] = 1
    for kind in NOISES:
        for clusters in SIZES:
            drawn = (worlds(rng, kind, clusters, change) for _ in range(families))
            shares |= rejections(f"{kind}, {clusters} sentences", drawn, slice(LONE, LONE + 1))
    return shares


def depths(families: int) -> dict[str, float]:
    """Shares of families in which intervals of medians of two models of other sizes hold them."""
    rng, found = np.random.default_rng(0), dict[str, float]()
    for kind in KINDS:
        for clusters in SIZES:
            inside = np.zeros(3)
            for _ in range(families):
                truths = [rng.normal(size=size) for size in OTHERS]
                wanted = [float(np.median(each)) + (kind == "skewed") for each in truths]
                wanted.append(wanted[1] - wanted[0])
                sums = models(rng, kind, clusters, max(OTHERS))
                one, other = (
                    ClusterSums(each.n[:, : len(t)] + t * each.d[:, : len(t)], each.d[:, : len(t)])
                    for each, t in zip(sums, truths, strict=True)
                )
                ends = medians(one, other)
                inside += [e.low <= truth <= e.high for e, truth in zip(ends, wanted, strict=True)]
            for name, share in zip(("first", "second", "difference"), inside, strict=True):
                found[f"{kind}, {clusters} sentences, {name}"] = float(share) / families
    return found


def network_of_pair(network: Any, pair: str, seed: int) -> Any:
    """Return a network that differs from another in nothing, by rounding, or in all its weights."""
    torch.manual_seed(seed)
    if pair == "seeds":
        return type(network)(deepcopy(network.config)).eval()
    copy = deepcopy(network)
    with torch.no_grad():
        for weights in copy.parameters():
            if pair == "noise":
                weights.mul_(1 + WEIGHT_NOISE * torch.randn_like(weights))
            elif pair == "rounded":
                weights.copy_(weights.bfloat16().float())
    return copy


def claims_of_pair(comparison: Comparison) -> dict[str, bool]:
    """Return the kinds of claims that pages make of two models."""
    if not comparison.sides.same_heads:
        kinds = {claim.kind for claim in matching_claims(comparison)}
        return {kind: kind in kinds for kind in MATCHED_CLAIMS}
    kinds = {claim.kind for claim in difference_claims(comparison)}
    summaries = [drift_summary(heads) for heads in comparison.heads.values()]
    above = [found.above for found in summaries if found and found.above is not None]
    return {
        "a supported number": supported_numbers(comparison) > 0,
        "attention beyond rounding": any(part.any() for part in above),
        **{kind: kind in kinds for kind in DIFFERENT},
    }


def compared_pairs(
    collected: Callable[..., Study], network: Any, chosen: Sequence[str], seed: int
) -> dict[str, dict[str, bool]]:
    """Return the claims on pairs of models that read the sentences of one world.

    Args:
        collected: function that returns the study of a network, in a number format.
        network: the model.
        chosen: kinds of pairs.
    """
    claims, first = {}, None
    for pair in chosen:
        if pair == "seeds":
            random = [network_of_pair(network, pair, 3 * seed + place) for place in range(3)]
            a, b, null = map(collected, random)
            compared = compare(a, b, HeadCorrespondence.MATCHED, null=null)
        else:
            first = first or (collected(network), collected(network, "bfloat16"))
            b = collected(network_of_pair(network, pair, seed))
            compared = compare(first[0], b, rounded=first[1], twice=first)
        claims[pair] = claims_of_pair(compared)
    return claims


def pairs(given: argparse.Namespace) -> None:
    """Count claims on two models that do not differ."""
    records, model = nulls.records_of(given), load_model(given.model)
    draw, claims = nulls.Draw(given.sentences), list[dict[str, dict[str, bool]]]()
    for seed in range(given.worlds):
        rng = np.random.default_rng(seed)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "world.conllu"
            sentences = nulls.some(records, draw, rng)
            file.write_text("".join(nulls.rows_of(record, "", rng) for record in sentences))

            def collected(network: Any, dtype: str = "float32", file: Path = file) -> Study:
                return collect(
                    [str(file)], network, model.tokenizer, progress=False, annotator="none",
                    metrics=",".join(METRICS), dtype=dtype, importance="off", circuits="off",
                    sentence_pages=0, control="none",
                )  # fmt: skip

            claims.append(compared_pairs(collected, model.base_model, given.pairs, seed))
    for pair in given.pairs:
        of_pair = [world[pair] for world in claims]
        nulls.tell(PAIRS[pair], draw, nulls.count(of_pair, [*of_pair[0]]))


PARTS = {
    "coverage": coverage, "errors": errors, "power": power, "lone": lone, "medians": depths,
}  # fmt: skip


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "pairs"], default=[*PARTS])
    parser.add_argument("--families", type=int, default=300)
    parser.add_argument("--corpus", help="treebank that models read, CoNLL-U")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=[*PAIRS])
    given = parser.parse_args()
    for part in given.only:
        if part == "pairs":
            pairs(given)
            continue
        numbers = PARTS[part](given.families)
        print(json.dumps({"part": part} | {k: round(v, 3) for k, v in numbers.items()}))  # noqa: T201


if __name__ == "__main__":
    main()
