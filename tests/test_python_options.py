"""Messages name options as the caller writes them: arguments in Python, flags in commands."""

import inspect
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headbook
from command_line import Run
from headbook import option_values
from headbook.config import Config
from headbook.errors import ConfigError, HeadbookError, HeadbookWarning, InputError, warn
from headbook.python_options import names_arguments, python_text
from headbook.study.study import Study
from sites import Site


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--text-column: got 'a' with others", "text_column: got 'a' with others"),
        (
            "a.csv: columns 'a'; --text-column takes another",
            "a.csv: columns 'a'; text_column= takes another",
        ),
        ("--text-column=text reads one", "text_column='text' reads one"),
        ("such as --language=de; more", "such as language='de'; more"),
        ("site: exists; pass --force to replace it", "site: exists; pass force=True to replace it"),
        ("--merge-adapter: got no adapter", "merge_adapter: got no adapter"),
        (
            "--task: got 'label', expected none beside --importance off",
            "task: got 'label', expected none beside importance='off'",
        ),
        (
            "give one sentence a batch with --batch-tokens 1",
            "give one sentence a batch with batch_tokens=1",
        ),
        ("--dtype bfloat16 takes half", "dtype='bfloat16' takes half"),
        (
            "lower --batch-tokens, --max-length or --exemplars",
            "lower batch_tokens=, max_length= or exemplars=",
        ),
        ("--device cpu.", "device='cpu'."),
        ("four for each core, or --engine ray", "four for each core, or engine='ray'"),
        ("pip install --no-deps --force-reinstall x", "pip install --no-deps --force-reinstall x"),
        ("join them with llama-gguf-split --merge", "join them with llama-gguf-split --merge"),
        ("a folder of headbook build --keep-study", "a folder of headbook build --keep-study"),
        ("got '--limit', expected a name", "got '--limit', expected a name"),
        ("a--limit and ---limit", "a--limit and ---limit"),
    ],
)
def test_flags_become_arguments(text: str, expected: str) -> None:
    assert python_text(text) == expected
    assert python_text(expected) == expected


@pytest.mark.parametrize("name", Config.__dataclass_fields__)
def test_every_option_has_an_argument(name: str) -> None:
    value = "True" if Config.__dataclass_fields__[name].type is bool else ""
    assert python_text(f"use {option_values.flag(name)} here") == f"use {name}={value} here"


def test_arguments_of_the_function_itself_are_named() -> None:
    @names_arguments
    def drawn(only: str = "", *, whole: bool = False) -> None:
        raise ConfigError(f"--only: got {only}; --whole takes all, --other none")

    with pytest.raises(ConfigError) as error:
        drawn("x")
    assert str(error.value) == "only: got x; whole=True takes all, --other none"
    assert error.value.with_flags == "--only: got x; --whole takes all, --other none"
    assert [*inspect.signature(drawn).parameters] == ["only", "whole"]


def test_an_error_keeps_both_spellings_in_another_process() -> None:
    @names_arguments
    def read() -> None:
        raise InputError("a.csv", 2, found="nothing", expected="a text; --text-column names it")

    with pytest.raises(InputError) as error:
        read()
    copy = pickle.loads(pickle.dumps(error.value))  # noqa: S301 - of this test
    assert (str(copy), copy.with_flags) == (str(error.value), error.value.with_flags)
    assert str(copy).endswith("text_column= names it")


TEXTS = ["The dog sees the bird."]
CALLS: dict[str, tuple[Callable[[Study, Path], Any], str]] = {
    "collect": (
        lambda _, __: headbook.collect(TEXTS, model="demo", text_column="a"),
        "text_column",
    ),
    "a value": (lambda _, __: headbook.collect(TEXTS, model="demo", limit=0), "limit: got 0"),
    "two options": (
        lambda _, __: headbook.collect(TEXTS, model="demo", sample=2, pack=9),
        "sample: got 2 with pack=",
    ),
    "build": (lambda _, out: headbook.build(TEXTS, "demo", out=out, dtype="x"), "dtype: got 'x'"),
    "compare": (lambda s, out: headbook.compare((s, s), out=out, heads="x"), "heads: got 'x'"),
    "ablate": (
        lambda _, __: headbook.ablate(TEXTS, "demo", heads=["L0-H0"], batch_tokens=0),
        "batch_tokens: got 0",
    ),
    "render": (lambda s, out: headbook.render(s, out, notes="no.md"), "notes: no.md"),
    "an existing folder": (lambda s, out: headbook.render(s, out.parent), "Headbook did not"),
    "figures": (lambda s, out: headbook.figures(s, out, "x"), "only: 'x' is"),
    "a label": (
        lambda s, out: headbook.figures(s, out, "attention_distance", label="x"),
        "label: got 'x'",
    ),
    "a sentence": (lambda s, _: s.sentence(10**6), "; sentence_pages= of collect stores more"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_functions_name_arguments(small_site: Site, tmp_path: Path, name: str) -> None:
    call, expected = CALLS[name]
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(HeadbookError) as error:
        call(small_site.study, tmp_path / "out")
    assert expected in str(error.value)
    assert "--" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_study_that_exists_is_replaced_by_an_argument(small_site: Site, tmp_path: Path) -> None:
    small_site.study.save(tmp_path / "study")
    with pytest.raises(HeadbookError, match=r"exists already; pass force=True to replace it$"):
        small_site.study.save(tmp_path / "study")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("render", "{study}", "--out", "{out}", "--notes", "no.md"), "--notes: no.md"),
        (("figures", "{study}", "--out", "{out}", "--only", "x"), "--only: 'x' is"),
        (("render", "{study}", "--out", "{study}"), "holds the input"),
        (("render", "{study}", "--out", "{site}"), "exists already; pass --force to replace it"),
    ],
)
def test_commands_name_flags(
    run: Run, small_site: Site, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    """Also where they call functions that name arguments in Python."""
    places = {"study": small_site.stored, "site": small_site.folder, "out": tmp_path / "out"}
    output = run(*(argument.format(**places) for argument in arguments))
    assert output.code == 2
    assert expected in output.err


def test_warnings_name_arguments_in_python(run: Run, tmp_path: Path) -> None:
    with pytest.warns(HeadbookWarning) as found:
        warn("2 texts are cut; --max-length takes longer ones")
    (message,) = (each.message for each in found)
    assert str(message) == "2 texts are cut; max_length= takes longer ones"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert python_text(str(message)) == str(message)
