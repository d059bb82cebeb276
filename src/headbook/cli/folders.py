"""Folders that a command writes or reads: checked before anything slow is imported."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from headbook.config import Config
from headbook.errors import ConfigError, OutputError
from headbook.output_folder import OutputKind, check_output_folder, reserve
from headbook.study.manifest import Manifest

RESERVED = ExitStack()  # locks of the outputs of a command, until it ends


def checked_out(config: Config, inputs: Sequence[str], kind: OutputKind) -> Path:
    """Return the output folder, checked before anything slow begins, and reserved for the command.

    Raises:
        ConfigError: there is none.
        OutputError: it may not be replaced, an input is in it, or another run writes there.
    """
    if config.out is None:
        raise ConfigError("--out: nothing came; expected a folder to write, for example --out site")
    _check_apart(config.out, inputs)
    RESERVED.enter_context(reserve(config.out))
    check_output_folder(config.out, kind, force=config.force)
    return config.out


def check_kept(config: Config, inputs: Sequence[str]) -> None:
    """Check and reserve the folder in which a study is kept.

    Raises:
        OutputError: it may not be replaced, or it lies in the site.
    """
    if config.keep_study is None:
        return
    _check_apart(config.keep_study, inputs)
    check_outside("--keep-study", config.keep_study, config.out)
    RESERVED.enter_context(reserve(config.keep_study))
    check_output_folder(config.keep_study, OutputKind.STUDY, force=config.force)


def check_outside(option: str, folder: Path | None, out: Path | None) -> None:
    """Refuse to keep studies in the site, which is written as a whole.

    Raises:
        OutputError: the folder of the option is ``out``, or lies in it.
    """
    if folder is None or out is None:
        return
    path, site = (Path(os.path.realpath(each)) for each in (folder, out))
    if site in {path, *path.parents}:
        raise OutputError(
            f"{option}: {folder} came, which lies in --out {out}; expected a folder outside"
        )


def check_studies(*folders: Path | None) -> None:
    """Refuse folders without a study that this version reads.

    Raises:
        StudyError: one is none, or of another version.
    """
    for folder in folders:
        if folder is not None:
            Manifest.read(folder)


def _check_apart(out: Path, inputs: Sequence[str]) -> None:
    """Refuse folders that hold what is read."""
    path = Path(os.path.realpath(out))
    for name in inputs:
        file = Path(os.path.realpath(name))
        if path in {file, *file.parents}:
            raise OutputError(f"{out}: holds the input {name}; expected another folder")
