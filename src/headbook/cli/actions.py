"""The work of each command, and checks of its folders.

Modules are imported inside functions: a command that needs no model or page does not wait for
torch, pandas or Altair.
"""

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console

from headbook.config import Config
from headbook.errors import ConfigError, HeadbookWarning, OutputError
from headbook.output_folder import OutputKind, check_output_folder, has_manifest, reserve
from headbook.progress import Display, LossyStream, NoProgress, Progress
from headbook.run.arguments import list_checkpoints
from headbook.schema import HeadCorrespondence
from headbook.study.manifest import Manifest

if TYPE_CHECKING:
    from headbook.comparison.checkpoints import Checkpoints
    from headbook.comparison.comparison import Comparison
    from headbook.run.models import CollectedPair
    from headbook.study.study import Study
    from headbook.written_site import Site


RESERVED = ExitStack()  # locks of a command's output folders, released at its end


def checked_out(config: Config, inputs: Sequence[str], kind: OutputKind) -> Path:
    """Check and reserve the output folder before anything slow begins, and return the folder.

    Raises:
        ConfigError: no folder was given.
        OutputError: the folder may not be replaced, contains an input, or another run writes to it.
    """
    if config.out is None:
        raise ConfigError("--out: got nothing, expected a folder to write, for example --out site")
    _check_apart(config.out, inputs)
    RESERVED.enter_context(reserve(config.out))
    check_output_folder(config.out, kind, force=config.force)
    return config.out


def check_kept(
    config: Config, inputs: Sequence[str], option: str, *folders: Path, force: bool
) -> None:
    """Check and reserve the folders in which an option keeps studies.

    Raises:
        OutputError: a folder may not be replaced, or lies in the site.
    """
    for folder in folders:
        _check_apart(folder, inputs)
        check_outside(option, folder, config.out)
        RESERVED.enter_context(reserve(folder))
        check_output_folder(folder, OutputKind.STUDY, force=force)


def check_outside(option: str, folder: Path | None, out: Path | None) -> None:
    """Check that a folder for studies lies outside the site, which is replaced as a whole.

    Raises:
        OutputError: the folder of the option is ``out``, or lies in ``out``.
    """
    if folder is None or out is None:
        return
    path, site = (Path(os.path.realpath(place)) for place in (folder, out))
    if site in {path, *path.parents}:
        raise OutputError(
            f"{option}: got {folder}, which lies in --out {out}; expected a folder outside"
        )


def check_studies(*folders: Path | None) -> None:
    """Check that folders have a study that this version reads.

    Raises:
        StudyError: a folder has no study, or one of another version.
    """
    for folder in folders:
        if folder is not None:
            Manifest.read(folder)


def _check_apart(out: Path, inputs: Sequence[str]) -> None:
    """Check that an output folder contains no input."""
    path = Path(os.path.realpath(out))
    for name in inputs:
        file = Path(os.path.realpath(name))
        if path in {file, *file.parents}:
            raise OutputError(f"{out}: holds the input {name}; expected another folder")


def progress_of(config: Config) -> AbstractContextManager[Progress]:
    """Return a context in which the progress of a command is shown, unless ``--quiet`` is set."""
    if config.quiet:
        return nullcontext(NoProgress())
    return Display(Console(file=cast("IO[str]", LossyStream(sys.stderr))), verbose=config.verbose)


def collect(
    inputs: list[str], config: Config, progress: Progress, work: Path | None = None
) -> "Study":
    """Run a model over sentences and return the study.

    Args:
        work: folder of finished parts, as for `headbook.collect`.
    """
    _check(inputs, config, config.model)
    _load_torch(config)
    from headbook.run.collect import collect_study as run  # noqa: PLC0415 - slow to import

    return run(inputs, config, progress=progress, work=work)


def _check(inputs: list[str], config: Config, *models: str) -> None:
    """Check inputs and options before `_load_torch`, which takes seconds."""
    from headbook.run.arguments import check_arguments  # noqa: PLC0415 - slow to import

    check_arguments(inputs, config, *models)


def _load_torch(config: Config) -> None:
    """Import the modules that run models, and set up the process's warnings and memory for them."""
    if not config.verbose:
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", HeadbookWarning)
        logging.disable(logging.WARNING)
    else:
        from headbook.model import restore_import_loggers  # noqa: PLC0415 - with torch

        restore_import_loggers()
    from headbook.memory import (  # noqa: PLC0415 - slow to import
        gc_frozen,
        keep_freed_blocks,
        libraries_loaded,
    )

    keep_freed_blocks()
    with gc_frozen(), libraries_loaded():
        import headbook.run.collect  # noqa: F401, PLC0415 - slow to import


def collect_pair(
    inputs: list[str],
    config: Config,
    models: tuple[str, str],
    formats: tuple[str, str],
    progress: Progress,
    *,
    adapters: tuple[str | None, str | None],
    trained: bool,
    floor: bool = True,
) -> "CollectedPair":
    """Collect the studies of both models, and the studies and drift that rate their differences."""
    for adapter in adapters:
        _check(inputs, replace(config, adapter=adapter, merge_adapter=False), *models)
    _load_torch(config)
    from headbook.run.models import collect_pair as run  # noqa: PLC0415 - slow to import

    with tempfile.TemporaryDirectory() as folder:
        return run(
            inputs, config, models=models, dtypes=formats, folder=Path(folder), adapters=adapters,
            trained=trained, floor=floor, progress=progress,
        )  # fmt: skip


def compare(
    pair: "Sequence[Any]", heads: HeadCorrespondence, config: Config, *, floor: bool = True
) -> "Site":
    """Compare two models and write the site; see `compared`."""
    from headbook.site.sites import render_comparison  # noqa: PLC0415 - slow to import

    assert config.out is not None
    comparison = compared(pair, heads, floor=floor)
    with progress_of(config) as progress:
        return render_comparison(
            comparison, config.out, base_url=config.base_url, force=config.force, progress=progress
        )


def compared(
    pair: "Sequence[Any]", heads: HeadCorrespondence, *, floor: bool = True
) -> "Comparison":
    """Compare two models.

    Args:
        pair: the fields of `CollectedPair`, with studies or their folders.
        floor: whether rounding floors come from the first model in another number format.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are too small for threads
    from headbook.comparison.comparison import compare as run  # noqa: PLC0415 - slow to import
    from headbook.study.study import Study  # noqa: PLC0415 - slow to import

    *studies, drift, twice = pair
    a, b, rounded, null = (
        Study.load(study) if isinstance(study, Path) else study for study in studies
    )
    if twice is None and floor and rounded is not None:
        twice = a, rounded
    return run(a, b, heads, rounded=rounded, null=null, drift=drift, twice=twice)


def load(folder: Path) -> "Study":
    """Read a study from its folder."""
    from headbook.study.study import Study  # noqa: PLC0415 - slow to import

    return Study.load(folder)


def checkpoints(studies: "Mapping[str, Callable[[], Study]]") -> "Checkpoints":
    """Return checkpoints from studies that are read, or collected, one after the other."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are too small for threads
    from headbook.comparison.checkpoints import (  # noqa: PLC0415 - slow to import
        NamedStudy,
        checkpoints_of,
    )

    return checkpoints_of([NamedStudy(name, make) for name, make in studies.items()])


def collect_checkpoints(
    revisions: list[str],
    inputs: list[str],
    config: Config,
    *,
    kept: Path | None,
    delete_weights: bool,
) -> "Checkpoints":
    """Return checkpoints, collected and reduced to steps one after the other."""
    sources = list_checkpoints(config.model, revisions)
    folders = [kept / source.folder for source in sources] if kept else []
    new = [folder for folder in folders if not has_manifest(folder, OutputKind.STUDY)]
    check_studies(*(folder for folder in folders if folder not in new))
    check_kept(config, inputs, "--keep-studies", *new, force=False)
    _check(inputs, config, *(source.model for source in sources))
    _load_torch(config)
    from headbook.comparison.checkpoints import checkpoints_of  # noqa: PLC0415 - slow to import
    from headbook.run.models import checkpoint_studies  # noqa: PLC0415 - slow to import

    with progress_of(config) as progress:
        return checkpoints_of(
            checkpoint_studies(
                sources, inputs, config, studies=kept, delete_weights=delete_weights,
                progress=progress,
            )
        )  # fmt: skip


def render_checkpoints(checkpoints: "Checkpoints", config: Config, title: str) -> "Site":
    """Write the site of a training.

    Args:
        title: title of the site if the configuration has none.
    """
    from headbook.site.sites import render_checkpoints as draw  # noqa: PLC0415 - slow to import

    assert config.out is not None
    with progress_of(config) as progress:
        return draw(
            checkpoints, config.out, title=config.title or title, base_url=config.base_url,
            force=config.force, progress=progress,
        )  # fmt: skip


# Options with the author's own words.
WORDS = ("title", "author", "text_source", "text_license", "notes", "section")


def words_of(config: Config) -> dict[str, Any]:
    """Return the author's words among the options, as `render` takes them."""
    return {name: getattr(config, name) for name in WORDS}


def render(study: "Study | Path", config: Config, progress: Progress, **words: Any) -> "Site":
    """Write the site of a study, given as such or by its folder.

    Args:
        words: words of the author in place of those of the study, as for `headbook.render`.
    """
    from headbook.site.sites import render as draw  # noqa: PLC0415 - slow to import

    assert config.out is not None
    return draw(
        study, config.out, base_url=config.base_url, force=config.force,
        processes=config.processes, progress=progress, **words,
    )  # fmt: skip
