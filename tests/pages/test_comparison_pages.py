"""Pages of comparisons: their numbers are those of the tables, and equal models are called so."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import html5lib
import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from block_parts import every
from comparisons import CHANGED, Compared
from headbook.analysis.paired import SKEWNESS_SHARE
from headbook.charts import Figure
from headbook.comparison.change_sizes import value_text
from headbook.comparison.difference_claims import difference_claims
from headbook.comparison.differences import ComparedColumn, HeadDifferences
from headbook.comparison.drift import (
    CEILING_LABEL,
    OUTPUT_DRIFT,
    PATTERN_DRIFT,
    QUERY_KEY,
    VALUE_OUTPUT,
    WEIGHT_DRIFT,
    divergence_text,
    drift_summary,
    rounded,
)
from headbook.errors import ConfigError
from headbook.metrics import all_metrics
from headbook.pages.comparison.comparison import comparison_page, family_changes
from headbook.pages.comparison.metricpair import MetricPair, metric_pairs
from headbook.pages.comparison.parts import both_stacks, layer_moves, moved
from headbook.pages.comparison.walls import MAX_CHANGED_HEADS, changed_heads, side_atlases
from headbook.pages.parts import atlas
from headbook.pages.parts.page import plain_text
from headbook.report.facts.functions import families_of, functions_of
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import heads_by_value
from headbook.results.formats import head_name, head_page, percent
from headbook.results.number import Number
from headbook.schema import HeadName, ResidualPoint, Side, SinkView
from headbook.site.archive import pack
from headbook.site.figures import figures
from headbook.site.sites import render_comparison
from headbook.study.study import Study
from headbook.study.sums.buckets import MAX_BUCKETS
from headbook.text.batch import text_hash
from html_pages import broken_links, html_of
from naive_comparison import kish, skewness, variance

pytest_plugins = ["comparisons"]
pytestmark = pytest.mark.slow  # three sites are drawn
SITES = ("equal", "tuned", "apart")
BUDGET = 300_000  # bytes of a page
OVERVIEW = 200_000

Make = Callable[[str], Compared]


def pages_of(site: Compared) -> list[Path]:
    return sorted(site.folder.rglob("*.html"))


def metric_pair(site: Compared, metric: str) -> MetricPair:
    pairs = metric_pairs(both_stacks(site.found))
    return next(each for each in pairs if each.metric.id == metric)


def drawn(site: Compared, metric: str) -> dict[str, pd.DataFrame]:
    """Return the rows of the charts of a metric by name."""
    figures_ = every(Figure, metric_pair(site, metric).page)
    return {figure.name: figure.rows for figure in figures_}


def text_of(page: Path) -> str:
    """What a page says, on one line."""
    html = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>", " ", html_of(page))
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


@pytest.mark.parametrize("name", SITES)
def test_pages_are_valid_light_and_linked(compared: Make, name: str) -> None:
    site = compared(name)
    assert {"index.html", "comparing.html", "matched.html"} <= {p.name for p in pages_of(site)}
    assert {p.stem for p in (site.folder / "metrics").iterdir()} >= {"sink_share", "type_shares"}
    for page in pages_of(site):
        html5lib.HTMLParser(strict=True).parse(page.read_text(encoding="utf-8"))
        limit = OVERVIEW if page.name == "index.html" else BUDGET
        assert page.stat().st_size < limit, page
        assert broken_links(site.folder, page) == [], page


@pytest.mark.parametrize("name", SITES)
def test_no_page_says_that_a_number_is_none(compared: Make, name: str) -> None:
    for page in pages_of(compared(name)):
        assert not re.search(r"\b(nan|NaN|None|inf)\b", text_of(page).replace("None of", "")), page


def test_a_model_is_called_equal_to_itself(compared: Make) -> None:
    site = compared("equal")
    overview = text_of(site.folder / "index.html")
    assert "is exactly equal in all" in overview
    assert "Largest supported change" not in overview
    assert "Importance of heads In thousandths" not in overview
    shorts = [each.short for each in metric_pairs(both_stacks(site.found))]
    assert len(shorts) == len([*(site.folder / "metrics").iterdir()])
    assert {*shorts} == {"exactly equal"}
    found = site.found.matched["self"]
    same = f"Of {len(found.a)} heads of"
    assert f"{same} {site.found.sides.names[0]}, {len(found.a)} are most like the head" in overview


def test_the_first_sentences_name_what_was_changed(compared: Make) -> None:
    site = compared("tuned")
    found = site.found.heads["self"]
    summary = drift_summary(found)
    assert summary is not None
    above = summary.above
    assert above is not None
    overview = text_of(site.folder / "index.html")
    total = int(summary.there.sum())
    assert f"bfloat16 rounding in {int(above.sum())} of {total} heads" in overview
    assert f"The median divergence of heads is highest in layer {CHANGED} (" in overview
    most = np.unravel_index(int(np.nanargmax(summary.value)), summary.value.shape)
    assert (
        f"Highest divergence of attention: {head_name(HeadName('self', *map(int, most)))} ("
        in overview
    )


def test_claims_stand_first_and_their_numbers_are_those_of_their_rows(compared: Make) -> None:
    site = compared("tuned")
    claims = difference_claims(site.found)
    assert {claim.kind for claim in claims} >= {"numbers", "layers", "alike"}
    first = text_of(site.folder / "index.html").partition("Heads whose attention differs most")[0]
    for claim in claims:
        assert " ".join(claim.sentence.text.split()) in first.replace("&lt;", "<")
        parts = (*claim.sentence.parts, *claim.evidence.parts)
        numbers = [part for part in parts if isinstance(part, LinkedNumber)]
        assert numbers
        for number in numbers:
            table = pd.read_parquet(site.folder / "data" / f"{number.table}.parquet")
            for name, value in number.row:
                missing = value == "" and name == "head"
                table = table[table[name].isna() if missing else table[name] == value]
            (row,) = table.to_dict("records")
            if row["metric"] == PATTERN_DRIFT:
                assert divergence_text(float(row["difference"])) == number.text
            else:
                column = ComparedColumn(row["metric"], row["view"], row["label"])
                assert number.text in {value_text(column, row[side]) for side in "ab"}
                assert row["supported"]


def test_means_of_layers_are_those_of_their_heads(compared: Make) -> None:
    table = pd.read_parquet(compared("tuned").folder / "data" / "differences.parquet")
    table = table.query("metric == 'pattern_drift' and view == 'raw' and label == ''")
    layers = table[table["head"].isna()].set_index("layer")
    heads = table[table["head"].notna()]
    assert len(layers) == heads["layer"].nunique()
    np.testing.assert_allclose(layers["difference"], heads.groupby("layer")["difference"].mean())
    for name in ("low", "high"):
        known = heads.assign(**{name: heads[name].where(heads["difference"] > 1e-12, 0)})
        np.testing.assert_allclose(layers[name], known.groupby("layer")[name].mean(), atol=1e-12)


def test_heads_that_differ_most_stand_with_both_maps(compared: Make) -> None:
    site = compared("tuned")
    summary = drift_summary(site.found.heads["self"])
    assert summary is not None
    (both,) = both_stacks(site.found)
    heads = [*changed_heads(both, summary)]
    assert summary.above is not None
    assert len(heads) == min(MAX_CHANGED_HEADS, int(summary.above.sum()))
    ranked = heads_by_value(summary.value)
    for each, place in zip(heads, ranked, strict=False):
        assert each.head.text == head_name(HeadName("self", *place))
        assert [picture.title for picture in each.pictures] == ["before", "after", "difference"]
    assert html_of(site.folder / "index.html").count('alt="Difference of mean attention') == len(
        heads
    )


def test_the_way_goes_from_rounding_to_other_heads(compared: Make) -> None:
    found = compared("tuned").found.heads["self"]
    summary = drift_summary(found)
    assert summary is not None
    assert summary.floor is not None
    assert summary.part is not None
    ceiling = float(np.median(drifts_of(found, CEILING_LABEL)))
    floor = float(np.median(drifts_of(found, "bfloat16")))
    expected = (drifts_of(found, "") - floor) / (ceiling - floor)
    np.testing.assert_allclose(summary.part, expected)
    assert summary.changed() == (CHANGED,)


def drifts_of(found: HeadDifferences, label: str) -> "np.typing.NDArray[np.float64]":
    place = found.column(PATTERN_DRIFT, "raw", label)
    assert place is not None
    return found.value[..., place]


def test_numbers_of_a_metric_are_those_of_the_tables(compared: Make) -> None:
    site = compared("tuned")
    table = pd.read_parquet(site.folder / "data" / "differences.parquet")
    charts = drawn(site, "attention_to")
    rows = charts["attention_to-self-difference"]
    own = table[(table["metric"] == "attention_to") & (table["view"] == rows["view"][0])]
    headline = all_metrics()["attention_to"].headline
    own = own[own["label"] == headline].set_index(["layer", "head"])
    for row in rows.itertuples():
        stored = own.loc[(row.layer, row.head)]
        assert row.value == pytest.approx(stored["difference"])
        assert row.q == pytest.approx(stored["q"], nan_ok=True)
        apart = stored["low"] > stored["floor"] or stored["high"] < -stored["floor"]
        assert apart == stored["beyond_floor"]
        assert row.supported == stored["supported"] == bool(stored["q"] < 0.05 and apart)
    points = charts["attention_to-self-points"]
    np.testing.assert_allclose(points["b"] - points["a"], rows["value"], atol=1e-9)


def test_differences_of_tokens_are_the_naive_ones(compared: Make) -> None:
    """From every token's own cosine, bucket by bucket of sentences."""
    found = compared("tuned").found
    parts = [cosines_by_bucket(study) for study in (found.sides.a, found.sides.b)]
    numbers = found.layers["self"]
    column = numbers.column("cosine_to_input", "", "out/all")
    assert column is not None
    for layer in range(len(parts[0])):
        sums = [[*each] for part in parts for each in zip(*part[layer].values(), strict=True)]
        middle = sum(sums[2]) / sum(sums[3]) - sum(sums[0]) / sum(sums[1])
        assert numbers.value[layer, column] == pytest.approx(middle, abs=1e-6)
        if layer < CHANGED:  # the same in both
            assert numbers.p[layer, column] == 1
            continue
        reach = float(stdtrit(min(kish(sums[1]), kish(sums[3])) - 1, 0.975))
        half = reach * math.sqrt(variance(*sums)) * (1 + SKEWNESS_SHARE * skewness(*sums))
        ends = numbers.low[layer, column], numbers.high[layer, column]
        np.testing.assert_allclose(ends, (middle - half, middle + half), atol=1e-5)
    assert numbers.supported[CHANGED:, column].all()


def cosines_by_bucket(study: Study) -> list[dict[int, tuple[float, int]]]:
    """Of each layer, the sum over ordinary tokens and how many they are, by bucket."""
    rows = study.tokens
    rows = rows[(rows["metric"] == "cosine_to_input") & (rows["state"] == "out")]
    found: list[dict[int, tuple[float, int]]] = []
    texts = {each.number: each.texts[Side.SOURCE] for each in study.sentence_data.listed}
    for _, layer in rows.groupby("layer"):
        sums: dict[int, tuple[float, int]] = {}
        values = layer["value"].tolist()
        places = layer[["sentence", "position"]].to_numpy(int).tolist()
        for (sentence, position), value in zip(places, values, strict=True):
            text = texts[sentence]
            if not text.special[position]:
                bucket = text_hash([text.text]) % MAX_BUCKETS
                n, d = sums.get(bucket, (0.0, 0))
                sums[bucket] = n + value, d + 1
        found.append(sums)
    return found


def test_paths_of_tokens_and_their_differences_are_drawn(compared: Make) -> None:
    site = compared("tuned")
    (both,) = both_stacks(site.found)
    curves, differences = drawn(site, "cosine_to_input").values()
    for name, results in zip(both.names, (both.a, both.b), strict=True):
        numbers = results.tokens("cosine_to_input", ResidualPoint.POST, None, "all")
        assert numbers is not None
        own = curves[curves["series"] == name]
        for part in ("value", "low", "high"):
            np.testing.assert_allclose(own[part], getattr(numbers, part))
    table = pd.read_parquet(site.folder / "data" / "differences.parquet")
    table = table[(table["metric"] == "cosine_to_input") & (table["label"] == "out/all")]
    assert table["head"].isna().all()
    np.testing.assert_allclose(differences["value"], table["difference"])
    np.testing.assert_allclose(differences["q"], table["q"])
    rows = pd.read_parquet(site.folder / "data" / "differences.parquet")
    rows = rows[rows["metric"] == "cosine_to_input"]
    short = f"{rows[rows['supported']]['layer'].nunique()} of {len(table)} layers differ"
    assert metric_pair(site, "cosine_to_input").short == f"{short} (in any label)"
    assert f"{short} (in any label)" in text_of(site.folder / "index.html")


def test_weights_and_outputs_that_moved_are_named_beside_rounding(compared: Make) -> None:
    site = compared("tuned")
    found = site.found.heads["self"]
    columns = {
        "W_Q W_Kᵀ": (WEIGHT_DRIFT, QUERY_KEY),
        "W_V W_O": (WEIGHT_DRIFT, VALUE_OUTPUT),
        "outputs": (OUTPUT_DRIFT, ""),
    }
    overview = text_of(site.folder / "index.html")
    for title, (metric, label) in columns.items():
        own, floor = (
            found.value[..., found.column(metric, "", name)] for name in (label, rounded(label))
        )
        place = np.unravel_index(int(np.nanargmax(own)), own.shape)
        if title == "W_V W_O":
            assert not own.any()  # only queries were changed
        else:
            assert own[CHANGED].min() > floor.max()
            assert f"{title} in {head_name(HeadName('self', *map(int, place)))} by " in overview
    weights = found.value[..., found.column(WEIGHT_DRIFT, "", QUERY_KEY)]
    text = f"{100 * weights.max():.1f}"
    assert re.search(
        rf"W_Q W_Kᵀ in L{CHANGED}·H\d by {re.escape(text)}.% \(rounding 0\.\d.%\)", overview
    )
    table = layer_moves(drift_summary(found), moved(found))
    assert table is not None
    assert table.columns.count("rounding") == 4
    (row,) = (row for row in table.rows if row.head == f"layer {CHANGED}")
    assert percent(float(np.median(weights[CHANGED]))) in row.cells
    head = HeadName("self", CHANGED, 0)
    page = text_of(site.folder / head_page(head))
    by = " ".join(percent(float(weights[CHANGED, 0])).split())
    assert f"W_Q W_Kᵀ by {by} (rounding" in page
    assert "weight_drift" not in page
    assert "weight drift" not in page


def test_supported_differences_are_counted(compared: Make) -> None:
    site = compared("tuned")
    found = site.found.heads["self"]
    place = found.column("sink_share", "raw")
    assert place is not None
    sure = int(found.supported[..., place].sum())
    assert sure
    heads = int((~np.isnan(found.value[..., place])).sum())
    assert metric_pair(site, "sink_share").short == f"{sure} of {heads} heads differ"
    assert f"{sure} of {heads} heads differ" in text_of(site.folder / "index.html")


def test_families_beside_chance(compared: Make) -> None:
    """Kept heads, and how many random families would keep, by counting all deals' means."""
    (both,) = both_stacks(compared("tuned").found)
    changes = family_changes(both)
    assert changes is not None
    *rows, last = changes.table.rows
    first, second = (functions_of(each) for each in (both.a, both.b))
    kept = sum(first[head].family is second[head].family for head in first)
    assert f"{kept} are of the same family" in changes.summary
    totals = [int(str(row.cells[-1])) for row in rows]
    assert sum(totals) == int(str(last.cells[-1])) == both.heads
    across = [int(str(cell)) for cell in last.cells[:-1]]
    chance = sum(a * b for a, b in zip(totals, across, strict=True)) / both.heads
    if chance < both.heads:
        assert f"; {chance:.2f} would if families were dealt out" in changes.summary


def test_walls_and_lists_name_the_functions_of_both_models(compared: Make) -> None:
    (both,) = both_stacks(compared("tuned").found)
    for atlas_, results in zip(side_atlases(both, {}), (both.a, both.b), strict=True):
        functions, families = functions_of(results), families_of(results)
        tiles = [tile for _, row in atlas_.atlas.rows for tile in row]
        assert [(tile.label, tile.style) for tile in tiles] == [
            (f"{head_name(head)}, {function.noun}", f"f-{function.family}")
            for head, function in functions.items()
        ]
        members = [function.family for function in functions.values()]
        assert [(line.style, line.name, line.heads) for line in atlas_.atlas.legend] == [
            (f"f-{family}", name, members.count(family)) for family, name in families.items()
        ]
    page = comparison_page(compared("tuned").found, [both], [], None)
    (section,) = page.sections
    assert section.most is not None
    for row in section.most.rows:
        head = next(h for h in functions_of(both.a) if head_name(h) == row.name)
        nouns = [functions_of(each)[head].noun for each in (both.a, both.b)]
        assert [*row.cells[-2:]] == nouns
    assert both.differences is not None
    summary = drift_summary(both.differences)
    assert summary is not None
    for changed in changed_heads(both, summary):
        head = next(h for h in functions_of(both.a) if head_name(h) == changed.head.text)
        nouns = [functions_of(each)[head].noun for each in (both.a, both.b)]
        text = plain_text(changed.text)
        assert text.lower().startswith(" → ".join(dict.fromkeys(nouns)).lower())


def test_models_of_other_shapes_say_why_and_are_matched(compared: Make) -> None:
    site = compared("apart")
    overview, matched = (text_of(site.folder / n) for n in ("index.html", "matched.html"))
    assert f"do not correspond by number: {site.found.sides.mismatch}" in overview
    found = site.found.matched["self"]
    mutual = int(found.matching.mutual.sum())
    assert f"{mutual} of {len(found.a)} heads are each other" in overview.replace("&#39;", "'")
    assert ("on the visible half" in matched) == found.cut
    distance = text_of(site.folder / "metrics" / "attention_distance.html")
    assert "Relative depth is" in distance
    assert "Cosine to the input embedding, after the layer, all tokens, over relative" in overview
    (both,) = both_stacks(site.found)
    values = both.a.heads("attention_distance", SinkView.RENORM)  # both models without their sinks
    assert f"{np.nanmedian(values.value):.2f}" in distance


def test_medians_are_those_of_the_tables(compared: Make) -> None:
    """Of heads, and of layers for metrics of tokens; and pages have those with intervals."""
    site = compared("apart")
    sides = site.found.sides
    table = pd.read_parquet(site.folder / "data" / "medians.parquet")
    kinds = {"attention_distance": "heads", "cosine_to_input": "layers"}
    for metric, kind in kinds.items():
        own = table[table["metric"] == metric]
        assert len(own)
        for side, study in zip("ab", (sides.a, sides.b), strict=True):
            keys = ["metric", "view", "label"]
            numbers = getattr(study, kind).astype({"view": str}).groupby(keys)["value"]
            expected = numbers.median().loc[pd.MultiIndex.from_frame(own[keys])]
            np.testing.assert_allclose(own[side], expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(own["difference"], own["b"] - own["a"], atol=1e-9)
        page = metric_pair(site, metric).page
        medians = [n for n in every(Number, page) if n.row.table == "medians"]
        assert len(medians) >= 3
        first = medians[0]
        assert first.low < first.value < first.high


@pytest.mark.parametrize("name", ["tuned", "apart"])
def test_a_comparison_is_packed_and_one_file(compared: Make, name: str, tmp_path: Path) -> None:
    site = compared(name)
    packed = pack(site.folder, tmp_path / "site.zip")
    assert packed.files > len(pages_of(site))
    one = pack(site.folder, tmp_path / "site.html", single_file=True)
    text = one.path.read_text()
    assert site.found.sides.names[0] in text
    assert "metrics/sink_share.html" in text


def test_figures_alone_are_those_of_the_site(compared: Make, tmp_path: Path) -> None:
    site = compared("tuned")
    names = figures(site.found, tmp_path / "some", ["sink_share-*"])
    assert names
    for name in names:
        for suffix in (".svg", ".csv"):
            there = site.folder / "figures" / f"{name}{suffix}"
            assert (tmp_path / "some" / f"{name}{suffix}").read_bytes() == there.read_bytes()
    tex = (tmp_path / "some/figures.tex").read_text(encoding="utf-8")
    assert tex.count(r"\includegraphics") == len(names)
    assert " and ".join(site.found.sides.names) in tex.replace(r"\_", "_")
    with pytest.raises(ConfigError, match="only: 'sink-share' is the name of no figure; expected"):
        figures(site.found, tmp_path / "none", "sink-share")


@pytest.mark.parametrize("name", ["tuned", "apart"])
def test_figures_show_the_label_that_is_asked_for(
    compared: Make, tmp_path: Path, name: str
) -> None:
    site, out = compared(name), tmp_path / "out"
    names = figures(site.found, out, ["attention_to"], label="self", view="nosink")
    stack = site.found.sides.stacks[0].name
    kinds = ("sides", "difference", "points") if name == "tuned" else ("depth",)
    assert names == [f"attention_to-{stack}-self-nosink-{kind}" for kind in kinds]
    for each in names:
        table = pd.read_csv(out / f"{each}.csv")
        assert {*table["label"]} == {"the token itself"}
        assert {*table["view"]} == {"nosink"}
    if name == "tuned":
        table = pd.read_csv(out / f"{names[1]}.csv").set_index(["layer", "head"])
        wanted = site.found.differences.query(
            "metric == 'attention_to' and label == 'self' and view == 'nosink'"
        ).set_index(["layer", "head"])
        np.testing.assert_allclose(table["value"], wanted["difference"], rtol=1e-5)
    with pytest.raises(ConfigError, match="got 'nearest', expected a label of attention_to: "):
        figures(site.found, tmp_path / "b", ["attention_to"], label="nearest")


def test_pictures_of_many_heads_are_files(
    compared: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of their atlases only the first has links, so that the overview stays light."""
    found = compared("tuned").found  # its site is drawn before the limit changes
    monkeypatch.setattr(atlas, "MAX_LINKED", 4)
    render_comparison(found, tmp_path / "site")
    overview = html_of(tmp_path / "site" / "index.html")
    files = sorted(file.name for file in (tmp_path / "site" / "data").glob("atlas-*.png"))
    assert files == [f"atlas-self-{name}.png" for name in ("a", "b", "difference")]
    assert all(f"data/{name}" in overview for name in files)
    assert overview.count("data-tiles") == 1
    assert html_of(compared("tuned").folder / "index.html").count("data-tiles") == 3
