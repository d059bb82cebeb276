"""Text from outside stays text: on every page, in every file."""

import csv
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headbook
import tiny
from headbook.errors import InputError
from headbook.report.wording import visible
from headbook.site.html import reference
from headbook.site.markup import prose, safe_json, script
from html_pages import broken_links, elements, html_of, text_of, tree
from sites import SMALL, Once, make_study

ATTACKS = (
    "</script><script>alert(1)</script>",
    "<!-- <script> --> ]]> <![CDATA[ x",
    "\"><img src=x onerror=alert(1)> '><svg onload=alert(1)>",
    "{{7*7}} {% include 'base.html' %} ${7*7} $(1) `id`",
    "&lt;b&gt; &amp; &#60; </textarea></title></style>",
    "control \u0000 \u0007 \u001b[31m \u007f \u0085 end",
    "right \u202e to left \u2066 isolate \ufeff mark \uffff end",
    "family \U0001f469\u200d\U0001f467 flag \U0001f1eb\U0001f1f7 marks e\u0301\u0323\u0308",
    "=HYPERLINK(\"http://x.example\",1) +1 -1 @SUM(A1) \t=1",
    "a" + "very" * 80 + "longword",
    "line\u2028separator\u2029here \\u003c \\ \\\" ' \"",
    "%s %(name)s {0} {name} C:\\x ../../etc/passwd",
)  # fmt: skip
TITLE = ATTACKS[0] + ATTACKS[2] + "\u202e"
NOTES = """
<script>alert(1)</script> [link](javascript:alert(1)) <a href="javascript:alert(1)">x</a>
![image](http://x.example/x.png) <img src=x onerror=alert(1)> <iframe src="//x"></iframe>
<p style="color:red" onclick="alert(1)" id="main">styled</p> <form action="//x"><input></form>
[data](data:text/html,<script>alert(1)</script>) <base href="//x"> <meta http-equiv=refresh>
"""
RUNS = {"iframe", "object", "embed", "base", "form", "style", "template", "math-script", "applet"}


@dataclass(frozen=True)
class Two:
    """A site of hostile texts, and one of harmless texts made in the same way."""

    hostile: Path
    harmless: Path


def make(place: Path, texts: tuple[str, ...], notes: str, title: str, name: str) -> None:
    """A site in which texts stand wherever somebody from outside can put them."""
    place.mkdir()
    tiny.write("gpt2", place / name)
    rows = [{"text": text, "id": text, f"key {text}": text} for text in texts]
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (place / "notes.md").write_text(notes)
    study = make_study(
        place / "rows.jsonl",
        place / name,
        metrics="attention_distance,cosine_to_input,nearest_tokens,rollout_self",
        exemplars=1,
        sentence_pages="all",
        title=title,
        notes=place / "notes.md",
    )
    study.save(place / "study")
    headbook.render(place / "study", place / "site")


def make_both(place: Path) -> None:
    harmless = tuple(re.sub(r"[^\w ]|[^\x20-\x7e]", "q", text) for text in ATTACKS)
    make(place / "hostile", ATTACKS, NOTES, TITLE, '"><img src=x onerror=alert(1)>')
    make(place / "harmless", harmless, "[link](https://doi.org/10.1/1)", "harmless", "model")


@pytest.fixture(scope="module")
def two(once: Once) -> Two:
    path = once("attack", make_both)
    return Two(path / "hostile/site", path / "harmless/site")


def kinds(site: Path) -> dict[str, set[tuple[str, frozenset[str]]]]:
    """By template: the tags that its pages have, with the names of their attributes."""
    found: dict[str, set[tuple[str, frozenset[str]]]] = {}
    for page in sorted(site.rglob("*.html")):
        place = page.relative_to(site).as_posix()
        template = re.sub(r"(heads|metrics|sentences)/(?!index).*", r"\1", place)
        names = {(e.tag, frozenset(e.attributes)) for e in elements(html_of(page))}
        found[template] = found.get(template, set()) | names
    return found


@pytest.mark.slow
def test_hostile_texts_make_no_element_and_no_attribute(two: Two) -> None:
    hostile, harmless = kinds(two.hostile), kinds(two.harmless)
    notes = {("a", frozenset({"href", "rel"})), ("p", frozenset()), ("a", frozenset({"rel"}))}
    blank = {("i", frozenset({"class", "data-i"}))}  # a token with one inside stays whole
    # Intervals and marks without rows, which charts of tokens have only where words recur.
    band = {("polygon", frozenset({"class", "points"})), ("g", frozenset({"class"}))}
    for kind, rows in hostile.items():
        assert rows - harmless[kind] - notes - blank - band == set(), kind


@pytest.mark.slow
def test_nothing_runs_on_any_page(two: Two) -> None:
    ours = {file.resolve() for file in (two.hostile / "assets").glob("*.js")}
    for page in two.hostile.rglob("*.html"):
        html = html_of(page)
        scripts = [page.parent / e.attributes["src"] for e in elements(html, "script")]
        assert {script.resolve() for script in scripts} <= ours
        assert {*re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)} == {""}
        for tag, attributes in elements(html):
            assert tag not in RUNS
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            for name in ("href", "src"):
                assert not attributes.get(name, "").lower().startswith(("javascript:", "data:text"))
        html5lib.HTMLParser().parse(html)
        assert broken_links(two.hostile, page) == []


@pytest.mark.slow
def test_every_text_is_there_to_be_read(two: Two) -> None:
    """As it came, control characters as their pictures."""
    overview = text_of(html_of(two.hostile / "sentences/index.html"))
    for number, text in enumerate(ATTACKS, start=1):
        read = text_of(html_of(two.hostile / f"sentences/{number:04}.html"))
        displayed = visible(text.strip())
        assert displayed in read  # the id
        assert f"key {visible(text)}" in read
        assert displayed[:290] in overview
    for page in two.hostile.rglob("*.html"):
        assert visible(TITLE) in text_of(html_of(page))  # the title


@pytest.mark.slow
def test_no_page_holds_a_character_that_html_forbids(two: Two) -> None:
    for page in two.hostile.rglob("*.html"):
        html = html_of(page)
        assert visible(html) == html


ORDER = "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x2070))))


@pytest.mark.parametrize("letter", ORDER)
def test_characters_that_change_the_order_of_a_page_are_escapes(letter: str) -> None:
    assert visible(f"a{letter}b") == f"a\\u{ord(letter):04x}b"
    assert visible("a\u200fb\u200dc") == "a\u200fb\u200dc"  # these act on their neighbours alone


@pytest.mark.slow
def test_no_text_changes_the_order_of_a_page(two: Two) -> None:
    for page in two.hostile.rglob("*.html"):
        html = html_of(page)
        assert not set(ORDER) & set(unescape(html))
    assert "right \\u202e to left \\u2066 isolate" in text_of(
        html_of(two.hostile / "sentences/0007.html")
    )


@pytest.mark.slow
def test_file_names_never_come_from_texts(two: Two) -> None:
    assert all(re.fullmatch(r"[\w./-]+", name) for name in tree(two.hostile))


@pytest.mark.slow
def test_data_files_cannot_be_left_and_hold_every_text(two: Two) -> None:
    for file in (two.hostile / "data").rglob("*.js"):
        content = file.read_bytes().decode()
        assert not set("<>&\r\0") & set(content)
        assert re.fullmatch(r'headbook\.(take|packed)\("[\w-]+",(\{.*\}|"[^"\\]+")\);\n', content)
    lines = (two.hostile / "data/exemplars.jsonl").read_text(encoding="ascii").splitlines()
    texts = {json.loads(line)["texts"]["source"] for line in lines}
    assert texts <= {text.strip() for text in ATTACKS}
    assert texts
    manifest = json.loads((two.hostile / "data/manifest.json").read_text(encoding="ascii"))
    assert manifest["notes"] == NOTES


@pytest.mark.slow
def test_tables_stay_tables(two: Two) -> None:
    file = two.hostile / "data/tokens.csv.gz"
    with gzip.open(file, "rt", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    study = headbook.Study.load(two.hostile.parent / "study")
    assert len(rows) == len(study.tokens)
    starts = {row["token"][:2] for row in rows}
    assert {"'=", "'+", "'-", "'@"} <= starts
    assert not {start[0] for start in starts if start} & set("=+-@\t\r")


@pytest.mark.slow
def test_the_texts_beside_the_pages_stay_whole(two: Two) -> None:
    lines = (two.hostile / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert [line.partition(":")[0].strip(" -") for line in lines] == [
        "cff-version", "message", "type", "title", "authors", "name", "date-released", "abstract"
    ]  # fmt: skip
    assert json.loads(lines[3].removeprefix("title: ")) == visible(TITLE)
    bib = (two.hostile / "references.bib").read_text(encoding="utf-8")
    assert bib.count("{") == bib.count("}")
    for file in (two.hostile / "figures").glob("*.svg"):
        names = {e.tag.rpartition("}")[2] for e in ET.parse(file).iter()}  # noqa: S314
        assert not names & {"script", "foreignObject", "image", "a"}
    styles = [
        {
            style.text
            for file in (site / "figures").glob("*.svg")
            for style in ET.parse(file).iter("{http://www.w3.org/2000/svg}style")  # noqa: S314
        }
        for site in (two.hostile, two.harmless)
    ]
    assert styles[0] <= styles[1]


@pytest.mark.parametrize(
    "row", [{"text": "half \ud800"}, {"text": "a", "id": "\ud800"}, {"text": "a", "\ud800": "b"}]
)
def test_half_a_character_is_refused(tmp_path: Path, row: dict[str, str]) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(InputError, match=r"^rows\.jsonl:1: .*\\ud800"):
        make_study(tmp_path / "rows.jsonl", tiny.write("bert", tmp_path / "model"), **SMALL)


def values() -> st.SearchStrategy[object]:
    floats = st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.none() | st.booleans() | st.integers() | st.text() | floats
    return leaves | st.lists(leaves) | st.dictionaries(st.text(), st.lists(leaves))


@settings(max_examples=50)
@given(values())
def test_safe_json_is_json_that_no_page_can_misread(value: object) -> None:
    text = safe_json(value)
    assert json.loads(text) == value
    assert text.isascii()
    assert not set("<>&\n\r") & set(text)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_safe_json_refuses_what_is_not_a_number(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        script("x", {"a": [number]})


def loads(html: str) -> Iterator[str]:
    """Everything in cleaned markup that could run or load."""
    for tag, attributes in elements(html):
        if tag in RUNS | {"script", "img", "svg", "link", "meta", "input", "video", "audio"}:
            yield tag
        for name, value in attributes.items():
            if name.startswith("on") or name in {"style", "id", "class", "src", "srcset"}:
                yield name
            if name == "href" and not value.startswith(("http://", "https://", "mailto:")):
                yield value


@settings(max_examples=50)
@given(st.text() | st.sampled_from([NOTES, *ATTACKS]))
def test_notes_are_cleaned(text: str) -> None:
    assert list(loads(str(prose(text)))) == []


def test_notes_keep_what_is_harmless() -> None:
    html = str(
        prose("*a* **b** `c` [d](https://x.example)\n\n- e\n\n| f | g |\n|---|---|\n| 1 | 2 |")
    )
    for tag in ("em", "strong", "code", "a", "li", "table", "td"):
        assert elements(html, tag)


def test_references_link_identifiers_and_nothing_else() -> None:
    html = str(reference("A & B <b> arXiv:1906.04284, doi:10.18653/v1/W19-4808."))
    assert [e.attributes["href"] for e in elements(html)] == [
        "https://arxiv.org/abs/1906.04284",
        "https://doi.org/10.18653/v1/W19-4808",
    ]
    assert text_of(html).startswith("A & B <b> arXiv:1906.04284")
