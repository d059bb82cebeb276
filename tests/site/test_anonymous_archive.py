"""An anonymous archive tells nobody who made it, and is otherwise the same."""

import gzip
import io
import json
import platform
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from test_archive import refusal, unpacked

from headbook.errors import StudyError
from headbook.resources import DEMO_CAUSAL_SHA256, DEMO_SHA256
from headbook.site.archive import (
    ARCHIVE_FOLDER,
    LOCAL_ADAPTER_NAME,
    LOCAL_MODEL_NAME,
    anonymise,
    pack,
)
from headbook.site.markup import values
from headbook.study.study import Study
from html_pages import tree
from sites import SOMEBODY, Once, Site, make_study

pytestmark = pytest.mark.slow

STREAM = re.compile(rb"stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
AUTHOR = "zwicky"
DATE = "2023-11-14"
COLUMN = "ours.example"  # in a column of the input, as a link
# What a telling site says of its author: in the title, the notes, and names of files and folders.
TELLING = (
    "Heads of Zwicky and Quendt",
    "quendt lab",
    "zwicky.example",
    "zwicky-corpus",
    "zwickybert",
    DATE,
    COLUMN,
)


def test_a_site_cannot_be_made_anonymous_afterwards(small_site: Site, tmp_path: Path) -> None:
    message = refusal(StudyError, small_site.folder, tmp_path / "s.zip", anonymous=True)
    assert "--keep-study" in message
    assert not [*tmp_path.iterdir()]


def write_telling(place: Path) -> None:
    """A study whose every name tells who made it, and its archives, with names and without."""
    import tiny

    lines = [
        {"text": "The fisherman sees the bird.", "url": f"https://{COLUMN}/1", "label": "yes"},
        {"text": "Old dogs sleep near the house.", "url": f"https://{COLUMN}/2", "label": "no"},
    ]
    folder = place / AUTHOR
    folder.mkdir()
    inputs = folder / "zwicky-corpus.jsonl"
    inputs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    notes = folder / "zwicky-notes.md"
    notes.write_text("From the Quendt lab, [our page](https://zwicky.example/heads).\n")
    study = make_study(
        inputs, tiny.write("bert", folder / "zwickybert"), notes=notes, control="none",
        title="Heads of Zwicky and Quendt", exemplars=1,
        metrics="attention_distance,offset_profile,cosine_to_input,nearest_tokens",
    )  # fmt: skip
    study.save(place / "study")
    pack(place / "study", place / "named.zip")
    pack(place / "study", place / "nameless.zip", anonymous=True)


@pytest.fixture(scope="module")
def telling(once: Once) -> Path:
    """The folder that `write_telling` fills."""
    return once("telling", write_telling)


def seen(name: str, content: bytes) -> Iterator[bytes]:
    """Everything that a file says, packed or not: streams of a PDF, cells of a table, too."""
    yield name.encode()
    yield content
    if name.endswith(".pdf"):
        for stream in STREAM.findall(content):
            yield zlib.decompressobj().decompress(stream) if stream[:1] == b"x" else stream
    if "/data/" in name and name.endswith(".js"):
        yield values(content.decode())
    if name.endswith(".csv.gz"):
        yield gzip.decompress(content)
    if name.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(content))
        yield repr((table.schema, table.schema.metadata, table.to_pydict())).encode()


def words_in(archive: Path, words: set[str]) -> dict[str, set[str]]:
    """Which words files of an archive hold, capitals or not."""
    found: dict[str, set[str]] = {}
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            texts = [each.lower() for each in seen(name, file.read(name))]
            for word in words:
                if any(word.lower().encode() in text for text in texts):
                    found.setdefault(word, set()).add(name.removeprefix(f"{ARCHIVE_FOLDER}/site/"))
    return found


@pytest.mark.slow
def test_an_archive_with_names_holds_them(telling: Path) -> None:
    """So that the search of the next test is known to find what is there."""
    found = words_in(telling / "named.zip", {*TELLING})
    assert set(found) == {*TELLING}
    for word in ("Heads of Zwicky and Quendt", "zwicky-corpus", "zwickybert", DATE):
        assert {"index.html", "README.txt", "data/manifest.json"} <= found[word], word
    piece = max(Study.load(telling / "study").tokens["token"], key=len)
    packed = words_in(telling / "named.zip", {piece, "/cs0 cs"})
    assert "data/tokens.parquet" in packed[piece]
    assert any(name.endswith(".pdf") for name in packed["/cs0 cs"])  # how a PDF says: this colour


@pytest.mark.slow
def test_an_anonymous_archive_tells_nobody(telling: Path) -> None:
    """No title, note, date, link, path, user, host or name of a file in any file of it."""
    private = {*TELLING, AUTHOR, "quendt", SOMEBODY, str(telling), f"{Path.home()}/"}
    private |= {part for part in telling.parts if len(part) > 6}
    private |= {name for name in [platform.node()] if len(name) > 6}
    private.discard("telling")  # a word of the pages; its path as a whole is searched for
    found = words_in(telling / "nameless.zip", private)
    assert not any(found.values()), found


@pytest.mark.slow
def test_an_anonymous_archive_is_otherwise_the_same(telling: Path, tmp_path: Path) -> None:
    """The same files, the same numbers in tables, and pages with another name in place of ours."""
    named = tree(unpacked(telling / "named.zip", tmp_path / "1") / "site")
    nameless = tree(unpacked(telling / "nameless.zip", tmp_path / "2") / "site")
    assert set(named) == set(nameless)
    for name in named:
        if name.endswith((".csv", ".parquet", ".png", ".pdf")):
            assert named[name] == nameless[name], name
    page = nameless["index.html"].decode()
    assert f"<h1>{LOCAL_MODEL_NAME}</h1>" in page
    assert "input-1.jsonl" in page
    manifest = json.loads(nameless["data/manifest.json"])
    assert (manifest["created"], manifest["notes"], manifest["options"]["title"]) == ("", "", None)
    exemplars = nameless["data/exemplars.jsonl"].decode().splitlines()
    assert {tuple(json.loads(line)["metadata"]) for line in exemplars} == {("label",)}


@pytest.mark.slow
def test_what_is_left_to_judge_is_known(telling: Path, tmp_path: Path) -> None:
    report = "\n".join(pack(telling / "study", tmp_path / "s.zip", anonymous=True).report())
    assert f"still there: the model's name, {LOCAL_MODEL_NAME}\n" in report
    assert "and columns label" in report
    assert (tmp_path / "s.zip").read_bytes() == (telling / "nameless.zip").read_bytes()


@pytest.mark.parametrize(
    ("came", "stays"),
    [
        (("bert-base-uncased", "0" * 40), "bert-base-uncased"),
        (("all-MiniLM-L6-v2", f"sha256:{DEMO_SHA256}"), "all-MiniLM-L6-v2"),
        (("SmolLM2-135M-Instruct", f"sha256:{DEMO_CAUSAL_SHA256}"), "SmolLM2-135M-Instruct"),
        (("bert-base-uncased", f"sha256:{'0' * 64}"), LOCAL_MODEL_NAME),
    ],
    ids=["hub", "demo", "demo-causal", "folder"],
)
def test_the_name_of_a_public_model_stays(
    small_site: Site, came: tuple[str, str], stays: str
) -> None:
    """A commit is the revision of a hub's model, a hash of weights that of a folder's."""
    study = small_site.study
    model = replace(study.manifest.model, name=came[0], revision=came[1])
    manifest = anonymise(replace(study, manifest=replace(study.manifest, model=model))).manifest
    assert (manifest.model.name, manifest.options["model"]) == (stays, stays)
    assert manifest.title == f"Attention heads of {stays}"


@pytest.mark.parametrize(
    ("revision", "stays"),
    [
        ("0" * 40, "bert-base-uncased + owner/lora"),
        (f"sha256:{'0' * 64}", f"bert-base-uncased + {LOCAL_ADAPTER_NAME}"),
    ],
    ids=["hub", "folder"],
)
def test_the_name_of_an_adapter_stays_if_it_is_public(
    small_site: Site, revision: str, stays: str
) -> None:
    study = small_site.study
    model = replace(
        study.manifest.model, name="bert-base-uncased + owner/lora", revision="1" * 40,
        adapter="owner/lora (LORA, rank 8, active)", adapter_revision=revision,
    )  # fmt: skip
    options = {**study.manifest.options, "adapter": "owner/lora"}
    named = replace(study, manifest=replace(study.manifest, model=model, options=options))
    manifest = anonymise(named).manifest
    assert (manifest.model.name, manifest.options["model"]) == (stays, stays)
    assert manifest.model.adapter == f"{stays.partition(' + ')[2]} (LORA, rank 8, active)"
    assert manifest.options["adapter"] is None
