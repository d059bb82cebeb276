"""`headbook.ablate`: ablate heads of a model from Python, and measure the change of its output.

`headbook.ablation.replacements` computes what replaces the output of a head, and
`headbook.model.intervention` puts the replacement into the model's forward pass.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Unpack

import pandas as pd

from headbook.config import lists_options
from headbook.errors import ConfigError
from headbook.inputs import InputLayout, input_sources
from headbook.languages import NO_LANGUAGE
from headbook.model.architecture import Architecture
from headbook.options import Options
from headbook.passes.corpus_pass import count_batch
from headbook.progress import Progress, reporter
from headbook.python_options import names_arguments
from headbook.run.effects import ablated_tasks, effect_rows
from headbook.run.objects import model_and_options
from headbook.run.prepare import Run, open_run
from headbook.run.sentences import warn_of_cut_texts
from headbook.schema import HeadName, Replacement, parse_head
from headbook.study.ablation.results import AUTO
from headbook.text.annotate import NO_ANNOTATOR
from headbook.text.batch import Batch, token_hash

DEFAULT_SENTENCES = 100  # size of the sample

Head = str | tuple[int, int] | tuple[str, int, int]


@lists_options
@names_arguments
def ablate(
    inputs: Any,
    model: Any = None,
    tokenizer: Any = None,
    *,
    heads: Sequence[Head | Sequence[Head]],
    replacement: str = "mean",
    sentences: int = DEFAULT_SENTENCES,
    progress: Progress | bool = True,
    **options: Unpack[Options],
) -> pd.DataFrame:
    """Measure the change of a model's output by ablating heads, one at a time or several at once.

    ```python
    import headbook

    heads = ["L5-H1", "L4-H11", ["L5-H1", "L4-H11"]]
    lost = headbook.ablate("sentences.txt", "gpt2", heads=heads)
    lost[lost["target"] == "loss"]   # nats per token more than the unablated model
    ```

    The output of a head before the output projection is replaced. The other heads of the layer are
    unchanged, and later layers compute with the changed output.

    Args:
        inputs: files of sentences, or a list of texts; all that `headbook.collect` takes.
        model: hub id, local folder or ``demo``; or a model object, which is not changed.
        tokenizer: the tokenizer of a model object, or the name of another one.
        heads: heads to ablate one at a time; a list inside is ablated together. A head is a name as
            on pages (``L3-H5``, ``decoder-L3-H5``), or a pair of layer and head, counted from 0.
        replacement: replacement of the head output, one of `headbook.schema.Replacement`.
        sentences: size of the sample; sentences with the smallest hashes are taken.
        progress: whether to show a bar in terminals and notebooks; or a `headbook.Progress`.
        options: options of `headbook.collect`, such as ``dtype``, ``device`` and ``revision``.

    Returns:
        A row for each set of heads and target: ``heads``, ``replacement``, ``target``, ``value``
        per scored token (per text for ``embedding``) with its 95 % interval ``low`` and ``high``,
        clustered by sentence; ``full``, the number of the unablated model, for losses and tasks;
        ``interaction``, of several heads, their effect together minus the sum of their effects
        alone, with its interval; ``n_sentences`` and ``n_observations``, the scored tokens. Targets
        are the model's own, then those of the tasks that ``task=`` names, or that the input has
        columns for: ``label`` and ``accuracy``, ``preference``, ``answer``.

    Raises:
        HeadbookError: options, input or model are not accepted; the message is one line.
    """
    own: Options = {
        "annotator": NO_ANNOTATOR, "target_annotator": NO_ANNOTATOR, "language": NO_LANGUAGE
    }  # fmt: skip
    source, config = model_and_options(model, tokenizer, own | options)
    kind, sources = _replacement(replacement), input_sources(inputs, InputLayout.of(config))
    head_groups = _groups(heads)
    if not isinstance(sentences, int) or sentences < 1:
        raise ConfigError(f"sentences: got {sentences!r}, expected a whole number from 1 on")
    # Tasks are measured as a run that ablates heads measures them, on as many texts.
    config = replace(config, importance=AUTO, importance_sentences=min(max(sentences, 2), 2000))
    with reporter(progress) as bar, open_run(sources, config, bar, source) as run:
        sets = [tuple(_head(head, run.architecture) for head in group) for group in head_groups]
        tasks, batches = ablated_tasks(run), _batches(run, sentences)
        return pd.DataFrame(effect_rows(run, batches, tasks, sets, kind))


def _batches(run: Run, sentences: int) -> list[Batch]:
    """Return the sentences with the smallest hashes in batches, and warn of cut texts."""
    texts = run.sentences
    tokenized = texts.encoder.tokenize(texts.annotator.annotate(run.corpus))
    chosen = sorted(tokenized, key=token_hash)[:sentences]
    batches = [texts.batch(group) for group in texts.groups(chosen, run.config.batch_tokens)]
    counts = sum(map(count_batch, batches), Counter[str]())
    warn_of_cut_texts(run.model, counts, texts.encoder.limit)
    return batches


def _replacement(name: str) -> Replacement:
    """Return the replacement of a name.

    Raises:
        ConfigError: no replacement has this name.
    """
    if name not in [*Replacement]:
        expected = ", ".join(Replacement)
        raise ConfigError(f"replacement: got '{name}', expected one of {expected}")
    return Replacement(name)


def _groups(heads: Any) -> list[list[Head]]:
    """Return the heads that are ablated together, for each set.

    Raises:
        ConfigError: there is no head, or a set without a head.
    """
    if isinstance(heads, str | tuple) or not isinstance(heads, Iterable):
        heads = [heads]
    groups = [group if isinstance(group, list) else [group] for group in heads]
    if not groups or not all(groups):
        raise ConfigError(
            f"heads: got {heads!r}, expected heads such as 'L2-H8' or (2, 8), and lists of heads "
            "that are ablated together"
        )
    return groups


def _head(head: Any, architecture: Architecture) -> HeadName:
    """Return the head of a model with a name, or with a pair of layer and head.

    Raises:
        ConfigError: the model has no such head.
    """
    fields: Any = parse_head(head) if isinstance(head, str) else head
    if not isinstance(fields, tuple):
        fields = ()
    if 2 <= len(fields) <= 3 and all(str(number).isdecimal() for number in fields[-2:]):
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
    raise ConfigError(
        f"heads: got {head!r}, expected heads up to {last_heads}, counted from 0, such as 'L0-H1' "
        "or (0, 1); a list holds heads that are ablated together"
    )
