"""Two models on the same sentences: collected one after the other."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from headbook.collection.collect import collect
from headbook.comparison.modeldrift import QUERY_KEY, VALUE_OUTPUT, ModelDrift
from headbook.comparison.sides import same_ids, sides
from headbook.config import Config
from headbook.metrics import ids
from headbook.model.architecture import Architecture, examine
from headbook.model.encode import Encoder
from headbook.model.model import Model, load_model, untrained
from headbook.model.modelname import is_local
from headbook.model.sequences import probes
from headbook.model.weightdrift import weight_drift
from headbook.passes.checks.ownattention import settle
from headbook.passes.outputdrift import output_drift
from headbook.progress import Progress
from headbook.report.wording import STACKS
from headbook.study.mapsample import MappedSentence
from headbook.study.study import Study
from headbook.text.annotate import Annotator

UNTRAINED = "untrained"  # instead of a second model: the first one's shape with random weights
FEW = ids.ATTENTION_DISTANCE  # enough to keep maps, which is all that a floor takes
ROUNDED, EXACT = "bfloat16", "float32"
FLOOR_SENTENCES = 64  # that rounding floors are measured on


class Collected(NamedTuple):
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
) -> Collected:
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
        twin = str(write_untrained(second, config, folder))
        null = collect_maps(inputs, config, twin, dtypes[1], progress)
    drift = model_drift(one, other, (models[0], second), config, trained=trained)
    twice = None
    if floor and sides(one, other).same_heads:
        twice = collect_twice(inputs, config, models[0], dtypes[0], progress)
    return Collected(one, other, rounded, null, drift, twice)


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
    both = sides(one, other)
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
    encoder = Encoder(model, limit=model.limit, targets=Annotator.load("none"))
    return settle(model, examine(model), probes(encoder))


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
    twin = untrained(model, config.seed)
    twin.network.save_pretrained(out)
    model.tokenizer.save_pretrained(out)
    return out
