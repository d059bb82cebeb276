"""What `headbook` offers at its top level: names, types of options, and calls that do not fit."""

import inspect
import pydoc
from typing import get_type_hints

import pytest

import headbook
from headbook.config import Config
from headbook.errors import ConfigError, HeadbookError
from headbook.options import Options
from headbook.study.study import PUBLIC
from options_module import FILE, module, names

FUNCTIONS = ("ablate", "build", "checkpoints", "collect", "compare")


def test_the_types_of_options_are_those_that_the_script_writes() -> None:
    assert FILE.read_text(encoding="utf-8") == module()
    assert [*Options.__annotations__] == names()


def test_every_public_name_is_there_and_no_other() -> None:
    assert dir(headbook) == sorted(headbook.__all__)
    assert all(hasattr(headbook, name) for name in headbook.__all__)
    with pytest.raises(AttributeError):
        headbook.nothing  # noqa: B018


def test_a_study_has_the_public_names_of_its_docstring() -> None:
    study = object.__new__(headbook.Study)
    assert dir(study) == sorted(PUBLIC)
    table = (headbook.Study.__doc__ or "").partition("Attributes:")[0]
    assert {name for name in PUBLIC if f"`{name}`" in table} == {*PUBLIC}
    assert all(hasattr(headbook.Study, name) for name in PUBLIC if name != "manifest")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_begin_with_inputs_model_and_tokenizer(name: str) -> None:
    parameters = inspect.signature(getattr(headbook, name)).parameters
    first = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert first in (["inputs", "model", "tokenizer"], ["inputs", "models", "tokenizer"])
    assert parameters["options"].kind is inspect.Parameter.VAR_KEYWORD


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_lists_every_option_with_its_default(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(getattr(headbook, name)))
    defaults = Config()
    for option in names():
        assert f"    {option}={getattr(defaults, option)!r}" in text, option


def test_hints_of_options_can_be_read() -> None:
    import torch
    from spacy.language import Language

    hints = get_type_hints(Options, localns={"torch": torch, "Language": Language})
    assert hints["dtype"] == str | torch.dtype | None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrcs": "x"}, "unknown option 'metrcs'; did you mean 'metrics'?"),
        ({"quiet": True}, "unknown option 'quiet'"),
        ({"out": "x"}, "unknown option 'out'"),
    ],
)
def test_options_that_functions_do_not_take_are_named(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        headbook.collect(["a text"], "demo", **options)  # type: ignore[arg-type]
    assert str(error.value).startswith(message)


def test_no_model_is_an_error_of_one_line() -> None:
    for call in (headbook.collect, lambda texts: headbook.build(texts, out="x")):
        with pytest.raises(HeadbookError, match=r"^model: got none; expected a model object"):
            call(["a text"])


def test_objects_of_libraries_stand_for_texts() -> None:
    import spacy
    import torch

    pipeline = spacy.blank("de")
    config = Config.of(
        dtype=torch.bfloat16, device=torch.device("cpu"), circuits=False, importance=True,
        annotator=pipeline, section="a.md",
    )  # fmt: skip
    assert (config.dtype, config.device) == ("bfloat16", "cpu")
    assert (config.circuits, config.importance) == ("off", "auto")
    assert config.annotator == "de_pipeline in memory"
    assert [path.name for path in config.section] == ["a.md"]
    with pytest.raises(ConfigError, match=r"annotator.*a name with workers="):
        Config.of(annotator=pipeline, workers=2)
