"""`headbook.ablate`: ablate heads of a model from Python, and measure the change of its output.

`headbook.ablation.replacements` computes what replaces the output of a head, and
`headbook.model.intervention` puts the replacement into the model's forward pass.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from headbook.ablation.ablator import BatchEffects, HeadAblator
from headbook.ablation.logit_targets import target_functions
from headbook.ablation.replacements import DonorOutputs, MeanOutputs
from headbook.analysis.accumulators import RatioSums
from headbook.errors import ConfigError
from headbook.inputs import InputLayout, Selection, input_sources, open_corpus
from headbook.model.architecture import Architecture, AttentionPlace, probe_architecture
from headbook.model.devices import isolated_random_state, offload_place
from headbook.model.intervention import make_patchable
from headbook.model.load import Model
from headbook.model.logit_lens import LogitLens, make_logit_lens
from headbook.model.tokenizer import SentenceTokenizer, probe_texts, sequence_limit, shorten_text
from headbook.passes.model_checks import verify_attention
from headbook.progress import NoProgress
from headbook.run.objects import model_and_options, open_model
from headbook.schema import HeadName, Replacement
from headbook.study.ablation.effect_tests import effect_interval
from headbook.text.annotate import NO_ANNOTATOR, Annotator
from headbook.text.batch import Batch, batches_by_tokens, token_hash

# Head names: stack (optional), layer and head, as in ``decoder-L3-H5``.
HEAD_PATTERN = re.compile(r"(?:([a-z]+)-)?L?(\d+)\W*H?(\d+)")
DEFAULT_SENTENCES = 100  # size of the sample

Head = str | tuple[int, int] | tuple[str, int, int]


def ablate(
    model: Any,
    inputs: Any,
    heads: Sequence[Head | Sequence[Head]],
    replacement: str = "mean",
    *,
    tokenizer: Any = None,
    sentences: int = DEFAULT_SENTENCES,
    **options: Any,
) -> pd.DataFrame:
    """Measure the change of a model's output by ablating heads, one at a time or several at once.

    ```python
    import headbook

    lost = headbook.ablate("gpt2", "sentences.txt", ["L5-H1", "L4-H11", ["L5-H1", "L4-H11"]])
    lost[lost["target"] == "loss"]   # nats per token more than the unablated model
    ```

    The output of a head before the output projection is replaced. The other heads of the layer are
    unchanged, and later layers compute with the changed output.

    Args:
        model: hub id, local folder or ``demo``; or a model object, which is not changed.
        inputs: files of sentences, or a list of texts; all that `headbook.collect` takes.
        heads: heads to ablate one at a time; a list inside is ablated together. A head is a name as
            on pages (``L3-H5``, ``decoder-L3-H5``), or a pair of layer and head, counted from 0.
        replacement: replacement of the head output, one of `headbook.schema.Replacement`.
        tokenizer: the tokenizer of a model object, or the name of another one.
        sentences: size of the sample; sentences with the smallest hashes are taken.
        options: fields of `headbook.config.Config`, such as ``dtype``, ``device`` and ``revision``.

    Returns:
        A row for each set of heads and target: ``heads``, ``replacement``, ``target``, ``value``
        per scored token (per text for ``embedding``) with its 95 % interval ``low`` and ``high``,
        clustered by sentence; ``full``, the loss of the unablated model, for losses;
        ``n_sentences`` and ``n_observations``, the scored tokens.

    Raises:
        HeadbookError: options, input or model are not accepted; the message is one line.
    """
    source, config = model_and_options(model, tokenizer, {"annotator": NO_ANNOTATOR, **options})
    kind, layout = _replacement(replacement), InputLayout.of(config)
    opened = open_corpus(input_sources(inputs, layout), Selection.of(config), layout)
    weights_place = offload_place(config.offload)
    with isolated_random_state(config.seed), ExitStack() as stack:
        offload, corpus = stack.enter_context(weights_place), stack.enter_context(opened)
        loaded = open_model(
            source, config, device=config.device, offload=offload, progress=NoProgress()
        )
        limit = sequence_limit(loaded, config.max_length)
        corpus.shorten = partial(shorten_text, tokenizer=loaded.tokenizer, limit=limit)
        encoder = SentenceTokenizer(loaded, limit=limit, targets=Annotator.load(NO_ANNOTATOR))
        architecture = verify_attention(loaded, probe_architecture(loaded), probe_texts(encoder))
        head_groups = [
            head_or_heads if isinstance(head_or_heads, list) else [head_or_heads]
            for head_or_heads in heads
        ]
        sets = [tuple(_head(head, architecture) for head in group) for group in head_groups]
        tokenized = encoder.tokenize(Annotator.load(NO_ANNOTATOR).annotate(corpus))
        items = sorted(tokenized, key=token_hash)[:sentences]
        groups = batches_by_tokens(items, config.batch_tokens, alike=not architecture.padded)
        batches = [Batch.of(group, loaded.device) for group in groups]
        effects = _measure_effects(loaded, architecture, batches, sets, kind)
    return pd.DataFrame(_rows(effects, sets, kind))


def _measure_effects(
    model: Model,
    architecture: Architecture,
    batches: Sequence[Batch],
    sets: Sequence[Sequence[HeadName]],
    replacement: Replacement,
) -> BatchEffects:
    """Ablate sets of heads, and return the changes of all targets over all batches."""
    patchable = make_patchable(model, architecture, batches[0])
    lens = make_logit_lens(model, architecture)
    functions = target_functions(
        lens if isinstance(lens, LogitLens) else None,
        architecture.stacks[patchable.read].queries,
        model.tokenizer.mask_token_id,
        pooling=model.pooling,
    )
    ablator = HeadAblator(patchable, functions)
    means = sum(map(ablator.means, batches), start=MeanOutputs())
    donors = None
    if replacement is Replacement.RESAMPLE:
        places = {AttentionPlace(head.stack, head.layer) for heads in sets for head in heads}
        donors = DonorOutputs.of(patchable, functions, batches, places)
    return BatchEffects.merge(
        [ablator.effects(batch, sets, replacement, means, donors) for batch in batches]
    )


def _rows(
    effects: BatchEffects, sets: Sequence[Sequence[HeadName]], kind: Replacement
) -> Iterator[dict[str, Any]]:
    """Yield a row for each target and set of heads."""
    for target, changes in effects.changes.items():
        counts = np.broadcast_to(effects.counts[target][:, None], changes.shape)
        ratios = RatioSums.of(changes, counts, counts, effects.half)
        low, high = effect_interval(changes, effects.counts[target], target)
        unablated = effects.full.get(target)
        for column, heads in enumerate(sets):
            yield {
                "heads": " ".join(f"{head.stack}-L{head.layer}-H{head.head}" for head in heads),
                "replacement": str(kind),
                "target": str(target),
                "value": ratios.value[column],
                "low": low[column],
                "high": high[column],
                "full": np.nan if unablated is None else unablated.sum() / counts[:, column].sum(),
                "n_sentences": int(ratios.n_sentences[column]),
                "n_observations": int(ratios.n_observations[column]),
            }


def _replacement(name: str) -> Replacement:
    """Return the replacement of a name.

    Raises:
        ConfigError: no replacement has this name.
    """
    if name not in [*Replacement]:
        expected = ", ".join(Replacement)
        raise ConfigError(f"replacement: got '{name}', expected one of {expected}")
    return Replacement(name)


def _head(head: Any, architecture: Architecture) -> HeadName:
    """Return the head of a model with a name, or with a pair of layer and head.

    Raises:
        ConfigError: the model has no such head.
    """
    match = HEAD_PATTERN.fullmatch(head) if isinstance(head, str) else None
    fields: tuple[Any, ...] = head if isinstance(head, tuple) else ()
    if match is not None:
        fields = match.groups()
    if 2 <= len(fields) <= 3:
        stack_name = fields[0] if len(fields) == 3 else None
        first_stack = next(iter(architecture.stacks))
        name = HeadName(stack_name or first_stack, int(fields[-2]), int(fields[-1]))
        stack = architecture.stacks.get(name.stack)
        if stack and name.layer in stack.attention_layers and 0 <= name.head < stack.n_heads:
            return name
    last_heads = " or ".join(
        f"{name}-L{stack.attention_layers[-1]}-H{stack.n_heads - 1}"
        for name, stack in architecture.stacks.items()
    )
    raise ConfigError(f"heads: got '{head}', expected heads up to {last_heads}, counted from 0")
