"""The way of a user with a model, a tokenizer and a list of strings, from Python to a site."""

import shutil
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headbook
import tiny
from headbook.errors import ConfigError, OutputError, StudyError
from headbook.schema import Side
from headbook.written_site import Site

TEXTS = ["the cat sees a small bird .", "the dog runs near the house .", "a fisher sings ."]
QUICK: dict[str, Any] = {
    "annotator": "none", "importance": "off", "sentence_pages": 1,
    "metrics": "attention_distance,sink_share,cosine_to_input",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write("gpt2", tmp_path_factory.mktemp("models") / "gpt2", head=True)


@pytest.fixture
def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder)


@pytest.fixture
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A working folder in which nothing may be left but what was asked for."""
    monkeypatch.chdir(tmp_path)
    yield
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"site", "study", "texts.txt", "a", "b"}


def pages(site: Site) -> set[str]:
    assert site.path == site.index.parent
    assert site.size > 100_000
    found = {path.relative_to(site.path).as_posix() for path in site.path.rglob("*.html")}
    assert len(found) == site.pages
    return found


def test_from_a_model_and_a_table_to_a_site(model: Any, tokenizer: Any) -> None:
    table = pd.DataFrame({"words": TEXTS, "label": ["x", "y", "x"]})
    given = QUICK | {"metrics": "all"}
    study = headbook.collect(table, model=model, tokenizer=tokenizer, text_column="words", **given)
    assert [file.name for file in study.manifest.inputs] == ["in-memory table"]
    assert set(study.groups["group"]) >= {"x", "y"}
    assert not [*Path().iterdir()]
    site = headbook.render(study, "site")
    assert isinstance(site, headbook.Site)
    assert {"index.html", "heads/L01-H02.html", "sentences/0001.html"} <= pages(site)
    overview = site.index.read_text(encoding="utf-8")
    assert "in-memory table" in overview
    text = next(iter(study.sentence_data.sentences.values())).texts[Side.SOURCE]
    assert text.text == TEXTS[0]


def test_a_site_in_one_call_and_what_it_keeps(model: Any, tokenizer: Any) -> None:
    site = headbook.build(
        TEXTS, model, tokenizer, out="site", keep_study="study", title="Mine", **QUICK
    )
    assert "<title>Mine" in site.index.read_text(encoding="utf-8")
    assert headbook.Study.load("study").manifest.title == "Mine"
    with pytest.raises(OutputError, match=r"^site: "):
        headbook.build(TEXTS, model, tokenizer, out="site", **QUICK)
    again = headbook.build(TEXTS, model, tokenizer, out="site", keep_study="study", force=True,
        title="Mine", **QUICK,
    )  # fmt: skip
    assert (again.pages, again.size) == (site.pages, site.size)


def test_texts_of_a_file_give_the_numbers_of_texts_in_memory(model: Any, tokenizer: Any) -> None:
    Path("texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    studies = [
        headbook.collect(inputs, model=model, tokenizer=tokenizer, **QUICK)
        for inputs in (TEXTS, ["texts.txt"], "texts.txt", Path("texts.txt"))
    ]
    for study in studies[1:]:
        assert study.heads.equals(studies[0].heads)
        assert study.manifest.inputs[0].name == "texts.txt"


def test_two_objects_are_compared(model: Any, tokenizer: Any, folder: Path) -> None:
    other: Any = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        other.transformer.h[1].attn.c_attn.weight.mul_(1.5)
    comparison = headbook.compare(
        TEXTS, (model, other), tokenizer, out="site", trained_from=True, rounding_floor=False,
        **QUICK,
    )  # fmt: skip
    site = comparison.site
    assert site is not None
    assert "comparing.html" in pages(site)
    differences = pd.read_csv(site.path / "data" / "differences.csv")
    distance = differences[differences["metric"] == "attention_distance"]
    assert (distance.query("layer == 0")["difference"] == 0).all()
    assert (distance.query("layer == 1")["difference"] != 0).any()
    shutil.rmtree("site")
    untrained = headbook.compare(
        TEXTS, (model, "untrained"), tokenizer, rounding_floor=False, **QUICK
    )
    assert untrained.sides.names[1] == "gpt2-untrained"
    assert not Path("site").exists()
    with pytest.raises(ConfigError, match="show: got no site"):
        untrained.show()


def test_two_studies_are_compared(model: Any, tokenizer: Any, folder: Path) -> None:
    a = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, **QUICK)
    b = headbook.collect(TEXTS, model=str(folder), dtype="bfloat16", **QUICK)
    a.save("a")
    b.save("b")
    site = headbook.compare((a, b), out="site").site
    stored = headbook.compare(("a", Path("b")), out="site", force=True).site
    assert site is not None
    assert stored is not None
    assert pages(site) == pages(stored)
    assert site.size == stored.size


def test_ablation_takes_objects_and_texts(model: Any, tokenizer: Any, folder: Path) -> None:
    heads: Any = ["L0-H1", (1, 3)]
    by_object = headbook.ablate(TEXTS, model, heads=heads, replacement="zero", tokenizer=tokenizer)
    Path("texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    by_name = headbook.ablate("texts.txt", str(folder), heads=heads, replacement="zero")
    pd.testing.assert_frame_equal(by_object, by_name)


def test_a_site_is_shown_in_the_browser(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    site = headbook.build(TEXTS, model, tokenizer, out="site", **QUICK)
    site.show()
    assert opened == [Path("site/index.html").resolve().as_uri()]


def test_a_site_is_shown_in_a_frame_of_a_notebook(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipython = pytest.importorskip("IPython", reason="IPython is not installed")
    assert isinstance(ipython, ModuleType)
    shell = ipython.core.interactiveshell.InteractiveShell.instance()
    monkeypatch.setattr(shell, "kernel", object(), raising=False)
    frames: list[Any] = []
    monkeypatch.setattr(ipython.display, "display", frames.append)
    site = headbook.build(TEXTS, model, tokenizer, out="site", progress=False, **QUICK)
    site.show()
    assert [frame.src for frame in frames] == ["site/index.html"]
    assert "IPython" in sys.modules


def test_what_does_not_fit_a_comparison_is_known_in_one_line(model: Any, tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="compare: got no models and inputs that are not two"):
        headbook.compare(3, out="site")
    with pytest.raises(StudyError, match="the cat"):
        headbook.compare(TEXTS[:2], out="site")
    with pytest.raises(ConfigError, match="models: got 1 in a tuple, expected a tuple of two"):
        headbook.compare(TEXTS, (model,), out="site")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tokenizer: got 1 in a tuple, expected a tuple of two"):
        headbook.compare(TEXTS, (model, model), (tokenizer,), out="site")
    with pytest.raises(ConfigError, match="tokenizer: got one with the model's name 'demo'"):
        headbook.compare(TEXTS, ("demo", model), (tokenizer, tokenizer), out="a")
    with pytest.raises(ConfigError, match="tokenizer: got one with the names of two models"):
        headbook.compare(TEXTS, ("demo", "demo"), tokenizer, out="a")
    with pytest.raises(ConfigError, match="tokenizer: got a name with a model object, or an"):
        headbook.checkpoints(TEXTS, "run", tokenizer)
    with pytest.raises(ConfigError, match="config: got a GPT2LMHeadModel, expected a headbook"):
        headbook.collect(TEXTS, config=model)
    with pytest.raises(ConfigError, match=r"heads.*: got 'all', expected one of"):
        headbook.compare(TEXTS, ("demo", "demo"), heads="all", out="site")
