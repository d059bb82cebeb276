"""The size of a site is told before it is made, and kept below a limit where one is given."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headbook
import treebank
from headbook.collection.size import FAR, Expected, check_limit, expected
from headbook.config import Config
from headbook.errors import ConfigError, OutputError
from headbook.metrics import all_metrics, chosen_metrics
from headbook.progress import Silent
from headbook.resources import demo_model, folder
from headbook.site.detail import TOKEN_TABLES, Detail
from headbook.site.export import sizes
from headbook.study.study import Study
from pages import broken_links, differing, html_of, text_of, tree
from sites import Once, Site, make_study

KB = 1000
# Kilobytes that folders of a site may take: 24 sample sentences, 5 metrics, 72 heads.
SAMPLE = {
    "heads": 3_000, "data/heads": 400, "data/later": 160, "sentences": 900, "data/sentences": 500,
    "figures": 320, "metrics": 200, "data/charts": 60,
}  # fmt: skip


def predicted(study: Study, *, least: bool = False) -> Expected:
    """What is told of a study before it is made."""
    options = study.manifest.options
    names = ("metrics", "exemplars", "control", "control_seeds", "neuron_sentences")
    displayed = [s.texts for s in study.sentence_data.sentences.values() if s.listed]
    lengths = [{side: len(text.pieces) for side, text in texts.items()} for texts in displayed]
    config = Config(**{name: options[name] for name in names})
    metrics = [*chosen_metrics(config.metrics).values()]
    sentences = study.manifest.counts["sentences"]
    given = study.manifest.stacks, metrics, config, lengths
    return expected(*given, sentences=sentences, least=least)


def near(study: Study, site: Path) -> bool:
    return 1 / FAR < predicted(study).total / sum(sizes(site).values()) < FAR


@pytest.mark.slow
def test_sites_of_tiny_models_are_as_large_as_was_told(any_site: Site) -> None:
    assert near(any_site.study, any_site.folder)


@pytest.mark.slow
def test_a_site_of_sample_sentences_is_as_large_as_was_told(once: Once) -> None:
    """With the demo model, as the command ``demo`` makes it, but of fewer sentences and metrics."""

    def fill(place: Path) -> None:
        lines = (folder("sample_inputs") / "sentences.conllu").read_text().split("\n\n")[:24]
        (place / "few.conllu").write_text("\n\n".join(lines) + "\n\n")
        some = "attention_distance,attention_to,relation_accuracy,cosine_to_input,nearest_tokens"
        study = headbook.collect(
            [place / "few.conllu"], model=str(demo_model()), metrics=some, sentence_pages="6"
        )
        study.save(place / "study")
        headbook.render(study, place / "site", processes=1)

    place = once("sample-size", fill)
    assert near(Study.load(place / "study"), place / "site")
    counts: Counter[str] = Counter()
    for name, size in sizes(place / "site").items():
        counts[name.rpartition("/")[0]] += size
    over = {name: counts[name] for name, most in SAMPLE.items() if counts[name] > most * KB}
    assert not over
    assert counts.total() <= 9_000 * KB


class _Recorder(Silent):
    """What a run says, stages by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def stage(self, name: str, amount: int) -> None:
        self.lines.append(name)

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.slow
def test_a_limit_far_below_is_refused_before_the_model_runs(small_site: Site) -> None:
    reported = _Recorder()
    message = r"--max-site-size: 0.2 MB came; expected about \d+\.\d MB or more"
    with pytest.raises(OutputError, match=message):
        headbook.collect(
            [small_site.place / "trees.conllu"], model=str(small_site.model), annotator="none",
            max_site_size="200kB", progress=reported,
        )  # fmt: skip
    assert [line.partition(" will take")[0] for line in reported.lines] == ["the site", "the run"]


@pytest.mark.slow
def test_a_limit_that_the_least_detail_meets_is_never_refused(listed: Path, tmp_path: Path) -> None:
    """What is hardly missed is left to what is known after the run."""
    study = Study.load(listed / "study")
    least = predicted(study, least=True)
    with pytest.raises(OutputError, match=r"which this site takes with the least detail") as raised:
        headbook.render(study, tmp_path / "site", max_size=1e5)
    (message,) = re.findall(r"expected at least ([\d.]+) MB", str(raised.value))
    size = 1e6 * float(message)
    assert size / FAR < least.total < size * FAR
    assert least.total < predicted(study).total
    check_limit(least, size)
    check_limit(least, None)
    with pytest.raises(OutputError, match="will take with the least detail"):
        check_limit(least, least.total / FAR - 1)


@pytest.mark.slow
def test_the_size_is_told_before_the_model_runs(small_site: Site) -> None:
    """Of the sentences as the tokenizer divides them."""
    reported = _Recorder()
    options = small_site.study.manifest.options
    given = {name: options[name] for name in ("metrics", "exemplars", "sentence_pages")}
    study = headbook.collect(
        [small_site.place / "trees.conllu"], model=str(small_site.model), annotator="none",
        progress=reported, **given,
    )  # fmt: skip
    assert reported.lines[0] == predicted(study).report()
    assert reported.lines[2] == "corpus"


@pytest.mark.parametrize(
    ("text", "size"),
    [("50MB", 50e6), ("1.5 GB", 1.5e9), ("800kb", 800e3)],
)
def test_sizes_are_read(text: str, size: float) -> None:
    assert Config(max_site_size=text).max_bytes == size


@pytest.mark.parametrize("text", ["50", "MB", "fifty MB", "-1MB", "1TB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-site-size"):
        Config(max_site_size=text)


def test_more_costs_more() -> None:
    """Each count that a prediction takes makes it larger."""
    from headbook.terms import Side, Stack

    stack = Stack("self", 2, (0, 1), 4, 4, 8, False, Side.SOURCE, Side.SOURCE)
    metrics = [*all_metrics().values()]
    base: dict[str, Any] = {
        "stacks": [stack], "metrics": metrics[:9], "config": Config(neuron_sentences=0),
        "lengths": [{Side.SOURCE: 9}],
    }  # fmt: skip
    more: dict[str, Any] = {
        "stacks": [replace(stack, n_heads=5)], "metrics": metrics[:10],
        "config": Config(neuron_sentences=0, exemplars=11), "lengths": [{Side.SOURCE: 10}],
    }  # fmt: skip
    least = expected(**base).total
    assert all(expected(**(base | {name: value})).total > least for name, value in more.items())
    for options in ({"neuron_sentences": 1}, {"neuron_sentences": 0, "control": "untrained"}):
        assert expected(**(base | {"config": Config(**options)})).total > least
    assert expected(**(base | {"lengths": base["lengths"] * 2})).sentences == 2
    assert expected(**base, sentences=100).total > expected(**base, sentences=2).total > least
    assert expected(**base, sentences=1).total == least  # it is listed


@pytest.fixture(scope="session")
def listed(once: Once, small_site: Site) -> Path:
    """A study with a page for each of its sentences and several exemplars a head."""

    def fill(place: Path) -> None:
        options = {"metrics": "attention_distance,cosine_to_input,nearest_tokens"}
        study = make_study(
            treebank.write_trees(place / "trees.conllu"), small_site.model, sentence_pages="all",
            exemplars=4, **options,
        )  # fmt: skip
        study.save(place / "study")
        headbook.render(study, place / "site")

    return once("listed-site", fill)


def displayed(study: Study) -> tuple[int, int]:
    """Pages of sentences, and the highest rank of an exemplar."""
    sentences = [s for s in study.sentence_data.sentences.values() if s.listed]
    return len(sentences), max(e.rank for e in study.sentence_data.exemplars)


@pytest.mark.slow
def test_the_least_needed_goes_first_and_the_overview_says_so(listed: Path, tmp_path: Path) -> None:
    """Tables, queries and keys, exemplars beyond the third, pages of sentences: where it must."""
    study, whole = Study.load(listed / "study"), sizes(listed / "site")
    total = sum(whole.values())
    written = [name for name in whole if re.search(r"\.csv(\.gz)?$", name)]
    tables = sum(whole[n] for n in written if n.split("/")[-1].split(".")[0] in TOKEN_TABLES)
    neurons = sum(size for name, size in whole.items() if name.startswith("data/neurons/"))
    parts = ["tables of tokens", "queries and keys", "exemplars beyond the first 3", "maps of all"]
    saved = {0: 0, 2: tables + neurons // 2, 4: tables + neurons + 60_000}
    wanted = {total - bytes_saved: parts[:count] for count, bytes_saved in saved.items()}
    for number, (most, out) in enumerate(wanted.items()):
        site = tmp_path / str(number)
        summary = headbook.render(study, site, max_size=most)
        assert summary.size == sum(map(len, tree(site).values())) <= most
        message = json.loads((site / "data/manifest.json").read_text())["left_out"]
        assert message in text_of(html_of(site / "index.html"))
        assert message.count(";") == max(len(out) - 1, 0), message
        assert all(part in message for part in out), message
        whole_pages = len([*(site / "data/sentences").glob("*.png")])
        beyond = f"sentences beyond the first {whole_pages:,};"
        assert (beyond in message) == ("maps of all" in message)
        for page in site.rglob("*.html"):
            assert broken_links(site, page) == [], page
    assert differing(listed / "site", tmp_path / "0") == []


@pytest.mark.slow
def test_a_limit_that_cannot_be_kept_leaves_no_site(small_site: Site, tmp_path: Path) -> None:
    with pytest.raises(
        OutputError, match=r"--max-site-size: 1 MB came; expected at least [12](\.\d+)? MB"
    ):
        headbook.render(small_site.stored, tmp_path / "site", max_size=1e6)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_study_with_less_detail_keeps_the_first(listed: Path) -> None:
    study = Study.load(listed / "study")
    less = Detail(sentences=2, exemplars=1).of(study)
    assert (displayed(study)[1], displayed(less)) == (4, (2, 1))
    assert {*less.tokens["sentence"]} == {*less.nearest["sentence"]} == {1, 2}
    assert less.heads.equals(study.heads)
    assert Detail().of(study).sentence_data == study.sentence_data
    assert set(less.sentence_data.sentences) == set(study.sentence_data.sentences)
