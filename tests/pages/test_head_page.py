"""The page of a head: what a study of few sentences shows there, in which order."""

import math
import re
from collections import Counter
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

from headbook.charts.heads import MARGIN, RangeStrip, ranking_histogram
from headbook.pages.head import HeadPage, head_pages
from headbook.pages.head_parts import standing
from headbook.pages.head_parts.sections import weak_text
from headbook.pages.head_parts.tokens import KINDS
from headbook.report.facts.functions import SINK_RULES, families_of, functions_of
from headbook.report.relations import TAG_NAMES
from headbook.report.results import stack_results
from headbook.report.wording import ordinal
from headbook.results.formats import head_name, interval_text, number, percent
from headbook.results.number import Printed
from headbook.schema import HeadName, Side
from headbook.study.exemplars import rank_by_weight
from headbook.study.sentence_data import Ranking
from html_pages import elements, html_of, text_of, written_html
from printed_numbers import tree_of
from sites import Site

ORDER = ("flow", "exemplars", "without", "where", "among", "contributes", "alike", "relations",
         "range", "rankings", "tokens", "speech", "triptych", "numbers")  # fmt: skip


@pytest.fixture(scope="module")
def pages(encoder_site: Site) -> list[HeadPage]:
    return list(head_pages(encoder_site.results["self"]))


def test_sections_stand_in_one_order_the_numbers_last_and_closed(encoder_site: Site) -> None:
    html = html_of(encoder_site.folder / "heads/L00-H01.html")
    ids = [e.attributes["id"] for e in elements(html, "h2") if "id" in e.attributes]
    assert [name for name in ids if name in ORDER] == [name for name in ORDER if name in ids]
    assert {"flow", "where", "exemplars", "among", "range", "tokens", "numbers"} <= {*ids}
    at = html.index('id="numbers"')
    assert html.rindex("<details", 0, at) > html.rindex("</details>", 0, at)
    assert "<table" in html[at:]
    assert 'open=""' not in html
    assert "<details open" not in html


def test_the_first_lines_say_what_the_head_does_and_its_family(encoder_site: Site) -> None:
    text = " ".join(text_of(html_of(encoder_site.folder / "heads/L00-H01.html")).split())
    [page] = [p for p in head_pages(encoder_site.results["self"]) if p.name == "L0·H1"]
    first = page.family_text, page.text.text, page.sink.text, "Where it attends"
    places = [text.index(" ".join(each.split())) for each in first]
    assert places == sorted(places)
    assert places[0] > 0


@pytest.mark.parametrize("kind", ["encoder_site", "decoder_site", "pair_site"])
def test_sentence_family_and_numbers_are_those_of_the_function(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """The evidence begins with the number of the function, and has its baseline and threshold."""
    site: Site = request.getfixturevalue(kind)
    for results in site.results.values():
        functions = functions_of(results)
        of_families = Counter(function.family for function in functions.values())
        for page, (head, function) in zip(head_pages(results), functions.items(), strict=True):
            assert page.name == head_name(head)
            assert page.text.text.startswith(function.text.text)
            assert page.family == (f"f-{function.family}" if function.family else "")
            assert bool(page.family_text) == (function.family is not None)
            if function.family is not None:
                name, amount = page.family_text.rsplit(", ", 1)
                assert name == families_of(results)[function.family]
                assert int(amount.split()[0]) == of_families[function.family]
            numbers = [part.number for part in page.evidence.parts if isinstance(part, Printed)]
            assert numbers[:1] == [function.number] * (function.number is not None)
            if function.even is not None:
                assert numbers[1] == function.even
            if function.number and not math.isnan(function.threshold):
                assert numbers[1 + (function.even is not None)].value == function.threshold
            shares = [part.number for part in page.sink.parts if isinstance(part, Printed)]
            has_sink = function.sink is not None and function.id not in SINK_RULES
            assert (function.sink in shares) == has_sink
            assert len(page.title) <= 60


def test_every_picture_says_which_keys_it_shows(encoder_site: Site) -> None:
    """The switch of keys changes exemplars alone."""
    keys = re.compile(r"all keys|[Aa]ll keys count|sink masked|value-weighted|off the sink")
    pictures = 0
    main = next(tree_of(html_of(encoder_site.folder / "heads/L01-H02.html")).every("main"))
    for node in main.every():
        style = {*node.attributes.get("class", "").split()}
        of_numbers = style & {"effects", "bar", "dot", "parts"}
        if (node.tag not in {"img", "svg"} and "map" not in style) or of_numbers:
            continue
        if any(up.attributes.get("class", "").startswith("exemplar") for up in node.up()):
            continue
        part = next(up for up in node.up() if up.tag == "section" or "more" in
                    up.attributes.get("class", "").split())  # fmt: skip
        assert keys.search(part.whole), node
        pictures += 1
    assert pictures > 5


def test_the_flow_is_that_of_the_table(encoder_site: Site) -> None:
    """Every share and ratio of the picture is a row; the others are those that are not named."""
    study = encoder_site.study
    table, names = study.class_flows.fillna(""), {name: tag for tag, name in TAG_NAMES.items()}
    for page in head_pages(stack_results(study)["self"]):
        assert page.flow is not None
        assert page.flow.picture is not None
        head = name_of(page)
        rows = table[(table["layer"] == head.layer) & (table["head"] == head.head)]
        titles = re.findall(r"<title>([^<]*)</title>", page.flow.picture.svg)
        assert titles
        for title in titles:
            ends, _, numbers = title.partition(": ")
            query, _, key = ends.rpartition(" → ")
            if ends.startswith("from "):
                query, key = ends.removeprefix("from "), ""
            elif ends.startswith("to "):
                query, key = "", ends.removeprefix("to ")
            classes = {"query_class": names.get(query, ""), "key_class": names.get(key, "")}
            [row] = rows[(rows[[*classes]] == classes).all(axis=1)].to_dict("records")
            assert numbers.startswith(f"{percent(row['share'])} of its attention between words, ")
            ends = f" {interval_text(row['low'], row['high'])}".rstrip()
            assert f", {number(row['ratio'])} times{ends} the mean head, " in numbers
            assert numbers.endswith(f", {row['n_sentences']} sentences")


def test_without_parts_of_speech_tokens_of_both_sides_stand_there(encoder_site: Site) -> None:
    study = encoder_site.study
    bare = replace(study, corpus_sums=replace(study.corpus_sums, class_flows={}))
    found = [*head_pages(stack_results(bare)["self"])]
    assert any("--annotator" in text for text in found[0].absent)
    tables = [page.flow.tables for page in found if page.flow is not None]
    assert tables
    top = bare.top_tokens
    for page in found:
        for table in page.flow.tables if page.flow else ():
            role = "query" if table.columns[0] == "Attends from" else "key"
            head = name_of(page)
            rows = top[(top["layer"] == head.layer) & (top["head"] == head.head)
                       & (top["role"] == role)]  # fmt: skip
            ratios = dict(zip(rows[role], rows["mean_head_ratio"], strict=True))
            assert 0 < len(table.rows) <= 8
            for row in table.rows:
                assert row.cells[0] == f"{number(ratios[row.name])}×"
                assert ratios[row.name] >= 1.1


def test_the_strongest_five_come_first_and_no_sentence_of_the_range_twice(
    pages: list[HeadPage], encoder_site: Site
) -> None:
    """But for the median ones, which nobody should miss."""
    sentence_data = encoder_site.study.sentence_data
    for page in pages:
        own = [e for e in sentence_data.exemplars if e.head == name_of(page)]
        strongest = [f"strongest-{e.rank}" for e in own if e.ranking is Ranking.STRONGEST]
        first, *others = (e.place for e in page.exemplars.first)
        fitting = first if page.exemplars.fits else strongest[0]
        assert first == fitting
        assert others == [place for place in strongest if place != fitting][:4]
        displayed = [*page.exemplars.first, *(e for g in page.exemplars.range for e in g.exemplars)]
        rest = [e.sentence for e in displayed if not e.place.startswith("median")]
        assert len({*rest}) == len(rest)
        rankings = {e.ranking for e in own} - {e.place.partition("-")[0] for e in displayed}
        assert rankings >= {Ranking.MASS, Ranking.VARIABILITY}


def test_an_estimated_change_says_that_there_is_no_verdict(pages: list[HeadPage]) -> None:
    for page in pages:
        if page.ablated is not None and page.ablated.value is not None:
            estimated = "estimated" in page.ablated.what
            assert page.ablated.verdict.startswith("No verdict") == estimated


@pytest.mark.parametrize(
    ("weak", "tested", "text"),
    [
        (8, 5, "Eight relations without support: five tested for this head, three not"),
        (8, 8, "Eight relations without support, tested for this head"),
        (1, 0, "One relation without support, not tested for this head"),
    ],
)
def test_relations_without_support_are_counted_in_one_line(
    weak: int, tested: int, text: str
) -> None:
    assert weak_text(weak, tested) == text


def name_of(page: HeadPage) -> HeadName:
    layer, head = map(int, re.findall(r"\d+", page.name))
    return HeadName("self", layer, head)


def test_query_and_key_are_marked_in_the_text(encoder_site: Site) -> None:
    """Without a script: one query, and the key of its largest weight."""
    html = html_of(encoder_site.folder / "heads/L01-H02.html")
    for article in re.findall(r'<article class="exemplar".*?</article>', html, re.DOTALL):
        [attentions] = re.findall(r'data-looks="(\d+)"', article)
        [looked] = re.findall(r'data-looked="(\d+)"', article)
        assert len(re.findall(rf'class="t[^"]* looks[^"]*" data-i="{attentions}"', article)) == 1
        assert len(re.findall(rf'class="t[^"]* chosen[^"]*" data-i="{looked}"', article)) == 1
        first = re.search(r'data-map="strongest-[1-5]"', article)
        assert (article.count("<li>") > 0) == bool(first)


def test_the_histogram_counts_every_sentence_once(encoder_site: Site) -> None:
    sums = encoder_site.study.corpus_sums.heads["self"]
    scores = rank_by_weight(sums.sample, HeadName("self", 0, 1)).score
    assert len(scores) == len(
        {*sums.sample.content_hash[np.isfinite(sums.sample.payload[:, 0, 1])].tolist()}
    )
    drawing = ranking_histogram("a", "caption", scores, [("strongest", float(scores[0]))])
    counted = re.findall(r"<title>[^<]*: (\d+)</title>", drawing.svg)
    assert sum(map(int, counted)) == len(scores)
    assert "strongest" in drawing.svg


def test_each_page_has_the_ranks_of_its_head_by_six_metrics(pages: list[HeadPage]) -> None:
    """Ranks are ranges where heads are not told apart."""
    rank = r"(?:among the \d+ |(?:\d\w\w (?:to \d\w\w )?)?)"
    shape = re.compile(rank + r"(?:high|low)est of 8(?: \(not tested\))?")
    for page in pages:
        assert all(shape.fullmatch(strip.place) for strip in page.strips)
        assert len({strip.title for strip in page.strips}) == 6


def test_only_metrics_on_which_a_head_stands_out_have_strips(
    pages: list[HeadPage], encoder_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the first of all heads, ties counted; without any, a sentence says so."""
    results = encoder_site.results["self"]
    for page in pages:
        assert page.strips_text.startswith("By metrics on which it is among the three highest")
    for most in (1, 0.5):
        monkeypatch.setattr(standing, "MAX_RANK", most)
        for page in pages:
            found = standing.strips(results, name_of(page))
            assert all(
                strip.place.startswith(("highest", "lowest", "among the ")) for strip in found
            )
    assert not found
    monkeypatch.setattr(standing, "MAX_RANK", 3)
    text = standing.strips_text(results, name_of(pages[0]), 0)
    assert re.fullmatch(
        r"On none of \d+ metrics is it among the three highest or lowest of 8 heads\.", text
    )


def test_a_strip_has_a_hairline_a_head_and_its_dot_in_place() -> None:
    svg = RangeStrip.of(np.array([0.0, 1.0, 4.0, np.nan])).drawn(1.0)
    assert len(re.findall('v1[m"]', svg)) == 3
    [at] = re.findall(r'circle cx="([\d.]+)%"', svg)
    assert float(at) == pytest.approx(MARGIN + (100 - 2 * MARGIN) / 4, abs=0.06)
    assert RangeStrip.of(np.array([2.0, 2.0])).drawn(2.0).count("<circle") == 1


def test_numbers_of_a_head_wait_in_a_file_and_are_named_without_scripts(
    encoder_site: Site,
) -> None:
    """The page as it is written has no row of them; what brings them back has every one."""
    file = encoder_site.folder / "heads/L00-H01.html"
    bare, whole = written_html(file), html_of(file)
    assert 'class="numbers all"' not in bare
    assert 'href="../data.html">heads.csv</a>' in bare[bare.index('id="numbers"') :]
    [page] = [p for p in head_pages(encoder_site.results["self"]) if p.name == "L0·H1"]
    tables = re.findall(r'<table class="numbers all">.*?</table>', whole, re.DOTALL)
    rows = sum(table.count('<tr><th scope="row">') for table in tables)
    assert rows == len(page.numbers.rows) + len(page.more.rows) > 0
    assert len(bare.encode()) < 0.9 * len(whole.encode())


def test_tokens_are_numbered_where_their_order_does_not_tell(encoder_site: Site) -> None:
    """As scripts count them: each follows the one before unless it has a number.

    Unmarked ones stand together where blanks part them.
    """
    html = html_of(encoder_site.folder / "heads/L01-H02.html")
    sentence_data = encoder_site.study.sentence_data
    pieces = {s.number: s.texts[Side.SOURCE].pieces for s in sentence_data.sentences.values()}
    for article in re.findall(r'<article class="exemplar".*?</article>', html, re.DOTALL):
        [sentence] = re.findall(r'data-sentence="(\d+)"', article)
        places, at = [], 0
        for attributes, text in re.findall(r"<i( [^>]*)?>([^<]*)</i>", article):
            number = re.search(r'data-i="(\d+)"', attributes)
            at = int(number[1]) if number else at
            for token in [text] if "class=" in attributes else text.split(" "):
                assert unescape(token).lower() == pieces[int(sentence)][at].lower().strip("#")
                places.append(at)
                at += 1
        assert places == sorted({*places})


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd"), (113, "113th")],
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text


def test_top_tokens_are_those_of_the_table(pages: list[HeadPage], encoder_site: Site) -> None:
    """Those whose interval lies above uniform attention and the mean head."""
    table = encoder_site.study.top_tokens
    table = table[table["low"] > table[["uniform", "mean_head"]].max(axis=1)]
    assert len(table)
    for page in pages:
        own = table[(table.layer == name_of(page).layer) & (table["head"] == name_of(page).head)]
        assert (page.top is None) == own.empty
        for displayed in page.top.tables if page.top else ():
            what = next(what for what, (title, _) in KINDS.items() if title in displayed.caption)
            rows = own[own.role == what].head(8)
            assert [row.name for row in displayed.rows] == [
                " → ".join(filter(None, each))
                for each in zip(rows["query"], rows["key"], strict=True)
            ]
            for place, column in ((3, "count"), (4, "n_sentences")):
                numbers = [f"{number:,}" for number in rows[column]]
                assert [row.cells[place] for row in displayed.rows] == numbers
            for row, ratio in zip(displayed.rows, rows["mean_head_ratio"], strict=True):
                assert row.cells[1] == f"{number(ratio)}×"


def test_every_head_of_two_texts_has_its_page(pair_site: Site) -> None:
    """Queries and keys apart, and no offsets between them."""
    html = html_of(pair_site.folder / "heads/cross-L00-H01.html")
    assert 'class="looking"' in html
    assert 'id="where"' not in html
    assert text_of(html).count("None: no sentence") == 0
