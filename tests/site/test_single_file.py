"""A site as one HTML file: all of the folder in it, the same every time, under a strict policy."""

import base64
import gzip
import json
import os
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from test_anonymous_archive import AUTHOR, DATE, TELLING, telling
from test_archive import refusal

from headbook.errors import OutputError, StudyError
from headbook.resources import folder
from headbook.site import single_file
from headbook.site.archive import PackedSite, pack
from headbook.site.assets import bare
from headbook.site.markup import values
from html_pages import digest, elements, html_of, links, text_of, tree
from sites import Site

__all__ = ["telling"]  # a fixture
pytestmark = pytest.mark.slow

# What servers and folders need, and what stands in the head of the one file.
OUTSIDE = {"data/files.json", ".nojekyll", "README.txt"}
OUTSIDE |= {f"assets/{name}" for name in ("favicon.svg", "preview.png", "gunzip.js")}
OUTSIDE |= {"assets/maps.css"}
OUTSIDE |= {f"assets/{file.name}" for file in (folder("templates") / "assets").glob("*.css")}


BLOCK = re.compile(r"""<script type="text/plain" data-files='([^']*)'>([^<]*)</script>\n""")


@pytest.fixture(scope="module")
def one(small_site: Site, tmp_path_factory: pytest.TempPathFactory) -> PackedSite:
    """The smallest site in one file."""
    path = tmp_path_factory.mktemp("one") / "report.html"
    return pack(small_site.folder, path, single_file=True)


def held(file: Path) -> dict[str, bytes]:
    """Everything that is in the one file, by its address in the folder."""
    found = {}
    for files, text in BLOCK.findall(html_of(file)):
        whole, at = gzip.decompress(base64.b64decode(text)), 0
        for name, size in json.loads(unescape(files)):
            found[name] = whole[at : at + size]
            at += size
        assert at == len(whole)
    return found


def test_everything_of_the_folder_is_in_it(small_site: Site, one: PackedSite) -> None:
    """Byte for byte; of data files the values.

    Not what is compressed, nor the pictures for readers without scripts of what scripts draw.
    """
    files, found = tree(small_site.folder), held(one.path)
    left = {name for name in files if name.endswith((".pdf", ".parquet", ".gz"))}
    assert {name.rpartition(".")[2] for name in left} >= {"pdf", "parquet"}
    of_heads = {name for name in files if name.startswith("data/numbers/")}
    assert of_heads  # rows of single heads, which the table of all heads has, too
    drawn = {name for name in files if re.fullmatch(r"data/sentences/\d+-self\.png", name)}
    assert drawn
    assert set(found) == set(files) - OUTSIDE - left - drawn - of_heads
    for name, content in found.items():
        if name.startswith("data/") and name.endswith(".js"):
            assert content == values(files[name].decode()), name
            assert len(json.loads(content.partition(b"\n")[0])) == 2
        else:
            assert content == files[name], name
    note = elements(html_of(one.path), "html")[0].attributes["data-left"]
    assert "figures as PDF, tables as Parquet" in note
    listed = note.removesuffix(".").split(", ")
    stems = {Path(name).name.partition(".")[0] for name in left if name.startswith("data/")}
    for name in stems:
        assert (name in listed) == (f"data/{name}.csv" not in found), name


def test_only_its_own_scripts_and_style_may_run(small_site: Site, one: PackedSite) -> None:
    html = html_of(one.path)
    policy = next(
        meta.attributes["content"]
        for meta in elements(html, "meta")
        if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assets = sorted((small_site.folder / "assets").glob("*.js"))
    loader = bare((folder("templates") / "onefile.js").read_text(encoding="utf-8"))
    loader = (small_site.folder / "assets/gunzip.js").read_text() + loader
    own = [script.read_text() for script in assets if script.stem != "gunzip"]
    scripts = [*own, loader]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert {*rules.pop("script-src").split()} == {digest(script) for script in scripts}
    styles = (small_site.folder / "assets").glob("*.css")
    assert {*rules.pop("style-src").split()} == {digest(file.read_text()) for file in styles}
    rest = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
    assert rules == rest | {"img-src": "data:"}


def test_queries_and_keys_of_later_sentences_are_left_out(
    encoder_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whole sentences, and the file says so."""
    neurons = sorted(name for name in tree(encoder_site.folder) if name.startswith("data/neurons/"))
    sentences = sorted({name.partition("-")[0] for name in neurons})
    assert len(sentences) > 1
    first = [name for name in neurons if name.startswith(sentences[0])]
    size = sum((encoder_site.folder / name).stat().st_size for name in first)
    monkeypatch.setattr(single_file, "MAX_QUERY_KEY_BYTES", size)
    packed = pack(encoder_site.folder, tmp_path / "r.html", single_file=True)
    stored = {name for name in held(packed.path) if name in neurons}
    assert stored == {*first}
    assert "queries and keys of later sentences" in html_of(packed.path)


def test_nothing_in_it_is_loaded(one: PackedSite) -> None:
    for tag, link in links(html_of(one.path)):
        assert link.startswith(("data:", "#", "https://doi.org/", "https://arxiv.org/")), (
            tag,
            link,
        )
    for tag, attributes in elements(html_of(one.path)):
        assert tag not in {"iframe", "object", "embed", "base", "form"}
        assert not [name for name in attributes if name == "style" or name.startswith("on")]


def test_its_script_makes_text_never_markup_and_asks_for_nothing() -> None:
    code = (folder("templates") / "onefile.js").read_text()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
    ):
        assert word not in code


def test_the_overview_stands_in_it_for_readers_without_scripts(
    small_site: Site, one: PackedSite
) -> None:
    html = html_of(one.path)
    assert f"The file holds {len(small_site.pages)} pages; the others need scripts." in html
    overview = text_of(html_of(small_site.folder / "index.html"))
    assert overview.partition("Skip to content")[2].strip() in text_of(html)
    led = {re.split("[?#]", link[2:])[0] for _, link in links(html) if link.startswith("#/")}
    assert {"methods.html", "heads/L00-H00.html"} <= led <= set(tree(small_site.folder))


def test_packing_again_gives_the_same_bytes(
    small_site: Site, one: PackedSite, tmp_path: Path
) -> None:
    """Whatever the disk says of dates and rights, and whatever the folder is called."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(small_site.folder, copy)
    (copy / ".env").write_text("private")
    for file in copy.rglob("*"):
        os.utime(file, (1, 1))
        file.chmod(0o700)
    again = pack(copy, tmp_path / "other.html", single_file=True)
    assert again.path.read_bytes() == one.path.read_bytes()


def test_it_is_smaller_than_the_folder_and_tells_both_sizes(
    small_site: Site, one: PackedSite
) -> None:
    sizes = {name: len(content) for name, content in tree(small_site.folder).items()}
    assert (one.files, one.unpacked) == (len(sizes), sum(sizes.values()))
    assert one.size == one.path.stat().st_size < 0.6 * one.unpacked


def test_it_is_replaced_only_with_force_and_nothing_else_ever(
    small_site: Site, one: PackedSite, tmp_path: Path
) -> None:
    shutil.copy(one.path, tmp_path / "r.html")
    (tmp_path / "mine.html").write_text("<!doctype html><title>Years of work</title>")
    before = tree(tmp_path)
    message = refusal(OutputError, small_site.folder, tmp_path / "r.html", single_file=True)
    assert "pass force=True" in message
    for options in ({"single_file": True}, {}):
        message = refusal(
            OutputError, small_site.folder, tmp_path / "mine.html", force=True, **options
        )
        assert "expected a new file" in message
    refusal(OutputError, small_site.folder, tmp_path / "r.html", force=True)  # no archive
    assert tree(tmp_path) == before
    pack(small_site.folder, tmp_path / "r.html", single_file=True, force=True)
    assert tree(tmp_path) == before
    assert single_file.is_single_file(tmp_path / "r.html")


@pytest.mark.parametrize("change", ["inside", "after", "before"])
def test_a_file_that_somebody_has_changed_is_theirs(
    small_site: Site, one: PackedSite, tmp_path: Path, change: str
) -> None:
    text, mine = html_of(one.path), "<!-- years of work -->"
    changed = {
        "inside": text.replace("</body>", f"{mine}</body>"), "after": text + mine,
        "before": mine + text,
    }[change]  # fmt: skip
    (tmp_path / "r.html").write_text(changed)
    out, given = tmp_path / "r.html", {"single_file": True, "force": True}
    assert "changed since" in refusal(OutputError, small_site.folder, out, **given)
    assert html_of(out) == changed


def test_a_site_whose_scripts_know_no_single_file_is_refused(
    small_site: Site, tmp_path: Path
) -> None:
    copy = tmp_path / "old"
    shutil.copytree(small_site.folder, copy)
    scripts = copy / "assets/gunzip.js"
    for change in (lambda: scripts.write_text("window.unpack = lzma;"), scripts.unlink):
        change()
        message = refusal(StudyError, copy, tmp_path / "r.html", single_file=True)
        assert "expected one rendered anew" in message
        assert not (tmp_path / "r.html").exists()


def test_an_anonymous_one_tells_nobody(telling: Path, tmp_path: Path) -> None:
    """No title, note, date, link or name of a file, packed or not; with names they are there."""
    words = {*TELLING, AUTHOR}
    for anonymous in (False, True):
        out = tmp_path / f"{anonymous}.html"
        pack(telling / "study", out, anonymous=anonymous, single_file=True)
        contents = [*held(out).values(), *[re.sub(r">[\w+/=]{100,}<", "><", html_of(out)).encode()]]
        texts = [content.lower() for content in contents]
        found = {word for word in words if any(word.lower().encode() in text for text in texts)}
        assert found == (set() if anonymous else words), found
    assert DATE in words
