"""The wheel and the source archive hold everything, and the wheel works where it is put."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import headbook
import tiny
from code_blocks import blocks

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def files_below(folder: str, *suffixes: str) -> set[str]:
    """Files of the checkout below a folder, by their address there."""
    found = (file for file in (ROOT / folder).rglob("*") if file.is_file())
    kept = (file for file in found if "__pycache__" not in file.parts)
    return {f.relative_to(ROOT).as_posix() for f in kept if not suffixes or f.suffix in suffixes}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both archives."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def in_wheel(built: Path) -> set[str]:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_code_templates_samples_and_annotator(built: Path) -> None:
    names = in_wheel(built)
    wanted = {name.removeprefix("src/") for name in files_below("src/headbook")}
    wanted |= {f"headbook/{name}" for name in files_below("templates")}
    wanted |= {f"headbook/{name}" for name in files_below("sample_inputs")}
    assert wanted <= names
    assert "headbook/templates/assets/site.js" in names
    assert "headbook/data/en_ewt_small/meta.json" in names
    others = {name for name in names - wanted if ".dist-info/" not in name}
    assert others == set()


def test_the_wheel_carries_its_licences(built: Path) -> None:
    names = {name.rpartition("/")[2] for name in in_wheel(built) if "/licenses/" in name}
    assert {"LICENSE", "NOTICE"} <= names


def test_the_readme_is_the_description_of_the_package(built: Path) -> None:
    """Links to other documents and pictures lead nowhere there; the text says what it is."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        head, _, body = archive.read(name).decode().partition("\n\n")
    assert "Description-Content-Type: text/markdown" in head
    assert body == (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_source_archive_holds_what_tests_need(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("src/headbook", "templates", "sample_inputs", "tests", "docs", "benchmarks"):
        assert files_below(folder) <= names
    assert {"pyproject.toml", "Makefile", "LICENSE", "NOTICE"} <= names
    assert {file.name for file in ROOT.glob("*.md")} <= names


def test_the_wheel_works_from_another_place(built: Path, tmp_path: Path) -> None:
    wheel = next(built.glob("*.whl"))
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*command, "--target", str(tmp_path / "lib"), str(wheel)], check=True)
    world = os.environ | {"PYTHONPATH": str(tmp_path / "lib")}
    code = (
        "import headbook; from headbook.resources import folder; print(headbook.__file__);"
        "print(*(folder(n).is_dir() and folder(n) for n in ('templates', 'sample_inputs')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=world,
        cwd=tmp_path,
    )  # fmt: skip
    path = tmp_path / "lib" / "headbook"
    home, folders = done.stdout.splitlines()
    assert Path(home).parent == path
    assert folders.split() == [str(path / "templates"), str(path / "sample_inputs")]
    version = subprocess.run(
        [sys.executable, "-m", "headbook", "--version"],
        check=True, capture_output=True, text=True, env=world, cwd=tmp_path,
    )  # fmt: skip
    assert version.stdout == f"headbook {headbook.__version__}\n"


@pytest.mark.soak
def test_the_wheel_does_in_a_fresh_environment_what_documents_say(
    built: Path, tmp_path: Path
) -> None:
    """The environment has a wheel of Headbook and of the metric, and borrows their libraries."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    (own,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    # Paths of a .pth file come after the environment's own packages, and their own are not read.
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (own / "libraries.pth").write_text("\n".join(libraries))
    package = tmp_path / "far-heads"
    package.mkdir()
    document = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for name, language in (("pyproject.toml", "toml"), ("far_heads.py", "python")):
        code = "".join(block for _, block in blocks(document, language))
        (package / name).write_text(code, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet"]
    pip += ["--no-index", "--no-build-isolation"]
    subprocess.run([*pip, str(next(built.glob("*.whl"))), str(package)], check=True)
    model = tiny.write("gpt2", tmp_path / "model", head=True)
    (tmp_path / "work").mkdir()
    script = ROOT / "tests" / "support" / "fifteen_tasks.py"
    world = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, script, model], cwd=tmp_path / "work", env=world, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    misspelt = tmp_path / "misspelt.py"
    call = "headbook.collect(['a text'], 'demo', metrcs='sink_share')"
    misspelt.write_text(f"import headbook\n{call}\n", encoding="utf-8")
    errors = [line for line in check_types(python, script, misspelt) if ": error:" in line]
    assert len(errors) == 1, errors
    assert 'misspelt.py:2: error: Unexpected keyword argument "metrcs"' in errors[0]


# Libraries are not read: their types would take minutes.
TYPE_CHECKS = """
[mypy]
strict = True
ignore_missing_imports = True
follow_imports = skip
[mypy-headbook.*]
follow_imports = silent
"""


def check_types(python: Path, *scripts: Path) -> list[str]:
    """Check scripts with mypy --strict against the packages of an environment."""
    place = scripts[-1].parent
    (place / "types.ini").write_text(TYPE_CHECKS, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "types.ini"]
    done = subprocess.run(
        [*command, "--python-executable", python, *scripts],
        capture_output=True, text=True, check=False, cwd=place,
    )  # fmt: skip
    return done.stdout.splitlines()
