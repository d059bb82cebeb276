"""Rows of live charts as columns: nothing is lost, and what repeats stands there once."""

from typing import Any

import pytest

from headbook.charts import Figure
from headbook.site.figures import study_figures
from sites import Site


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Columns turned back, as the pages' script does it."""
    whole = {
        name: column if isinstance(column, list) else [column["texts"][i] for i in column["at"]]
        for name, column in columns.items()
    }
    return [dict(zip(whole, values, strict=True)) for values in zip(*whole.values(), strict=True)]


@pytest.mark.slow
def test_columns_hold_the_rows_and_repeated_texts_once(encoder_site: Site) -> None:
    drawn = study_figures(encoder_site.study)
    figures = [figure for figure in drawn if isinstance(figure, Figure)]
    assert figures
    coded = 0
    for figure in figures:
        for name, columns in figure.live()["datasets"].items():
            assert rows(columns) == figure.spec["datasets"][name]
            for column in columns.values():
                if isinstance(column, dict):
                    coded += 1
                    assert len(set(column["texts"])) == len(column["texts"])
                    assert 2 * len(column["texts"]) <= len(column["at"])
    assert coded
