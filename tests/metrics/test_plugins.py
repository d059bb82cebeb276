"""Metrics and readers of another package: a folder on the path, as pip would have installed it."""

import re
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest
import torch
from test_new_metric import ROOT, documented
from transformers import AutoModel, AutoTokenizer

import headbook
from code_blocks import blocks
from command_line import Run
from headbook.errors import ConfigError, HeadbookError, HeadbookWarning, InputError
from headbook.inputs import open_corpus
from headbook.inputs.sources import other_readers
from headbook.metrics import all_metrics, chosen_metrics
from headbook.plugins import METRICS, READERS
from headbook.run.collect import collect
from headbook.site.archive import anonymise
from headbook.study.study import Study
from html_pages import data_file, html_of, text_of

CODE = """
from dataclasses import replace

from headbook.inputs.records import BlankLine, Record
from headbook.metrics.attention.variability import METRIC as SPREAD
from headbook.metrics.flow.mixing_ratio import METRIC as FLOW
from headbook.metrics.tokens.cosine_to_input import METRIC as COSINE


def fails(layer):
    raise ZeroDivisionError("no heads")


def plain(layer):
    return layer.weights


def at_the_end(layer):
    weights = layer.weights
    return Ratio(weights[..., -1].sum(-1), weights.sum((2, 3)), layer.frame.n_queries)


FAILS, PLAIN = replace(METRIC, measure=fails), replace(METRIC, measure=plain)
END = replace(METRIC, measure=at_the_end)
UPSIDE_DOWN = replace(METRIC, bounds=lambda n: (n, 0))


def subtitles(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield Record(number, line) if line else BlankLine(number)


def rows(path):
    yield Record(1, "One sentence.")
    yield {"text": "Another."}


def broken(path):
    yield Record(1, "One sentence.")
    raise KeyError("text")
"""
PACKAGE = "far-heads 1.2"
TEXTS = "The cat sat on the mat.\n\nThe dogs saw the cat and the mat.\n"


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """What installs a package of one file with entry points, given by group."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "far_heads.py").write_text(documented() + CODE, encoding="utf-8")
    facts = folder / "far_heads-1.2.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: far-heads\nVersion: 1.2\n")

    def forget() -> None:
        invalidate_caches()
        all_metrics.cache_clear()
        other_readers.cache_clear()

    def written(**groups: Mapping[str, str]) -> None:
        lines = [
            line
            for group, points in groups.items()
            for line in (
                f"[headbook.{group}]",
                *(f"{name} = far_heads:{value}" for name, value in points.items()),
            )
        ]
        (facts / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(folder))
        forget()

    yield written
    monkeypatch.undo()
    sys.modules.pop("far_heads", None)
    forget()


@pytest.fixture
def model(tiny_folder: Callable[[str], Path]) -> str:
    """A tiny encoder."""
    return str(tiny_folder("bert"))


def warned(act: Callable[[], object]) -> list[str]:
    """The warnings of Headbook that an act issues."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        act()
    return [str(each.message) for each in found if each.category is HeadbookWarning]


OPTIONS: dict[str, Any] = {
    "annotator": "none", "importance": "off", "circuits": "off", "sentence_pages": "1",
    "exemplars": 1,
}  # fmt: skip


def test_a_metric_and_a_reader_of_another_package_serve_like_those_of_headbook(
    install: Install, model: str, tmp_path: Path
) -> None:
    install(
        metrics={"far": "METRIC", "cosine": "COSINE", "flow": "FLOW"}, readers={".sub": "subtitles"}
    )
    file = tmp_path / "talk.sub"
    file.write_text(TEXTS)
    names = "attention_distance,far,cosine,flow"
    study = collect(file, model=model, metrics=names, **OPTIONS)
    assert study.manifest.packages == dict.fromkeys(("far", "cosine", "flow", ".sub"), PACKAGE)
    mine, known = (
        study.heads.query("metric == @name")["value"].to_numpy()
        for name in ("far", "attention_distance")
    )
    assert len(mine)
    assert mine == pytest.approx(known, rel=1e-5)
    study.save(tmp_path / "study")
    site = headbook.render(tmp_path / "study", tmp_path / "site").index.parent
    page = html_of(site / "metrics" / "far.html")
    assert "Mean distance from query to key in tokens" in page
    assert "<svg" in page
    assert (site / "figures" / "far-self.svg").is_file()
    found = data_file(site / "data" / "find.js")[1]["metrics"]
    assert ["Distance by weights", "metrics/far.html"] in [line[:2] for line in found]
    assert "far" in (site / "data" / "heads.csv").read_text()
    assert {"cosine", "flow"} <= {*study.words["metric"]}
    assert f"of {PACKAGE}" in text_of(html_of(site / "methods.html"))
    assert PACKAGE not in anonymise(study).manifest.to_json()


def test_a_study_whose_metric_is_not_installed_says_so(
    install: Install, model: str, tmp_path: Path
) -> None:
    install(metrics={"far": "METRIC", "spread": "SPREAD"})
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXTS)
    metrics = "attention_distance,far,spread"
    collect(texts, model=model, metrics=metrics, **OPTIONS).save(tmp_path / "study")
    install(metrics={})
    lines = warned(lambda: headbook.render(tmp_path / "study", tmp_path / "site"))
    assert lines == [
        f"metric {name}: {PACKAGE}, which measured it, is not installed, so its numbers are in the "
        "tables but on no page; install it and render the study again"
        for name in ("far", "spread")
    ]
    methods = text_of(html_of(tmp_path / "site" / "methods.html"))
    assert all(line in methods for line in lines)
    assert (tmp_path / "site" / "metrics" / "attention_distance.html").is_file()
    assert not (tmp_path / "site" / "metrics" / "far.html").exists()
    assert "far" in (tmp_path / "site" / "data" / "heads.csv").read_text()
    study = Study.load(tmp_path / "study")
    other = replace(study, manifest=replace(study.manifest, inputs=()))
    with pytest.raises(HeadbookError, match="metric 'spread': not installed"):
        _ = replace(other, stored_sampled=None).heads


def test_the_package_of_the_documents_works(install: Install, model: str, tmp_path: Path) -> None:
    """Its module and its entry points, as ``docs/extending.md`` prints them."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    project, *code = (code for language, code in blocks(text) if language != "text")
    install()
    folder = tmp_path / "packages"
    (folder / "far_heads.py").write_text("".join(code), encoding="utf-8")
    points = tomllib.loads(project)["project"]["entry-points"]
    assert {*points} == {METRICS, READERS}
    lines = [
        f"[{group}]\n" + "".join(f"{n} = {o}\n" for n, o in points[group].items())
        for group in points
    ]
    (folder / "far_heads-1.2.dist-info" / "entry_points.txt").write_text("".join(lines))
    file = tmp_path / "talk.srt"
    file.write_text(TEXTS)
    assert not warned(all_metrics)
    study = collect(file, model=model, metrics="far_attention,last_token", **OPTIONS)
    values = study.heads.query("metric == 'far_attention' and view == 'raw'")["value"]
    assert 0 < values.min() < values.max() < 1
    to_last = study.heads.query("metric == 'last_token'")
    assert {*to_last["view"]} == {"raw"}
    texts = TEXTS.split("\n\n")
    assert to_last["value"].to_numpy() == pytest.approx(share_of_last(model, texts), rel=1e-5)
    assert all_metrics()["far_attention"].summary.startswith("Share of attention to tokens")


def share_of_last(folder: str, texts: Sequence[str]) -> Any:
    """Attention of words to the last token over all of theirs, of each head, text by text."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    network: Any = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    lengths: set[int] = set()
    above, below = torch.zeros(()), torch.zeros(())
    for text in texts:
        ids = tokenizer(text.strip(), return_tensors="pt")
        lengths.add(ids["input_ids"].shape[1])
        with torch.no_grad():
            layers = network(**ids, output_attentions=True).attentions
        rows = torch.cat([*layers])[:, :, 1:-1].double()  # (layer, head, query, key)
        above = above + rows[..., -1].sum(2)
        below = below + rows.sum((2, 3))
    assert len(lengths) == len(texts)  # so that a batch of them is padded
    return (above / below).flatten().numpy()


def test_a_metric_that_reads_padding_ends_the_run(
    install: Install, model: str, tmp_path: Path
) -> None:
    install(metrics={"end": "END"})
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXTS)
    with pytest.raises(HeadbookError, match="metric 'end' of package far-heads") as error:
        collect(texts, model=model, metrics="end", **OPTIONS)
    line = str(error.value)
    numbers = re.search(
        r"is (\S+) for a text of (\d+) .* (\S+) in a batch with one of (\d+);", line
    )
    assert numbers is not None
    alone, length, in_batch, longest = map(float, numbers.groups())
    assert alone > in_batch == 0
    assert length < longest
    assert "docs/extending.md" in line
    assert "\n" not in line


KINDS = "an object of AttentionMetric, SampledMetric, ContextMetric, TokenMetric, FlowMetric"


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("gone", "GONE",
         f"AttributeError: module 'far_heads' has no attribute 'GONE'; expected {KINDS}"),
        ("gone", "measure", f"got a function; expected {KINDS}"),
        ("Far-heads", "METRIC", "got this name; expected small letters, digits and '_', since the "
         "name is the metric's id"),
        ("sink_share", "METRIC",
         "a metric of this id is in Headbook itself; expected another name"),
        ("down", "UPSIDE_DOWN", "bounds inf, 0; expected the smallest value first"),
    ],
)  # fmt: skip
def test_a_faulty_metric_is_left_out_with_a_line(
    install: Install, name: str, value: str, fault: str
) -> None:
    own = all_metrics().keys()
    install(metrics={name: value})
    place = f"package {PACKAGE}, entry point '{name}' of headbook.metrics"
    assert warned(all_metrics) == [f"{place}: {fault}; left out"]
    assert all_metrics().keys() == own
    assert not all_metrics()["sink_share"].package


def test_a_module_that_cannot_be_imported_stops_nothing(install: Install, tmp_path: Path) -> None:
    install(metrics={"far": "METRIC"}, readers={"sub": "subtitles"})
    (tmp_path / "packages" / "far_heads.py").write_text("import no_such_module\n")
    lines = [*warned(all_metrics), *warned(other_readers)]
    assert len(lines) == 2
    for line, name in zip(lines, ("far", "sub"), strict=True):
        assert f"package {PACKAGE}, entry point '{name}'" in line
        assert "No module named 'no_such_module'" in line
    with pytest.raises(ConfigError, match="--metrics: got 'far'"):
        chosen_metrics("far")


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("FAILS", "ZeroDivisionError: no heads"),
        ("PLAIN", "TypeError: measure returned a Tensor, expected a Ratio"),
    ],
)
def test_a_metric_that_fails_is_named(
    install: Install, model: str, tmp_path: Path, value: str, fault: str
) -> None:
    install(metrics={"far": value})
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXTS)
    with pytest.raises(HeadbookError) as error:
        collect(texts, model=model, metrics="far", **OPTIONS)
    assert f"metric 'far' of package {PACKAGE}: {fault}; repair the package" in str(error.value)


@pytest.mark.parametrize(
    ("reader", "line"),
    [
        ("rows", "talk.sub:1: the reader of .sub in package far-heads 1.2 failed, TypeError: "
         "it yielded a dict, not a Record or BlankLine; expected a file and a reader that go "
         "together"),
        ("broken", "talk.sub:1: the reader of .sub in package far-heads 1.2 failed, KeyError: "
         "'text'; expected a file and a reader that go together"),
    ],
)  # fmt: skip
def test_a_reader_that_fails_is_named(
    install: Install, tmp_path: Path, reader: str, line: str
) -> None:
    install(readers={"sub": reader})
    file = tmp_path / "talk.sub"
    file.write_text(TEXTS)
    with pytest.raises(InputError) as error:
        open_corpus([file])
    assert str(error.value) == line


def test_readers_of_headbook_win(install: Install, tmp_path: Path) -> None:
    install(readers={".txt": "broken", "GZ": "broken", "sub": "subtitles"})
    lines = warned(other_readers)
    assert [line.partition(": ")[2] for line in lines] == [
        ".txt is read by Headbook itself; expected another suffix; left out",
        ".gz is read by Headbook itself; expected another suffix; left out",
    ]
    file = tmp_path / "a.txt"
    file.write_text(TEXTS)
    with open_corpus([file]) as corpus:
        assert len(corpus) == 2
    packed = tmp_path / "talk.sub.gz"
    packed.touch()
    with pytest.raises(
        InputError, match=r"a compressed \.sub file; expected the \.sub file itself"
    ):
        open_corpus([packed])


def test_the_command_line_says_it_in_one_line(install: Install, run: Run) -> None:
    install(metrics={"far": "METRIC", "gone": "GONE"})
    code, out, err = run("metrics")
    assert code == 0
    assert f"(package {PACKAGE})" in out
    (line,) = err.splitlines()
    assert line.startswith(f"warning: package {PACKAGE}, entry point 'gone' of headbook.metrics: ")
