"""The one table of pages: what each kind of cell becomes in HTML."""

from pathlib import Path

import pytest

from headbook.charts import Drawing
from headbook.pages.parts.table import (
    DASH,
    Content,
    MarkedText,
    NumberCell,
    PageTable,
    Row,
    Title,
    words_cell,
)
from headbook.pages.parts.text import Token
from headbook.results.sentence import Link
from headbook.site.page_writer import PageWriter

HEAD = Link("L0·H1", "heads/L00-H01.html")
LINKED = '<a href="../heads/L00-H01.html">L0·H1</a>'
KNOWN = NumberCell("0.5", "[0.4, 0.6]", "9 sentences", too_few=True)
FOREIGN = "<i>&"  # letters of a corpus


def written(macro: str, **given: object) -> str:
    """What a macro writes on a page one folder below the site's root."""
    text = '{% import "macros.html" as m with context %}{{ m.' + macro + " }}"
    environment = PageWriter(Path(), "", {}).environment
    return environment.from_string(text).render(root="../", **given)


@pytest.mark.parametrize(
    ("cell", "html"),
    [
        ("1,024", '<td class="number">1,024</td>'),
        (None, '<td class="none">·</td>'),
        (HEAD, f"<td>{LINKED}</td>"),
        (DASH, "<td>–</td>"),
        (words_cell(), "<td></td>"),
        (KNOWN, '<td class="number thin" title="9 sentences">0.5 <small>[0.4, 0.6]</small></td>'),
        (NumberCell("–", "", "", too_few=False), '<td class="number">–</td>'),
        (words_cell(FOREIGN, foreign=True), '<td dir="auto">&lt;i&gt;&amp;</td>'),
        (words_cell(HEAD, " ", MarkedText(FOREIGN, "bdi"), style="what"),
         f'<td class="what">{LINKED} <bdi>&lt;i&gt;&amp;</bdi></td>'),
    ],
)  # fmt: skip
def test_cells(cell: Content, html: str) -> None:
    assert written("cell(c)", c=cell).strip() == html


def test_a_picture_stands_in_its_cell() -> None:
    html = written("cell(c)", c=Drawing("dot", "a dot", "<svg><circle/></svg>"))
    assert html.strip().startswith('<td class="dotted"><svg')
    assert "<circle" in html


@pytest.mark.parametrize(
    ("title", "html"),
    [
        ("words", '<th scope="col">words</th>'),
        (3, '<th scope="col">L3</th>'),
        (HEAD, f'<th scope="col">{LINKED}</th>'),
        (
            words_cell(MarkedText("chart", "hidden")),
            '<th scope="col"><span class="hidden">chart</span></th>',
        ),
    ],
)
def test_titles(title: Title, html: str) -> None:
    assert written("columns(t)", t=(title,)) == f"<thead><tr>{html}</tr></thead>"


def test_a_table_has_a_caption_titles_and_rows_with_their_styles() -> None:
    rows = (Row(HEAD, ("7", KNOWN), "sure"), Row(words_cell(FOREIGN, foreign=True), ("8", None)))
    table = PageTable(("Head", "words", 0), rows, "All <heads>.", "numbers relations")
    html = written("table(t)", t=table)
    assert '<table class="numbers relations">\n<caption>All &lt;heads&gt;.</caption>' in html
    assert '<tr class="sure"><th scope="row"><a href="../heads/L00-H01.html">' in html
    assert '<tr><th scope="row" dir="auto">&lt;i&gt;&amp;</th><td class="number">8</td>' in html
    assert 'role="group"' in html
    assert 'role="group"' not in written("small_table(t)", t=table)
    assert "<caption>" not in written("small_table(t)", t=PageTable(("Head",), rows))
    assert [row.name for row in rows] == ["L0·H1", FOREIGN]


def test_long_tables_are_written_with_few_letters() -> None:
    row = Row("all", (KNOWN, None, "1"))
    assert written("rows(r, short=true)", r=(row,)) == (
        '<tr><th scope="row">all</th><td class="thin">0.5 <small>[0.4, 0.6]</small></td>'
        "<td>·</td><td>1</td></tr>\n"
    )


def test_empty_parts_of_words_are_left_out() -> None:
    assert words_cell("a", "", MarkedText("", "small")).parts == ("a",)
    assert words_cell(MarkedText("a", "b"), " ", HEAD).text == "a L0·H1"


def test_plain_tokens_stand_together_and_those_with_a_blank_alone() -> None:
    """Scripts part what has no class at its blanks."""
    tokens = [Token(0, "", "new york", False), Token(1, " ", "is", False)]
    tokens += [Token(2, " ", "big", False), Token(3, "", ".", False)]
    tokens += [Token(4, " ", "[SEP]", True), Token(5, " ", "so", False)]
    html = written("text(tokens)", tokens=tokens).strip()
    assert html == (
        '<span class="text" dir="auto"><i class="t" data-i="0">new york</i> <i>is big</i><i>.</i> '
        '<i class="t special" data-i="4" dir="ltr">[SEP]</i> <i>so</i></span>'
    )
