"""Distances between heads, and the page that shows which heads attend alike."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as given_any
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.spatial import distance

import treebank
from bare_model import Bare, Given, given
from block_parts import every, group_of
from headbook.metrics import all_metrics
from headbook.metrics.attention import head_distance
from headbook.pages.head import head_pages
from headbook.pages.head_parts.nearest_heads import nats_text
from headbook.pages.parts.blocks import Cards, HeadMap, Heat, Page
from headbook.pages.similar import has_similar, similar_page
from headbook.passes import head_pairs
from headbook.report.facts import alike as facts
from headbook.report.facts.alike import attends_evenly, doubles_of, mean_distances_fact
from headbook.report.results import StackResults, stack_results
from headbook.report.similar_heads import (
    MAX_DOUBLE_DISTANCE,
    HeadDistanceMatrix,
    head_distances,
)
from headbook.results.formats import head_name
from headbook.results.number import NATS, Number
from headbook.run.collect import collect
from headbook.schema import HeadName, SinkView
from headbook.study.corpus_sums import HeadDistances, PairColumn
from headbook.study.study import Study, merge
from headbook.study.tables import HELLINGER
from html_pages import elements, html_of, text, text_of
from single_head import Row, Viewed
from sites import Site

Floats = NDArray[np.float64]
Folder = Callable[[str], Path]
Place = tuple[int, int]  # layer and head
VIEWS = ("raw", "renorm")
LN2 = math.log(2)
FAMILIES = {"bert": 1e-9, "gpt2": 1e-9, "llama": 1e-5, "bart": 1e-9}  # llama: softmax in float32


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def run(folder: Path, model: Path, *, paired: bool = False, **options: Any) -> Study:
    """Head distances of a tiny model, in float64."""
    file = treebank.write_pairs(folder / "p.jsonl") if paired else treebank.write_trees(
        folder / "t.conllu"
    )  # fmt: skip
    given_options: dict[str, Any] = {"metrics": "head_distance", "dtype": "float64"}
    return collect(
        file, model=str(model), annotator="none", importance="off", **given_options | options
    )


def texts(*, paired: bool) -> Iterator[tuple[Given, ...]]:
    """The same sentences for the naive twin, which needs no words."""
    if paired:
        yield from (tuple(Given(text, []) for text in pair) for pair in treebank.PAIRS)
    else:
        yield from ((given(tree),) for tree in treebank.TREES)


def divergence(one: Row, other: Row) -> float:
    """Jensen-Shannon divergence as the mean of two Kullback-Leibler divergences."""
    found = 0.0
    for key in one.weights:
        p, q = one.weights[key], other.weights[key]
        middle = (p + q) / 2
        found += sum(w / 2 * math.log(w / middle) for w in (p, q) if w > 0)
    return found


def test_every_pair_equals_the_naive_computation(
    case: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    paired = case == "bart"
    bare = Bare.load(tiny_folder(case), pairs=paired)
    rows: dict[tuple[str, str], dict[Place, list[Row]]] = {}
    for sides in texts(paired=paired):
        for stack, layer, head, attention in bare.looks(*sides):
            for view in VIEWS:
                heads = rows.setdefault((stack, view), {})
                heads.setdefault((layer, head), []).extend(Viewed(attention, view).rows)
    table = run(tmp_path, tiny_folder(case), paired=paired).pairs
    assert set(zip(table["stack"], table["view"], strict=True)) == set(rows)
    for (stack, view), heads in rows.items():
        part = table[(table["stack"] == stack) & (table["view"] == view)]
        assert len(part) == len(heads) * (len(heads) - 1) / 2
        for found in part.to_dict("records"):
            one = heads[found["layer"], found["head"]]
            other = heads[found["other_layer"], found["other_head"]]
            both = [(p, q) for p, q in zip(one, other, strict=True) if p.trusted and q.trusted]
            assert found["rows"] == len(both)
            mean = sum(divergence(p, q) for p, q in both) / len(both)
            assert found["value"] == pytest.approx(mean, rel=0, abs=FAMILIES[case])


def distances(rows: Floats, trusted: Floats | None = None) -> Floats:
    """The metric's own measure."""
    counts = np.ones(rows.shape[:2]) if trusted is None else trusted
    found: Floats = head_distance.measure(torch.tensor(rows), torch.tensor(counts)).numpy()
    return found


@st.composite
def attention(draw: st.DrawFn) -> Floats:
    """Rows of some heads, from uniform to a single key. *Shape:* ``(head, row, key)``."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6)))
    scores = draw(hnp.arrays(np.float64, shape, elements=st.floats(-1, 1)))
    powers = np.exp(scores * draw(st.sampled_from([0, 1, 10, 300])))
    found: Floats = powers / powers.sum(-1, keepdims=True)
    return found


@given_any(attention())
def test_distances_are_those_of_scipy(rows: Floats) -> None:
    found = distances(rows)
    for one in range(len(rows)):
        for other in range(len(rows)):
            with np.errstate(invalid="ignore"):  # it takes the root of less than nothing
                roots = np.nan_to_num(distance.jensenshannon(rows[one], rows[other], axis=-1))
            assert found[one, other] == pytest.approx((roots**2).sum(), abs=1e-9)


@given_any(attention(), st.randoms(use_true_random=False))
def test_a_head_is_at_no_distance_from_itself_and_the_order_of_heads_is_nothing(
    rows: Floats, draw: Any
) -> None:
    found = distances(rows)
    assert (found.diagonal() == 0).all()
    np.testing.assert_array_equal(found, found.T)
    order = draw.sample(range(len(rows)), len(rows))
    np.testing.assert_allclose(distances(rows[order]), found[np.ix_(order, order)], atol=1e-12)
    twice = distances(np.concatenate([rows, rows]))
    np.testing.assert_allclose(twice[: len(rows), len(rows) :], found, atol=1e-12)
    assert found.max() <= LN2 * rows.shape[1] + 1e-12


def test_heads_that_share_no_key_are_ln_2_apart() -> None:
    rows = np.array([[[1.0, 0, 0]], [[0, 0.5, 0.5]]])
    assert distances(rows)[0, 1] == pytest.approx(LN2, abs=1e-12)


def test_a_row_counts_where_both_heads_have_it() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(5), (3, 4))
    trusted = np.array([[1.0, 1, 0, 1], [1, 0, 1, 1], [0, 0, 0, 0]])
    found = distances(rows, trusted)
    assert found[0, 1] == pytest.approx(distances(rows[:, [0, 3]])[0, 1], abs=1e-12)
    assert (found[2] == 0).all()


def test_the_size_of_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(6), (4, 9))
    whole = distances(rows)
    monkeypatch.setattr(head_distance, "BLOCK", 13)
    np.testing.assert_allclose(distances(rows), whole, atol=1e-12)


@given_any(attention())
def test_affinities_are_inner_products_of_roots(rows: Floats) -> None:
    given_rows, counts = torch.tensor(rows), torch.ones(rows.shape[:2], dtype=torch.float64)
    found = head_distance.alike(given_rows, counts).numpy()
    for one in range(len(rows)):
        for other in range(len(rows)):
            naive = np.sqrt(rows[one] * rows[other]).sum()
            assert found[one, other] == pytest.approx(naive, abs=1e-9)
    # The divergence lies between the squared distance times ln 2 and the squared distance.
    apart = rows.shape[1] - found
    assert (distances(rows) / LN2 >= apart - 1e-9).all()
    assert (distances(rows) <= apart + 1e-9).all()


@given_any(attention(), st.randoms(use_true_random=False))
def test_chosen_pairs_are_as_far_apart_as_among_all(rows: Floats, draw: Any) -> None:
    trusted = np.array([[draw.random() < 0.7 for _ in row] for row in rows], float)
    one, other = (torch.tensor([draw.randrange(len(rows)) for _ in range(7)]) for _ in range(2))
    found = head_distance.some(torch.tensor(rows), torch.tensor(trusted), one, other)
    np.testing.assert_allclose(found, distances(rows, trusted)[one, other], atol=1e-12)


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks of some heads count as those of many."""
    monkeypatch.setattr(head_pairs, "MAX_HEADS_ALL_PAIRS", 3)
    monkeypatch.setattr(head_pairs, "N_NEAREST_HEADS", 2)


@pytest.mark.usefixtures("_few")
def test_of_many_heads_the_nearest_are_compared_and_all_by_their_roots(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same rows as all pairs are without the bound, in batches of any size."""
    some = run(tmp_path, tiny_folder("bert"), batch_tokens=40)
    with monkeypatch.context() as patch:
        patch.setattr(head_pairs, "MAX_HEADS_ALL_PAIRS", 144)
        every = run(tmp_path, tiny_folder("bert"))
    found, whole = some.corpus_sums.distances["self"], every.corpus_sums.distances["self"]
    assert found.alike is not None
    np.testing.assert_array_equal(found.alike.rows, whole.rows)
    compared = found.rows > 0
    assert found.sentences == whole.sentences
    assert not compared[:, np.eye(compared.shape[1], dtype=bool)].any()
    np.testing.assert_array_equal(found.rows[compared], whole.rows[compared])
    np.testing.assert_allclose(found.total[compared], whole.total[compared], atol=1e-9)
    apart = found.alike.apart
    for view in range(len(found.columns)):
        for head, row in enumerate(apart[view]):
            others = np.delete(np.arange(len(row)), head)
            nearest = others[np.argsort(row[others], kind="stable")[: head_pairs.N_NEAREST_HEADS]]
            assert compared[view, head, nearest].all()
    assert 0 < compared[0].sum() < len(apart[0]) * (len(apart[0]) - 1)


@pytest.mark.usefixtures("_few")
def test_pages_of_many_heads_say_that_some_distances_are_bounds(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    study = run(tmp_path, tiny_folder("bert"))
    study.save(tmp_path / "study")
    study = Study.load(tmp_path / "study")
    by_name = stack_results(study)
    bound = head_distances(by_name["self"])[SinkView.RENORM]
    assert bound.roots is not None
    for group in bound.doubles:
        for one in group.heads:
            for other in set(group.heads) - {one}:
                known = bound.value[one, other]
                least = bound.roots[one, other] if np.isnan(known) else known
                assert least < MAX_DOUBLE_DISTANCE
    near = head_distances(by_name["self"])[SinkView.RAW]
    assert near.roots is not None
    for head in range(len(near.heads)):
        assert len(near.nearest(head, head_pairs.N_NEAREST_HEADS)) == head_pairs.N_NEAREST_HEADS
    table = study.pairs
    of_all = table[table["metric"] == HELLINGER]
    assert len(of_all) == 2 * len(near.heads) * (len(near.heads) - 1) / 2
    assert (table["rows"] > 0).all()
    assert 0 < len(table) - len(of_all) < len(of_all)
    twice = study.corpus_sums.distances["self"] + study.corpus_sums.distances["self"]
    assert twice.alike is not None
    once = study.corpus_sums.distances["self"].alike
    assert once is not None
    np.testing.assert_allclose(twice.alike.apart, once.apart)


def test_a_study_keeps_its_distances(tiny_folder: Folder, tmp_path: Path) -> None:
    study = run(tmp_path, tiny_folder("bert"))
    study.save(tmp_path / "study")
    np.testing.assert_array_equal(Study.load(tmp_path / "study").pairs, study.pairs)
    twice = merge([study, study])
    assert set(twice.pairs["n_sentences"]) == {2 * len(treebank.TREES)}
    np.testing.assert_allclose(twice.pairs["value"], study.pairs["value"], atol=1e-12)
    np.testing.assert_array_equal(twice.pairs["rows"], 2 * study.pairs["rows"])


def alike(value: Floats) -> HeadDistanceMatrix:
    """Heads of one layer with distances made by hand."""
    heads = tuple(HeadName("self", 0, head) for head in range(len(value)))
    return HeadDistanceMatrix(heads, value, np.full(value.shape, 99.0), 1)


def test_heads_without_distances_are_near_to_nobody() -> None:
    value = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    value[2, [0, 1, 4, 5]] = value[[0, 1, 4, 5], 2] = np.nan
    found = alike(value)
    assert found.complete.tolist() == [0, 1, 3, 4, 5]
    assert found.nearest(2, 5) == [3]
    assert found.nearest(1, 2) == [0, 3]
    assert found.closest(3) == [(0, 1), (2, 3), (3, 4)]
    assert len(found.closest(99)) == 11


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return run(tmp_path_factory.mktemp("alike"), tiny_folder("gpt2"))


def value(study: Study, view: str, one: str, other: str) -> float:
    """One number of the table of pairs, by names of heads."""
    for row in study.pairs[study.pairs["view"] == view].to_dict("records"):
        names = {f"L{row[f'{which}layer']}·H{row[f'{which}head']}" for which in ("", "other_")}
        if names == {one, other}:
            return float(row["value"])
    raise LookupError(one, other)


def page_of(study: Study) -> Page:
    return similar_page(stack_results(study))


def heads_of_pair(row: Mapping[Any, Any]) -> list[str]:
    return [f"L{row[f'{which}layer']}·H{row[f'{which}head']}" for which in ("", "other_")]


def test_pages_have_the_nearest_pairs_of_the_study(study: Study) -> None:
    """By the view with the sink masked; beside it the distance with all keys."""
    cells = every(Heat, group_of(page_of(study), "pairs-self"))
    numbers = [number for cell in cells for number in every(Number, cell)]
    masked, all_keys = numbers[::2], numbers[1::2]
    table = study.pairs[study.pairs["view"] == "renorm"].sort_values("value", kind="stable")
    assert len(masked) == min(24, len(table))
    expected = table["value"][: len(masked)]
    assert [number.value for number in masked] == pytest.approx([*expected])
    for number, other in zip(masked, all_keys, strict=True):
        assert other.value == pytest.approx(
            value(study, "raw", *heads_of_pair(dict(other.row.key)))
        )
        assert heads_of_pair(dict(number.row.key)) == heads_of_pair(dict(other.row.key))


def test_each_head_without_a_double_has_the_distance_to_its_nearest(study: Study) -> None:
    page = page_of(study)
    grouped = {
        head_name(head.head) for cards in every(Cards, page) for head in every(HeadMap, cards)
    }
    table = study.pairs[study.pairs["view"] == "renorm"].to_dict("records")
    nearest: dict[str, float] = {}
    for row in table:
        for name in heads_of_pair(row):
            nearest[name] = min(nearest.get(name, math.inf), row["value"])
    alone = sorted(nearest.keys() - grouped, key=lambda name: (-nearest[name], name))
    heads = every(HeadMap, group_of(page, "alone-self"))
    assert [head_name(head.head) for head in heads] == alone[:15]
    for head in heads:
        (number,) = every(Number, head)
        assert number.value == pytest.approx(nearest[head_name(head.head)])


def test_means_within_and_between_layers_are_in_the_table_of_tests(study: Study) -> None:
    (results,) = stack_results(study).values()
    evidence = mean_distances_fact(results).evidence
    rows = {(each.view, each.label): each.number(NATS).value for each in evidence}
    for view in VIEWS:
        pairs = study.pairs[study.pairs["view"] == view]
        same = pairs["layer"] == pairs["other_layer"]
        assert rows[view, ""] == pytest.approx(pairs["value"].mean())
        assert rows[view, "within a layer"] == pytest.approx(pairs["value"][same].mean())
        assert rows[view, "between layers"] == pytest.approx(pairs["value"][~same].mean())


symmetric = st.integers(2, 9).flatmap(
    lambda n: hnp.arrays(np.float64, (n, n), elements=st.floats(0, 0.3)).map(
        lambda drawn: np.triu(drawn, 1) + np.triu(drawn, 1).T
    )
)


@given_any(symmetric)
def test_groups_are_those_of_complete_linkage(distances_of_all: Floats) -> None:
    """Every two heads of a group are near doubles; no two groups could be joined."""
    found = alike(distances_of_all)
    groups = [{*group.heads} for group in found.doubles]
    assert len(set().union(*groups)) == sum(map(len, groups))
    for group in found.doubles:
        within = distances_of_all[np.ix_(group.heads, group.heads)]
        assert len(group.heads) > 1
        assert within.max() < MAX_DOUBLE_DISTANCE
        assert group.distance == within.max() == distances_of_all[group.pair]
    alone = set(range(len(distances_of_all))) - set().union(*groups)
    every = [*groups, *({head} for head in alone)]
    for n, members in enumerate(every):
        for other in every[:n]:
            assert distances_of_all[np.ix_([*members], [*other])].max() >= MAX_DOUBLE_DISTANCE
    tightness = [group.distance for group in found.doubles]
    assert tightness == sorted(tightness)


def in_layers(layers: list[int], groups: list[list[int]]) -> HeadDistanceMatrix:
    """Heads of some layers with groups of near doubles."""
    value = np.full((len(layers), len(layers)), 0.4)
    for n, group in enumerate(groups):
        value[np.ix_(group, group)] = 0.01 * (n + 1)
    np.fill_diagonal(value, 0)
    heads = tuple(HeadName("self", layer, n) for n, layer in enumerate(layers))
    return HeadDistanceMatrix(heads, value, np.full(value.shape, 99.0), 1)


@pytest.mark.parametrize(
    ("layers", "groups", "words"),
    [
        ([0] * 8, [], "No two"),
        ([0, 1] * 4, [[0, 1]], "Some heads have near doubles: 2 of 8, one pair"),
        ([0, 1] * 4, [[0, 1, 2]], "in one group"),
        ([0, 1] * 5, [[0, 1], [2, 5]], "in small groups, all of them pairs, often across layers"),
        ([0, 1] * 6, [[0, 2], [1, 3], [5, 7, 9]], "most of them pairs, each within one layer"),
        (
            [0, 1] * 12,
            [[*range(12)], [*range(12, 24)]],
            "All 24 heads have near doubles, in groups",
        ),
        ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5], [[0, 1], [2, 3], [4, 6]], "Most heads"),
    ],
)
def test_heads_with_doubles_are_counted_and_their_groups_described(
    study: Study,
    layers: list[int],
    groups: list[list[int]],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (results,) = stack_results(study).values()
    matrix = in_layers(layers, groups)
    monkeypatch.setattr(facts, "attends_evenly", lambda *_: False)
    fact = doubles_of(results, matrix)
    assert fact.holds == bool(groups)
    assert {*fact.heads} == {matrix.heads[index] for group in groups for index in group}
    assert words in fact.text.text
    assert len(fact.text.text.split()) <= 30


@pytest.mark.parametrize(
    ("n_even", "words"), [(0, ""), (2, "in two of them, heads"), (3, "in all groups, heads")]
)
def test_groups_of_nearly_even_heads_are_counted(
    study: Study, n_even: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (results,) = stack_results(study).values()
    monkeypatch.setattr(facts, "attends_evenly", lambda _, head: head.head < 2 * n_even)
    text = doubles_of(results, in_layers([0] * 7, [[0, 1], [2, 3], [4, 5]])).text.text
    assert words in text
    assert ("evenly" in text) == bool(words)


def test_groups_of_nearly_even_heads_come_last(encoder_site: Site) -> None:
    (results,) = encoder_site.results.values()
    cards = [card for each in every(Cards, similar_page({"self": results})) for card in each.cards]
    even = [all(attends_evenly(results, head.head) for head in heads) for _, heads in cards]
    assert even == sorted(even)


def with_distances(study: Study, raw: Floats, renorm: Floats, rows: Floats) -> StackResults:
    """The same study with other numbers."""
    columns = (
        PairColumn("head_distance", SinkView.RAW),
        PairColumn("head_distance", SinkView.RENORM),
    )
    counts = np.stack([np.full(rows.shape, 100.0), rows])
    sums = HeadDistances(columns, np.stack([raw, renorm]) * counts, counts, 3)
    corpus_sums = replace(study.corpus_sums, distances={"self": sums})
    return stack_results(replace(study, corpus_sums=corpus_sums))["self"]


def test_heads_that_have_too_few_rows_are_in_no_pair_and_no_group(study: Study) -> None:
    rows = np.full((8, 8), 100.0)
    rows[5] = rows[:, 5] = 29
    found = with_distances(study, np.full((8, 8), 0.2), np.full((8, 8), 0.3), rows)
    raw, renorm = head_distances(found).values()
    assert np.isnan(renorm.value[5]).sum() == 7
    assert not np.isnan(raw.value).any()
    page = similar_page({"self": found})
    left_out = HeadName("self", 1, 1)
    parts = [group_of(page, "pairs-self"), *every(Cards, page)]
    assert left_out not in [head for part in parts for head in every(HeadName, part)]


def test_a_head_page_lists_the_five_nearest_heads_of_each_view(study: Study) -> None:
    for page in head_pages(stack_results(study)["self"]):
        assert [near.view for near in page.alike] == [*VIEWS]
        for near in page.alike:
            assert len(near.table.rows) == 5
            displayed = [text(row.cells[VIEWS.index(near.view)]) for row in near.table.rows]
            assert displayed == sorted(displayed)
            for row in near.table.rows:
                for view, cell in zip(VIEWS, row.cells, strict=True):
                    assert text(cell) == nats_text(value(study, view, page.name, row.name))


def test_pages_of_heads_and_the_list_of_metrics_lead_to_the_page(any_site: Site) -> None:
    head = html_of(min(any_site.folder.glob("heads/*.html")))
    assert "Similar heads" in text_of(head)
    metrics = html_of(any_site.folder / "metrics/index.html")
    assert "../similar.html" in {e.attributes.get("href") for e in elements(metrics, "a")}


def test_without_the_metric_there_is_no_page_no_link_and_no_section(small_site: Site) -> None:
    assert not (small_site.folder / "similar.html").exists()
    assert not list(small_site.folder.glob("data/pairs.*"))
    for page in small_site.pages:
        assert "similar.html" not in page.read_text(encoding="utf-8")
        assert "Similar heads" not in text_of(html_of(page))
    assert not has_similar(small_site.results)


def test_a_distance_is_never_nothing_by_rounding() -> None:
    assert [nats_text(x) for x in (0.0, 0.0004, 0.0005, math.nan)] == [
        "0.000",
        "<\u202f0.001",
        "0.001",
        "–",
    ]


def test_the_metric_is_bounded_by_ln_2() -> None:
    assert all_metrics()["head_distance"].limits == (0, LN2)


def test_names_of_heads_are_those_of_their_places(study: Study) -> None:
    both = head_distances(stack_results(study)["self"])
    names = [head_name(head) for head in both[SinkView.RAW].heads]
    for one, other in both[SinkView.RAW].closest(99):
        apart = value(study, "raw", names[one], names[other])
        assert both[SinkView.RAW].value[one, other] == pytest.approx(apart, abs=1e-12)
