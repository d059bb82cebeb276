"""Each block as HTML: one page that has them all."""

import re
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest

from headbook.pages.parts import blocks as b
from headbook.results.number import SHARE, Number, RowAddress
from headbook.results.sentence import Link, Marked, say
from headbook.schema import HeadName
from headbook.site.page_writer import PageWriter
from headbook.site.registry import Menu
from headbook.site.rows import SiteRows
from headbook.study.tables import TableSpec

ROWS = pd.DataFrame({"layer": [0, 1], "value": [0.25, 0.5]})
TABLE: TableSpec[pd.DataFrame] = TableSpec(
    "small", "", dict.fromkeys(("layer", "value"), ""), lambda frame: frame
)
HALF = Number(0.5, SHARE, RowAddress("small", (("layer", 1),)), 0.4, 0.6, 9, 90, 99)
HEAD = HeadName("self", 2, 3)
LINKED = '<a class="n" href="../data.html?row=small:3&amp;on=metrics/x#small">50.0\u202f%</a>'


class Manifest:
    """What the frame of a page needs."""

    page_notes: ClassVar[dict[str, str]] = {}
    created = "2026"


class Facts:
    """The same."""

    title, model, provenance, source = "Site", "model", "made", "model"


def html(tmp_path: Path, *parts: b.Block, closer: tuple[b.Block, ...] = ()) -> str:
    page = b.Page(
        path="metrics/x.html", title="Title?", description="About.", topic="Topic",
        answer=say("Answer {n}.", n=HALF), blocks=parts, closer=closer,
    )  # fmt: skip
    frame = {
        "site": Facts(), "manifest": Manifest(), "across": (), "preview": "", "base": "",
        "menu": Menu((), (), (), (), search=False),
    }  # fmt: skip
    writer = PageWriter(tmp_path, "", frame, SiteRows({"small": TABLE}, ROWS))
    writer.write_page(page)
    text = (tmp_path / page.path).read_text(encoding="utf-8")
    return re.sub(r">\s+<", "><", text[text.index("<main") :])


MAP = b.HeadMap(HEAD, "m1", say("{n}", n=HALF))
BLOCKS = [
    (b.Text(say("See {x}.", x=Link("here", "a.html")), "hint"),
     '<p class="hint">See <a href="../a.html">here</a>.</p>'),
    (b.Title("Part", note="small"), "<h3>Part<small>small</small></h3>"),
    (b.Caption(("One.", b.Steps("0", ("q0", "q6"), "1"))), '<i class="q0"></i><i class="q6"></i>'),
    (b.Lead(blocks=(b.Text("In."),), caption="Shown.", id="here"),
     '<figure class="lead" id="here">'),
    (b.Question("q", "Why?", "So.", (b.Text("In."),)),
     '<section class="q" id="q"><h2>Why?</h2><p class="answer">So.</p><p>In.</p>'),
    (b.Group((b.Text("In."),), "Part", id="g"),
     '<div class="block" id="g"><h3>Part</h3><p>In.</p>'),
    (b.Details("More", (b.Text("In."),)), '<summary>More</summary><p>In.</p></details>'),
    (b.Columns((b.Text("a"), b.Text("b"))), '<div class="grid2"><div><p>a</p></div><div><p>b</p>'),
    (b.Small((b.Text("a"),)), '<div class="grids"><p>a</p></div>'),
    (b.Bullets(("a", "b")), "<ul><li>a</li><li>b</li></ul>"),
    (b.Bullets(("a",), numbered=True), "<ol><li>a</li></ol>"),
    (b.Symbols(((say("A{i}", i=Marked("ij", "sub")), "weight"),)),
     "<dl><dt>A<sub>ij</sub></dt><dd>weight</dd></dl>"),
    (b.Maps((MAP,)), f'<span class="map s60 m1"><i></i></span>L2·H3</a><small>{LINKED}</small>'),
    (b.Cards(((say("{n} alike", n=HALF), (MAP,)),)), f"<li><p>{LINKED} alike</p><div>"),
]  # fmt: skip


@pytest.mark.parametrize(("block", "part"), BLOCKS, ids=lambda x: type(x).__name__)
def test_each_block_prints_its_parts(block: b.Block, part: str, tmp_path: Path) -> None:
    assert part in html(tmp_path, block)


def test_cells_of_tables_print_by_their_type(tmp_path: Path) -> None:
    cells = (HALF, 1204, HEAD, "word", None, b.Heat(HALF, "q3", "note"), b.Heat("–", "q0"))
    table = b.Table(
        ("row", *range(len(cells))), (("first", *cells),), label="All", grey=frozenset({0})
    )
    text = html(tmp_path, table)
    assert 'aria-label="All"' in text
    assert '<tr class="weak"><th scope="row">first</th>' in text
    assert f'<td class="number" title="9 sentences, 90 observations">{LINKED}<small>[40.0' in text
    for cell in (
        '<td class="number">1,204</td>', '<td><a href="../heads/L02-H03.html">L2·H3</a></td>',
        "<td>word</td>", '<td class="none">·</td>', f'<td class="h q3" title="note">{LINKED}</td>',
        '<td class="h q0"><span>–</span></td>',
    ):  # fmt: skip
        assert cell in text


def test_a_number_is_written_with_its_row_and_the_row_is_kept(tmp_path: Path) -> None:
    assert f"Answer {LINKED}." in html(tmp_path)
    assert (tmp_path / "data/rows/metrics-x.js").exists()


def test_a_number_without_its_row_is_an_error(tmp_path: Path) -> None:
    lost = Number(0.5, SHARE, RowAddress("small", (("layer", 9),)))
    with pytest.raises(LookupError, match=r"metrics/x\.html: table small, layer 9"):
        html(tmp_path, b.Text(say("{n}", n=lost)))


def test_look_closer_links_to_the_groups_of_the_first_stack(tmp_path: Path) -> None:
    groups = tuple(b.Group((b.Text("In."),), id=f"maps-{n}", link="maps") for n in range(2))
    text = html(tmp_path, closer=groups)
    assert 'Look closer <a href="#maps-0">maps</a></h2>' in text


def test_texts_are_escaped_and_numbers_stay_with_their_units(tmp_path: Path) -> None:
    text = html(tmp_path, b.Text("<b> 5 %"))
    assert "&lt;b&gt; 5\u202f%" in text
