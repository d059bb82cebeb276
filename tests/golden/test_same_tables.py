"""The comparison of tables finds what was changed, and nothing else."""

import numpy as np
import pandas as pd
import pytest

from same_tables import Difference, difference, differences

HEADS = pd.DataFrame(
    {
        "stack": "self",
        "layer": np.repeat([0, 1], 4),
        "head": [0, 1, 2, 3] * 2,
        "metric": ["attention_distance"] * 7 + ["sink_share"],
        "value": [0.5, 1.25, np.nan, 4e3, -0.125, 0.0, 2.0, 0.75],
        "sentences": range(8),
        "kind": ["exact", None] * 4,
    }
)


def changed(column: str, row: int, value: float | str) -> Difference:
    """Compare with a table in which one cell is another one."""
    other = HEADS.copy()
    other.loc[row, column] = value
    return difference("heads", HEADS, other)


def test_equal_tables_are_equal() -> None:
    found = difference("heads", HEADS, HEADS.copy())
    assert (found.rows, found.largest, found.cells, found.where) == (8, 0, 0, ())
    assert "equal" in str(found)


@pytest.mark.parametrize(
    ("column", "row", "value", "line"),
    [
        ("value", 1, 1.2501, "value of stack=self layer=0 head=1 metric=attention_distance: 1.25"),
        ("value", 2, 0.0, "value of stack=self layer=0 head=2 metric=attention_distance: nan and"),
        ("value", 0, np.nan, "value of stack=self layer=0 head=0"),
        ("value", 4, np.inf, "value of stack=self layer=1 head=0"),
        ("sentences", 7, 8, "sentences of stack=self layer=1 head=3 metric=sink_share: 7 and 8"),
        ("kind", 2, "estimated", "kind of stack=self layer=0 head=2"),
        ("kind", 3, "exact", "kind of stack=self layer=0 head=3"),
    ],
)
def test_a_changed_cell_is_found(column: str, row: int, value: float | str, line: str) -> None:
    found = changed(column, row, value)
    assert found.cells == len(found.where) == 1
    assert found.where[0].startswith(line)
    assert found.largest > 1e-6


def test_differences_are_told_with_their_size() -> None:
    found = changed("value", 3, 4001.0)
    assert found.absolute == 1.0
    assert found.relative == found.largest == 1 / 4001
    assert "1 cells differ, by at most 1, 0.00025 of the number" in str(found)


def test_what_rounding_does_is_no_difference() -> None:
    for row, value in ((3, 4000.003), (4, -0.1250009), (5, -9e-7)):
        found = changed("value", row, value)
        assert 0 < found.largest < 1e-6
        assert found.where == ()


def test_missing_and_added_rows_are_found_and_the_others_still_compared() -> None:
    other = HEADS.drop(index=2)
    other.loc[7, "head"] = 5
    other.loc[3, "value"] = 5.0
    found = difference("heads", HEADS, other)
    assert found.where[:3] == (
        "missing: row stack=self layer=0 head=2 metric=attention_distance",
        "missing: row stack=self layer=1 head=3 metric=sink_share",
        "added: row stack=self layer=1 head=5 metric=sink_share",
    )
    assert [line.partition(":")[0] for line in found.where[3:]] == [
        "value of stack=self layer=0 head=3 metric=attention_distance"
    ]
    assert found.largest == np.inf


def test_rows_about_the_same_are_told_apart_by_their_order() -> None:
    twice = pd.DataFrame({"rank": [1, 1, 2], "value": [1.0, 2.0, 3.0]})
    assert difference("x", twice, twice).where == ()
    assert difference("x", twice, twice[:1]).where == (
        "missing: row rank=1 #2",
        "missing: row rank=2",
    )


def test_missing_and_added_columns_and_another_order_are_found() -> None:
    assert difference("heads", HEADS, HEADS.drop(columns="kind")).where == ("missing: column kind",)
    assert difference("heads", HEADS, HEADS.assign(p=1.0)).where == ("added: column p",)
    turned = difference("heads", HEADS, HEADS[[*HEADS][::-1]])
    assert turned.where[0].startswith("columns stand in another order: kind, sentences")
    assert difference("heads", HEADS, HEADS[::-1]).where == ("rows stand in another order",)


def test_numbers_are_not_letters() -> None:
    other = HEADS.assign(sentences=HEADS["sentences"].astype(str))
    assert difference("heads", HEADS, other).cells == 8


def test_many_differences_are_counted_and_the_first_named() -> None:
    found = difference("heads", HEADS, HEADS.assign(sentences=HEADS["sentences"] + 1))
    assert found.cells == 8
    assert len(found.where) == 6
    assert found.where[-1] == "sentences: 3 more"


def test_whole_tables_that_only_one_study_has_are_found() -> None:
    found = {each.table: each.where for each in differences({"a": HEADS}, {"b": HEADS})}
    assert found == {"a": ("missing: the whole table",), "b": ("added: the whole table",)}
