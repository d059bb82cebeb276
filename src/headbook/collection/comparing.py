"""Two models on the same sentences: collected one after the other."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from headbook.collection.collect import collect
from headbook.config import Config
from headbook.model.model import load_model, untrained
from headbook.progress import Progress
from headbook.study.study import Study

UNTRAINED = "untrained"  # instead of a second model: the first one's shape with random weights
FEW = "attention_distance"  # enough to keep maps, which is all that a floor takes
ROUNDED = "bfloat16"


class Collected(NamedTuple):
    """Two studies, and the maps of two more.

    Attributes:
        rounded: the first model in bfloat16; None where it is in that format already.
        null: the second with random weights; None where it has them already.
    """

    a: Study
    b: Study
    rounded: Study | None
    null: Study | None


def collect_pair(
    inputs: Sequence[str | Path],
    config: Config,
    *,
    models: tuple[str, str],
    dtypes: tuple[str, str],
    folder: Path,
    progress: Progress | None = None,
) -> Collected:
    """Run two models over the same sentences, and what tells how much a difference means.

    Args:
        models: names as for `headbook.collect`; the second may be `UNTRAINED`.
        dtypes: number formats of their weights.
        folder: an empty one, for the weights of an untrained model.
    """
    second = models[1]
    if second == UNTRAINED:
        second = str(write_untrained(models[0], config, folder))
    one, other = (
        collect(inputs, replace(config, model=model, dtype=dtype), progress=progress)
        for model, dtype in zip((models[0], second), dtypes, strict=True)
    )
    rounded = null = None
    if dtypes[0] != ROUNDED:
        rounded = collect_maps(inputs, config, models[0], ROUNDED, progress)
    if models[1] != UNTRAINED:
        twin = str(write_untrained(second, config, folder))
        null = collect_maps(inputs, config, twin, dtypes[1], progress)
    return Collected(one, other, rounded, null)


def collect_maps(
    inputs: Sequence[str | Path],
    config: Config,
    model: str,
    dtype: str,
    progress: Progress | None = None,
) -> Study:
    """Little more than a model's maps: to tell what rounding or random weights do."""
    few = replace(
        config, model=model, dtype=dtype, metrics=FEW, importance="off", sentence_pages="0",
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
