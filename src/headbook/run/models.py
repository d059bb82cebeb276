"""Studies of two models, or of the checkpoints of one; drift of weights and head outputs.

The directions of head outputs depend on the initial weights. Outputs of two models can therefore be
compared only if one was trained from the other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from headbook.analysis.arrays import Floats
from headbook.analysis.paired import ClusterSums
from headbook.circuits.weight_drift import weight_drift
from headbook.comparison.checkpoints import NamedStudy
from headbook.comparison.drift import QUERY_KEY, VALUE_OUTPUT, ModelDrift
from headbook.comparison.study_pair import pair_studies, same_ids
from headbook.config import Config
from headbook.errors import StudyError
from headbook.inputs import InputSource, TextRecord
from headbook.metrics import ids
from headbook.model import attention_hook, checkpoint
from headbook.model.architecture import Architecture, AttentionPlace, probe_architecture
from headbook.model.checkpoint import is_local
from headbook.model.forward import run_forward
from headbook.model.load import Model, untrained_copy
from headbook.model.tokenizer import SentenceTokenizer, probe_texts
from headbook.output_folder import MANIFEST
from headbook.passes.model_checks import verify_attention
from headbook.progress import NoProgress, Progress
from headbook.report.wording import STACKS
from headbook.run.arguments import ModelCheckpoint
from headbook.run.collect import collect_study
from headbook.run.objects import ModelObject, open_model
from headbook.study.sentence_data import MappedSentence
from headbook.study.study import Study
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence


def study_of_checkpoint(
    source: ModelCheckpoint,
    inputs: Sequence[str | InputSource],
    config: Config,
    *,
    studies: Path | None = None,
    delete_weights: bool = False,
    progress: Progress,
) -> Study:
    """Return the study of a checkpoint: a stored one, else a new one.

    Args:
        source: checkpoint whose study is returned.
        inputs: files, folders and ids of datasets, or sources in memory.
        config: options.
        studies: folder with a study for each checkpoint, to which a new study is added; None to
            store none.
        delete_weights: whether to delete from the hub's cache the weights that this call downloads.
        progress: reporter of the run's progress.

    Raises:
        StudyError: the stored study is of other weights.
        HeadbookError: an error of `collect_study`.
    """
    study_folder = None if studies is None else studies / source.folder
    if study_folder is not None and (study_folder / MANIFEST).is_file():
        study = Study.load(study_folder)
        _check_weights(source, study, study_folder)
        return study
    deletes = delete_weights and not source.local
    cached_before = checkpoint.cached_commits(source.model) if deletes else frozenset()
    try:
        own_config = replace(config, model=source.model, revision=source.revision)
        study = collect_study(inputs, own_config, progress=progress)
    finally:
        if deletes:
            checkpoint.delete_cached(
                source.model, checkpoint.cached_commits(source.model) - cached_before
            )
    if study_folder is not None:
        study.save(study_folder)
    return study


def checkpoint_studies(
    sources: Sequence[ModelCheckpoint],
    inputs: Sequence[str | InputSource],
    config: Config,
    *,
    progress: Progress,
    **choices: Any,
) -> list[NamedStudy]:
    """Return the studies of checkpoints, each yet to be read or collected.

    Args:
        sources: checkpoints, in order.
        inputs: files, folders and ids of datasets, or sources in memory.
        config: options.
        progress: reporter of the runs' progress.
        choices: ``studies`` and ``delete_weights`` of `study_of_checkpoint`.
    """

    def study(source: ModelCheckpoint, number: int) -> Study:
        progress.message(f"{source.name} ({number} of {len(sources)})")
        return study_of_checkpoint(source, inputs, config, progress=progress, **choices)

    return [
        NamedStudy(source.name, partial(study, source, number))
        for number, source in enumerate(sources, 1)
    ]


def _check_weights(source: ModelCheckpoint, study: Study, study_folder: Path) -> None:
    """Refuse a stored study of a folder whose weights have changed since."""
    if (
        source.local
        and checkpoint.find_model_files(source.model, None).revision
        != study.manifest.model.revision
    ):
        raise StudyError(
            f"{study_folder}: got a study of other weights than {source.model} has now; expected "
            "another folder for --keep-studies, or no study in this one"
        )


Outputs = Mapping[tuple[str, int], torch.Tensor]  # by stack and layer, ``(head, query, width)``


def output_drift(
    models: Sequence[tuple[Model, Architecture]], sentences: Iterable[MappedSentence]
) -> dict[str, ClusterSums]:
    """Sum 1 minus the cosine of two models' head outputs over the ordinary tokens of each sentence.

    Args:
        models: two models of one shape, with their architectures.
        sentences: sentences that both models read as the same tokens.

    Returns:
        By stack, the sums and the numbers of tokens. *Shape:* ``(sentence, layer, head, 1)``.
        Layers without available outputs have 0 tokens.
    """
    rows: dict[str, list[tuple[Floats, Floats]]] = {}
    for sentence in sentences:
        first, second = (
            _head_outputs(model, architecture, sentence) for model, architecture in models
        )
        for name, stack in models[0][1].stacks.items():
            ordinary = ~torch.tensor(sentence.texts[stack.queries].special)
            n = torch.zeros(stack.n_layers, stack.n_heads, dtype=torch.float64)
            d = torch.zeros_like(n)
            for layer in stack.attention_layers:
                if (name, layer) in first and (name, layer) in second:
                    distances = _cosine_distances(first[name, layer], second[name, layer])
                    distances = distances[:, ordinary]
                    n[layer, : len(distances)] = distances.nansum(-1)
                    d[layer, : len(distances)] = (~distances.isnan()).sum(-1)
            rows.setdefault(name, []).append((n.numpy()[..., None], d.numpy()[..., None]))
    return {
        name: ClusterSums(*(np.stack(arrays) for arrays in zip(*sums, strict=True)))
        for name, sums in rows.items()
    }


def _head_outputs(model: Model, architecture: Architecture, sentence: MappedSentence) -> Outputs:
    """Return the outputs of all heads of a model for one sentence."""
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    tokens = {side: encoder.of_ids(ids.tolist()) for side, ids in sentence.ids.items()}
    item = TokenizedSentence(TextRecord(sentence.index, id="", text=""), tokens)
    outputs: dict[tuple[str, int], torch.Tensor] = {}

    def on_attention(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
        if attention.output is not None:
            outputs[place.stack, place.layer] = attention.output[0].double().movedim(1, 0).cpu()

    run_forward(model, architecture, Batch.of([item], model.device), on_attention)
    return outputs


def _cosine_distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return 1 minus cosines: exactly 0 for equal vectors, NaN for zero vectors."""
    norms = a.norm(dim=-1) * b.norm(dim=-1)
    cosine = (a * b).sum(-1) / torch.where(norms > 0, norms, torch.nan)
    equal = (a == b).all(-1) & (norms > 0)
    return torch.where(equal, 0.0, (1 - cosine).clamp(0, 2))


# How a model is loaded: a caller's object or None, and the options, which name the model.
Loading = tuple[ModelObject | None, Config]
UNTRAINED = "untrained"  # name of the second model if it is the first with random weights
MAPS_METRIC = ids.ATTENTION_DISTANCE  # one metric is enough for a study with maps
ROUNDED_DTYPE, EXACT_DTYPE = "bfloat16", "float32"  # number formats that rounding floors compare
FLOOR_SENTENCES = 64  # sentences that rounding floors are measured on


class CollectedPair(NamedTuple):
    """Studies of two models, and the studies that show how much a difference means.

    Attributes:
        a: study of the first model.
        b: study of the second model.
        rounded: maps of the first model in bfloat16; None if it is in bfloat16 already.
        null: maps of the second model with random weights; None if its weights are random.
        drift: drift of weights and, if the second model was trained from the first, of outputs.
        twice: studies of the first model in its own number format and in another one, on the same
            few sentences, for rounding floors; None if not requested.
    """

    a: Study
    b: Study
    rounded: Study | None
    null: Study | None
    drift: ModelDrift
    twice: tuple[Study, Study] | None = None


def collect_pair(
    inputs: Sequence[str | InputSource],
    config: Config,
    *,
    models: tuple[str | ModelObject, str | ModelObject],
    dtypes: tuple[str, str],
    folder: Path,
    adapters: tuple[str | None, str | None] = (None, None),
    trained: bool = False,
    floor: bool = True,
    progress: Progress | None = None,
) -> CollectedPair:
    """Run two models over the same sentences, and others that show how much a difference means.

    Args:
        inputs: files, folders and ids of datasets, or sources in memory.
        config: options; model, number format and adapter are replaced.
        models: names as for `headbook.collect`, or model objects; the second may be `UNTRAINED`.
        dtypes: number formats of the models' weights.
        folder: empty folder for the weights of untrained models.
        adapters: adapter of each model, or None.
        trained: whether the second model was trained from the first.
        floor: whether the first model is run twice more, for rounding floors.
        progress: reporter of the runs' progress.
    """
    first = _loading(config, models[0], dtypes[0], adapters[0])
    if models[1] == UNTRAINED:
        second = _untrained(first, dtypes[1], folder)
    else:
        second = _loading(config, models[1], dtypes[1], adapters[1])
    for source, own in (first, second):
        if source is None and not is_local(own.model):  # found missing before the first is measured
            checkpoint.find_model_files(own.model, own.revision, code=own.trust_remote_code)
        if own.adapter is not None:
            checkpoint.find_adapter_files(own.adapter)
    study_a, study_b = (_collect(inputs, each, progress) for each in (first, second))
    rounded = null = twice = None
    if dtypes[0] != ROUNDED_DTYPE:
        rounded = collect_maps(inputs, _in_dtype(first, ROUNDED_DTYPE), progress)
    if models[1] != UNTRAINED:
        null = collect_maps(inputs, _untrained(second, dtypes[1], folder), progress)
    drift = model_drift(study_a, study_b, (first, second), trained=trained)
    if floor and pair_studies(study_a, study_b).same_heads:
        twice = collect_twice(inputs, first, progress)
    return CollectedPair(study_a, study_b, rounded, null, drift, twice)


def collect_twice(
    inputs: Sequence[str | InputSource], loading: Loading, progress: Progress | None = None
) -> tuple[Study, Study]:
    """Run a model in its number format and in bfloat16 on up to `FLOOR_SENTENCES` sentences.

    A model in bfloat16 is run in float32 instead: the difference is the same rounding.
    """
    source, config = loading
    config = replace(config, sentence_pages="0", control="none", exemplars=1)
    if config.limit is not None:
        config = replace(config, limit=min(config.limit, FLOOR_SENTENCES))
    else:
        config = replace(config, sample=min(config.sample or FLOOR_SENTENCES, FLOOR_SENTENCES))
    other_dtype = ROUNDED_DTYPE if config.dtype != ROUNDED_DTYPE else EXACT_DTYPE
    exact, rounded = (
        _collect(inputs, (source, replace(config, dtype=number_format)), progress)
        for number_format in (config.dtype, other_dtype)
    )
    return exact, rounded


@attention_hook.hooks_removed()
def model_drift(
    study_a: Study, study_b: Study, loadings: tuple[Loading, Loading], *, trained: bool
) -> ModelDrift:
    """Measure the drift between two models; it is empty for models of different shapes.

    Args:
        study_a: study of the first model.
        study_b: study of the second model.
        loadings: how each model is loaded.
        trained: whether the second model was trained from the first, so that outputs compare.
    """
    pair = pair_studies(study_a, study_b)
    if not pair.same_heads:
        return ModelDrift()
    first_model = _load_model(loadings[0])
    sentences = [a for a, b in pair.mapped() if same_ids(a, b)] if trained else []
    drift = _measure_drift(first_model, _load_model(loadings[1]), sentences)
    if loadings[0][1].dtype == ROUNDED_DTYPE:
        return drift
    rounded_model = _load_model(_in_dtype(loadings[0], ROUNDED_DTYPE))
    return replace(drift, floor=_measure_drift(first_model, rounded_model, sentences))


LoadedModel = tuple[Model, Architecture]


def _load_model(loading: Loading) -> LoadedModel:
    """Load a model and probe its architecture."""
    model = _open_model(loading)
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    return model, verify_attention(model, probe_architecture(model), probe_texts(encoder))


def _measure_drift(
    first: LoadedModel, second: LoadedModel, sentences: Sequence[MappedSentence]
) -> ModelDrift:
    """Measure the drift of weights and, if there are sentences, of outputs."""
    weights = weight_drift(first[0], second[0], first[1])
    return ModelDrift(
        {
            name: {QUERY_KEY: stack_drift.query_key, VALUE_OUTPUT: stack_drift.value_output}
            for name, stack_drift in weights.stacks.items()
        },
        output_drift((first, second), sentences) if sentences else {},
        tuple(
            f"{gap.what} ({STACKS[gap.stack]}, layers {', '.join(map(str, gap.layers))}): {gap.why}"
            for gap in weights.missing
        ),
    )


def _loading(
    config: Config, model: str | ModelObject, dtype: str, adapter: str | None = None
) -> Loading:
    """Return how one of two models is loaded; only hub models have a revision."""
    config = replace(
        config,
        dtype=dtype,
        adapter=adapter,
        merge_adapter=config.merge_adapter and adapter is not None,
    )
    if isinstance(model, ModelObject):
        return model, model.checked(replace(config, revision=None))
    revision = None if is_local(model) else config.revision
    return None, replace(config, model=model, revision=revision)


def _in_dtype(loading: Loading, dtype: str) -> Loading:
    source, config = loading
    return source, replace(config, dtype=dtype)


def _open_model(loading: Loading) -> Model:
    source, config = loading
    return open_model(source, config, device=config.device, offload=None, progress=NoProgress())


def _collect(
    inputs: Sequence[str | InputSource], loading: Loading, progress: Progress | None
) -> Study:
    """Return the study of one of two models."""
    source, config = loading
    return collect_study(inputs, config, source=source, progress=progress)


def collect_maps(
    inputs: Sequence[str | InputSource], loading: Loading, progress: Progress | None = None
) -> Study:
    """Return a study with little more than maps, for the effect of rounding or random weights."""
    source, config = loading
    few_metrics = replace(
        config, metrics=MAPS_METRIC, importance="off", circuits="off", sentence_pages="0",
        control="none",
    )  # fmt: skip
    return _collect(inputs, (source, few_metrics), progress)


@attention_hook.hooks_removed()
def _untrained(loading: Loading, dtype: str, folder: Path) -> Loading:
    """Return how a model with the architecture of another and random weights is loaded.

    Args:
        loading: how the other model is loaded.
        dtype: number format of the random weights.
        folder: folder in which the weights are written, unless the other model is an object.
    """
    source, config = loading
    plain = replace(
        config, dtype=EXACT_DTYPE, adapter=None, merge_adapter=False, quantization="none"
    )
    model = _open_model((source, plain))
    name = f"{model.name.rpartition('/')[2]}-{UNTRAINED}"
    untrained = untrained_copy(model, config.seed).network
    if source is not None:
        untrained.config.name_or_path = name
        return _loading(config, replace(source, network=untrained, name=name), dtype)
    untrained.save_pretrained(folder / name)
    model.tokenizer.save_pretrained(folder / name)
    return _loading(config, str(folder / name), dtype)
