"""The author's words: notes on pages and heads, names of heads, and pages of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headbook
from command_line import FEW, Run
from headbook.author import HeadNote, plain_words, read_words, section_parts, section_paths
from headbook.errors import ConfigError, HeadbookWarning, StudyError
from headbook.site.archive import anonymise
from headbook.site.registry import MenuPlace, study_pages
from headbook.study.manifest import Manifest
from headbook.study.study import Study
from html_pages import data_file, elements, html_of, text_of
from sites import Site

NOTES = """
[pages]
"index.html" = "On the **whole**, wombat."
syntax = "# Quokka\\n\\nAs in <script>alert(1)</script> [a paper](javascript:alert(1))."
"metrics/attention_distance" = "Numbat of this metric."

[heads."L1-H0"]
name = "comma <b>finder</b>"
text = "Looks for **commas**, I think: dunnart."

[heads."L0·H1"]
text = "Nothing else."
"""
SECTION = """What we *left out*
==================

Only 60 sentences; see `potoroo`.

# Data

```
# no heading
```
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    file = tmp_path / "notes.toml"
    file.write_text(NOTES, encoding="utf-8")
    return file


def _noted(site: Site) -> list[str]:
    """Addresses of all pages that may have a note and that `NOTES` leaves out."""
    pages = (page.relative_to(site.folder).as_posix() for page in site.pages)
    others = {"index.html", "syntax.html", "metrics/attention_distance.html", "404.html"}
    return [page for page in pages if page not in others and not page.startswith("heads/")]


def _note(path: str) -> str:
    return f'"{path}" = "Numbat on {path}."'


@pytest.fixture(scope="module")
def own(small_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with other words than its study has, drawn in two processes."""
    place = tmp_path_factory.mktemp("own")
    text = NOTES.replace("[pages]", "\n".join(["[pages]", *map(_note, _noted(small_site))]))
    (place / "notes.toml").write_text(text, encoding="utf-8")
    (place / "left.md").write_text(SECTION, encoding="utf-8")
    (place / "more.md").write_text("# Größe & 模型\n\nEuro.", encoding="utf-8")
    headbook.render(
        small_site.stored, place / "site", title="Another title", notes=place / "notes.toml",
        section=[place / "left.md", str(place / "more.md")], author="Ada and Bo",
        text_source="Kowari corpus", processes=2,
    )  # fmt: skip
    return place / "site"


def test_notes_stand_on_their_pages_and_on_no_other(own: Path, small_site: Site) -> None:
    at = {
        "index.html": "wombat", "syntax.html": "Quokka", "heads/L01-H00.html": "dunnart",
        "metrics/attention_distance.html": "Numbat of this metric.",
    } | {path: f"Numbat on {path}." for path in _noted(small_site)}  # fmt: skip
    assert {"methods.html", "sentences/0001.html", "metrics/index.html", "data.html"} <= at.keys()
    for page in own.rglob("*.html"):
        path, text = page.relative_to(own).as_posix(), text_of(html_of(page))
        assert [word for word in at.values() if word in text] == (
            [at[path]] if path in at else []
        ), path


def test_notes_hold_nothing_that_runs(own: Path) -> None:
    html = html_of(own / "syntax.html")
    assert "alert(1)" not in html
    assert "<h3>Quokka</h3>" in html
    assert "<h1>Quokka" not in html


def test_a_head_is_called_as_its_author_calls_it(own: Path) -> None:
    html = html_of(own / "heads" / "L01-H00.html")
    assert "“comma &lt;b&gt;finder&lt;/b&gt;”" in html
    assert "<strong>commas</strong>" in html
    wall = html_of(own / "index.html")
    assert 'aria-label="L1·H0 “comma &lt;b&gt;finder&lt;/b&gt;”' in wall
    assert "“" not in html_of(own / "heads" / "L00-H01.html").partition("</h1>")[0]
    cards = data_file(own / "data" / "atlas.js")[1]["self"]
    assert "L1·H0 “comma <b>finder</b>”" in [card[0] for card in cards]


def test_the_search_finds_the_words_of_the_author(own: Path) -> None:
    found = data_file(own / "data" / "find.js")[1]
    words = {row[1]: row[3] for kind in ("pages", "metrics") for row in found[kind]}
    assert "On the whole, wombat." in words["index.html"]
    assert "Quokka As in" in words["syntax.html"]
    assert "Numbat" in words["metrics/attention_distance.html"]
    assert "potoroo" in words["section-what-we-left-out.html"]
    assert ["“comma <b>finder</b>”", "Looks for commas, I think: dunnart."] in found["notes"]


def test_several_sections_are_the_last_pages_below_the_analyses(own: Path) -> None:
    html = html_of(own / "section-what-we-left-out.html")
    assert "<h1>What we left out</h1>" in html
    assert "<h2>Data</h2>" in html
    assert "# no heading" in text_of(html)
    menu = [link.attributes["href"] for link in elements(html.partition("</nav>")[0], "a")]
    assert menu[-3:] == ["section-what-we-left-out.html", "section-grosse.html", "methods.html"]


def test_another_title_is_printed_everywhere(own: Path, small_site: Site) -> None:
    old = small_site.study.manifest.title
    for page in own.rglob("*.html"):
        html = html_of(page)
        assert old not in html, page
        assert "Another title</title>" in html, page
    assert Study.load(small_site.stored).manifest.title == old


def test_words_of_the_study_stay_if_none_are_given(small_site: Site, tmp_path: Path) -> None:
    study = small_site.study
    words = {"page_notes": {"syntax.html": "Quokka."}, "sections": ("# Own\n\nText.",)}
    study = replace(study, manifest=study.manifest.with_words(words))
    study.save(tmp_path / "study")
    manifest = Study.load(tmp_path / "study").manifest
    assert manifest.words == {**small_site.study.manifest.words, **words}
    entries = study_pages(_results(study))
    assert (entries[-1].path, entries[-1].place) == ("section-own.html", MenuPlace.END)
    nothing = anonymise(study).manifest.words
    assert not any(value for name, value in nothing.items() if name != "title")


def _results(study: Study) -> Any:
    from headbook.report.results import stack_results

    return stack_results(study)


def test_notes_on_pages_that_a_stored_study_does_not_have_are_told(
    small_site: Site, tmp_path: Path
) -> None:
    study = small_site.study
    words = {"page_notes": {"no.html": "Quokka."}}
    study = replace(study, manifest=study.manifest.with_words(words))
    with pytest.warns(HeadbookWarning, match=r"pages: got 'no\.html', expected the address"):
        headbook.render(study, tmp_path / "site")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[page]\n", "the file: got 'page', expected the keys pages and heads"),
        ("pages = 1\n", "pages: got 1, expected a table"),
        ("[pages]\nsyntax = 1\n", "pages.'syntax': got 1, expected Markdown as a text"),
        ("[heads]\nL0-H1 = 'x'\n", "heads.'L0-H1': got 'x', expected a table with name and text"),
        ("[heads.L0-H1]\nnmae = 'x'\n",
         "heads.'L0-H1': got 'nmae', expected the keys name and text"),
        ("[heads.L0-H1]\nname = 'a\\nb'\n", None),
        ('[heads.L0-H1]\nname = "a\\nb"\n',
         "heads.'L0-H1'.name: got 'a\nb', expected one line of at most 60 characters"),
        ("[heads.L0-H9]\nname = 'x'\n",
         "heads: got 'L0-H9', expected a head of the model, up to L1-H3, counted from 0"),
        ("[heads.decoder-L0-H0]\nname = 'x'\n",
         "heads: got 'decoder-L0-H0', expected a head of the model, up to L1-H3, counted from 0"),
        ("[heads.first]\nname = 'x'\n",
         "heads: got 'first', expected a head of the model, up to L1-H3, counted from 0"),
        ("[heads.L0-H1]\nname = 'x'\n[heads.L00-H01]\nname = 'y'\n",
         "heads: got 'L00-H01', expected each head once"),
        ("[pages]\nsintax = 'x'\n",
         "pages: got 'sintax.html', expected the address of a page of this site, such as "
         "syntax.html or metrics/sink_share.html"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_of_notes_is_one_line(
    small_site: Site, tmp_path: Path, text: str, fault: str | None
) -> None:
    file = tmp_path / "notes.toml"
    file.write_text(text)
    if fault is None:
        assert read_words(file, ())["head_notes"] == {"L0-H1": HeadNote("a\\nb")}
        return
    with pytest.raises(ConfigError) as error:
        headbook.render(small_site.stored, tmp_path / "site", notes=file)
    assert str(error.value) == f"notes: {file}: {fault}"
    assert not (tmp_path / "site").exists()


COSTLY = {
    "brackets": "[" * 20_000,
    "pictures": "![" * 20_000,
    "elements": "<a " * 20_000,
    "headings": "# [\n" * 20_000,
    "brackets of many blocks": ("[" * 2_000 + "\n\n") * 10,
    "lines": "---\n" * 20_000,
    "lists": "\n".join("    " * depth + "- a" for depth in range(300)),
}
LONG = "\n\n".join(
    ["A [link](https://a.example) and `code[0]`, in a paragraph of a few words."] * 2000
)


@pytest.mark.parametrize("name", COSTLY)
def test_markdown_that_takes_minutes_is_refused_before_it_is_converted(
    small_site: Site, tmp_path: Path, name: str
) -> None:
    notes, section, table = (tmp_path / each for each in ("notes.md", "own.md", "notes.toml"))
    notes.write_text(COSTLY[name])
    section.write_text(f"# Title\n\n{COSTLY[name]}")
    table.write_text(f"[pages]\nsyntax = {COSTLY[name]!r}\n".replace("'", '"'))
    for words in ((notes, ()), (None, (section,)), (table, ())):
        with pytest.raises(ConfigError, match="expected Markdown that is converted within"):
            read_words(*words)
    manifest = small_site.study.manifest
    for field in ({"notes": COSTLY[name]}, {"sections": (COSTLY[name],)},
                  {"page_notes": {"a.html": COSTLY[name]}},
                  {"head_notes": {"self-L0-H1": HeadNote("", COSTLY[name])}}):  # fmt: skip
        with pytest.raises(StudyError, match="notes: got"):
            Manifest.from_json(manifest.with_words(field).to_json())


def test_long_notes_of_short_blocks_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(LONG)
    assert read_words(tmp_path / "notes.md", ())["notes"] == LONG


def test_faults_of_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.toml").write_text("[pages\n")
    with pytest.raises(ConfigError, match=r"notes\.toml: .*expected TOML with tables pages and"):
        read_words(tmp_path / "notes.toml", ())
    (tmp_path / "plain.md").write_text("Text without a heading.\n\n```\n# code\n```\n")
    with pytest.raises(ConfigError, match=r"section: .*plain\.md: no heading; expected"):
        read_words(None, [tmp_path / "plain.md"])
    with pytest.raises(ConfigError, match=r"section: .*none\.md: No such file"):
        read_words(None, [tmp_path / "none.md"])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("# One\n\ntext", ("One", "text")),
        ("before\n\n## A [link](x.html) and `code` #\ntext", ("A link and code", "before\n\ntext")),
        ("Two\n---\ntext", ("Two", "text")),
        ("~~~\n# no\n~~~\n# Yes", ("Yes", "~~~\n# no\n~~~")),
        ("#hashtag\n", ("", "#hashtag\n")),
        ("---\ntext", ("", "---\ntext")),
    ],
)
def test_the_title_of_a_section_is_its_first_heading(text: str, parts: tuple[str, str]) -> None:
    assert section_parts(text) == parts


def test_addresses_of_sections_differ() -> None:
    assert section_paths(["Größe & Maß", "模型", "Data", "Data!", "x" * 99]) == [
        "section-grosse-mass.html", "section-2.html", "section-data.html", "section-data-4.html",
        f"section-{'x' * 60}.html",
    ]  # fmt: skip


def test_words_of_markdown_are_plain() -> None:
    text = "# A *b*\n\n- [c](https://d.example) `e`\n> f <b>g</b>\n\n| h | i |\n"
    assert plain_words(text) == "A b c e f g h i"


def test_the_commands_take_the_words_of_the_author(
    run: Run, small_site: Site, notes: Path, tmp_path: Path
) -> None:
    section, study = tmp_path / "left.md", tmp_path / "study"
    section.write_text(SECTION)
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sat on the mat.\n")
    words = ("--notes", notes, "--section", section, "--section", section)
    code, _, err = run(
        "collect", texts, *FEW, "--model", small_site.model, *words, "--out", study, "-q"
    )
    assert (code, err) == (0, "")
    stored = Study.load(study).manifest
    assert stored.sections == (SECTION, SECTION)
    assert stored.head_notes["self-L1-H0"].name == "comma <b>finder</b>"
    notes.write_text("[heads.L9-H9]\nname = 'x'\n")
    for command in (("render", study), ("collect", texts, *FEW, "--model", small_site.model)):
        code, _, err = run(*command, "--notes", notes, "--out", tmp_path / "new", "-q")
        assert code == 2
        assert f"--notes: {notes}: heads: got 'L9-H9', expected a head of the model" in err
    file = tmp_path / "headbook.toml"
    file.write_text('title = "By file"\nsection = ["left.md"]\n')
    code, _, _ = run("render", study, "-c", file, "--out", tmp_path / "new", "-q")
    assert code == 0
    assert "By file" in html_of(tmp_path / "new" / "section-what-we-left-out.html")
