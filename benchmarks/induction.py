"""What a causal model loses on repeated tokens without its induction heads.

Usage: python benchmarks/induction.py MODEL [--heads 5] [--replacement mean]

Random tokens, repeated once: only the second half can be known, and only by looking back. The heads
of highest induction score, chosen on other sequences, are taken away together, beside 20 random
sets with as many heads in each layer.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.ablation.ablator import BatchEffects, HeadAblator
from headbook.ablation.head_sets import HeadGroup, matched_random_sets
from headbook.ablation.logit_targets import LogitTargets
from headbook.ablation.replacements import MeanOutputs
from headbook.analysis.accumulators import RatioSums
from headbook.attention.views import ViewMasks
from headbook.attention.word_pairs import after_same_token
from headbook.errors import ConfigError
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace, probe_architecture
from headbook.model.forward import run_forward
from headbook.model.intervention import make_patchable
from headbook.model.load import Model, load_model
from headbook.model.logit_lens import LogitLens, make_logit_lens
from headbook.model.tokenizer import SentenceTokenizer, probe_texts, random_sequences
from headbook.passes.model_checks import verify_attention
from headbook.schema import HeadName, Replacement, SinkView, heads_of
from headbook.text.annotate import NO_ANNOTATOR, Annotator
from headbook.text.batch import Batch, batches_by_tokens

HEADS, SEED, BATCH_TOKENS = 5, 0, 2048


@dataclass(frozen=True, eq=False)
class SecondHalf(LogitTargets):
    """The loss of tokens that stood in the sequence before."""

    def _true(self, batch: Batch) -> torch.Tensor:
        texts = batch.texts[self.side]
        ids, true = texts.ids, self.lens.targets(texts)
        again = (ids[:, :, None] == ids[:, None, :]).tril(-1).any(-1) & texts.ordinary
        following = torch.cat([again[:, 1:], torch.zeros_like(again[:, :1])], 1)
        return torch.where(following, true, -1)


def lost(
    model: Model,
    n_heads: int = HEADS,
    replacement: Replacement = Replacement.MEAN,
    seed: int = SEED,
) -> dict[str, Any]:
    """Loss on the second half, of the whole model and what is added to it, in nats a token.

    Raises:
        ConfigError: the model has no causal language-model head.
    """
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load(NO_ANNOTATOR))
    architecture = verify_attention(model, probe_architecture(model), probe_texts(encoder))
    lens = make_logit_lens(model, architecture)
    if not isinstance(lens, LogitLens) or not lens.causal:
        raise ConfigError("induction needs a causal language-model head")
    chosen = highest(scores(model, architecture, sequences(encoder, seed + 1)), n_heads)
    batches = sequences(encoder, seed)
    whole = make_patchable(model, architecture, batches[0])
    side = architecture.stacks[whole.read].queries
    ablator = HeadAblator(whole, SecondHalf(lens, side, mask=None))
    means = reduce(add, map(ablator.means, batches), MeanOutputs())
    heads = [head for stack in architecture.stacks.values() for head in heads_of(stack)]
    group = HeadGroup(whole.read, "induction", chosen, (replacement,), banded=True)
    sets = [group.heads, *(each.heads for each in matched_random_sets(group, heads, seed, 20))]
    parts = [ablator.effects(batch, sets, replacement, means) for batch in batches]
    return {"heads": [f"L{head.layer}-H{head.head}" for head in chosen]} | summarised(
        BatchEffects.merge(parts)
    )


def summarised(effects: BatchEffects) -> dict[str, Any]:
    """Return effects of sets of heads: the induction heads first, then random sets."""
    loss = next(iter(effects.changes))
    counts = np.broadcast_to(effects.counts[loss][:, None], effects.changes[loss].shape)
    ratios = RatioSums.of(effects.changes[loss], counts, counts, effects.half)
    low, high = ratios.interval()
    random = ratios.value[1:]
    return {
        "loss": float(effects.full[loss].sum() / effects.counts[loss].sum()),
        "change": float(ratios.value[0]),
        "interval": [float(low[0]), float(high[0])],
        "random sets": [float(end) for end in (random.min(), np.median(random), random.max())],
        "tokens": int(effects.counts[loss].sum()),
    }


def sequences(encoder: SentenceTokenizer, seed: int) -> list[Batch]:
    """Repeated random tokens."""
    groups = batches_by_tokens(random_sequences(encoder, seed), BATCH_TOKENS, alike=True)
    return [Batch.of(group, encoder.model.device) for group in groups]


def scores(
    model: Model, architecture: Architecture, batches: Sequence[Batch]
) -> dict[HeadName, float]:
    """Mean attention to the token after the earlier place of the query's token."""
    found: dict[HeadName, NDArray[np.float64]] = {}
    for batch in batches:
        scopes = ViewMasks(batch, architecture.stacks)

        def on_attention(
            call: AttentionPlace,
            attention: attention_hook.AttentionCall,
            scopes: ViewMasks = scopes,
        ) -> None:
            frame = scopes.get(call.stack, attention)[SinkView.RAW].frame
            pairs = after_same_token(frame)
            mass = (attention.weights * pairs[:, None]).sum((0, 2, 3)).double().cpu().numpy()
            queries = float(pairs.any(-1).sum())
            for head, each in enumerate(mass):
                name = HeadName(call.stack, call.layer, head)
                found[name] = found.get(name, np.zeros(2)) + np.array([each, queries])

        run_forward(model, architecture, batch, on_attention)
    return {head: float(mass / queries) for head, (mass, queries) in found.items()}


def highest(found: dict[HeadName, float], number: int) -> tuple[HeadName, ...]:
    """Return the heads with the highest scores, in the order of layers."""
    return tuple(sorted(sorted(found, key=lambda head: -found[head])[:number]))


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--heads", type=int, default=HEADS)
    parser.add_argument("--replacement", choices=[*Replacement], default=Replacement.MEAN)
    given = parser.parse_args()
    with torch.inference_mode():
        found = lost(load_model(given.model), given.heads, Replacement(given.replacement))
        print(json.dumps({"model": given.model} | found))  # noqa: T201


if __name__ == "__main__":
    main()
