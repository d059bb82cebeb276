"""What a model may be called on the command line, told without anything that runs models."""

import os
from pathlib import Path

from headbook.errors import ModelError

DEMO, DEMO_CAUSAL = "demo", "demo-causal"
GGUF = ".gguf"


def is_local(name: str) -> bool:
    """Whether a model is a file or folder of this machine, or comes with a package."""
    return name in {DEMO, DEMO_CAUSAL} or os.path.exists(name)  # noqa: PTH110 - for any letters


def check_name(name: str) -> None:
    """Refuse a name that nothing can stand behind: no folder, no file and no id of the hub.

    Raises:
        ModelError: in one line, what may be given.
    """
    if is_local(name):
        return
    if Path(name).suffix.lower() == GGUF:
        raise ModelError(f"model '{name}': there is no such file")
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415 - none of it for a folder
    from huggingface_hub.utils._validators import validate_repo_id  # noqa: PLC0415

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise unknown(name, "no folder has this name, and no id is written so") from error


def unknown(name: str, why: str) -> ModelError:
    """What is said of a model that is not found."""
    return ModelError(
        f"model '{name}': neither a folder nor a hub model that can be reached ({why}); "
        f"expected '{DEMO}', a local folder or file or a hub id"
    )
