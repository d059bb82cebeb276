"""Studies of tiny models and their sites, made once a session: what tests of pages look at."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import headbook
from headbook.report.results import StackResults, stack_results
from headbook.study.study import Study
from html_pages import data_file

FAMILIES = {"encoder": "bert", "decoder": "gpt2", "pair": "bart"}
EPOCH = "1700000000"  # the date of every study here: 2023-11-14
SOMEBODY = "somebody-who-ran-it"  # the user's name, which no file may hold
NOTES = "Some *notes* with a [link](https://doi.org/10.1000/1) and `code`.\n"
DECODER_METRICS = (
    "attention_distance,offset_profile,relative_entropy,sink_share,cosine_to_input,nearest_tokens,"
    "head_distance"
)
PAIR_METRICS = (
    "attention_distance,relative_entropy,attention_to,dependency_alignment,"
    "cosine_to_input,vocabulary_rank,nearest_tokens,head_distance"
)
SMALL = {
    "metrics": "attention_distance,attention_to,cosine_to_input,vocabulary_rank,nearest_tokens",
    "exemplars": 1,
    "sentence_pages": "1",
}

# Name of a folder and what fills it, to the folder.
Once = Callable[[str, Callable[[Path], object]], Path]


@dataclass(frozen=True)
class Site:
    """A study and its site.

    Attributes:
        kind: encoder, decoder, pair or small.
        place: folder that holds everything: ``inputs``, ``model``, ``study``, ``site``.
    """

    kind: str
    place: Path

    @property
    def folder(self) -> Path:
        """The site."""
        return self.place / "site"

    @property
    def stored(self) -> Path:
        """The stored study."""
        return self.place / "study"

    @property
    def model(self) -> Path:
        """The model's folder."""
        return self.place / f"tiny-{self.kind}"

    @property
    def pages(self) -> list[Path]:
        """Every HTML file, in order."""
        return sorted(self.folder.rglob("*.html"))

    @property
    def study(self) -> Study:
        """The study, read once for all tests that change neither it nor any code."""
        return _study(self.stored) if SHARING["studies"] else Study.load(self.stored)

    @property
    def results(self) -> dict[str, StackResults]:
        """Results of the study by stack, shared in the same way."""
        if SHARING["studies"]:
            return _results(self.stored)
        return stack_results(Study.load(self.stored))


QUICK: dict[str, Any] = {  # one cheap number of whole texts, for tests of inputs and tokenizers
    "metrics": "sink_share",
    "annotator": "none",
    "language": "none",
    "importance": "off",
    "circuits": "off",
    "sentence_pages": 1,
    "exemplars": 1,
}
# Whether the current test may look at studies that others have looked at.
SHARING = {"studies": True}


@cache
def _study(stored: Path) -> Study:
    return Study.load(stored)


@cache
def _results(stored: Path) -> dict[str, StackResults]:
    return stack_results(_study(stored))


def make_study(inputs: Path, model: Path, **options: Any) -> Study:
    """Return a small study in float64, for which machines agree on every printed digit."""
    given: dict[str, Any] = {
        "annotator": "none",
        "dtype": "float64",
        "control": "shuffled",
        "exemplars": 2,
        "sentence_pages": "2",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        patch.setenv("USER", SOMEBODY)
        patch.setenv("LOGNAME", SOMEBODY)
        return headbook.collect([inputs], model=str(model), **(given | options))


def write_site(place: Path, kind: str, **options: Any) -> Site:
    """Write inputs, model, study and site below a folder."""
    import tiny
    import treebank

    site = Site(kind, place)
    tiny.write(FAMILIES.get(kind, "bert"), site.model)
    (place / "notes.md").write_text(NOTES, encoding="utf-8")
    if kind == "pair":
        inputs = treebank.write_pairs(place / "pairs.jsonl", treebank.MANY_PAIRS)
    else:
        inputs = treebank.write_trees(place / "trees.conllu", treebank.MANY)
    title = f"A tiny {kind}"
    study = make_study(inputs, site.model, notes=place / "notes.md", title=title, **options)
    study.save(site.stored)
    headbook.render(study, site.folder)
    return site


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Fill a folder, or take the one that another worker of this run has filled."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name: str, fill: Callable[[Path], object]) -> Path:
        path, draft = shared / name, shared / f"{name}-draft"
        with FileLock(shared / f"{name}.lock"):
            if not path.exists():
                shutil.rmtree(draft, ignore_errors=True)  # what a failed try has left
                draft.mkdir()
                fill(draft)
                draft.rename(path)
        return path

    return folder


@pytest.fixture(scope="session")
def made_once(once: Once) -> Callable[..., Site]:
    """Make a site, once for all workers."""

    def make(kind: str, **options: Any) -> Site:
        path = once(f"{kind}-site", lambda draft: write_site(draft, kind, **options))
        return Site(kind, path)

    return make


@pytest.fixture(scope="session")
def encoder_site(made_once: Callable[..., Site]) -> Site:
    """Return the site of a tiny BERT on annotated sentences, with every metric."""
    return made_once("encoder")


@pytest.fixture(scope="session")
def decoder_site(made_once: Callable[..., Site]) -> Site:
    """Return the site of a tiny GPT-2 on annotated sentences, with some of the metrics."""
    return made_once("decoder", metrics=DECODER_METRICS)


@pytest.fixture(scope="session")
def circuit_site(once: Once, decoder_site: Site) -> Site:
    """Return the site of the tiny GPT-2 with chosen results on what its heads read and write."""
    from circuits import small_study

    def fill(draft: Path) -> None:
        study = small_study(decoder_site.study)
        study.save(draft / "study")
        headbook.render(study, draft / "site")

    return Site("circuit", once("circuit-site", fill))


@pytest.fixture(scope="session")
def pair_site(made_once: Callable[..., Site]) -> Site:
    """Return the site of a tiny BART on pairs of texts, with some of the metrics."""
    return made_once("pair", metrics=PAIR_METRICS)


@pytest.fixture(scope="session")
def small_site(made_once: Callable[..., Site]) -> Site:
    """Return the smallest site that has every kind of page, for tests that render it again."""
    return made_once("small", **SMALL)


@pytest.fixture(
    scope="session",
    params=[
        "encoder",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("decoder", "pair")),
    ],
)
def any_site(request: pytest.FixtureRequest) -> Site:
    """Return the sites of encoder, decoder and pair in turn; in the quick round the first alone."""
    site: Site = request.getfixturevalue(f"{request.param}_site")
    return site


def data_of(site: Site, name: str) -> Any:
    """Return the value of a data file."""
    named, value = data_file(site.folder / f"data/{name}.js")
    assert named == name
    return value
