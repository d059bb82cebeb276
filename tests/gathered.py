"""Studies of grouped sentences, for the tests that look at them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grouped import METRICS, ROWS, Collect, Row, write_rows
from headbook.run.collect import collect
from headbook.study.study import Study


@pytest.fixture(scope="module")
def gather(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Collect:
    """A study of some of the sentences, in float64."""

    def made(rows: tuple[Row, ...] = ROWS, **options: Any) -> Study:
        file = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", rows)
        given: dict[str, Any] = {"facet": "label,kind", "metrics": METRICS, "batch_tokens": 40}
        model = str(tiny_folder("bert"))
        return collect(file, model=model, dtype="float64", annotator="none", **(given | options))

    return made


@pytest.fixture(scope="module")
def grouped_study(gather: Collect) -> Study:
    """The study of all sentences."""
    return gather()
