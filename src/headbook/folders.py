"""Writing output folders: whole or not at all, and never over what is not ours."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headbook.errors import OutputError

MARKS = ("manifest.json", "data/manifest.json")  # in a study, in a site


@contextmanager
def written_whole(out: Path, *, force: bool) -> Iterator[Path]:
    """A folder to write into that takes the place of ``out`` when the block ends well.

    Until then the old folder stands untouched; after an error the new one is removed.

    Raises:
        OutputError: ``out`` may not be replaced, or cannot be written.
    """
    check_replaceable(out, force=force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise OutputError(
            f"{out}: {error.strerror}; expected a folder that can be written"
        ) from error
    try:
        draft.chmod(0o755)  # mkdtemp keeps others out; a site is for others
        yield draft
        _swap(draft, out)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def check_replaceable(out: Path, *, force: bool) -> None:
    """Refuse folders that are not ours to replace.

    Raises:
        OutputError: with what to do instead.
    """
    place = out.resolve()
    here = Path.cwd().resolve()
    if place in {here, Path.home().resolve(), *here.parents} or place == place.parent:
        raise OutputError(
            f"{out}: the current folder, one above it or the home folder; "
            "expected a folder of its own, for example --out site"
        )
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not out.is_dir() or not any(is_ours(out / mark) for mark in MARKS):
        raise OutputError(
            f"{out}: holds something that Headbook did not write; expected a new folder"
        )
    if not force:
        raise OutputError(f"{out}: exists already; pass --force to replace it")


def is_ours(manifest: Path) -> bool:
    """Whether a file is a manifest that Headbook wrote."""
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "headbook" in found


def _swap(draft: Path, out: Path) -> None:
    if not out.exists():
        draft.replace(out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
    out.replace(old / "old")
    try:
        draft.replace(out)
    except BaseException:
        (old / "old").replace(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
