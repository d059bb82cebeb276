"""Two models, or the checkpoints of one, collected one after the other; drift of their outputs.

Heads write into directions of their own choice, so that outputs can be compared only where both
models come from the same start: a checkpoint and what was trained from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from headbook.analysis.arrays import Floats
from headbook.analysis.paired import ClusterSums
from headbook.comparison.drift import QUERY_KEY, VALUE_OUTPUT, ModelDrift
from headbook.comparison.study_pair import pair_studies, same_ids
from headbook.config import Config
from headbook.errors import StudyError
from headbook.inputs import Sentence
from headbook.metrics import ids
from headbook.model import attention_hook, checkpoint
from headbook.model.architecture import Architecture, AttentionPlace, probe_architecture
from headbook.model.checkpoint import is_local
from headbook.model.forward import run_forward
from headbook.model.head_weights import weight_drift
from headbook.model.load import Model, load_model, untrained_copy
from headbook.model.tokenizer import SentenceTokenizer, probe_texts
from headbook.output_folder import MANIFEST
from headbook.passes.model_checks import verify_attention
from headbook.progress import Progress
from headbook.report.wording import STACKS
from headbook.run.arguments import ModelCheckpoint
from headbook.run.collect import collect
from headbook.study.sentence_data import MappedSentence
from headbook.study.study import Study
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence


def study_of_checkpoint(
    at: ModelCheckpoint,
    inputs: Sequence[str],
    config: Config,
    *,
    kept: Path | None = None,
    delete_weights: bool = False,
    progress: Progress,
) -> Study:
    """The study of a checkpoint: the one that is kept, else a new one.

    Args:
        kept: folder with a study for each checkpoint; a new one is put there.
        delete_weights: delete from the hub's cache what this call has downloaded.

    Raises:
        StudyError: the study that is kept is of other weights.
        HeadbookError: as `headbook.collect`.
    """
    place = None if kept is None else kept / at.folder
    if place is not None and (place / MANIFEST).is_file():
        study = Study.load(place)
        _check_weights(at, study, place)
        return study
    before = checkpoint.cached_commits(at.model) if delete_weights and not at.local else frozenset()
    try:
        wanted = replace(config, model=at.model, revision=at.revision)
        study = collect(inputs, wanted, progress=progress)
    finally:
        if delete_weights and not at.local:
            checkpoint.delete_cached(at.model, checkpoint.cached_commits(at.model) - before)
    if place is not None:
        study.save(place)
    return study


def _check_weights(at: ModelCheckpoint, study: Study, place: Path) -> None:
    """Refuse a kept study of a folder whose weights have changed since."""
    if (
        at.local
        and checkpoint.find_model_files(at.model, None).revision != study.manifest.model.revision
    ):
        raise StudyError(
            f"{place}: of other weights than {at.model} holds now; expected another folder for "
            "--keep-studies, or no such study in it"
        )


Outputs = Mapping[tuple[str, int], torch.Tensor]  # by stack and layer, ``(head, query, width)``


def output_drift(
    models: Sequence[tuple[Model, Architecture]], sentences: Iterable[MappedSentence]
) -> dict[str, ClusterSums]:
    """1 minus the cosine of both models' outputs, for each head, added over ordinary tokens.

    Args:
        models: two of one shape, with what was found of them.
        sentences: what both read as the same tokens.

    Returns:
        By stack, sums of each sentence and how many tokens they are of. *Shape:*
        ``(sentence, layer, head, 1)``. Nothing where outputs are not available.
    """
    rows: dict[str, list[tuple[Floats, Floats]]] = {}
    for sentence in sentences:
        one, other = (_outputs(model, architecture, sentence) for model, architecture in models)
        for name, stack in models[0][1].stacks.items():
            ordinary = ~torch.tensor(sentence.texts[stack.queries].special)
            n = torch.zeros(stack.n_layers, stack.n_heads, dtype=torch.float64)
            d = torch.zeros_like(n)
            for layer in stack.attention_layers:
                if (name, layer) in one and (name, layer) in other:
                    apart = _apart(one[name, layer], other[name, layer])[:, ordinary]
                    n[layer, : len(apart)] = apart.nansum(-1)
                    d[layer, : len(apart)] = (~apart.isnan()).sum(-1)
            rows.setdefault(name, []).append((n.numpy()[..., None], d.numpy()[..., None]))
    return {name: _stacked(found) for name, found in rows.items()}


def _stacked(found: Sequence[tuple[Floats, Floats]]) -> ClusterSums:
    n, d = (np.stack(parts) for parts in zip(*found, strict=True))
    return ClusterSums(n, d)


def _outputs(model: Model, architecture: Architecture, sentence: MappedSentence) -> Outputs:
    """What the heads of a model write for one sentence."""
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    tokens = {side: encoder.of_ids(ids.tolist()) for side, ids in sentence.ids.items()}
    item = TokenizedSentence(Sentence(sentence.index, id="", text=""), tokens)
    found: dict[tuple[str, int], torch.Tensor] = {}

    def on_attention(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
        if attention.output is not None:
            found[place.stack, place.layer] = attention.output[0].double().movedim(1, 0).cpu()

    run_forward(model, architecture, Batch.of([item], model.device), on_attention)
    return found


def _apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """1 minus cosines; exactly 0 of equal vectors, NaN of those without direction."""
    sizes = one.norm(dim=-1) * other.norm(dim=-1)
    cosine = (one * other).sum(-1) / torch.where(sizes > 0, sizes, torch.nan)
    equal = (one == other).all(-1) & (sizes > 0)
    return torch.where(equal, 0.0, (1 - cosine).clamp(0, 2))


UNTRAINED = "untrained"  # instead of a second model: the first one's shape with random weights
FEW = ids.ATTENTION_DISTANCE  # enough to keep maps, which is all that a floor takes
ROUNDED, EXACT = "bfloat16", "float32"
FLOOR_SENTENCES = 64  # that rounding floors are measured on


class CollectedPair(NamedTuple):
    """Two studies, and the maps of two more.

    Attributes:
        rounded: the first model in bfloat16; None where it is in that format already.
        null: the second with random weights; None where it has them already.
        drift: of weights and, where they come from one start, of outputs.
        twice: the first model in its own number format and in another one, on the same few
            sentences, for rounding floors; None if not asked for.
    """

    a: Study
    b: Study
    rounded: Study | None
    null: Study | None
    drift: ModelDrift
    twice: tuple[Study, Study] | None = None


def collect_pair(
    inputs: Sequence[str | Path],
    config: Config,
    *,
    models: tuple[str, str],
    dtypes: tuple[str, str],
    folder: Path,
    trained: bool = False,
    floor: bool = True,
    progress: Progress | None = None,
) -> CollectedPair:
    """Run two models over the same sentences, and what tells how much a difference means.

    Args:
        models: names as for `headbook.collect`; the second may be `UNTRAINED`.
        dtypes: number formats of their weights.
        trained: whether the second was trained from the first.
        folder: an empty one, for the weights of an untrained model.
        floor: whether the first model is run twice more, for rounding floors.
    """
    second = models[1]
    if second == UNTRAINED:
        second = str(write_untrained(models[0], config, folder))
    one, other = (
        collect(inputs, _with_model(config, model, dtype), progress=progress)
        for model, dtype in zip((models[0], second), dtypes, strict=True)
    )
    rounded = null = None
    if dtypes[0] != ROUNDED:
        rounded = collect_maps(inputs, config, models[0], ROUNDED, progress)
    if models[1] != UNTRAINED:
        baseline_run = str(write_untrained(second, config, folder))
        null = collect_maps(inputs, config, baseline_run, dtypes[1], progress)
    drift = model_drift(one, other, (models[0], second), config, trained=trained)
    twice = None
    if floor and pair_studies(one, other).same_heads:
        twice = collect_twice(inputs, config, models[0], dtypes[0], progress)
    return CollectedPair(one, other, rounded, null, drift, twice)


def collect_twice(
    inputs: Sequence[str | Path],
    config: Config,
    model: str,
    dtype: str,
    progress: Progress | None = None,
) -> tuple[Study, Study]:
    """Run a model in its number format and in bfloat16 on up to `FLOOR_SENTENCES` sentences.

    A model that is in bfloat16 already is run in float32: the difference is the same rounding.
    """
    config = replace(config, model=model, sentence_pages="0", control="none", exemplars=1)
    if config.limit is not None:
        config = replace(config, limit=min(config.limit, FLOOR_SENTENCES))
    else:
        config = replace(config, sample=min(config.sample or FLOOR_SENTENCES, FLOOR_SENTENCES))
    other = ROUNDED if dtype != ROUNDED else EXACT
    one, rounded = (
        collect(inputs, replace(config, dtype=each), progress=progress) for each in (dtype, other)
    )
    return one, rounded


def model_drift(
    one: Study, other: Study, models: tuple[str, str], config: Config, *, trained: bool
) -> ModelDrift:
    """What two models of one shape say of each other; nothing of others.

    Args:
        trained: whether the second was trained from the first, so that outputs may be compared.
    """
    both = pair_studies(one, other)
    if not both.same_heads:
        return ModelDrift()
    dtypes = [study.manifest.model.dtype for study in (one, other)]
    first = _read(models[0], dtypes[0], config)
    same = [a for a, b in both.mapped() if same_ids(a, b)] if trained else []
    found = _between(first, _read(models[1], dtypes[1], config), same)
    if dtypes[0] == ROUNDED:
        return found
    return replace(found, floor=_between(first, _read(models[0], ROUNDED, config), same))


Settled = tuple[Model, Architecture]


def _read(name: str, dtype: str, config: Config) -> Settled:
    """A model, and what is found of it by watching it run."""
    model = load_model(
        name,
        revision=config.revision,
        device=config.device,
        dtype=dtype,
        tokenizer=config.tokenizer,
    )
    return model, _settled(model)


def _between(first: Settled, other: Settled, sentences: Sequence[MappedSentence]) -> ModelDrift:
    """Drift of weights and, over sentences that both read as the same tokens, of outputs."""
    weights = weight_drift(first[0], other[0], first[1])
    return ModelDrift(
        {
            name: {QUERY_KEY: found.query_key, VALUE_OUTPUT: found.value_output}
            for name, found in weights.stacks.items()
        },
        output_drift((first, other), sentences) if sentences else {},
        tuple(
            f"{each.what} ({STACKS[each.stack]}, layers {', '.join(map(str, each.layers))}): "
            f"{each.why}"
            for each in weights.missing
        ),
    )


def _settled(model: Model) -> Architecture:
    """What is found of a model by watching it run."""
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    return verify_attention(model, probe_architecture(model), probe_texts(encoder))


def _with_model(config: Config, model: str, dtype: str) -> Config:
    """Return the options of one of two models; a revision is that of a hub model alone."""
    revision = None if is_local(model) else config.revision
    return replace(config, model=model, dtype=dtype, revision=revision)


def collect_maps(
    inputs: Sequence[str | Path],
    config: Config,
    model: str,
    dtype: str,
    progress: Progress | None = None,
) -> Study:
    """Little more than a model's maps: to tell what rounding or random weights do."""
    few = replace(
        _with_model(config, model, dtype), metrics=FEW, importance="off", sentence_pages="0",
        control="none",
    )  # fmt: skip
    return collect(inputs, few, progress=progress)


def write_untrained(name: str, config: Config, folder: Path) -> Path:
    """A model's architecture with random weights, as a folder of its own."""
    model = load_model(name, revision=config.revision, tokenizer=config.tokenizer)
    out = folder / f"{model.name.rpartition('/')[2]}-{UNTRAINED}"
    baseline_run = untrained_copy(model, config.seed)
    baseline_run.network.save_pretrained(out)
    model.tokenizer.save_pretrained(out)
    return out
