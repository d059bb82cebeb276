"""Which sentences have a page, and what stands there without scripts and in its data."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headbook
import tiny
from headbook.pages import sentence
from headbook.pages.parts.token_paths import drawn_metrics
from headbook.pages.sentence import ENTRIES, SentencePage, sentence_pages
from headbook.pages.sentences import sentences_page
from headbook.report.facts.functions import functions_of
from headbook.report.results import stack_results
from headbook.results.formats import head_name, number
from headbook.schema import HeadName
from headbook.study.exemplars import ExemplarChoice, most_cited
from headbook.study.sentence_data import UINT8_STEPS, Ranking
from html_pages import data_file, text
from sites import Site

CITED = re.compile(r'href="?\.\./(sentences/\d+\.html)')


def first_page(site: Site) -> SentencePage:
    return next(iter(sentence_pages(site.results)))


def read(site: Site, name: str) -> Any:
    """A data file of the site's sentences."""
    return data_file(site.folder / f"data/sentences/{name}.js")[1]


def test_pages_of_all_heads_go_to_the_first_sentences_and_to_those_that_most_heads_cite() -> None:
    heads = [HeadName("self", 0, head) for head in range(3)]
    cited = {7: heads, 4: heads[:2], 300: heads[:2], 9: heads[:1]}
    choices = [
        ExemplarChoice(h, Ranking.STRONGEST, 1, i, 1.0) for i, by in cited.items() for h in by
    ]
    # The same head by another ranking.
    choices += [ExemplarChoice(heads[0], Ranking.MASS, r, 9, 1.0) for r in (1, 2, 3)]
    assert most_cited(choices, 2, 400, 0) == []
    assert most_cited(choices, 2, 400, 1) == [0]
    assert most_cited(choices, 2, 400, 4) == [0, 1, 4, 7]
    assert most_cited(choices, 2, 400, 5) == [0, 1, 4, 7, 300]
    assert most_cited(choices, 2, 400, 7) == [0, 1, 2, 4, 7, 9, 300]
    assert most_cited(choices, 2, 400, 9)[:4] == [0, 1, 2, 3]  # half of them, at least
    assert most_cited(choices, 2, 301, float("inf")) == [*range(301)]


@pytest.fixture(scope="module")
def hundreds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of some hundred sentences, three of which show all heads."""
    path = tmp_path_factory.mktemp("hundreds")
    words = ("dog", "bird", "house", "water", "garden", "man")
    lines = [f"The {a} sees the {b} near the {c}." for a in words for b in words for c in words]
    (path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    tiny.write("bert", path / "model")
    study = headbook.collect(
        [path / "lines.txt"],
        model=str(path / "model"),
        annotator="none",
        metrics="attention_distance",
        sentence_pages="3",
        control="none",
    )
    assert study.manifest.counts["sentences"] == len(lines) > 200
    headbook.render(study, path / "site")
    study.save(path / "study")
    return path


@pytest.mark.slow
def test_every_exemplar_leads_to_a_page(hundreds: Path) -> None:
    site = hundreds / "site"
    pages = {f"sentences/{page.name}" for page in (site / "sentences").glob("*.html")}
    cited = {
        href
        for page in (site / "heads").glob("*.html")
        for href in CITED.findall(page.read_text(encoding="utf-8"))
    }
    study = headbook.Study.load(hundreds / "study")
    exemplars = {f"sentences/{e.index + 1:04}.html" for e in study.sentence_data.by_weight}
    assert cited == exemplars <= pages
    assert len(study.sentence_data.listed) == 3
    assert len(cited - {f"sentences/{s.number:04}.html" for s in study.sentence_data.listed}) > 20
    for name in pages - {"sentences/index.html"}:
        assert (site / f"data/{name}".replace(".html", ".js")).exists()


@pytest.mark.slow
def test_a_page_has_the_maps_of_the_best_ranks_that_there_is_room_for(
    hundreds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = headbook.Study.load(hundreds / "study")
    by_sentence: dict[int, dict[HeadName, int]] = {}
    for e in study.sentence_data.exemplars:
        if e.ranking is Ranking.STRONGEST:
            best = by_sentence.setdefault(e.index, {})
            best[e.head] = min(e.rank, best.get(e.head, e.rank))
    monkeypatch.setattr(sentence, "MOST_CITED", 0)
    for page in sentence_pages(stack_results(study)):
        (stack,) = page.stacks
        ranks = by_sentence.get(page.number - 1, {})
        if page.listed or not ranks:
            continue
        _, first = min((rank, head) for head, rank in ranks.items())
        assert [c.head for c in stack.cited] == [f"{first.layer}.{first.head}"]
        assert stack.uncited >= len(ranks) - 1


@pytest.mark.slow
def test_the_page_of_a_cited_sentence_has_the_maps_of_its_heads(hundreds: Path) -> None:
    study = headbook.Study.load(hundreds / "study")
    pages = [page for page in sentence_pages(stack_results(study)) if not page.listed]
    assert pages
    for page in pages[:20]:
        index = page.number - 1
        (stack,) = page.stacks
        by_head = {e.head: e for e in study.sentence_data.by_weight if e.index == index}
        assert [c.head for c in stack.cited] == [f"{h.layer}.{h.head}" for h in sorted(by_head)]
        data = read(Site("", hundreds), f"{page.number:04}")["self"]
        assert data["places"] == [[h.layer, h.head] for h in sorted(by_head)]
        assert stack.start is not None
        assert stack.start.head in {c.head for c in stack.cited}


def test_the_list_of_sentences_marks_maps_of_some_heads_and_the_strongest_exemplars(
    encoder_site: Site,
) -> None:
    results = encoder_site.results
    page, data = sentences_page(results), encoder_site.study.sentence_data
    assert [line.listed for line in page.lines] == [s.listed for s in data.paged]
    functions = functions_of(results["self"])
    for line in page.lines:
        own = {e.head for e in data.exemplars
               if e.index == line.number - 1 and e.ranking is Ranking.STRONGEST}  # fmt: skip
        printed = [name for _, heads in line.families for name in (head.text for head in heads)]
        known = [head for head in own if functions[head].family]
        assert sorted(printed) == sorted(map(head_name, known))
    styles = {style for line in page.lines for style, _ in line.families}
    assert {style for style, _ in page.families} == styles


def test_a_sentence_that_no_head_cites_begins_with_the_largest_weight_of_all_heads(
    encoder_site: Site,
) -> None:
    study = encoder_site.study
    uncited = replace(study, sentence_data=replace(study.sentence_data, exemplars=()))
    (stack,) = next(iter(sentence_pages(stack_results(uncited)))).stacks
    assert stack.start is not None
    assert stack.start.rule.endswith("among all heads.")


def test_the_panel_begins_with_the_largest_weight_of_heads_that_cite_the_sentence(
    encoder_site: Site,
) -> None:
    """Before any script: its map, the keys of its query, and heads by what they give from there."""
    study, page = encoder_site.study, first_page(encoder_site)
    (stack,) = page.stacks
    assert stack.start is not None
    own = [e for e in study.sentence_data.exemplars if e.index == page.number - 1]
    maps = study.sentence_data.maps["self", page.number - 1]
    [text] = study.sentence_data.sentences[page.number - 1].texts.values()
    words = np.flatnonzero(~np.array(text.special))
    weights = {
        (head, int(query)): max(int(maps[head.layer, head.head, query, key])
                                for key in words if key != query)
        for head in {e.head for e in own} for query in words
    }  # fmt: skip
    layer, number_of_head = map(int, stack.start.head.split("."))
    head, query = HeadName("self", layer, number_of_head), stack.start.query
    assert weights[head, query] == max(weights.values()) > 0
    assert "among the heads that have this sentence among their exemplars" in stack.start.rule
    row = maps[layer, number_of_head, query] / UINT8_STEPS
    values = [float(line.value) for line in stack.start.ranked]
    assert values == [round(float(v), 3) for v in np.sort(row)[::-1] if v][: len(values)]
    left_out = np.array(text.special)
    left_out[query] = True
    most = np.where(left_out, 0, maps[:, :, query] / UINT8_STEPS).max(-1).max()
    assert float(stack.start.others[0].value) == round(float(most), 3)


@pytest.mark.parametrize("kind", ["encoder", pytest.param("pair", marks=pytest.mark.slow)])
def test_paths_hold_every_number_of_the_tokens(request: pytest.FixtureRequest, kind: str) -> None:
    """To four digits, by metric, state and space; class means are those of all sentences.

    Means of log10(1 + rank) are drawn as ranks: geometric means.
    """
    site: Site = request.getfixturevalue(f"{kind}_site")
    study, found = site.study, read(site, "0001-paths")
    every = study.tokens[study.tokens["sentence"] == 1]
    for stack, data in found.items():
        rows = every[every["stack"] == stack]
        assert tuple(metric["id"] for metric in data["metrics"]) == drawn_metrics(rows)
        for metric in data["metrics"]:
            own = rows[(rows["metric"] == metric["id"]) & rows["value"].notna()]
            seen = [v for view in metric["views"] for line in view["values"] for v in line]
            assert sorted(v for v in seen if v is not None) == sorted(
                float(f"{v:.4g}") for v in own["value"]
            )
        for metric in data["metrics"]:
            of_log = metric["id"] == "vocabulary_rank"
            if not of_log and metric["id"] != "cosine_to_input":
                continue
            view, table = metric["views"][0], study.layers
            for name, values in view["classes"].items():
                space = "positional/" * of_log
                mine = table[(table["stack"] == stack) & (table["metric"] == metric["id"])]
                mine = mine[mine["label"] == f"out/{space}{name.split()[0]}"]
                wanted = mine.set_index("layer")["value"]
                wanted = 10**wanted - 1 if of_log else wanted
                assert values == [float(f"{wanted[layer]:.4g}") for layer in view["layers"]]


def test_ranks_are_drawn_only_where_one_is_above_zero() -> None:
    rows = pd.DataFrame(
        [("vocabulary_rank", 0.0), ("vocabulary_rank", 0.0), ("cosine_to_input", 0.0)],
        columns=["metric", "value"],
    )
    assert drawn_metrics(rows) == ("cosine_to_input",)
    rows.loc[1, "value"] = 3.0
    assert drawn_metrics(rows) == ("cosine_to_input", "vocabulary_rank")


def test_nearest_tokens_of_the_first_chosen_token_stand_there(encoder_site: Site) -> None:
    (stack,) = first_page(encoder_site).stacks
    assert stack.entries is not None
    assert stack.start is not None
    near = encoder_site.study.nearest
    near = near[
        (near["sentence"] == 1)
        & (near["position"] == stack.start.query)
        & (near["state"] == "out")
        & (near["rank"] <= ENTRIES)
    ]
    near = near[near["space"] == near["space"].iloc[0]].sort_values(["layer", "rank"])
    cells = [cell for row in stack.entries.table.rows for cell in row.cells]
    displayed = [tuple(text(cell).split(" ")[:2]) for cell in cells]
    values = zip(near["neighbour"], map(number, near["cosine"]), strict=True)
    assert displayed == [*values]
