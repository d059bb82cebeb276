"""Which checkpoints of a model there are: told without anything that runs models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headbook.errors import ConfigError, ModelError

UNFIT = re.compile(r"[^\w.\-]+")  # in a folder's name
FEW = 5  # folders that a message names


@dataclass(frozen=True)
class ModelAt:
    """A model at one step of its training.

    Attributes:
        name: the revision, or the folder inside the model's.
        model: hub id, or that folder.
        revision: of a hub model.
    """

    name: str
    model: str
    revision: str | None = None

    @property
    def local(self) -> bool:
        """Whether it is a folder."""
        return self.revision is None

    @property
    def folder(self) -> str:
        """A name for the folder of its study."""
        return UNFIT.sub("-", self.name)


def checkpoints(model: str, revisions: Sequence[str]) -> list[ModelAt]:
    """The checkpoints of a model.

    Args:
        model: hub id; or a folder, whose checkpoints are folders inside it.
        revisions: their names in order; none stands for all folders.

    Raises:
        ConfigError: no revisions of a hub model were named, or two would share a folder.
        ModelError: a folder is not there.
    """
    place = Path(model)
    if not place.is_dir():
        if not revisions:
            raise ConfigError("--revisions: nothing came; expected revisions of the hub model")
        found = [ModelAt(name, model, name) for name in revisions]
    else:
        there = sorted(file.parent.name for file in place.glob("*/config.json"))
        for name in revisions:
            if name not in there:
                some = ", ".join(there[:FEW]) or "none"
                raise ModelError(
                    f"model '{model}': it has no checkpoint {name}; expected folders with "
                    f"config.json inside it ({some}{', …' if len(there) > FEW else ''})"
                )
        found = [ModelAt(name, str(place / name)) for name in revisions or there]
    if len({each.folder for each in found}) < len(found):
        raise ConfigError("--revisions: two names differ in signs alone; expected other names")
    return found
