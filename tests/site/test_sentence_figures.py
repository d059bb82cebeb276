"""Maps and lines of single sentences as figures for papers."""

import re
from itertools import product
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

import naive_sentences as naive
from headbook.charts import AttentionLine, attention_lines, attention_map
from headbook.errors import ConfigError
from headbook.pages.parts.page import SiteFacts
from headbook.report.results import stack_results
from headbook.schema import HeadName, Side
from headbook.site.attention_figures import single_name, stored_maps
from headbook.site.figures import figures, study_figures
from headbook.study.sentence_data import UINT8_STEPS
from headbook.study.study import Study
from html_pages import differing, tree
from pdf_files import letters
from sites import Site

TEXT = "{http://www.w3.org/2000/svg}text"
COLUMNS = ["query_position", "query", "key_position", "key", "weight"]
SCRIPTS = ("[CLS]", "שלום", "عليكم", "機構", "##s", "<b>&", "a" * 60)


def texts(svg: bytes | str) -> list[str]:
    """What a picture says."""
    return [element.text or "" for element in ET.fromstring(svg).iter(TEXT)]  # noqa: S314 - our own


@pytest.mark.slow
def test_a_map_holds_every_stored_weight(decoder_site: Site, tmp_path: Path) -> None:
    """Of a causal model: those of keys that come later are not there."""
    name = "map-S0002-L01-H03"
    out = tmp_path / "figures"
    assert figures(decoder_site.stored, out, [name]) == [name]
    sentence_data = decoder_site.study.sentence_data
    pieces = sentence_data.sentences[1].texts[Side.SOURCE].pieces
    steps = sentence_data.maps["self", 1][1, 3]
    rows = pd.read_csv(out / f"{name}.csv", keep_default_na=False)
    assert [*rows] == COLUMNS
    wanted = [(q, k) for q in range(len(pieces)) for k in range(q + 1)]
    assert [*zip(rows["query_position"], rows["key_position"], strict=True)] == wanted
    assert rows["weight"].tolist() == pytest.approx(
        [steps[q, k] / 255 for q, k in wanted], rel=6e-6
    )
    assert [t.removeprefix("'") for t in rows["key"]] == [pieces[k].strip("\r") for _, k in wanted]
    drawn = (out / f"{name}.svg").read_text(encoding="utf-8")
    assert {"key →", "query ↓", "0", "0.5", "1"} <= {*texts(drawn)}
    assert (out / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_lines_are_the_fewest_that_hold_nine_tenths(encoder_site: Site, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    figures(encoder_site.stored, out, ["lines-S0001-L00-H01"])
    rows = pd.read_csv(out / "lines-S0001-L00-H01.csv", keep_default_na=False)
    steps = encoder_site.study.sentence_data.maps["self", 0][0, 1].astype(int)
    for query, row in enumerate(steps):
        own = rows[rows["query_position"] == query]
        weights = sorted(row, reverse=True)[: len(own)]
        assert own["weight"].tolist() == pytest.approx([w / UINT8_STEPS for w in weights], rel=6e-6)
        assert 10 * sum(weights) >= 9 * sum(row) > 10 * sum(weights[:-1])
        assert [row[k] for k in own["key_position"]] == weights


@pytest.mark.slow
def test_captions_say_what_is_drawn(encoder_site: Site, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    names = figures(encoder_site.stored, out, ["*-S0002-L01-H00"])
    assert names == ["map-S0002-L01-H00", "lines-S0002-L01-H00"]
    tex = (out / "figures.tex").read_text(encoding="utf-8")
    facts = SiteFacts.of(encoder_site.study.manifest, sentence_pages=True)
    for caption in re.findall(r"\\caption\{(.*)\}\n", tex):
        basic = caption.replace(r"\_", "_").replace(r"\textperiodcentered{}", "·")
        assert basic.startswith("Attention of head L1·H0 in sentence 2, ")
        assert "Weights of all keys, stored with 8 bits" in basic
        assert basic.endswith(facts.source)
    assert r"the fewest links with 90\,\% of its weights" in tex
    assert len(re.findall("^@misc", (out / "figures.bib").read_text(), re.MULTILINE)) == 2
    figures(encoder_site.study, tmp_path / "again", ["*-S0002-L01-H00"])
    assert differing(out, tmp_path / "again") == []


@pytest.mark.slow
def test_every_map_that_is_kept_has_a_name_and_no_other(small_site: Site, tmp_path: Path) -> None:
    """Those of listed sentences, and of exemplars, whose sentences need not be listed."""
    study = small_site.study
    kept = {*stored_maps(stack_results(study)["self"])}
    listed = {s.index for s in study.sentence_data.listed}
    heads = {head_name for index, head_name in kept if index in listed}
    assert kept == {(i, h) for i in listed for h in heads} | {
        (e.index, e.head) for e in study.sentence_data.exemplars
    }
    other = next((index, head) for index, head in sorted(kept) if index not in listed)
    name = single_name("map", other[0] + 1, other[1])
    assert figures(study, tmp_path / "one", [name]) == [name]
    exemplar = next(e for e in study.sentence_data.exemplars if (e.index, e.head) == other)
    rows = pd.read_csv(tmp_path / "one" / f"{name}.csv", keep_default_na=False)
    assert rows["weight"].tolist() == pytest.approx(
        (exemplar.attention / 255).ravel().tolist(), rel=6e-6
    )
    assert not {"map", "lines"} & {figure.name.partition("-")[0] for figure in study_figures(study)}
    layers = figures(study, tmp_path / "stars", ["*-layers"])
    assert not [name for name in layers if "-S0" in name]


@pytest.mark.slow
def test_cross_attention_has_the_target_in_its_rows(pair_site: Site, tmp_path: Path) -> None:
    name = single_name("map", 1, HeadName("cross", 1, 2))
    assert name == "map-S0001-cross-L01-H02"
    figures(pair_site.stored, tmp_path / "out", [name])
    rows = pd.read_csv(tmp_path / "out" / f"{name}.csv", keep_default_na=False)
    sides = pair_site.study.sentence_data.sentences[0].texts
    assert rows["query_position"].max() + 1 == len(sides[Side.TARGET].pieces)
    assert rows["key_position"].max() + 1 == len(sides[Side.SOURCE].pieces)
    assert len(rows) == pair_site.study.sentence_data.maps["cross", 0][1, 2].size


@pytest.mark.parametrize("tokens", [5, 38, 48, 100])
def test_a_map_fits_its_page_with_letters_that_can_be_read(tokens: int) -> None:
    """Of many tokens with smaller cells, where need be without every name; never scaled down."""
    names = [f"token{n}" for n in range(tokens)]
    weights = np.full((tokens, tokens), 1 / tokens)
    drawn = attention_map("n", "Caption.", names, names, weights=weights, about="weight")
    root = ET.fromstring(drawn.svg)  # noqa: S314 - our own
    assert float(root.get("width", "")) <= 6.9 * 96
    sizes = {float(element.get("font-size", "")) for element in root.iter(TEXT)}
    assert 7 <= min(sizes) * 0.75 <= max(sizes) * 0.75 <= 9
    message = [text for text in texts(drawn.svg) if text in names]
    if tokens <= 48:
        assert message == names * 2
    own = [
        element
        for element in root.iter(TEXT)
        if element.text in names and float(element.get("x", "")) != 0
    ]
    down = [float(element.get("y", "")) for element in own]
    assert len(down) == len(message) / 2
    assert min(np.diff(down)) >= min(sizes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stack"), [("encoder", "self"), ("decoder", "self"), ("pair", "cross")]
)
def test_views_have_the_weights_of_the_naive_computation(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, stack: str
) -> None:
    """Every way to weigh, of tokens and of words, as the pages show them."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    stored = naive_map(site.study, stack, 1, HeadName(stack, 1, 2))
    name = single_name("map", 2, HeadName(stack, 1, 2))
    out = tmp_path / "figures"
    names = figures(site.stored, out, [f"{name}*", f"lines{name[3:]}*"])
    assert len(names) == 16
    for weighting, units in product(("raw", "nosink", "renorm", "norm"), ("pieces", "words")):
        ending = f"-{weighting}" * (weighting != "raw") + "-words" * (units == "words")
        weights = naive.weights(stored, weighting, units)
        rows = pd.read_csv(out / f"{name}{ending}.csv", keep_default_na=False)
        wanted = {(q, k): w for q, row in enumerate(weights) for k, w in enumerate(row)}
        wanted = {cell: weight for cell, weight in wanted.items() if naive.seen(weight)}
        places = [*zip(rows["query_position"], rows["key_position"], strict=True)]
        assert places == [*wanted]
        assert rows["weight"].tolist() == pytest.approx([*wanted.values()], rel=6e-6)
        assert {*rows["key"].str.removeprefix("'")} <= {*naive.names(stored.keys, units)}
        lines = pd.read_csv(out / f"lines{name[3:]}{ending}.csv", keep_default_na=False)
        for query, row in enumerate(weights):
            own = lines[lines["query_position"] == query]
            assert {*own["key_position"]} == {*naive.fewest(row, 0.9)}
        message = "norm-weighted" if weighting == "norm" else "attention weight"
        assert message in texts((out / f"{name}{ending}.svg").read_text(encoding="utf-8"))


def naive_map(study: Study, stack: str, index: int, head: HeadName) -> naive.Map:
    sentence_data, of = study.sentence_data, study.manifest.stack(stack)
    texts = sentence_data.sentences[index].texts
    steps, norms = (
        found[stack, index][head.layer, head.head]
        for found in (sentence_data.maps, sentence_data.norms)
    )
    return naive.Map(steps, texts[of.queries], texts[of.keys], of.causal, norms)


@pytest.mark.slow
def test_a_wrong_name_is_known_which_sentences_and_heads_there_are(
    encoder_site: Site, tmp_path: Path
) -> None:
    kept = [*stored_maps(encoder_site.results["self"])]
    numbers = sorted({index + 1 for index, _ in kept})
    for wrong in ("map-S0999-L01-H02", "map-S0001-L01-H99", "lines-S1-L01-H02"):
        with pytest.raises(ConfigError, match=f"{wrong}' is the name of no figure") as raised:
            figures(encoder_site.stored, tmp_path / "out", [wrong])
        message = str(raised.value)
        (near,) = re.findall(r"such as (\S+), ", message)
        assert near.partition("-")[0] == wrong.partition("-")[0]
        assert near in {single_name(near.partition("-")[0], i + 1, head) for i, head in kept}
        assert f"{len(numbers)} sentences from {numbers[0]} to {numbers[-1]}" in message
        assert "heads L00-H00 to L01-H03" in message
    with pytest.raises(ConfigError, match="such as profile-L00-H0"):
        figures(encoder_site.stored, tmp_path / "out", ["profile-L00-H77"])
    assert tree(tmp_path) == {}


def test_tokens_of_any_script_stand_inside_their_picture() -> None:
    """Long ones are cut; what stands in the files is the same every time."""
    size = len(SCRIPTS)
    seen = np.tri(size, dtype=bool)
    weights = np.where(seen, np.linspace(0, 1, size * size).reshape(size, size), np.nan)
    links = [AttentionLine(0, 1, 0.5), AttentionLine(6, 2, 1.0)]
    both = (
        attention_map("a", "Map.", SCRIPTS, SCRIPTS, weights=weights, about="weight"),
        attention_lines("b", "Lines.", SCRIPTS, SCRIPTS[:3], links, about="weight"),
    )
    for drawn in both:
        message = texts(drawn.svg)
        assert {*SCRIPTS[:3], "a" * 24 + "…"} <= {*message}
        once = drawn.paper(columns=True)
        assert all(drawn.paper(columns=True) == once for _ in range(6))
        assert {*"[CLS]##s<b>&"} <= {*letters(once[".pdf"])}
        assert re.findall(r'<svg [^>]*width="(\d+)"', drawn.svg)[0] >= "300"
    cells = sum(
        int(float(width)) // 14
        for path in re.findall(r'<path d="([^"]*)" fill="#', both[0].svg)[:1]
        for width in re.findall(r"h(\d+)v", path)
    )
    assert cells == seen.sum()
