"""The strongest exemplar of each head in three ways."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser_views import ink_steps
from headbook.charts.theme import rgba_ramp
from headbook.pages.head_parts.sections import (
    COLOURS,
    ExemplarMaps,
    exemplar_maps,
)
from headbook.report.results import stack_results
from headbook.run.collect import collect
from headbook.study.sentence_data import Ranking
from headbook.study.study import Study


@pytest.fixture(scope="module")
def study(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Study:
    (file := tmp_path_factory.mktemp("some") / "some.txt").write_text("the old cat sees\nbirds\n")
    return collect(
        file, model=str(tiny_folder("bert")), metrics="sink_share", exemplars=1, importance="off",
        circuits="off",
    )  # fmt: skip


def displayed(study: Study, **changes: Any) -> ExemplarMaps:
    first = next(e for e in study.sentence_data.exemplars if e.ranking is Ranking.STRONGEST)
    return exemplar_maps(stack_results(study)[first.head.stack], replace(first, **changes))


def test_the_three_maps_are_the_weights_the_rest_and_what_is_carried(study: Study) -> None:
    first = next(e for e in study.sentence_data.exemplars if e.ranking is Ranking.STRONGEST)
    sentence = study.sentence_data.sentences[first.index]
    special = np.array(sentence.texts[study.manifest.stacks[0].keys].special)
    found = displayed(study)
    raw, nosink, carried = (ink_steps(panel.image, rgba_ramp(COLOURS)) for panel in found.panels)
    step = 256 // COLOURS
    np.testing.assert_array_equal(raw, first.attention // step)
    np.testing.assert_array_equal(nosink[:, special], 0)
    np.testing.assert_array_equal(nosink[:, ~special], raw[:, ~special])
    weighted = first.attention * first.norms
    np.testing.assert_allclose(
        (carried + 0.5) * step / 256, weighted / weighted.max(), atol=0.5 / COLOURS + 1 / 255
    )
    assert len(first.norms) == len(special)


def test_without_values_there_are_two_maps(study: Study) -> None:
    assert len(displayed(study, norms=np.zeros(0, np.float32)).panels) == 2
