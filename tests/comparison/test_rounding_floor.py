"""What rounding alone does to numbers of heads counts as no difference between two models."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tiny
from block_parts import every
from comparisons import CHANGED, SUBJECTS, changed
from headbook.analysis.paired import ClusterSums
from headbook.charts import Figure
from headbook.cli.main import app
from headbook.comparison.comparison import Comparison, compare
from headbook.comparison.differences import ComparedColumn, ModelDifferences, rounding_floors
from headbook.comparison.drift import PATTERN_DRIFT
from headbook.config import Config
from headbook.pages.comparison.metricpair import metric_pairs
from headbook.pages.comparison.parts import both_stacks
from headbook.pages.parts.blocks import Text
from headbook.run.collect import collect
from headbook.run.models import FLOOR_SENTENCES, CollectedPair, collect_pair
from headbook.study.ablation_tables import EFFECT
from headbook.study.study import Study

METRICS = "sink_share,attention_distance,attention_to,relative_entropy,cosine_to_input"
OBJECTS = ("a very old house", "the dog", "her sister's garden", "nothing at all", "rain")
ENDS = (".", " in the morning.", " and sleeps.", ", they say.", "!")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More sentences than floors are measured on."""
    file = tmp_path_factory.mktemp("floor") / "sentences.txt"
    rows = [f"{who} sees {what}{end}\n" for who, what, end in product(SUBJECTS, OBJECTS, ENDS)]
    assert len(rows) > FLOOR_SENTENCES
    file.write_text("".join(rows), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model, and the same with other queries in one layer."""
    place = tmp_path_factory.mktemp("models")
    tiny.write("bert", place / "one")
    changed(place / "one", place / "other")
    return str(place / "one"), str(place / "other")


@pytest.fixture(scope="module")
def pair(
    texts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[tuple[str, str], tuple[str, str]], CollectedPair]:
    """Two models, or one model twice, with what their differences mean."""
    config = Config(metrics=METRICS, annotator="none", facet="none", importance="auto")

    def made(names: tuple[str, str], dtypes: tuple[str, str]) -> CollectedPair:
        folder = tmp_path_factory.mktemp("untrained")
        return collect_pair([str(texts)], config, models=names, dtypes=dtypes, folder=folder)

    return made


def counted(found: Comparison) -> int:
    """Return how many numbers of heads and of tokens count as different."""
    parts = [*found.heads.values(), *found.layers.values()]
    return sum(int(part.supported.sum()) for part in parts)


def of(given: CollectedPair, *, floor: bool = True) -> Comparison:
    """Compare what was collected."""
    return compare(
        given.a, given.b, rounded=given.rounded, null=given.null, drift=given.drift,
        twice=given.twice if floor else None,
    )  # fmt: skip


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_two_number_formats_of_one_model_differ_in_nothing(
    pair: Callable[..., CollectedPair], models: tuple[str, str], dtypes: tuple[str, str]
) -> None:
    given = pair((models[0], models[0]), dtypes)
    assert counted(of(given, floor=False)) > 0  # consistent across sentences, but rounding
    found = of(given)
    assert counted(found) == 0
    assert found.floor_sentences == FLOOR_SENTENCES
    table = found.differences
    compared = table["p"].notna()
    assert (table.loc[compared, "floor"] >= 0).all()
    assert not (table.loc[compared, "beyond_floor"] & (table.loc[compared, "q"] < 0.05)).any()
    assert {EFFECT, "cosine_to_input"} <= {*table.loc[compared, "metric"]}


@pytest.mark.slow
def test_a_real_difference_is_still_counted(
    pair: Callable[..., CollectedPair], models: tuple[str, str]
) -> None:
    given = pair(models, ("float32", "float32"))
    found = of(given)
    heads = found.heads["self"]
    column = heads.column("attention_distance", "raw")
    assert heads.supported[CHANGED, :, column].any()
    assert not heads.supported[:CHANGED, :, column].any()
    (both,) = both_stacks(found)
    floor = np.format_float_positional(
        float(heads.floors[heads.column("attention_distance", str(both.pair.a.default_view))]),
        precision=2, fractional=False, trim="-",
    )  # fmt: skip
    assert f"beyond the rounding floor {floor})" in words_of(found, "attention_distance")
    assert "may be rounding)" in words_of(of(given, floor=False), "attention_distance")


def words_of(found: Comparison, metric: str) -> str:
    """Return what the page of a metric says first, and the captions of its charts."""
    pages = (each.page for each in metric_pairs(both_stacks(found)) if each.metric.id == metric)
    page = next(pages)
    summary = next(text.words for text in every(Text, page) if text.style == "evidence")
    captions = [figure.caption for figure in every(Figure, page)]
    return " ".join([getattr(summary, "text", ""), *captions])


def test_floors_are_three_times_the_largest_difference_over_heads(
    texts: Path, models: tuple[str, str]
) -> None:
    def study(dtype: str) -> Study:
        return collect(
            texts, model=models[0], dtype=dtype, metrics=METRICS, annotator="none", facet="none",
            importance="off",
        )  # fmt: skip

    exact, rounded = study("float32"), study("bfloat16")
    table = compare(exact, study("float32"), twice=(exact, rounded)).differences
    keys = ["metric", "view", "label"]
    of_both = table["metric"] == PATTERN_DRIFT  # beside which rounding stands by itself
    assert table.loc[of_both, ["floor", "beyond_floor"]].isna().all(axis=None)
    table = table[~of_both]
    for name, place in (("heads", ["layer", "head"]), ("layers", ["layer"])):
        one, other = (getattr(each, name).set_index([*keys, *place]) for each in (exact, rounded))
        sizes = (other["value"] - one["value"]).abs().groupby(keys).max()
        rows = table[table["head"].notna() == (name == "heads")].drop_duplicates(keys)
        compared = sizes[[tuple(row) for row in rows[keys].itertuples(index=False)]]
        median = compared.groupby(keys[:2]).transform("median")
        wanted = (3 * np.maximum(compared, median)).tolist()
        assert len(wanted) >= 4
        assert rows["floor"].tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-9)
    assert table["floor"].max() > 0


def test_a_column_that_rounding_hardly_moves_has_the_floor_of_the_median_column() -> None:
    """Columns of one metric: the largest change over two heads counts, unless it is smaller."""
    exact = np.zeros((1, 1, 2, 4))
    changes = np.array([[0.01, 0.02, 0.0, 0.0], [-0.04, 0.0, 0.001, 0.0]])
    tokens = np.ones_like(exact) * [1, 1, 1, 0]
    columns = [ComparedColumn("m", "raw", label) for label in ("large", "median", "small", "none")]
    sums = ClusterSums(exact, tokens), ClusterSums(exact + changes, tokens)
    floors = rounding_floors([(columns, *sums)])
    assert {column.label: floor for column, floor in floors.items()} == pytest.approx(
        {"large": 0.12, "median": 0.06, "small": 0.06}
    )


def test_a_difference_counts_if_its_interval_lies_beyond_the_floor() -> None:
    """On either side; a floor that was not measured counts as 0."""
    lows = np.array([0.2, 0.05, -0.3, -0.3, 0.2])[:, None]
    highs = np.array([0.4, 0.4, -0.05, -0.2, 0.4])[:, None]
    q = np.array([0.01, 0.01, 0.01, 0.01, 0.2])[:, None]
    found = ModelDifferences(
        (column := ComparedColumn("m", "raw", ""),), lows, highs, (lows + highs) / 2, lows, highs,
        q / 2, q, np.ones((5, 1), int),
    )  # fmt: skip
    assert found.supported[:, 0].tolist() == [True, True, True, True, False]
    above = found.above({column: 0.1})
    assert above.supported[:, 0].tolist() == [True, False, False, True, False]
    assert above.beyond[:, 0].tolist() == [True, False, False, True, True]
    beside = ModelDifferences.join_columns([above, found])
    assert beside.supported.T.tolist() == [
        above.supported[:, 0].tolist(),
        found.supported[:, 0].tolist(),
    ]


def test_a_wrong_value_of_the_option_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", "a", "b", "--rounding-floor", "maybe"])
    assert "--rounding-floor: got 'maybe', expected on or off" in str(result.exception)
