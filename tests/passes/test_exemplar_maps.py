"""The strongest exemplar of each head in three ways."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bare_model import Bare, Given
from browser_views import ink_steps
from headbook.charts.theme import SIGNED, rgba_ramp
from headbook.pages.head_parts.sections import (
    COLOURS,
    ExemplarMaps,
    exemplar_maps,
    token_similarity_maps,
)
from headbook.report.results import stack_results
from headbook.run.collect import collect
from headbook.study.sentence_data import Ranking
from headbook.study.study import Study
from naive_head_outputs import Written
from single_head import Viewed


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


def test_what_is_written_is_kept_of_the_strongest_sentence_token_against_token(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Cosines from a bare model's values, and of its rows, in steps of 1/255 from -1 to 1."""
    text = "the old cat sees birds"
    (tmp_path / "a.txt").write_text(f"{text}\n")
    options: dict[str, Any] = {
        "exemplars": 1, "dtype": "float64", "annotator": "none", "importance": "off",
        "circuits": "off",
    }  # fmt: skip
    names = "context_similarity,row_similarity"
    found = collect(tmp_path / "a.txt", model=str(tiny_folder("bert")), metrics=names, **options)
    attentions = {
        (layer, head): attention
        for _, layer, head, attention in Bare.load(tiny_folder("bert")).looks(Given(text, []))
    }
    displayed = [e for e in found.sentence_data.exemplars if e.ranking is Ranking.STRONGEST]
    assert len(displayed) == len(attentions)
    for exemplar in displayed:
        written = Written(Viewed(attentions[exemplar.head.layer, exemplar.head.head], "raw"))
        places = [row.query for row in written.seen.rows]
        for steps_, cosines in zip(exemplar.written, (written.similar, written.rows), strict=True):
            assert steps_.shape == (len(places), len(places))
            assert (steps_.diagonal() == 255).all()
            np.testing.assert_array_equal(steps_, steps_.T)
            for (i, j), cosine in cosines.items():
                step = steps_[places.index(i), places.index(j)]
                assert step / 255 * 2 - 1 == pytest.approx(cosine, abs=1.01 / 255)
    found.save(tmp_path / "study")
    again = Study.load(tmp_path / "study")
    for one, other in zip(
        found.sentence_data.exemplars, again.sentence_data.exemplars, strict=True
    ):
        np.testing.assert_array_equal(one.written, other.written)
    pictures = token_similarity_maps(stack_results(again)["self"], displayed[0])
    assert pictures is not None
    for panel, cells in zip(pictures.panels, displayed[0].written, strict=True):
        drawn = ink_steps(panel.image, rgba_ramp(COLOURS, SIGNED))
        np.testing.assert_array_equal(drawn, cells // 8)


def test_without_values_nothing_is_said_of_what_is_written(study: Study) -> None:
    assert (
        token_similarity_maps(stack_results(study)["self"], study.sentence_data.exemplars[0])
        is None
    )
