"""The command line: options in, one line and an exit code out."""

import dataclasses
import io
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import headbook
from command_line import FEW, Output, Run
from headbook.cli import options
from headbook.config import Config
from headbook.metrics import all_metrics
from headbook.option_values import flag
from headbook.output_folder import store_folder as work_folder
from headbook.site import sites
from headbook.study.manifest import SCHEMA
from html_pages import differing, tree
from machine import small_files
from sites import Site

COMMANDS = {
    "build": options.BUILD_OPTIONS,
    "demo": options.BUILD_OPTIONS,
    "collect": options.COLLECT_OPTIONS,
    "render": options.RENDER_OPTIONS,
    "pack": options.FIGURE_OPTIONS,
    "figures": options.FIGURE_OPTIONS,
}


def refused(output: Output, message: str) -> None:
    """Code 2 and one line."""
    assert output.code == 2
    assert output.out == ""
    assert re.fullmatch(f"headbook: .*{message}.*\n", output.err), output.err


def test_the_version_is_one_line(run: Run) -> None:
    assert run("--version") == Output(0, f"headbook {headbook.__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option_in_full_on_a_narrow_terminal(run: Run, command: str) -> None:
    code, out, err = run(command, "--help-all")
    assert (code, err) == (0, "")
    words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())
    fields = {field.name: field for field in dataclasses.fields(Config)}
    for name in COMMANDS[command]:
        assert re.search(rf"{flag(name)}\s", out), name
        assert all(short in words for short in fields[name].metadata["flags"])
        help_words = fields[name].metadata["help"].split()
        assert all(word in words for word in help_words), name
    assert "--config" in out


def test_metrics_lists_every_metric_with_unit_and_source(run: Run) -> None:
    output = run("metrics")
    assert output.code == 0
    lines = [" ".join(line.split()) for line in output.out.splitlines() if line.startswith("  ")]
    assert lines == [f"{m.id} {m.unit or '-'} {m.reference}" for m in all_metrics().values()]


def test_help_of_the_program_names_every_command(run: Run) -> None:
    out = run("-h").out
    assert all(f" {command} " in out for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build"], "INPUT.*; see --help"),
        (["biuld"], "biuld.*; see --help"),
        (["build", "x.txt", "--modle=m"], "--modle.*; see --help"),
        (["render", "study", "--max-site-size=50MB"], "--max-site-size.*; see --help"),
        (["build", "x.txt", "--exemplars=many"], "--exemplars.*integer.*; see --help"),
        (["build", "x.txt"], "--out: got nothing, expected a folder to write"),
        (["build", "x.txt", "-o", "s", "--device=tpu"], "--device: got 'tpu', expected one of"),
        (["build", "x.txt", "-o", "s", "--metrics=depth"], "depth"),
        (["build", "x.txt", "-o", "s", "--task=tagging"], "--task: got 'tagging', expected 'auto'"),
        (
            ["build", "x.txt", "-o", "s", "--task=label", "--importance=off"],
            "--task: got 'label', expected auto or none beside --importance off",
        ),
        (["build", "none.txt", "-o", "s"], "none.txt"),
        (["build", "x.txt", "-o", "."], r"\.: holds the input x\.txt"),
        (["build", "x.txt", "-o", "foreign"], "foreign: holds something that Headbook did not"),
        (["build", "x.txt", "-o", "s", "-c", "no.toml"], "no.toml"),
        (["build", "x.txt", "-o", "s", "--model=./nowhere"], "nowhere"),
        (["build", "x.txt", "-o", "s", "--notes=no.md"], "--notes"),
        (["build", "inside/x.txt", "-o", "inside"], "inside: holds the input inside/x.txt"),
        (["build", "inside/deep/x.txt", "-fo", "inside"], "inside: holds the input"),
        (["build", "x.txt", "-o", "s", "--model", ""], "--model: got '', expected something"),
        (["build", "x.txt", "-o", "s", "--annotator= "], "--annotator: got ' ', expected"),
        (["build", "x.txt", "-o", "caf\udce9"], r"--out: got 'caf.udce9', expected text in UTF-8"),
        (["build", "x.txt", "-o", "s", "--title=\udce9"], "--title: .* expected text in UTF-8"),
        (["build", "x.txt", "-o", "n" * 300], "File name too long; expected a folder"),
        (
            ["build", "x.txt", "-o", "s", "--keep-study=s/t"],
            "--keep-study: got s/t, which lies",
        ),
        (
            ["compare", "x.txt", "--models", "a", "b", "-o", "s", "--keep-studies=s/t"],
            "--keep-studies: got s/t, which lies",
        ),
        (["render", "caf\udce9", "-o", "s"], r"caf\\udce9: no manifest.json"),
        (["render", "no-study", "-o", "s"], "no-study: no manifest.json; expected a folder"),
        (["render", "foreign", "-o", "s"], "foreign: no manifest.json"),
        (["render", "inside", "-o", "inside"], "inside: holds the input inside"),
    ],
)
def test_wrong_use_is_one_line_and_code_two(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("The dog sees the bird.\n")
    for name in ("inside/x.txt", "inside/deep/x.txt", "foreign/thesis.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("years of work")
    before = tree(tmp_path)
    refused(run(*arguments), message)
    assert tree(tmp_path) == before


def test_a_bug_is_one_line_and_code_one(
    run: Run, small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(sites, "render", broken)
    output = run("render", small_site.stored, "--out", tmp_path / "s", "-q")
    line = "headbook: a bug, ZeroDivisionError: division by zero (--verbose shows where)\n"
    assert output == Output(1, "", line)
    verbose = run("render", small_site.stored, "--out", tmp_path / "s", "-v")
    assert verbose.code == 1
    assert "Traceback (most recent call last)" in verbose.err


def test_an_interrupt_is_one_line(
    run: Run, small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sites, "render", stopped)
    output = run("render", small_site.stored, "--out", tmp_path / "s", "-q")
    assert output == Output(2, "", "headbook: stopped; no partial output is left\n")


@pytest.mark.parametrize(("measured", "message"), [
    (False, "stopped; no partial output is left"),
    (True, "stopped; finished parts are kept, the same command goes on from there; --restart "
           "begins anew"),
])  # fmt: skip
def test_an_interrupt_says_what_is_kept_only_where_something_is(
    run: Run,
    small_site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    *,
    measured: bool,
) -> None:
    """Beside parts of an earlier run, which one of few sentences does not read."""
    parts = work_folder(tmp_path / "study") / "corpus"
    parts.mkdir(parents=True)
    (parts / "000000.part").write_bytes(b"of an earlier run")

    def stopped(*_: object, **__: object) -> None:
        if measured:
            (parts / "000001.part").write_bytes(b"of this run")
        raise KeyboardInterrupt

    monkeypatch.setattr("headbook.cli.actions.collect", stopped)
    given = ("collect", small_site.place / "trees.conllu", f"--model={small_site.model}", "-q")
    output = run(*given, "--out", tmp_path / "study")
    assert output == Output(2, "", f"headbook: {message}\n")


@pytest.mark.parametrize("name", ["manifest.json", "arrays.safetensors", "tokens.parquet"])
def test_a_broken_study_is_one_line(run: Run, small_site: Site, tmp_path: Path, name: str) -> None:
    study = tmp_path / "study"
    shutil.copytree(small_site.stored, study)
    content = (study / name).read_bytes()
    (study / name).write_bytes(content[: len(content) // 2])
    output = run("render", study, "--out", tmp_path / "s")
    refused(output, "expected ")
    assert not (tmp_path / "s").exists()


def test_a_study_of_another_version_is_one_line(run: Run, small_site: Site, tmp_path: Path) -> None:
    study = tmp_path / "study"
    shutil.copytree(small_site.stored, study)
    manifest = json.loads((study / "manifest.json").read_text())
    for version, reader in (
        ("0.0.9", "Headbook '0.0.9'"),
        (headbook.__version__, "another build of"),
    ):
        changed = manifest | {"schema": SCHEMA - 1, "headbook": version}
        (study / "manifest.json").write_text(json.dumps(changed))
        found = run("render", study, "--out", tmp_path / "s")
        refused(found, f"schema {SCHEMA - 1}, expected {SCHEMA}; collect it again, or")
        refused(found, f"read it with {reader}")


@pytest.mark.slow
def test_render_says_what_it_wrote(run: Run, small_site: Site, tmp_path: Path) -> None:
    """In a pipe: plain lines, progress on the other stream."""
    out = tmp_path / "site"
    output = run("render", small_site.stored, "--out", out)
    assert output.code == 0
    pages = len(small_site.pages)
    place = re.escape(str(out / "index.html"))
    displayed = rf"Built {pages} pages \([\d.]+ MB\) in [\d.]+ s: {place}\n"
    assert re.fullmatch(displayed, output.out)
    opened, first, *_, last = output.err.splitlines()
    assert re.fullmatch(r"overview, while the rest is made: .*/new/index\.html", opened)
    assert first.startswith("pages: ")
    assert last == "pages: 100 %"
    assert "\x1b" not in output.out + output.err
    assert differing(small_site.folder, out) == []


@pytest.mark.slow
def test_collect_then_render_is_build(run: Run, small_site: Site, tmp_path: Path) -> None:
    """Byte for byte; options from a file and from flags, of which flags win; --quiet is quiet."""
    inputs = small_site.place / "trees.conllu"
    (tmp_path / "few.toml").write_text(
        'title = "not this one"\nannotator = "none"\nexemplars = 1\nsentence-pages = 1\n'
        'importance = "off"\n'
        'metrics = "attention_distance,cosine_to_input,nearest_tokens"\n'
    )
    tomllib.loads((tmp_path / "few.toml").read_text())
    model = f"--model={small_site.model}"
    flags = ("-c", tmp_path / "few.toml", "--title=T", model, "-q")
    assert run("collect", inputs, *flags, "-o", tmp_path / "study") == Output(0, "", "")
    assert run("render", tmp_path / "study", "-q", "-o", tmp_path / "two") == Output(0, "", "")
    kept = ("--keep-study", tmp_path / "kept")
    assert run("build", inputs, model, *FEW, *kept, "-q", "-o", tmp_path / "one") == Output(
        0, "", ""
    )
    assert differing(tmp_path / "study", tmp_path / "kept") == []
    assert differing(tmp_path / "one", tmp_path / "two") == []
    assert "<title>T</title>" in (tmp_path / "one/index.html").read_text()


def test_sentences_come_from_standard_input_too(
    run: Run, small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"The dog sees the bird.\nThe bird sings.\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    study = tmp_path / "study"
    output = run("collect", "-", f"--model={small_site.model}", *FEW, "-q", "--out", study)
    assert output == Output(0, "", "")
    manifest = json.loads((study / "manifest.json").read_text())
    assert manifest["counts"]["sentences"] == 2


def test_figures_says_what_it_wrote_or_which_names_there_are(
    run: Run, small_site: Site, tmp_path: Path
) -> None:
    out = tmp_path / "figures"
    names = ("--only", "attention_distance-*", "--only=vocabulary_rank-self-layers")
    output = run("figures", small_site.stored, *names, "-q", "--out", out)
    assert output == Output(0, "", "")
    assert len(list(out.glob("*.csv"))) == 4
    refused(run("figures", small_site.stored, "--out", out), "exists already; pass --force")
    output = run("figures", small_site.stored, "-f", "--only", "attention_to-self", "--out", out)
    assert output == Output(0, f"{out}/figures.tex\nfigures: 1\n", "figures: 0 %\nfigures: 100 %\n")
    wrong = run("figures", small_site.stored, "--only=attention_too", "--out", tmp_path / "no")
    refused(wrong, "--only: 'attention_too' .* such as attention_to-self, ")
    assert not (tmp_path / "no").exists()


def test_pack_says_what_it_wrote(run: Run, small_site: Site, tmp_path: Path) -> None:
    out = tmp_path / "s.zip"
    output = run("pack", small_site.folder, "--out", out)
    assert (output.code, output.err) == (0, "")
    name, sizes, *limits = output.out.splitlines()
    assert name == str(out)
    assert re.fullmatch(
        rf"{len(tree(small_site.folder)) + 2} files, .* [kM]B, unpacked .* MB", sizes
    )
    assert [line[:13] for line in limits] == ["within 50 MB:", "within 100 MB"]
    refused(run("pack", small_site.folder, "--out", out), "exists already; pass --force")
    assert run("pack", small_site.folder, "--out", out, "-fq") == Output(0, "", "")
    refused(run("pack", small_site.folder, "-o", tmp_path / "t.zip", "--anonymous"), "keep-study")
    refused(run("pack", tmp_path, "-o", small_site.place / "t.zip"), "neither a site nor a study")
    one = tmp_path / "r.html"
    output = run("pack", small_site.folder, "--single-file", "--out", one)
    name, sizes, *_ = output.out.splitlines()
    assert name == str(one)
    assert re.fullmatch(rf"{len(tree(small_site.folder))} files, .* [kM]B, unpacked .* MB", sizes)


@pytest.mark.parametrize("epoch", ["abc", "1" * 30, "1.5"])
@pytest.mark.parametrize("command", ["build", "render"])
def test_a_wrong_date_is_known_before_anything_else(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, epoch: str
) -> None:
    """Before libraries are imported, too: some of them stumble over it."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    refused(run(command, "x.txt", "-o", "s"), f"SOURCE_DATE_EPOCH: got '{epoch}', expected whole")


@pytest.mark.parametrize("command", ["figures", "render", "pack"])
def test_a_disk_that_is_full_is_one_line(
    run: Run, small_site: Site, tmp_path: Path, command: str
) -> None:
    study = small_site.folder if command == "pack" else small_site.stored
    with small_files(5_000):
        output = run(command, study, "-q", "-o", tmp_path / "s")
    refused(output, f"{tmp_path}/s: File too large; expected ")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.soak
def test_the_program_works_as_a_process(small_site: Site, tmp_path: Path) -> None:
    """Exit codes reach the shell, and no library adds a line of its own."""
    command = [sys.executable, "-m", "headbook"]
    bad = subprocess.run([*command, "build"], check=False, capture_output=True, text=True)
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
    arguments = ["build", str(small_site.place / "trees.conllu"), f"--model={small_site.model}"]
    arguments += [*FEW, "--importance=auto", "--out", str(tmp_path / "site")]
    good = subprocess.run([*command, *arguments], check=False, capture_output=True, text=True)
    assert good.returncode == 0
    (line,) = good.stdout.splitlines()
    assert re.match(r"Built \d+ pages \(.*MB\) in .* s: ", line)
    stages = {line.partition(":")[0] for line in good.stderr.splitlines()}
    assert stages == {
        "corpus", "sample", "sentences", "what heads write", "importance", "importance, auto",
        "overview, while the rest is made", "pages",
    }  # fmt: skip
