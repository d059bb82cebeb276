"""Groups of sentences: which columns make them, and what their numbers are."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import grouped_studies
from grouped_studies import ROWS, Collect
from headbook.analysis.accumulators import RatioSums
from headbook.errors import ConfigError
from headbook.inputs import TextRecord
from headbook.metrics import all_metrics
from headbook.run.collect import collect
from headbook.study.contrasts import contrast
from headbook.study.groups import Facets, find_facets
from headbook.study.study import Study, merge
from naive_ratios import Part, ratio

pytestmark = pytest.mark.usefixtures("of_any_number")

pytest_plugins = ["grouped_studies"]

NUMBERS = ["value", "low", "high", "n_sentences", "n_observations"]


def sentences(**columns: list[str]) -> Iterator[TextRecord]:
    """Sentences with metadata, an empty text where a column says nothing."""
    for index, values in enumerate(zip(*columns.values(), strict=True)):
        metadata = {name: value for name, value in zip(columns, values, strict=True) if value}
        yield TextRecord(index, "", "text", metadata=metadata)


def test_numbers_of_groups_are_those_of_plain_loops_over_their_sentences(
    grouped_study: Study, tiny_folder: Callable[[str], Path]
) -> None:
    """Value, interval, sentences and observations, for every head."""
    expected = {}
    for place, each in grouped_studies.parts(tiny_folder("bert")).items():
        groups: dict[tuple[str, str], list[Part]] = defaultdict(list)
        for row, part in zip(ROWS, each, strict=True):
            groups["label", row.label].append(part)
            groups["kind", row.kind].append(part)
        limits = all_metrics()[place[2]].limits
        for group, parts in groups.items():
            expected[*group, *place] = ratio(parts, limits)
    table = grouped_study.groups.query("view == 'raw'")
    index = ["facet", "group", "layer", "head", "metric", "label"]
    found = {tuple(row[:6]): row[6:] for row in table[[*index, *NUMBERS]].itertuples(index=False)}
    assert {name[:2] for name in expected} == {*zip(table["facet"], table["group"], strict=True)}
    for name, number in expected.items():
        if number.sentences:
            np.testing.assert_allclose(found[name], number[:-1], rtol=1e-7, atol=1e-7)
        else:
            assert name not in found


def test_groups_of_a_column_add_to_the_whole_corpus(grouped_study: Study) -> None:
    """Where every sentence has a value: sums of heads, of layers and of uniform attention."""
    sums = grouped_study.corpus_sums.heads["self"]
    for part in ("heads", "layers", "uniform"):
        whole = getattr(sums.table, part).sums.sum(1)
        own = [getattr(g, part).sums.sum(1) for g in sums.groups if g.column == "label"]
        assert len(own) == 2
        np.testing.assert_allclose(sum(own), whole, rtol=1e-12, atol=1e-12)


def test_two_halves_add_to_the_groups_of_the_whole(grouped_study: Study, gather: Collect) -> None:
    merged = merge([gather(ROWS[:5]), gather(ROWS[5:])])
    pd.testing.assert_frame_equal(merged.groups, grouped_study.groups, rtol=1e-9)
    assert [
        (g.column, g.value, g.sentences) for g in merged.corpus_sums.heads["self"].groups
    ] == [("kind", "lonely", 1), ("kind", "one", 8), ("kind", "two", 3),
          ("label", "bad", 6), ("label", "good", 6)]  # fmt: skip


def test_a_stored_study_keeps_its_groups(grouped_study: Study, tmp_path: Path) -> None:
    grouped_study.save(tmp_path / "study")
    again = Study.load(tmp_path / "study")
    pd.testing.assert_frame_equal(again.groups, grouped_study.groups)
    pd.testing.assert_frame_equal(again.minimal_pairs, grouped_study.minimal_pairs)


def test_a_group_of_one_sentence_has_values_without_intervals(grouped_study: Study) -> None:
    alone = grouped_study.groups.query("group == 'lonely'")
    assert (alone["n_sentences"] == 1).all()
    assert alone["value"].notna().all()
    assert alone[["low", "high"]].isna().all(axis=None)


def test_without_facets_nothing_is_grouped_and_numbers_stay(
    grouped_study: Study, gather: Collect
) -> None:
    basic = gather(facet="none")
    assert basic.corpus_sums.heads["self"].groups == ()
    assert basic.groups.empty
    pd.testing.assert_frame_equal(basic.heads, grouped_study.heads)


def test_columns_of_known_names_group_unasked() -> None:
    """Those with two to twelve values that sentences share; others are passed over."""
    found = find_facets(
        sentences(
            label=["a", "b", "a", ""],
            genre=["x", "y", "z", "w"],
            split=["same"] * 4,
            other=["a", "b", "a", "b"],
        )
    )
    assert found.columns == ("label",)
    assert found.gaps == ()
    assert not found.paired


def test_more_than_twelve_values_are_left_out_and_said() -> None:
    many = [f"v{n // 2}" for n in range(26)]
    for asked in ("auto", "genre"):
        found = find_facets(sentences(genre=many), asked)
        assert found.columns == ()
        (gap,) = found.gaps
        assert (gap.what, gap.why) == ("groups by genre", "it has 13 values; at most 12 compare")
    assert find_facets(sentences(genre=many[:24])).columns == ("genre",)


def test_columns_can_be_chosen_or_refused() -> None:
    both = {"label": ["a", "b", "a"], "other": ["x", "x", "y"]}
    assert find_facets(sentences(**both), "other,label").columns == ("other", "label")
    assert find_facets(sentences(**both), "none").columns == ()
    assert find_facets(sentences(label=["x", "x"]), "auto").columns == ()
    assert find_facets(sentences(label=["x", "x"]), "label").columns == ("label",)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("labl", "--facet: no column 'labl' in the input; expected one of label, own"),
        ("own", "--facet: column 'own' has another value in each sentence"),
    ],
)
def test_a_column_that_cannot_group_is_refused_in_one_line(asked: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_facets(sentences(label=["a", "b", "a"], own=["1", "2", "3"]), asked)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_wrong_column_is_known_before_a_model_is_loaded(tmp_path: Path) -> None:
    file = grouped_studies.write_rows(tmp_path / "rows.jsonl")
    with pytest.raises(ConfigError, match="no column 'genr'"):
        collect(file, model="nobody/nothing", facet="genr")


def test_columns_that_may_tell_members_apart_have_two_values_among_pairs() -> None:
    columns = {
        "pair_id": ["p", "p", "q", "q", ""],
        "label": ["x", "y", "y", "x", "z"],
        "three": ["1", "2", "3", "1", ""],
    }
    assert find_facets(sentences(**columns), "none") == Facets(members=("label",), paired=True)
    assert find_facets(sentences(**columns), "none", "label").members == ("label",)
    with pytest.raises(ConfigError, match="'three' has more than 2 values"):
        find_facets(sentences(**columns), "none", "three")
    with pytest.raises(ConfigError, match="no column 'condition'"):
        find_facets(sentences(**columns), "none", "condition")


def test_differences_of_means_are_those_of_welchs_test() -> None:
    """With denominators of 1 a ratio is a mean, and its variance that of the mean."""
    draw = np.random.default_rng(3)
    samples = draw.normal(0.3, 1, (14, 5)), draw.normal(0, 2, (11, 5))
    one, other = (
        RatioSums.of(x, np.ones_like(x), np.ones_like(x), np.zeros(len(x), np.int64))
        for x in samples
    )
    found = contrast(one, other)
    test = stats.ttest_ind(*samples, equal_var=False)
    interval = test.confidence_interval()
    np.testing.assert_allclose(found.value, samples[0].mean(0) - samples[1].mean(0))
    np.testing.assert_allclose(found.p, test.pvalue)
    np.testing.assert_allclose((found.low, found.high), (interval.low, interval.high))


def test_a_difference_without_spread_or_interval_is_no_evidence() -> None:
    constant = RatioSums.of(
        np.ones((4, 1)), np.ones((4, 1)), np.ones((4, 1)), np.zeros(4, np.int64)
    )
    single = RatioSums.of(np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), np.zeros(1, np.int64))
    for other in (replace(constant, sums=2 * constant.sums), single):
        assert np.isnan([*contrast(constant, other)]).all()
