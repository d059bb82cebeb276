"""Folders that a command writes or reads: checked before anything slow is imported."""

import os
from collections.abc import Sequence
from pathlib import Path

from headbook.config import Config
from headbook.errors import ConfigError, OutputError
from headbook.folders import check_replaceable, settle
from headbook.listing import Kind
from headbook.study.manifest import Manifest


def checked_out(config: Config, inputs: Sequence[str], kind: Kind) -> Path:
    """The output folder, checked before anything slow begins.

    Raises:
        ConfigError: there is none.
        OutputError: it may not be replaced, or an input lies in it.
    """
    if config.out is None:
        raise ConfigError("--out: nothing came; expected a folder to write, for example --out site")
    _check_apart(config.out, inputs)
    names: list[str] = []
    if kind is Kind.SITE and config.base_url is not None:
        from headbook.site.publish import base, web_files  # noqa: PLC0415 - it loads Altair

        names = [name for name, _ in web_files(base(config.base_url), ())]
    check_replaceable(config.out, kind, force=config.force, names=names)
    return config.out


def check_kept(config: Config, inputs: Sequence[str]) -> None:
    """The same for the folder in which a study is kept.

    Raises:
        OutputError: it may not be replaced, or it lies in the site.
    """
    if config.keep_study is None or config.out is None:
        return
    _check_apart(config.keep_study, inputs)
    kept, out = (Path(os.path.realpath(path)) for path in (config.keep_study, config.out))
    if out in {kept, *kept.parents}:
        raise OutputError(
            f"--keep-study: {config.keep_study} came, which lies in --out {config.out}; expected a "
            "folder outside"
        )
    check_replaceable(config.keep_study, Kind.STUDY, force=config.force)


def check_studies(*folders: Path | None) -> None:
    """Refuse folders without a study that this version reads.

    Raises:
        StudyError: one is none, or of another version.
        OutputError: a run was killed while it replaced a study, which cannot be put back.
    """
    for folder in folders:
        if folder is not None:
            settle(folder)
            Manifest.read(folder)


def _check_apart(out: Path, inputs: Sequence[str]) -> None:
    """Refuse folders that hold what is read."""
    path = Path(os.path.realpath(out))
    for name in inputs:
        file = Path(os.path.realpath(name))
        if path in {file, *file.parents}:
            raise OutputError(f"{out}: holds the input {name}; expected another folder")
