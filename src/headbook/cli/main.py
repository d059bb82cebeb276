"""The commands: parse options, run, print one line and return an exit code.

The exit codes are 0: done; 1: a bug in Headbook; 2: wrong use or input; 3: done, but a self-check
failed or sentences could not be measured.
"""

import sys
import time
import traceback
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from headbook import __version__
from headbook.child_processes import without_current_folder
from headbook.cli import actions, terminal
from headbook.cli.options import (
    BUILD_OPTIONS,
    CHECKPOINTS_OPTIONS,
    CHECKPOINTS_PARAMETERS,
    COLLECT_OPTIONS,
    COMPARE_OPTIONS,
    COMPARE_PARAMETERS,
    FIGURE_OPTIONS,
    FIGURE_PARAMETERS,
    MERGE_OPTIONS,
    PACK_PARAMETERS,
    RENDER_OPTIONS,
    ROUNDED_PARAMETER,
    CheckpointArguments,
    CompareArguments,
    InputArguments,
    OneOrTwoStudies,
    SeveralStudies,
    SiteArgument,
    StudyArgument,
    adapters_of,
    check_checkpoints_options,
    floor_of,
    formats_of,
    requested_revisions,
    stored_studies,
    studies_of,
)
from headbook.cli.parameters import with_options
from headbook.config import DEMO_OUT, Config
from headbook.errors import CheckError, ConfigError, PartialResultError
from headbook.memory import check_address_space
from headbook.option_values import correspondence_of, creation_date
from headbook.output_folder import OutputKind, is_site, store_folder
from headbook.resources import folder
from headbook.schema import HeadCorrespondence

if TYPE_CHECKING:
    from headbook.comparison.checkpoints import Checkpoints
    from headbook.study.study import Study
    from headbook.written_site import Site

EXIT_DONE, EXIT_BUG, EXIT_WRONG_USE, EXIT_INCOMPLETE = 0, 1, 2, 3
app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="From a list of sentences and a transformer to a static site about its attention heads.",
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"headbook {__version__}")
        raise typer.Exit


@app.callback()
def headbook(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Register the options that precede a command."""
    context.call_on_close(actions.RESERVED.close)


@app.command()
@with_options(BUILD_OPTIONS, "inputs", InputArguments)
def build(inputs: list[str], **options: Any) -> None:
    """Collect numbers and write the site."""
    _build(inputs, _config(options))


@app.command()
@with_options(BUILD_OPTIONS)
def demo(**options: Any) -> None:
    """Build the site of the sample inputs."""
    samples = [str(folder("sample_inputs") / "sentences.conllu")]
    defaults = {"title": "Headbook on its sample sentences", "out": Path(DEMO_OUT)}
    options_given = {name: value for name, value in options.items() if value is not None}
    _build(samples, _config(defaults | options_given))


@app.command()
@with_options(COLLECT_OPTIONS, "inputs", InputArguments)
def collect(inputs: list[str], **options: Any) -> None:
    """Collect numbers and store them as a study."""
    config = _config(options)
    out = actions.checked_out(config, inputs, OutputKind.STUDY)
    with _resumable(out) as work, actions.progress_of(config) as progress:
        study = actions.collect(inputs, config, progress, work)
        study.save(out, force=config.force)
    _print(config, f"Study: {out}")
    _check_outcome(config, study.manifest.failed, study.manifest.lacking)


@app.command(name="merge")
@with_options(MERGE_OPTIONS, "studies", SeveralStudies)
def merge_command(studies: list[Path], **options: Any) -> None:
    """Add up studies of parts of a corpus, in the order given, as one study."""
    config = _config(options)
    out = actions.checked_out(config, [*map(str, studies)], OutputKind.STUDY)
    actions.check_studies(*studies)
    from headbook.report.wording import count_text  # noqa: PLC0415 - it loads pandas
    from headbook.study.merging import merge_report  # noqa: PLC0415 - it loads pandas
    from headbook.study.study import merge  # noqa: PLC0415 - it loads pandas

    study = merge(studies)
    study.save(out, force=config.force)
    n_texts = count_text(study.manifest.counts["sentences"], study.manifest.text_noun)
    report = "".join(f"\n{line}" for line in merge_report(study.manifest))
    _print(config, f"Study of {n_texts}: {out}{report}")
    _check_outcome(config, study.manifest.failed, study.manifest.lacking)


@app.command(name="render")
@with_options(RENDER_OPTIONS, "study", StudyArgument)
def render_command(study: Path, **options: Any) -> None:
    """Write the site of a stored study, without model or network."""
    config = _config(options)
    start = time.monotonic()
    actions.checked_out(config, [str(study)], OutputKind.SITE)
    actions.check_studies(study)
    with actions.progress_of(config) as progress:
        summary = actions.render(study, config, progress, **actions.words_of(config))
    _finish(config, summary, start)


@app.command(name="pack")
@with_options(FIGURE_OPTIONS, "site", SiteArgument, *PACK_PARAMETERS)
def pack_command(site: Path, *, anonymous: bool, single_file: bool, **options: Any) -> None:
    """Write a site as one archive with checksums, or as one HTML file, for a supplement."""
    config = _config(options)
    is_site(site, anonymous=anonymous)
    from headbook.site.archive import pack  # noqa: PLC0415 - slow to import

    with actions.progress_of(config) as progress:
        packed = pack(
            site, config.out, anonymous=anonymous, single_file=single_file,
            processes=config.processes, force=config.force, progress=progress,
        )  # fmt: skip
    _print(config, "\n".join(packed.report()))


@app.command(name="figures")
@with_options(FIGURE_OPTIONS, "studies", OneOrTwoStudies, *FIGURE_PARAMETERS, ROUNDED_PARAMETER)
def figures_command(
    studies: list[Path],
    *,
    only: list[str] | None,
    label: str,
    view: str,
    rounded: Path | None,
    **options: Any,
) -> None:
    """Write figures alone: SVG, PDF and CSV of each, with LaTeX and BibTeX."""
    config = _config(options)
    if len(studies) > 2:
        raise ConfigError(f"figures: got {len(studies)} folders, expected one study, or two")
    out = actions.checked_out(config, [*map(str, studies)], OutputKind.FIGURES)
    if rounded is not None and len(studies) == 1:
        raise ConfigError("--rounded: got a study beside one study; expected two to compare")
    actions.check_studies(*studies, rounded)
    from headbook.site.figures import figures  # noqa: PLC0415 - slow to import

    choices: dict[str, Any] = {
        "only": only or (), "label": label, "view": view, "force": config.force,
    }  # fmt: skip
    with actions.progress_of(config) as progress:
        source: Any = studies[0]
        if len(studies) == 2:
            source = actions.compared(
                (*studies, rounded, None, None, None), HeadCorrespondence.AUTO
            )
        names = figures(source, out, progress=progress, **choices)
    _print(config, f"{out / 'figures.tex'}\nfigures: {len(names)}")


@app.command(name="compare")
@with_options(COMPARE_OPTIONS, "arguments", CompareArguments, *COMPARE_PARAMETERS)
def compare_command(
    arguments: list[str],
    *,
    models: tuple[str, str] | None,
    dtypes: tuple[str, str] | None,
    adapters: tuple[str, str] | None,
    heads: str,
    rounded: Path | None,
    rounding_floor: str,
    untrained: Path | None,
    trained_from: bool,
    keep_studies: Path | None,
    **options: Any,
) -> None:
    """Write the site of two models on the same sentences."""
    start = time.monotonic()
    config = _config(options)
    correspondence, formats = correspondence_of(heads), formats_of(dtypes)
    floor, attached = floor_of(rounding_floor), adapters_of(adapters, models, config)
    actions.checked_out(config, arguments, OutputKind.SITE)
    actions.check_outside("--keep-studies", keep_studies, config.out)
    if models is None:
        folders = (*studies_of(arguments), rounded, untrained)
        actions.check_studies(*folders)
        summary = actions.compare((*folders, None, None), correspondence, config, floor=floor)
    else:
        kept = [] if keep_studies is None else [keep_studies / "a", keep_studies / "b"]
        actions.check_kept(config, arguments, "--keep-studies", *kept, force=config.force)
        with actions.progress_of(config) as progress:
            pair = actions.collect_pair(
                arguments, config, models, formats, progress, adapters=attached,
                trained=trained_from, floor=floor,
            )  # fmt: skip
        for study, folder in zip((pair.a, pair.b), kept, strict=False):
            study.save(folder, force=config.force)
        summary = actions.compare(pair, correspondence, config, floor=False)
    _finish(config, summary, start)


@app.command(name="checkpoints")
@with_options(CHECKPOINTS_OPTIONS, "arguments", CheckpointArguments, *CHECKPOINTS_PARAMETERS)
def checkpoints_command(
    arguments: list[str],
    *,
    revisions: str | None,
    studies: bool,
    keep_studies: Path | None,
    delete_weights: bool,
    **options: Any,
) -> None:
    """Write the site of a training: checkpoints of one model, in order."""
    start = time.monotonic()
    config = _config(options)
    check_checkpoints_options(
        arguments, config, revisions=revisions, studies=studies, keep_studies=keep_studies,
        delete_weights=delete_weights,
    )  # fmt: skip
    actions.checked_out(config, arguments, OutputKind.SITE)
    if studies:
        studies_by_name = stored_studies(arguments)
        actions.check_studies(*studies_by_name.values())
        checkpoints = actions.checkpoints(
            {name: partial(actions.load, folder) for name, folder in studies_by_name.items()}
        )
        summary = actions.render_checkpoints(checkpoints, config, "")
    else:
        checkpoints = actions.collect_checkpoints(
            requested_revisions(revisions), arguments, config, kept=keep_studies,
            delete_weights=delete_weights,
        )  # fmt: skip
        title = f"Training of {Path(config.model).name}"
        summary = actions.render_checkpoints(checkpoints, config, title)
    _finish(config, summary, start)
    _check_checkpoints_outcome(config, checkpoints)


@app.command()
def metrics() -> None:
    """List every metric: id, unit and source."""
    from headbook.metrics import all_metrics  # noqa: PLC0415 - it loads every metric's file

    known_metrics = all_metrics().values()
    id_width = max(len(metric.id) for metric in known_metrics)
    unit_width = max(len(metric.unit) for metric in known_metrics)
    section = ""
    for metric in known_metrics:
        if metric.section != section:
            section = metric.section
            typer.echo(f"{section}:")
        source = metric.reference + (f" (package {metric.package})" if metric.package else "")
        typer.echo(f"  {metric.id:{id_width}}  {metric.unit or '-':{unit_width}}  {source}")


def _build(inputs: list[str], config: Config) -> None:
    """Collect a study, write its site, and keep the study if ``--keep-study`` is set."""
    started = time.monotonic()
    out = actions.checked_out(config, inputs, OutputKind.SITE)
    kept = [] if config.keep_study is None else [config.keep_study]
    actions.check_kept(config, inputs, "--keep-study", *kept, force=config.force)
    check_address_space()
    with _resumable(out) as work, actions.progress_of(config) as progress:
        collected = actions.collect(inputs, config, progress, work)
        study: Study | Path = collected
        manifest = collected.manifest
        if config.keep_study is not None:
            collected.save(config.keep_study, force=config.force)
            study = config.keep_study
        del collected  # otherwise two copies of a stored study would be in memory
        summary = actions.render(study, config, progress)
    _finish(config, summary, started)
    _check_outcome(config, manifest.failed, manifest.lacking)


@contextmanager
def _resumable(out: Path) -> Iterator[Path]:
    """Yield the folder of finished parts, and remove the folder at the end."""
    work = store_folder(out)
    earlier_parts = {*work.rglob("*.part")}  # parts of an earlier run, which this run may not need
    try:
        yield work
    except (KeyboardInterrupt, typer.Abort):
        if {*work.rglob("*.part")} - earlier_parts:
            _exit_with(terminal.RESUMABLE, EXIT_WRONG_USE)
        raise
    from headbook.run.store import remove_store  # noqa: PLC0415 - it loads pandas

    remove_store(work)


def _check_outcome(config: Config, failed: Sequence[str], lacking: Sequence[str]) -> None:
    """Report failed self-checks and sentences without numbers, after all output is written.

    Raises:
        PartialResultError: sentences could not be measured.
        CheckError: a self-check failed, without ``--accept-failed-checks``.
    """
    _check_self_checks(config, failed)
    if lacking:
        raise PartialResultError(
            f"{'; '.join(lacking)}; the output is written without them, and says so"
        )


def _check_self_checks(config: Config, failed: Sequence[str]) -> None:
    """Raise an error for failed self-checks, or print a warning if they are accepted."""
    if not failed:
        return
    report = f"{len(failed)} self-check{'s' * (len(failed) > 1)} failed: {'; '.join(failed)}"
    if config.accept_failed_checks:
        typer.echo(f"warning: {report}; accepted, the overview says so", err=True)
        return
    raise CheckError(
        f"{report}; the output is written, but do not trust these numbers; with "
        "--accept-failed-checks the exit code is 0"
    )


def _check_checkpoints_outcome(config: Config, checkpoints: "Checkpoints") -> None:
    """Report failed self-checks and sentences without numbers of all checkpoints."""
    manifests = {frame.name: frame.manifest for frame in checkpoints.frames}
    _check_outcome(
        config,
        [f"{name}: {text}" for name, manifest in manifests.items() for text in manifest.failed],
        [f"{name}: {text}" for name, manifest in manifests.items() for text in manifest.lacking],
    )


def _config(options: dict[str, Any]) -> Config:
    """Return the configuration of options and configuration file.

    A flag that was not given is left out, so that the configuration file can set it.
    """
    creation_date()  # checked first, since libraries fail on import with a wrong SOURCE_DATE_EPOCH
    file = options.pop("config", None)
    set_options = {name: value for name, value in options.items() if value is not False}
    return Config.of(file, **set_options)


def _finish(config: Config, summary: "Site", start: float) -> None:
    """Print which site was written, and open it if requested."""
    from headbook.report.wording import size_text  # noqa: PLC0415
    from headbook.site.archive import VENUE_LIMITS  # noqa: PLC0415

    limit = max((size for size in VENUE_LIMITS if summary.size > size), default=0)
    if limit:
        typer.echo(
            f"warning: the site is larger than {size_text(limit)}, a common limit for supplements; "
            "fewer --sentence-pages, --query-key-sentences and --exemplars make it smaller",
            err=True,
        )
    pages = f"{summary.pages:,} pages ({size_text(summary.size)})"
    seconds = time.monotonic() - start
    _print(config, f"Built {pages} in {seconds:.1f} s: {summary.index}")
    if config.open:
        webbrowser.open(summary.index.resolve().as_uri())


def _print(config: Config, text: str) -> None:
    if not config.quiet:
        typer.echo(text)


def main() -> None:
    """Run a command, and end every error with one line and an exit code."""
    terminal.escape_unprintable()
    terminal.print_warnings()
    terminal.let_threads_sleep()
    try:
        with terminal.signals_as_interrupt(), without_current_folder():
            # The code of an interrupt; None or 0 without one.
            signal_code = app(standalone_mode=False)
            if sys.stdout:
                sys.stdout.flush()
    except (CheckError, PartialResultError) as error:
        _exit_with(error.with_flags, EXIT_INCOMPLETE)
    except TyperException as error:
        format_message = getattr(error, "format_message", None)  # names the option at fault
        text = str(format_message() if format_message else error).rstrip(".")
        _exit_with(f"{text}; see --help", EXIT_WRONG_USE)
    except (typer.Abort, KeyboardInterrupt):
        _exit_with(terminal.STOPPED, EXIT_WRONG_USE)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the last place that can explain a bug
        _exit_after(error)
    else:
        if signal_code:
            _exit_with(terminal.STOPPED, EXIT_WRONG_USE)


def _exit_after(error: Exception | SystemExit) -> None:
    """Print an error and exit; a closed pipe is no error."""
    if terminal.is_closed_pipe(error):
        terminal.close_stdout()
        return
    if isinstance(error, SystemExit):
        raise error
    if (fault := terminal.user_error(error)) is not None:
        _exit_with(fault.with_flags, EXIT_WRONG_USE)
    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exc()
    _exit_with(f"a bug, {type(error).__name__}: {error} (--verbose shows where)", EXIT_BUG)


def _exit_with(text: str, code: int) -> NoReturn:
    """Print a message as one line and exit."""
    with suppress(OSError):
        typer.echo(f"headbook: {' '.join(text.split())}", err=True)
    terminal.close_stdout()
    sys.exit(code)
