"""How often comparisons of two models err, by simulation.

Usage: python benchmarks/comparing.py [--only coverage errors medians] [--families 300]

Every sentence has a length, 5 to 40 tokens, and weighs as much; both models measure the same
sentences, so that their values go up and down together. `coverage`: how often 95 % intervals of
paired differences hold the truth, and how often they lie on one side of it, on sentences and on
buckets of four. `errors`: how often any of 144 heads that do not differ is said to at 5 %.
`medians`: how often intervals of the difference of medians over 72 and 270 heads hold the truth.
"""

import argparse
import json

import numpy as np

from headbook.analysis.multiple_testing import ALPHA
from headbook.analysis.paired import (
    ClusterSums,
    PairedDifferences,
    differences,
    medians,
    paired_family_wise_p,
)

HEADS, BUCKET = 144, 4
OTHERS = (72, 270)  # heads of two models of other shapes
KINDS, SIZES = ("plain", "skewed"), (64, 256)


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


def errors(families: int) -> dict[str, float]:
    """Shares of families of heads that do not differ in which any is said to."""
    rng, found = np.random.default_rng(0), dict[str, float]()
    for kind in KINDS:
        for clusters in SIZES:
            wrong = 0
            for _ in range(families):
                sums = models(rng, kind, clusters, HEADS)
                wrong += bool((paired_family_wise_p(*sums, differences(*sums)) < ALPHA).any())
            found[f"{kind}, {clusters} sentences"] = wrong / families
    return found


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


PARTS = {"coverage": coverage, "errors": errors, "medians": depths}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--families", type=int, default=300)
    given = parser.parse_args()
    for part in given.only:
        numbers = PARTS[part](given.families)
        print(json.dumps({"part": part} | {k: round(v, 3) for k, v in numbers.items()}))  # noqa: T201


if __name__ == "__main__":
    main()
