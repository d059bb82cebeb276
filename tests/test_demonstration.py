"""One sentence as the public demonstration computes it, against plain loops; and what is said."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headbook
import treebank
from bare import Bare
from headbook.collection.collect import collect
from headbook.pages.demonstration.page import DemonstrationPage, demonstration_page
from headbook.pages.parts.table import Row
from headbook.report.numbers.results import results
from headbook.study.sentencedata import DEMONSTRATION
from headbook.study.study import Study
from headbook.terms import Side
from naive_tokens import Floats, cosines, originals, raw_table, record
from pages import html_of, text_of
from tabled import text

pytestmark = pytest.mark.slow

Folder = Callable[[str], Path]
METRICS = "sink_share,cosine_to_input,vocabulary_rank"
KEPT = 100
FIRST = {"bert": 0, "roberta": 2}  # where positions begin


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Study]:
    """The study of a family, in float64."""

    @cache
    def of(name: str, metrics: str = METRICS) -> Study:
        file = treebank.write_trees(tmp_path_factory.mktemp("in") / "trees.conllu")
        options: dict[str, Any] = {"dtype": "float64", "annotator": "none", "metrics": metrics}
        options["importance"] = "off"
        return collect(file, model=str(tiny_folder(name)), **options)

    return of


def demonstrated(bare: Bare, ids: list[int], layer: int) -> Floats:
    """The demonstration's states of one layer: untransposed matrices, no bias."""
    taken = record(bare, [ids])[0][f"encoder.layer.{layer}"]
    weights = bare.run([ids], output_attentions=True).attentions[layer][0].numpy()
    place = bare.network.base_model.encoder.layer[layer].attention
    value = place.self.value.weight.detach().numpy()
    output = place.output.dense.weight.detach().numpy()
    width = len(value) // len(weights)
    states = []
    for i in range(len(ids)):
        heads = []
        for head, attention in enumerate(weights):
            columns = value[:, head * width : (head + 1) * width]
            heads.append(sum(attention[i, j] * (taken[j] @ columns) for j in range(len(ids))))
        states.append(taken[i] + np.concatenate(heads) @ output)
    return np.stack(states)


def own(bare: Bare, ids: list[int], layer: int) -> Floats:
    """The model's own states after attention."""
    taken, given = record(bare, [ids])
    name = f"encoder.layer.{layer}"
    mids: Floats = given[f"{name}.attention.output.dense"] + taken[name]
    return mids


@pytest.mark.parametrize(
    ("family", "computation"),
    [("bert", "demonstration"), ("bert", "model"), ("roberta", "demonstration")],
)
def test_both_computations_equal_plain_loops(
    family: str, computation: str, study: Callable[..., Study], tiny_folder: Folder
) -> None:
    """RoBERTa counts positions from 2."""
    bare = Bare.load(tiny_folder(family))
    (ids,) = bare.ids(treebank.text_of(treebank.TREES[0]))
    if computation == "model":
        tables, states = originals(bare, [ids], 0), own
    else:
        positions = bare.network.embeddings.position_embeddings.weight.detach().numpy()
        table = raw_table(bare) + positions[FIRST[family]]
        tables, states = np.stack([table] * len(ids)), demonstrated
    rows = study(family).sentence_data.demonstration
    rows = rows[rows["computation"] == computation]
    found = rows.set_index(["measure", "layer", "position"])["value"].to_dict()
    before: list[set[int]] = []
    for layer in range(2):
        near = []
        for i, state in enumerate(states(bare, ids, layer)):
            scores = cosines(state, tables[i])
            assert found["cosine", layer, i] == pytest.approx(scores[ids[i]], abs=1e-9)
            assert found["rank", layer, i] == sum(scores > scores[ids[i]])
            k = min(KEPT, len(scores))
            near.append({*map(int, np.argsort(-scores)[:k])})
        for i, ten in enumerate(near):
            if layer:
                assert found["kept", layer, i] == pytest.approx(len(ten & before[i]) / k)
            else:
                assert np.isnan(found["kept", layer, i])
        before = near
    assert len(rows) == 3 * 2 * len(ids)


@pytest.mark.parametrize("family", ["gpt2", "albert", "electra", "distilbert", "bart"])
def test_where_it_does_not_fit_the_study_says_why_or_it_does(
    family: str, study: Callable[..., Study]
) -> None:
    """Electra keeps everything where BERT does."""
    found = study(family)
    gaps = [g for g in found.manifest.gaps if "public demonstration" in g.what]
    assert bool(len(found.sentence_data.demonstration)) == (family == "electra")
    assert len(gaps) == (family != "electra")
    assert all(f"'{family}'" in g.why for g in gaps)
    assert (demonstration_page(results(found)) is None) == (family != "electra")


def test_without_the_metrics_it_stands_beside_there_is_none(study: Callable[..., Study]) -> None:
    found = study("bert", "sink_share,cosine_to_input")
    assert found.sentence_data.demonstration.empty
    assert not [g for g in found.manifest.gaps if "public demonstration" in g.what]


def test_it_is_stored_and_a_study_of_two_parts_shows_the_first(
    study: Callable[..., Study], tmp_path: Path
) -> None:
    one = study("bert")
    one.save(tmp_path / "study")
    again = Study.load(tmp_path / "study")
    pd.testing.assert_frame_equal(
        again.sentence_data.demonstration, one.sentence_data.demonstration
    )
    both = one + one
    assert set(both.sentence_data.demonstration["sentence"]) == {
        1,
        1 + one.manifest.counts["sentences"],
    }
    assert page_of(both).number == 1
    assert page_of(both).means == page_of(one).means


def page_of(found: Study) -> DemonstrationPage:
    page = demonstration_page(results(found))
    assert page is not None
    return page


def reported(
    study: Study, cosines: list[float], ranks: list[float], kept: list[float]
) -> list[Row]:
    """The stories of both computations, all tokens alike."""
    values = {"cosine": cosines, "rank": ranks, "kept": kept}
    n = len(study.sentence_data.sentences[0].texts[Side.SOURCE].pieces)
    rows = [
        (1, computation, measure, layer, position, "", value)
        for computation in ("demonstration", "model")
        for measure, each in values.items()
        for layer, value in enumerate(each)
        for position in range(n)
    ]
    table = pd.DataFrame(rows, columns=[*DEMONSTRATION])
    sentence_data = replace(study.sentence_data, demonstration=table)
    return [*page_of(replace(study, sentence_data=sentence_data)).claims.rows]


NAN = float("nan")
EARLY, LATE = [0.9, 0.5, 0.3, 0.3, 0.4], [0.9, 0.9, 0.8, 0.4, 0.1]
JUMP, SLIDE = [0.0, 0.0, 0.0, 0.0, 99.0], [0.0, 99.0, 99.0, 9.0, 0.0]
HUMP, RISE = [NAN, 0.9, 0.2, 0.3, 0.8], [NAN, 0.9, 0.8, 0.5, 0.2]


def test_stories_hold_where_their_rules_do(study: Callable[..., Study]) -> None:
    found = study("bert")
    for values, holds in (((EARLY, JUMP, HUMP), True), ((LATE, SLIDE, RISE), False)):
        for claim in reported(found, *values):
            assert [text(cell).startswith("holds: ") for cell in claim.cells] == [holds] * 2, (
                claim.name
            )
    drift, jump, churn = (
        text(s.cells[0]).partition(": ")[2] for s in reported(found, EARLY, JUMP, HUMP)
    )
    assert drift == "falls by 0.30 a layer up to layer 2, rises by 0.05 after"
    assert jump == "2.00 in the last layer, 0.00 before"
    assert churn.startswith("80.0\u202f% replaced in layer 2; 10.0\u202f% in layer 1")


def test_two_layers_are_too_few_for_a_story(study: Callable[..., Study]) -> None:
    page = page_of(study("bert"))
    assert [text(c) for row in page.claims.rows for c in row.cells] == ["– (too few layers)"] * 6
    assert len(page.means.rows) == 2


@pytest.mark.slow
def test_the_page_is_written_and_methods_lead_to_it(
    study: Callable[..., Study], tmp_path: Path
) -> None:
    headbook.render(study("bert"), tmp_path / "site")
    html = html_of(tmp_path / "site" / "demonstration.html")
    page = page_of(study("bert"))
    for line in page.means.rows:
        assert all(text(cell) in text_of(html) for cell in line.cells)
    assert "too few layers" in text_of(html)
    assert 'href="demonstration.html"' in html_of(tmp_path / "site" / "methods.html")
