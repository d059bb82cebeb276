"""Outputs of notebooks: one element without scripts, links and files, with the site's numbers."""

import base64
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import altair as alt
import html5lib
import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len

import headbook
import tiny
from headbook.charts.theme import STEPS, ink_steps
from headbook.comparison.checkpoints import NamedStudy, checkpoints_of
from headbook.comparison.comparison import compare
from headbook.errors import ConfigError
from headbook.notebook.styles import RULE, style_of
from headbook.notebook.views import NotebookView
from headbook.schema import Side
from headbook.study.study import Study
from sites import Site, make_study
from trained_runs import REVISIONS

ATTACK = "</style></script><script>alert(1)</script>\"><img src=x onerror=alert(1)> {{7*7}} & '"
LOADING = {"script", "iframe", "object", "embed", "link", "base", "form", "meta", "template"}
ADDRESS = re.compile(r"url\((?!#)([^)]*)\)")
ROOT_CLASS = re.compile(r"headbook (o-[0-9a-f]{12})")
THEMED = ".headbook.headbook"  # what rules of themes end with: they are the same for all outputs
SHEET = re.compile(r"\.m-[\w]+\{--sheet:url\(data:image/png;base64,([^)]*)\)")


def outputs(study: Study) -> Iterator[tuple[str, str]]:
    """Yield every kind of output with its name."""
    yield "study", study._repr_html_()
    for stack in study.manifest.stacks:
        layer = stack.attention_layers[-1]
        yield stack.name, html_of(study.head(layer, 1, stack.name))
        yield stack.name, html_of(study.plot(f"relative_entropy-{stack.name}-layers"))
    yield "sentence", html_of(study.sentence(0))


def html_of(view: Any) -> str:
    assert isinstance(view, NotebookView)
    return view._repr_html_()


def elements(html: str) -> list[Any]:
    """Elements of an output as a browser parses it, the root first."""
    found = html5lib.parseFragment(html, namespaceHTMLElements=False)
    roots = [*found]
    assert [root.tag for root in roots] == ["div"]
    assert ROOT_CLASS.fullmatch(roots[0].get("class"))
    assert not (found.text or "").strip()
    assert not (roots[0].tail or "").strip()
    return [element for element in roots[0].iter() if isinstance(element.tag, str)]


@cache
def outputs_of(site: Site) -> list[tuple[str, str]]:
    return [*outputs(site.study)]


@pytest.mark.slow
def test_outputs_are_one_element_that_needs_nothing_else(any_site: Site) -> None:
    for name, html in outputs_of(any_site):
        for element in elements(html):
            assert element.tag.rpartition("}")[2] not in LOADING, name
            for attribute, value in element.attrib.items():
                assert not str(attribute).startswith("on"), name
                if attribute in {"src", "href", "srcset", "action"}:
                    assert value.startswith("data:image/"), (name, value[:80])
        assert all(address.startswith("data:image/") for address in ADDRESS.findall(html)), name
        assert "@import" not in html
        assert {*re.findall(r"https?://[\w./]*", html)} <= {"http://www.w3.org/2000/svg"}, name


@pytest.mark.slow
def test_styles_of_outputs_concern_nothing_else_of_a_notebook(any_site: Site) -> None:
    for name, html in outputs_of(any_site):
        style = html.partition("<style>")[2].partition("</style>")[0]
        (own,) = re.findall(rf'<div class="{ROOT_CLASS.pattern}"', html)
        start = f".headbook.{own}"
        assert style.startswith(f"{start}{{"), name
        end = matching_brace(style, len(start))
        themes = [*RULE.finditer(style[end:])]
        assert len(themes) == 5
        for theme in themes:
            selectors = [m[1] for m in RULE.finditer(theme[2])] or [theme[1]]
            assert all(s.strip().endswith(THEMED) for s in selectors), name


@pytest.mark.slow
def test_each_output_has_a_root_class_of_its_own(encoder_site: Site) -> None:
    study = encoder_site.study
    views = [study.head(0, 0), study.head(0, 1), study.head(1, 0), study.sentence(0)]
    found = [study._repr_html_(), *map(html_of, views)]
    classes = [ROOT_CLASS.search(html)[1] for html in found]  # type: ignore[index]
    assert len({*classes}) == len(found)
    assert ROOT_CLASS.search(html_of(study.head(0, 0)))[1] == classes[1]  # type: ignore[index]


@pytest.mark.slow
def test_two_models_and_checkpoints_show_their_claims_and_the_wall_of_differences(
    encoder_site: Site, trained_run: Path
) -> None:
    study = encoder_site.study
    training = checkpoints_of(
        [
            NamedStudy(name, partial(Study.load, trained_run / "studies" / name))
            for name in REVISIONS[:2]
        ]
    )
    for view in (compare(study, study), training):
        html = view._repr_html_()
        names = [element.tag.rpartition("}")[2] for element in elements(html)]
        assert not {*names} & LOADING
        assert names.count("img") == len(study.manifest.stacks)
        assert all(address.startswith("data:image/") for address in ADDRESS.findall(html))
        assert "claims" in html
    assert repr(training).endswith(f"{REVISIONS[0]}, {REVISIONS[1]}")


def test_weights_are_the_stored_ones_with_their_tokens(encoder_site: Site) -> None:
    study, maps = encoder_site.study, encoder_site.study.sentence_data.maps
    weights, queries, keys = study.attention(0, layer=1, head=2)
    assert np.array_equal(np.rint(weights * 255), maps["self", 0][1, 2])
    assert weights.dtype == np.float32
    assert queries == keys == study.sentence_data.sentences[0].texts[Side.SOURCE].pieces
    assert np.array_equal(study.attention(0, 1).weights[2], weights)
    for wrong in ((0, 99, 0), (0, 0, 99), (10**6, 0, 0), ("x", 0, 0), (0, 0, 0, "cross")):
        with pytest.raises(ConfigError, match=r"^study.attention: got"):
            study.attention(*wrong)


def test_every_listed_figure_can_be_drawn(encoder_site: Site) -> None:
    names = encoder_site.study.figures
    assert len({*names}) == len(names) > 20
    for name in (names[0], names[-1]):
        assert encoder_site.study.plot(name) is not None


def matching_brace(text: str, start: int) -> int:
    """Return the index behind the brace that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if not depth:
            return index + 1
    raise AssertionError("a brace is left open")


def test_styles_hold_the_rules_of_their_output_alone() -> None:
    html = '<div class="overview"><p class="small">x</p><a class="n">1</a></div>'
    style = style_of(html, "o-1", ("overview",), "", 4)
    assert ".overview .small{" in style
    assert "a.n" not in style.partition("}")[0]
    for absent in (
        ".wall",
        ".roll",
        "header",
        ":root",
        "body",
        "vw",
        "data-theme]",
        "prefers-dark",
    ):
        assert absent not in style.partition("@media (prefers-color-scheme")[0], absent
    h1 = '<div class="overview"><div class="about-model"><h1>x</h1></div></div>'
    assert "@container (max-width:700px){.overview .about-model h1{" in style_of(
        h1, "o-1", ("overview",), "", 4
    ).replace(": ", ":")


def test_texts_from_outside_stay_texts(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{ATTACK}\nA plain text.\n", encoding="utf-8")
    study = make_study(tmp_path / "texts.txt", tiny.write("bert", tmp_path / "model"))
    manifest = study.manifest
    model = replace(manifest.model, name=ATTACK)
    study = replace(study, manifest=replace(manifest, model=model, title=ATTACK))
    for _, html in outputs(study):
        found = elements(html)
        assert sum(element.tag == "style" for element in found) == 1
        assert not [e for e in found if e.get("src", "").startswith("x") or "onerror" in e.attrib]
        assert "49" not in "".join(found[0].itertext()).partition("{{7*")[0][-4:]
    heading = next(e for e in elements(study._repr_html_()) if e.tag == "h1")
    assert heading.text == ATTACK
    words = "".join(
        "".join(e.itertext())
        for e in elements(html_of(study.sentence(0)))
        if e.get("class") == "text"
    )
    assert "<script>alert(1)</script>" in words


@pytest.mark.slow
def test_the_wall_has_a_tile_for_each_head_that_names_it(encoder_site: Site) -> None:
    study = encoder_site.study
    (stack,) = study.manifest.stacks
    tiles = [
        element
        for element in elements(study._repr_html_())
        if element.tag == "a" and "map" in element.get("class", "").split()
    ]
    assert len(tiles) == len(stack.attention_layers) * stack.n_heads
    assert tiles[1].get("title", "").startswith("L0·H1")
    assert all(tile.get("role") == "img" and "href" not in tile.attrib for tile in tiles)


@pytest.mark.slow
def test_the_card_of_a_head_shows_its_own_mean_map(encoder_site: Site) -> None:
    study = encoder_site.study
    (stack,) = study.manifest.stacks
    maps = study.corpus_sums.heads[stack.name].positions.mean
    for layer, head in ((0, 0), (1, 1)):
        html = html_of(study.head(layer, head))
        (sheet,) = SHEET.findall(html)
        picture = Image.open(io.BytesIO(base64.b64decode(sheet))).convert("RGBA")
        steps = ink_steps(maps[layer, head] / 0.5).astype(float)
        expected = np.rint(255 * steps / (STEPS - 1))
        np.testing.assert_allclose(np.asarray(picture)[..., 3], expected, atol=1)
        assert f"Head L{layer}·H{head}" in html


@pytest.mark.slow
def test_views_are_text_in_terminals(encoder_site: Site) -> None:
    study = encoder_site.study
    lines = repr(study.head(1, 0)).splitlines()
    assert lines[0] == f"Head L1·H0 of {study.manifest.model.name} (self-attention)"
    assert lines[1].endswith(".")
    assert any(line.startswith("Strongest: ") for line in lines)
    text = study.sentence_data.sentences[0].texts
    assert next(iter(text.values())).text in repr(study.sentence(0))


MANY_WORDS = " ".join(f"word{number}" for number in range(400))
LONG = {"a paragraph": MANY_WORDS, "lines": MANY_WORDS.replace(" ", "\n"), "wide": "長い文 " * 300}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("kind", ["t5", "xlnet"])
def test_long_texts_are_a_few_lines_in_terminals(
    tiny_folder: Callable[[str], Path], kind: str, name: str
) -> None:
    study = headbook.collect(
        [LONG[name]], model=str(tiny_folder(kind)), annotator="none", language="none",
        importance="off", circuits="off", sentence_pages=1, max_length=400,
        metrics=["attention_distance", "pattern"],
    )  # fmt: skip
    assert study.manifest.count(Side.SOURCE, "tokens") > 300
    views = [study, study.head(0, 0), study.sentence(0), study.plot("attention_distance")]
    for view in views:
        assert 0 < rows_in_terminal(repr(view)) <= 8
    assert f"{LONG[name].split()[0]} " in repr(study.sentence(0))


def rows_in_terminal(text: str, columns: int = 80) -> int:
    """Lines of a terminal that a text fills, by the width of its characters."""
    return sum(max(1, -(-cell_len(line) // columns)) for line in text.splitlines())


@pytest.mark.slow
def test_plots_are_altair_charts_of_the_numbers_in_tables(encoder_site: Site) -> None:
    study = encoder_site.study
    chart = study.plot("attention_distance")
    assert isinstance(chart, alt.Chart)
    spec = chart.to_dict()
    (rows,) = spec["datasets"].values()
    drawn = {(row["layer"], row["head"]): row["value"] for row in rows}
    table = study.heads.query("metric == 'attention_distance' and view == 'raw'")
    wanted = {(r.layer, r.head): r.value for r in table.itertuples()}
    assert drawn.keys() == wanted.keys()
    for place, value in wanted.items():
        assert drawn[place] == pytest.approx(value, abs=1e-5)
    (masked,) = study.plot("attention_distance", view="nosink").to_dict()["datasets"].values()
    assert {row["view"] for row in masked} == {"nosink"}
    assert {row["view"] for row in rows} == {"raw"}
    assert "currentColor" not in chart.to_json()


@pytest.mark.slow
def test_plots_of_several_stacks_are_chosen_by_name(pair_site: Site) -> None:
    study = pair_site.study
    names = [stack.name for stack in study.manifest.stacks]
    charts = [study.plot("relative_entropy", name).to_dict()["datasets"] for name in names]
    assert charts[0] == study.plot("relative_entropy").to_dict()["datasets"]
    assert charts[0] != charts[1]
    titles = [repr(study.head(0, 0, name)).splitlines()[0] for name in names]
    assert len({*titles}) == len(names)


BOTH = "expected layer 0 to 1 and head 0 to 3, both counted from 0"
WRONG: dict[str, tuple[Any, str]] = {
    "no such layer": (
        lambda study: study.head(7, 0),
        f"study.head: got layer 7, head 0, {BOTH}",
    ),
    "a negative head": (
        lambda study: study.head(0, -1),
        f"study.head: got layer 0, head -1, {BOTH}",
    ),
    "no such stack": (
        lambda study: study.head(0, 0, "both"),
        "study.head: got stack 'both', expected self",
    ),
    "no such sentence": (
        lambda study: study.sentence(10_000),
        "study.sentence: got 10000, expected the index of a sentence with stored maps: 0, ",
    ),
    "a misspelt metric": (
        lambda study: study.plot("attention_distanc"),
        "study.plot: got 'attention_distanc', expected the id of a metric or the name of a figure, "
        "such as attention_distance, ",
    ),
    "a metric that was not measured": (
        lambda study: study.plot("dependency_trees"),
        "study.plot: this study has no numbers of dependency_trees that a chart shows; expected a "
        "metric of the study; metrics=['dependency_trees', ...] of collect adds one",
    ),
    "no such view": (
        lambda study: study.plot("attention_distance", view="all"),
        "view: got 'all', expected a view of attention_distance: raw, nosink, renorm",
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_one_line(small_site: Site, call: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call(small_site.study)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
