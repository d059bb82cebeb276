"""What taking heads away costs and how often its tests err, as ratios and shares.

Usage: python benchmarks/removal.py CORPUS [--model demo] [--sentences 64] [--only NAME ...]

CORPUS is any input file that Headbook reads. `sweep`: every head of the model alone, over the bare
forward pass of the same batches, beside the passes that the plan counts. `errors`: how often any of
many heads that change nothing is called harmful, by simulation on skewed and on plain numbers.
`coverage`: how often intervals of changes hold the truth, and how often they lie on one side of it.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import reduce
from operator import add

import numpy as np

from headbook.ablation.ablator import HeadAblator
from headbook.ablation.attribution import gradient_estimates
from headbook.ablation.costs import costs_of
from headbook.ablation.importance import AblationPlan, parameters_of
from headbook.ablation.logit_targets import target_functions
from headbook.ablation.replacements import MeanOutputs
from headbook.ablation.sample import ablation_sample
from headbook.analysis.accumulators import RatioSums
from headbook.analysis.multiple_testing import ALPHA, bootstrap_p_above, sign_flip_p
from headbook.memory import keep_freed_blocks
from headbook.model.architecture import probe_architecture
from headbook.model.forward import run_forward
from headbook.model.intervention import make_patchable
from headbook.model.logit_lens import LogitLens, make_logit_lens
from headbook.schema import Replacement
from headbook.study.ablation.results import FULL
from headbook.text.batch import Batch
from measure import BATCH_TOKENS, prepared

REPEATS = 3
HEADS, SENTENCES, FAMILIES = 144, 100, 300  # of the simulation


def seconds(task: Callable[[], object]) -> float:
    """Processor time of the fastest run."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        task()
        found.append(time.process_time() - start)
    return min(found)


def sweep(corpus: str, name: str, sentences: int) -> dict[str, float]:
    """Every head alone, over the bare forward pass."""
    model, items = prepared(corpus, name, sentences)
    architecture = probe_architecture(model)
    lens = make_logit_lens(model, architecture)
    sample = ablation_sample(
        items,
        BATCH_TOKENS,
        lambda some: Batch.of(some, model.device),
        alike=not architecture.padded,
    )
    whole = make_patchable(model, architecture, sample.batches[0])
    side = architecture.stacks[whole.read].queries
    known = lens if isinstance(lens, LogitLens) else None
    ablator = HeadAblator(
        whole, target_functions(known, side, model.tokenizer.mask_token_id, pooling=model.pooling)
    )
    costs = costs_of(ablator, *parameters_of(model))
    heads = [[head] for head in AblationPlan(ablator, costs, FULL, sample, 0).heads]
    means = reduce(add, map(ablator.means, sample.batches), MeanOutputs())
    mean = Replacement.MEAN
    bare = seconds(lambda: [run_forward(model, architecture, batch) for batch in sample.batches])
    every = seconds(
        lambda: [ablator.effects(batch, heads, mean, means) for batch in sample.batches]
    )
    sloped = seconds(
        lambda: [gradient_estimates(ablator, batch, [mean], means) for batch in sample.small]
    )
    planned = sum(costs.of(head) for head in heads) + 1  # and a pass to compare with
    return {
        "heads": float(len(heads)),
        "bare forward pass, s": bare,
        "every head, passes": every / bare,
        "planned, passes": planned,
        "ratio": every / bare / planned,
        "slopes, passes": sloped / bare,
    }


def errors(_: str, __: str, ___: int) -> dict[str, float]:
    """Share of families of heads that change nothing in which any head is called harmful."""
    rng, found = np.random.default_rng(0), dict[str, float]()
    for kind in ("plain", "skewed"):
        wrong = np.zeros(2)
        for _each in range(FAMILIES):
            noise = rng.normal(size=(SENTENCES, HEADS))
            if kind == "skewed":
                noise = np.exp(noise) - np.exp(0.5)
            key = rng.integers(0, 2**63, SENTENCES).astype(np.uint64)
            flips = sign_flip_p(-noise[:, None, :, None], np.ones((1, HEADS), bool), key)
            wrong += np.array([(p < ALPHA).any() for p in (bootstrap_p_above(-noise), flips)])
        for test, share in zip(("resampled", "flips of signs"), wrong / FAMILIES, strict=True):
            found[f"{kind}, {test}"] = float(share)
    return found


def coverage(_: str, __: str, ___: int) -> dict[str, float]:
    """Of intervals of changes a token, whose truth is 0, over sentences of 5 to 40 tokens.

    An interval wholly below would call a head at the margin removable, one wholly above needed.
    """
    rng, found = np.random.default_rng(0), dict[str, float]()
    for kind in ("plain", "skewed"):
        noise = rng.normal(size=(SENTENCES, HEADS * FAMILIES))
        if kind == "skewed":
            noise = np.exp(noise) - np.exp(0.5)
        tokens = rng.integers(5, 41, SENTENCES).astype(float)[:, None]
        counts = np.broadcast_to(tokens, noise.shape)
        ratios = RatioSums.of(noise * counts, counts, counts, np.arange(SENTENCES) % 2)
        low, high = ratios.interval()
        found[f"{kind}, hold it"] = float(((low <= 0) & (high >= 0)).mean())
        found[f"{kind}, below"] = float((high < 0).mean())
        found[f"{kind}, above"] = float((low > 0).mean())
    return found


PARTS = {"sweep": sweep, "errors": errors, "coverage": coverage}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS])
    given = parser.parse_args()
    keep_freed_blocks()
    for part in given.only:
        numbers = PARTS[part](given.corpus, given.model, given.sentences)
        print(json.dumps({"part": part} | {k: round(v, 3) for k, v in numbers.items()}))  # noqa: T201


if __name__ == "__main__":
    main()
