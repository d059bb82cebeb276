"""Distances between heads, and the page that shows which heads attend alike."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from headbook.report.answers.similar import similar_answer
from hypothesis import given as given_any
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.spatial import distance

import treebank
from bare_model import Bare, Given, given
from browser_views import ink_steps
from headbook.charts import images
from headbook.charts.theme import rgba_ramp
from headbook.metrics import all_metrics
from headbook.metrics.attention import head_distance
from headbook.pages.head import head_pages
from headbook.pages.head_parts.nearest_heads import nats_text
from headbook.pages.similar import (
    PALE_DISTANCE,
    SimilarSection,
    has_similar,
    matrix_data,
    matrix_picture,
    similar_page,
)
from headbook.passes import head_pairs
from headbook.report.claims.heads import distances_of_heads
from headbook.report.results import StackResults, stack_results
from headbook.report.similar_heads import (
    MAX_DOUBLE_DISTANCE,
    HeadDistanceMatrix,
    head_distances,
)
from headbook.report.wording import VIEWS as NAMED
from headbook.report.wording import head_name
from headbook.run.collect import collect
from headbook.schema import HeadName, SinkView
from headbook.study.corpus_sums import HeadDistances, PairColumn
from headbook.study.study import Study, merge
from headbook.study.tables import HELLINGER
from html_pages import data_file, elements, html_of, text, text_of
from single_head import Row, Viewed
from sites import Site

Floats = NDArray[np.float64]
Folder = Callable[[str], Path]
Place = tuple[int, int]  # layer and head
VIEWS = ("raw", "renorm")
NAMES = {NAMED[SinkView(view)]: view for view in VIEWS}
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
    (section,) = similar_page(by_name).sections
    assert section.bounded
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
    assert sorted(near.order) == [*range(len(near.heads))]
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


def test_clusters_stand_together() -> None:
    groups = np.array([0, 1, 0, 2, 1, 2, 0, 1])
    value = (
        np.where(groups[:, None] == groups, 0.1, 0.5) + np.arange(8) * np.arange(8)[:, None] / 1e4
    )
    order = [int(group) for group in groups[alike(value * (1 - np.eye(8))).order]]
    assert order == sorted(order, key=order.index)


def test_heads_without_distances_come_last_and_are_near_to_nobody() -> None:
    value = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    value[2, [0, 1, 4, 5]] = value[[0, 1, 4, 5], 2] = np.nan
    found = alike(value)
    assert found.complete.tolist() == [0, 1, 3, 4, 5]
    assert found.order.tolist() == [0, 1, 3, 4, 5, 2]
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


def section_of(study: Study) -> SimilarSection:
    (section,) = similar_page(stack_results(study)).sections
    return section


def heads_of_pair(row: Mapping[Any, Any]) -> list[str]:
    return [f"L{row[f'{which}layer']}·H{row[f'{which}head']}" for which in ("", "other_")]


def test_pages_have_the_nearest_pairs_of_the_study(study: Study) -> None:
    """By the view with the sink masked; beside it the distance with all keys."""
    section = section_of(study)
    assert section.views == (NAMED[SinkView.RENORM], NAMED[SinkView.RAW])
    lines = [line for column in section.pairs for line in column]
    table = study.pairs[study.pairs["view"] == "renorm"].sort_values("value", kind="stable")
    assert len(lines) == min(24, len(table))
    printed = [line.cells[0].text for line in lines]
    assert printed == [nats_text(each) for each in table["value"][: len(lines)]]
    for line in lines:
        one, other = (head.link.text for head in line.heads)
        for view, cell in zip(("renorm", "raw"), line.cells, strict=True):
            assert cell.text == nats_text(value(study, view, one, other))
            assert cell.number is not None
            row = dict(cell.number.row)
            assert heads_of_pair(row) == sorted([one, other])
            assert (row["view"], row["metric"]) == (view, "head_distance")


def test_each_head_without_a_double_has_the_distance_to_its_nearest(study: Study) -> None:
    section = section_of(study)
    grouped = {head.link.text for group in section.groups for head in group.heads}
    table = study.pairs[study.pairs["view"] == "renorm"].to_dict("records")
    nearest: dict[str, float] = {}
    for row in table:
        for name in heads_of_pair(row):
            nearest[name] = min(nearest.get(name, math.inf), row["value"])
    alone = sorted(nearest.keys() - grouped, key=lambda name: (-nearest[name], name))
    assert [head.link.text for head in section.alone] == alone[:15]
    for head in section.alone:
        assert head.number is not None
        assert head.number.text == nats_text(nearest[head.link.text])


def test_means_within_and_between_layers_are_in_the_table_of_tests(study: Study) -> None:
    (results,) = stack_results(study).values()
    rows = {(row["view"], row["label"]): row["value"] for row in distances_of_heads(results)}
    for view in VIEWS:
        pairs = study.pairs[study.pairs["view"] == view]
        same = pairs["layer"] == pairs["other_layer"]
        assert rows[view, ""] == pytest.approx(pairs["value"].mean())
        assert rows[view, "within a layer"] == pytest.approx(pairs["value"][same].mean())
        assert rows[view, "between layers"] == pytest.approx(pairs["value"][~same].mean())
    printed = {label: number.text for label, number in section_of(study).means}
    assert printed == {
        label: nats_text(rows["renorm", label]) for label in ("within a layer", "between layers")
    }


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
    row = {head: place for place, head in enumerate(found.order.tolist())}
    for members in groups:
        rows = sorted(row[head] for head in members)
        assert rows == [*range(rows[0], rows[0] + len(rows))]


def in_layers(layers: list[int], groups: list[list[int]]) -> HeadDistanceMatrix:
    """Heads of some layers with groups of near doubles."""
    value = np.full((len(layers), len(layers)), 0.4)
    for n, group in enumerate(groups):
        value[np.ix_(group, group)] = 0.01 * (n + 1)
    np.fill_diagonal(value, 0)
    heads = tuple(HeadName("self", layer, n) for n, layer in enumerate(layers))
    return HeadDistanceMatrix(heads, value, np.full(value.shape, 99.0), 1)


@pytest.mark.parametrize(
    ("layers", "groups", "answer"),
    [
        ([0] * 8, [], "No two of 8 heads are closer than 0.10 nats."),
        ([0, 1] * 4, [[0, 1]], "Some heads have near doubles: 2 of 8, one pair."),
        ([0, 1] * 4, [[0, 1, 2]], "Some heads have near doubles: 3 of 8, in one group."),
        (
            [0, 1] * 5,
            [[0, 1], [2, 5]],
            "Some heads have near doubles: 4 of 10 form small groups, all of them pairs, often "
            "across layers.",
        ),
        (
            [0, 1] * 6,
            [[0, 2], [1, 3], [5, 7, 9]],
            "Most heads have near doubles: 7 of 12 form small groups, most of them pairs, each "
            "within one layer.",
        ),
        (
            [0, 1] * 12,
            [[*range(12)], [*range(12, 24)]],
            "All 24 heads have near doubles in groups, often across layers.",
        ),
        (
            [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5],
            [[0, 1], [2, 3], [4, 6]],
            "Most heads have near doubles: 6 of 11 form small groups, all of them pairs.",
        ),
    ],
)
def test_the_answer_counts_heads_with_doubles(
    study: Study, layers: list[int], groups: list[list[int]], answer: str
) -> None:
    (results,) = stack_results(study).values()
    found = similar_answer(results, in_layers(layers, groups))
    assert found == answer
    assert len(found.split()) <= 30


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


def test_heads_that_have_too_few_rows_are_named_and_stand_apart(study: Study) -> None:
    rows = np.full((8, 8), 100.0)
    rows[5] = rows[:, 5] = 29
    found = with_distances(study, np.full((8, 8), 0.2), np.full((8, 8), 0.3), rows)
    raw, renorm = head_distances(found).values()
    assert np.isnan(renorm.value[5]).sum() == 7
    assert not np.isnan(raw.value).any()
    (section,) = similar_page({"self": found}).sections
    assert [link.text for link in section.left_out] == ["L1·H1"]
    printed = {head.link.text for column in section.pairs for line in column for head in line.heads}
    assert "L1·H1" not in printed
    data = matrix_data(found)
    assert data is not None
    assert data["heads"][-1][0] == "L1·H1"
    masked, all_keys = (np.frombuffer(each, np.uint16).reshape(8, 8) for each in data["values"])
    assert (masked[-1, :-1] == 0x7FFF).all()
    assert (all_keys[-1, :-1] == 200).all()


def test_a_picture_of_distances_has_a_pixel_for_each_pair(study: Study) -> None:
    found = stack_results(study)["self"]
    picture, matrix = matrix_picture(found), head_distances(found)[SinkView.RENORM]
    assert picture is not None
    pixels = ink_steps(images.inline(picture), rgba_ramp(256))
    shares = (1 - matrix.value[np.ix_(matrix.order, matrix.order)] / PALE_DISTANCE).clip(0, 1)
    np.testing.assert_allclose(pixels / 255, shares, atol=0.5 / 255 + 1e-9)


def test_the_numbers_of_the_script_are_those_of_the_study(study: Study) -> None:
    """Thousandths of a nat, in the order of the matrix."""
    data = matrix_data(stack_results(study)["self"])
    assert data is not None
    names = [head[0] for head in data["heads"]]
    for view, content in zip(("renorm", "raw"), data["values"], strict=True):
        steps = np.frombuffer(content, np.uint16).reshape(len(names), len(names))
        for row, column in zip(*np.triu_indices(len(names), 1), strict=True):
            expected = 1000 * value(study, view, names[row], names[column])
            assert steps[row, column] == steps[column, row] == round(expected)


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


def test_pages_as_written_have_groups_matrices_and_links(any_site: Site) -> None:
    html = html_of(any_site.folder / "similar.html")
    stacks = any_site.study.manifest.stacks
    assert len(elements(html, "image")) == len(stacks)
    page = similar_page(any_site.results)
    assert len([e for e in elements(html, "rect") if e.attributes["class"] == "frame"]) == sum(
        len(section.groups) for section in page.sections
    )
    for stack in stacks:
        assert (any_site.folder / f"data/similar/{stack.name}.png").is_file()
        name, data = data_file(any_site.folder / f"data/similar/{stack.name}.js")
        assert name == f"similar-{stack.name}"
        assert len(data["heads"]) == len(stack.attention_layers) * stack.n_heads
    head = html_of(min(any_site.folder.glob("heads/*.html")))
    assert "Similar heads" in text_of(head)
    metric = html_of(any_site.folder / "metrics/head_distance.html")
    assert "../similar.html" in {e.attributes.get("href") for e in elements(metric, "a")}
    assert "Not available" not in text_of(metric)


def test_without_the_metric_there_is_no_page_no_link_and_no_section(small_site: Site) -> None:
    assert not (small_site.folder / "similar.html").exists()
    assert not list(small_site.folder.glob("data/pairs.*"))
    assert not (small_site.folder / "data/similar").exists()
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


def test_groups_of_nearly_even_heads_come_last_and_are_counted(study: Study) -> None:
    section = section_of(study)
    assert [group.even for group in section.groups] == sorted(g.even for g in section.groups)
    for group in section.groups:
        assert group.even == all(head.even for head in group.heads)
    (results,) = stack_results(study).values()
    matrix = in_layers([0] * 7, [[0, 1], [2, 3], [4, 5]])
    assert "evenly" not in similar_answer(results, matrix)
    two = similar_answer(results, matrix, 2)
    assert two.endswith("; in two of them, heads attend nearly evenly.")
    assert similar_answer(results, matrix, 3).endswith("in all groups, heads attend nearly evenly.")
    assert len(two.split()) <= 30
