"""The commands: parse options, run, print one line and return an exit code.

The codes are 0: done. 2: wrong use or input. 3: done, but a self-check failed. 1: a bug in
Headbook.
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
from headbook.cli import actions
from headbook.cli.actions import (
    RESERVED,
    check_kept,
    check_outside,
    check_studies,
    checked_out,
)
from headbook.cli.options import (
    BUILDING,
    CHOOSING,
    COLLECTING,
    COMPARE_OPTIONS,
    COMPARING,
    DRAWING,
    FILM_OPTIONS,
    FILMING,
    MERGING,
    PACKING,
    RENDERING,
    ROUNDED,
    Compared,
    Filmed,
    Inputs,
    OneOrTwo,
    Packable,
    Several,
    Stored,
    asked_revisions,
    check_options,
    correspondence_of,
    floor_of,
    formats_of,
    stored_studies,
    studies_of,
    with_options,
)
from headbook.cli.terminal import (
    close_stdout,
    escape_unprintable,
    is_closed_pipe,
    signals_as_interrupt,
    user_error,
)
from headbook.config import DEMO_OUT, REPORT, SUPPLEMENT, Config, creation_date
from headbook.errors import CheckError, ConfigError, PartialResultError
from headbook.memory import check_address_space
from headbook.output_folder import OutputKind, is_site, store_folder
from headbook.resources import folder
from headbook.schema import HeadCorrespondence

if TYPE_CHECKING:
    from headbook.comparison.film import Film
    from headbook.site.writer import WrittenSite
    from headbook.study.study import Study

DONE, BUG, WRONG, CHECKED = 0, 1, 2, 3
STOPPED = "stopped; no partial output is left"  # true also after all output was written
RESUMABLE = (
    "stopped; finished parts are kept, the same command goes on from there; --restart begins anew"
)
app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="From a list of sentences and a transformer to a static site about its attention heads.",
)


def _version(wanted: bool) -> None:
    if wanted:
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
    context.call_on_close(RESERVED.close)


@app.command()
@with_options(BUILDING, "inputs", Inputs)
def build(inputs: list[str], **options: Any) -> None:
    """Collect numbers and write the site."""
    _build(inputs, _config(options))


@app.command()
@with_options(BUILDING)
def demo(**options: Any) -> None:
    """Build the site of the sample inputs."""
    samples = [str(folder("sample_inputs") / "sentences.conllu")]
    titled = {"title": "Headbook on its sample sentences", "out": Path(DEMO_OUT)}
    given = {name: value for name, value in options.items() if value is not None}
    _build(samples, _config(titled | given))


@app.command()
@with_options(COLLECTING, "inputs", Inputs)
def collect(inputs: list[str], **options: Any) -> None:
    """Collect numbers and store them as a study."""
    config = _config(options)
    out = checked_out(config, inputs, OutputKind.STUDY)
    with _resumable(out) as work, actions.progress_of(config) as progress:
        study = actions.collect(inputs, config, progress, work)
        study.save(out, force=config.force)
    _say(config, f"Study: {out}")
    _check_outcome(config, study.manifest.failed, study.manifest.lacking)


@app.command(name="merge")
@with_options(MERGING, "studies", Several)
def merge_command(studies: list[Path], **options: Any) -> None:
    """Add up studies of parts of a corpus, in the order given, as one study."""
    config = _config(options)
    out = checked_out(config, [*map(str, studies)], OutputKind.STUDY)
    check_studies(*studies)
    from headbook.study.study import merge_studies  # noqa: PLC0415 - it loads pandas

    study = merge_studies(studies)
    study.save(out, force=config.force)
    counted = study.manifest.counts["sentences"]
    _say(config, f"Study of {counted:,} sentences: {out}")
    _check_outcome(config, study.manifest.failed, study.manifest.lacking)


@app.command(name="render")
@with_options(RENDERING, "study", Stored)
def render_command(study: Path, **options: Any) -> None:
    """Write the site of a stored study, without model or network."""
    config = _config(options)
    start = time.monotonic()
    checked_out(config, [str(study)], OutputKind.SITE)
    check_studies(study)
    with actions.progress_of(config) as progress:
        summary = actions.render(study, config, progress)
    _finish(config, summary, start)


@app.command(name="pack")
@with_options(DRAWING, "site", Packable, *PACKING)
def pack_command(site: Path, *, anonymous: bool, single_file: bool, **options: Any) -> None:
    """Write a site as one archive with checksums, or as one HTML file, for a supplement."""
    config = _config(options)
    is_site(site, anonymous=anonymous)
    from headbook.site.archive import pack_site  # noqa: PLC0415 - see steps

    out = config.out or Path(REPORT if single_file else SUPPLEMENT)
    with actions.progress_of(config) as progress:
        packed = pack_site(
            site, out, anonymous=anonymous, single_file=single_file, processes=config.processes,
            force=config.force, progress=progress,
        )  # fmt: skip
    _say(config, "\n".join(packed.report()))


@app.command(name="figures")
@with_options(DRAWING, "studies", OneOrTwo, *CHOOSING, ROUNDED)
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
    out = checked_out(config, [*map(str, studies)], OutputKind.FIGURES)
    if rounded is not None and len(studies) == 1:
        raise ConfigError("--rounded: got a study beside one study; expected two to compare")
    check_studies(*studies, rounded)
    from headbook.site import figures  # noqa: PLC0415 - see steps

    given: dict[str, Any] = {
        "only": only or (), "label": label, "view": view, "force": config.force,
    }  # fmt: skip
    with actions.progress_of(config) as progress:
        if len(studies) == 1:
            names = figures.write_figures(studies[0], out, progress=progress, **given)
        else:
            found = actions.compared((*studies, rounded, None, None, None), HeadCorrespondence.AUTO)
            names = figures.write_comparison_figures(found, out, progress=progress, **given)
    _say(config, f"{out / 'figures.tex'}\nfigures: {len(names)}")


@app.command(name="compare")
@with_options(COMPARE_OPTIONS, "given", Compared, *COMPARING)
def compare_command(
    given: list[str],
    *,
    models: tuple[str, str] | None,
    dtypes: tuple[str, str] | None,
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
    config, kind, formats = _config(options), correspondence_of(heads), formats_of(dtypes)
    floor = floor_of(rounding_floor)
    checked_out(config, given, OutputKind.SITE)
    check_outside("--keep-studies", keep_studies, config.out)
    if models is None:
        stored_ones = (*studies_of(given), rounded, untrained)
        check_studies(*stored_ones)
        summary = actions.compare((*stored_ones, None, None), kind, config, floor=floor)
    else:
        with actions.progress_of(config) as progress:
            found = actions.collect_pair(
                given, config, models, formats, progress, trained=trained_from, floor=floor
            )
        if keep_studies is not None:
            found.a.save(keep_studies / "a", force=config.force)
            found.b.save(keep_studies / "b", force=config.force)
        summary = actions.compare(found, kind, config, floor=False)
    _finish(config, summary, start)


@app.command(name="film")
@with_options(FILM_OPTIONS, "given", Filmed, *FILMING)
def film_command(
    given: list[str],
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
    check_options(
        given, config, revisions=revisions, studies=studies, keep_studies=keep_studies,
        delete_weights=delete_weights,
    )  # fmt: skip
    checked_out(config, given, OutputKind.SITE)
    if studies:
        kept = stored_studies(given)
        check_studies(*kept.values())
        film = actions.film({name: partial(actions.load, folder) for name, folder in kept.items()})
        summary = actions.render_film(film, config, "")
    else:
        wanted, (model, *inputs) = asked_revisions(revisions), given
        film = actions.collect_film(
            model, wanted, inputs, config, kept=keep_studies, delete_weights=delete_weights
        )
        summary = actions.render_film(film, config, f"Training of {Path(model).name}")
    _finish(config, summary, start)
    _check_film_outcome(config, film)


@app.command()
def metrics() -> None:
    """List every metric: id, unit and source."""
    from headbook.metrics import all_metrics  # noqa: PLC0415 - it loads every metric's file

    known = all_metrics().values()
    names = max(len(metric.id) for metric in known)
    units = max(len(metric.unit) for metric in known)
    section = ""
    for metric in known:
        if metric.section != section:
            section = metric.section
            typer.echo(f"{section}:")
        unit = metric.unit or "-"
        typer.echo(f"  {metric.id:{names}}  {unit:{units}}  {metric.reference}")


def _build(inputs: list[str], config: Config) -> None:
    start = time.monotonic()
    out = checked_out(config, inputs, OutputKind.SITE)
    check_kept(config, inputs)
    check_address_space()
    with _resumable(out) as work, actions.progress_of(config) as progress:
        study: Study | Path = (collected := actions.collect(inputs, config, progress, work))
        manifest = collected.manifest
        if config.keep_study is not None:
            collected.save(config.keep_study, force=config.force)
            study = config.keep_study
        del collected  # otherwise two copies of a stored study would be in memory
        summary = actions.render(study, config, progress)
    _finish(config, summary, start)
    _check_outcome(config, manifest.failed, manifest.lacking)


@contextmanager
def _resumable(out: Path) -> Iterator[Path]:
    """Yield the folder of finished parts, and remove the folder at the end."""
    work = store_folder(out)
    before = {*work.rglob("*.part")}  # parts of an earlier run, which this run may not need
    try:
        yield work
    except (KeyboardInterrupt, typer.Abort):
        if {*work.rglob("*.part")} - before:
            _leave(RESUMABLE, WRONG)
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


def _check_film_outcome(config: Config, film: "Film") -> None:
    """Report failed self-checks and sentences without numbers of all checkpoints."""
    manifests = {frame.name: frame.manifest for frame in film.frames}
    _check_outcome(
        config,
        [f"{name}: {text}" for name, each in manifests.items() for text in each.failed],
        [f"{name}: {text}" for name, each in manifests.items() for text in each.lacking],
    )


def _config(options: dict[str, Any]) -> Config:
    """Return the configuration of options and configuration file.

    A flag that was not given is left out, so that the configuration file can set it.
    """
    creation_date()  # checked first, since libraries fail on import with a wrong SOURCE_DATE_EPOCH
    file = options.pop("config", None)
    given = {name: value for name, value in options.items() if value is not False}
    return Config.of(file, **given)


def _finish(config: Config, summary: "WrittenSite", start: float) -> None:
    """Print which site was written, and open it if requested."""
    from headbook.report.wording import size_text  # noqa: PLC0415
    from headbook.site.archive import LIMITS  # noqa: PLC0415 - see steps

    limit = max((size for size in LIMITS if summary.size > size), default=0)
    if limit:
        typer.echo(
            f"warning: the site is larger than {size_text(limit)}, a common limit for supplements; "
            "fewer --sentence-pages, --query-key-sentences and --exemplars make it smaller",
            err=True,
        )
    pages, spent = f"{summary.pages:,} pages ({size_text(summary.size)})", time.monotonic() - start
    _say(config, f"Built {pages} in {spent:.1f} s: {summary.index}")
    if config.open:
        webbrowser.open(summary.index.resolve().as_uri())


def _say(config: Config, text: str) -> None:
    if not config.quiet:
        typer.echo(text)


def main() -> None:
    """Run a command, and end every error with one line and an exit code."""
    escape_unprintable()
    try:
        with signals_as_interrupt():
            stopped = app(standalone_mode=False)  # the code of an interrupt; None or 0 without one
            sys.stdout and sys.stdout.flush()
    except (CheckError, PartialResultError) as error:
        _leave(str(error), CHECKED)
    except TyperException as error:
        full = getattr(error, "format_message", None)  # with the option that the error concerns
        _leave(f"{str(full() if full else error).rstrip('.')}; see --help", WRONG)
    except (typer.Abort, KeyboardInterrupt):
        _leave(STOPPED, WRONG)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the last place that can explain a bug
        _leave_with(error)
    else:
        if stopped:
            _leave(STOPPED, WRONG)


def _leave_with(error: Exception | SystemExit) -> None:
    """Print an error and exit; a closed pipe is no error."""
    if is_closed_pipe(error):
        close_stdout()
        return
    if isinstance(error, SystemExit):
        raise error
    fault = user_error(error)
    if fault is not None:
        _leave(str(fault), WRONG)
    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exc()
    _leave(f"a bug, {type(error).__name__}: {error} (--verbose shows where)", BUG)


def _leave(text: str, code: int) -> NoReturn:
    with suppress(OSError):
        typer.echo(f"headbook: {' '.join(text.split())}", err=True)
    close_stdout()
    sys.exit(code)
