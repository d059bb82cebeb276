"""Facts on regions: a cross-encoder that was trained to carry a word from one text to the other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cross_encoder
import headbook
from block_parts import every
from headbook.analysis.accumulators import HELD_OUT, Estimates
from headbook.metrics import ids
from headbook.metrics.targets.region_attention import BACK
from headbook.pages.head_parts.regions import regions_section
from headbook.pages.parts.blocks import Lead, Table
from headbook.pages.parts.exemplars import fits_function
from headbook.pages.parts.sentence_maps import sentence_starts
from headbook.pages.parts.text import running_text
from headbook.pages.texts.regions import has_regions, regions_page
from headbook.report.facts.functions import functions_of
from headbook.report.facts.texts import regions
from headbook.report.results import StackResults, stack_results
from headbook.report.thresholds import REGION_EXCESS
from headbook.results.number import Number, Printed
from headbook.schema import PAIR_REGIONS, HeadName, Side
from headbook.study.sentence_data import APART
from headbook.study.study import Study

CARRIER, READER = (
    HeadName("self", *place) for place in (cross_encoder.CARRIER, cross_encoder.READER)
)


@pytest.fixture(scope="module")
def place(cross_encoder_study: Path) -> Path:
    return cross_encoder_study


@pytest.fixture(scope="module")
def study(place: Path) -> Study:
    return Study.load(place / "study")


@pytest.fixture(scope="module")
def results(study: Study) -> StackResults:
    return stack_results(study)["self"]


def test_the_head_that_carries_the_word_is_named(results: StackResults) -> None:
    fact = regions.between_regions(results)
    assert fact.holds
    assert fact.heads[0] == CARRIER
    assert len(fact.text.text.split()) <= 30
    printed = [part.number for part in fact.text.parts if isinstance(part, Printed)]
    assert regions.beyond(results, BACK, CARRIER).row in {number.row for number in printed}
    assert regions.seeking(results, BACK)[0] == CARRIER
    seeking = {
        (label, *head[1:])
        for label in regions.crossing(results)
        for head in regions.seeking(results, label)
    }
    assert seeking == {
        (each.label, each.layer, each.head)
        for each in fact.evidence
        if each.p < 0.05 and each.value.low >= REGION_EXCESS.value
    }
    row = next(
        each
        for each in fact.evidence
        if (each.label, each.layer, each.head) == (BACK, *CARRIER[1:])
    )
    assert row.p < 0.05
    assert row.split == "held_out"
    assert (
        row.value.value == results.split(HELD_OUT, *regions.excess_key(BACK)).at(*CARRIER[1:]).value
    )


def test_its_function_is_to_attend_to_the_first_text(results: StackResults) -> None:
    function = functions_of(results)[CARRIER]
    assert (function.id, function.noun) == ("region", "second text → first")
    assert function.column == (ids.REGION_ATTENTION, "renorm", BACK)
    assert function.number is not None
    assert function.number.low >= function.threshold
    of_regions = {head for head, each in functions_of(results).items() if each.id == "region"}
    assert of_regions <= {CARRIER, READER}


def test_the_task_needs_the_head_that_carries_and_the_head_that_reads(study: Study) -> None:
    table = study.importance.query("target == 'label' and metric == 'ablation_effect'")
    table = table[table["replacement"] == "mean"].nlargest(2, "value")
    assert {*zip(table["layer"], table["head"], strict=True)} == {CARRIER[1:], READER[1:]}


def test_heads_with_random_weights_seek_no_text(results: StackResults) -> None:
    tests = regions.region_tests(results)
    supported = {at for (at, _), test in tests.items() if test.supported}
    assert CARRIER[1:] in supported
    assert supported <= {CARRIER[1:], READER[1:]}
    excess = results.heads(*regions.excess_key(BACK)).value
    others = [excess[place] for place in np.ndindex(*excess.shape) if place not in supported]
    assert np.abs(others).max() < 0.01  # nearly even attention has none


def test_a_head_whose_number_of_all_texts_is_small_seeks_none(
    results: StackResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages print that number, so that a claim of the held-out half alone would contradict it."""
    heads = StackResults.heads

    def lower(self: StackResults, *key: Any) -> Estimates:
        estimates = heads(self, *key)
        return estimates._replace(value=estimates.value - 0.9)

    monkeypatch.setattr(StackResults, "heads", lower)
    tests = regions._region_tests(results)
    assert min(test.p for test in tests.values()) < 0.05
    assert not any(test.supported for test in tests.values())


def test_exemplars_go_from_the_second_text_to_the_marker(results: StackResults) -> None:
    found = [*regions.exemplars(results, BACK, CARRIER)]
    assert found
    assert {key for _, _, key in found} <= {*cross_encoder.MARKERS}
    data, weights = results.study.sentence_data, []
    for number, query, key in found:
        exemplar = next(
            each for each in data.by_weight if (each.head, each.index) == (CARRIER, number - 1)
        )
        pieces = data.sentences[number - 1].texts[Side.SOURCE].pieces
        border = pieces.index("[SEP]")
        block = exemplar.attention[border + 1 : -1, 1:border]
        assert (query, key) in [
            (pieces[border + 1 + q], pieces[1 + k])
            for q, k in np.argwhere(block == block.max()).tolist()
        ]
        weights.append(block.max())
    assert weights == sorted(weights, reverse=True)


def test_the_page_of_a_head_has_its_pairs_of_regions(results: StackResults) -> None:
    section = regions_section(results, CARRIER)
    assert section is not None
    numbers = [part.number for part in section.text.parts if isinstance(part, Printed)]
    keys = regions.share_key(BACK), regions.excess_key(BACK)
    assert [number.value for number in numbers] == [
        results.heads(*key).value[CARRIER[1:]] for key in keys
    ]
    first, second = section.table.rows
    assert (first[0], second[0]) == ("second text → first", "first text → second")
    cells = [cell.number for cell in first if isinstance(cell, Printed)]
    assert [number.value for number in cells] == [number.value for number in numbers]
    other = regions_section(results, HeadName("self", 0, 0))
    assert other is not None
    assert not any(isinstance(part, Printed) for part in other.text.parts)


def test_exemplars_of_the_function_go_from_text_to_text(results: StackResults) -> None:
    function = functions_of(results)[CARRIER]
    exemplars = [e for e in results.study.sentence_data.by_weight if e.head == CARRIER]
    fitting = {fits_function(results, function, each) for each in exemplars}
    assert True in fitting
    for each in exemplars:
        text = results.study.sentence_data.sentences[each.index].texts[Side.SOURCE]
        crosses = (text.region_of(each.query), text.region_of(each.key)) == PAIR_REGIONS[::-1]
        assert fits_function(results, function, each) == crosses


def test_the_page_prints_the_fact_and_the_numbers_of_all_heads(results: StackResults) -> None:
    assert has_regions({"self": results})
    page = regions_page({"self": results})
    assert page.answer == results.cached(regions.between_regions).text
    tables = every(Table, page)
    leaders = next(each for each in tables if "exemplars" in each.columns)
    assert leaders.rows[0][0] == "second text → first"
    numbers = [cell.number for row in leaders.rows for cell in row if isinstance(cell, Printed)]
    share, beyond = numbers[:2]
    assert share.value == results.heads(*regions.share_key(BACK)).value[CARRIER[1:]]
    assert beyond.value == results.heads(*regions.excess_key(BACK)).value[CARRIER[1:]]
    assert all(number.row.table == "heads" for number in numbers)
    uniform = [cell for cell in leaders.rows[0] if isinstance(cell, Number)]
    assert np.isclose(uniform[0].value, 0.5, atol=0.05)
    assert sum(isinstance(block, Lead) for block in page.blocks) == 1


def test_both_texts_are_drawn_apart(study: Study, place: Path) -> None:
    sentence = study.sentence_data.listed[0]
    text = sentence.texts[Side.SOURCE]
    assert [region.name for region in text.regions] == [*PAIR_REGIONS]
    (start,) = sentence_starts(text)
    tokens = running_text(text)
    assert [token.text_of_pair for token in tokens] == [int(i >= start) for i in range(len(tokens))]
    assert text.special[start - 1]
    page = (place / "site" / "sentences" / f"{sentence.number:04}.html").read_text()
    assert page.count('class="of-pair p0"') >= 1
    assert page.count('class="of-pair p1"') == page.count('class="of-pair p0"')
    answer = (place / "site" / "regions.html").read_text()
    assert "Which heads attend from one text of a pair to the other text?" in answer
    lines = (place / "site" / "sentences" / "index.html").read_text()
    assert lines.count(f" {APART} ") == len(study.sentence_data.paged)
    cards = (place / "site" / "index.html").read_text()
    assert f" {APART} " in cards


def test_small_maps_have_a_gap_between_both_texts(study: Study, place: Path) -> None:
    sentence, stack = study.sentence_data.listed[0], study.manifest.stacks[0]
    maps = study.sentence_data.maps["self", sentence.index]
    (start,) = sentence_starts(sentence.texts[Side.SOURCE])
    n = maps.shape[-1]
    file = place / "site" / "data" / "sentences" / f"{sentence.number:04}-self.png"
    picture = Image.open(file).convert("RGBA")
    assert picture.size == (stack.n_heads * (n + 2), stack.n_layers * (n + 2))
    opacity = np.array(picture)[..., 3].reshape(stack.n_layers, n + 2, stack.n_heads, n + 2)
    tiles = opacity.transpose(0, 2, 1, 3)
    assert not tiles[:, :, start].any()
    assert not tiles[..., start].any()
    of_texts = np.delete(np.delete(tiles, [start, n + 1], 2), [start, n + 1], 3)
    largest = maps == maps.max(-1, keepdims=True)
    assert (of_texts[largest] > 0).all()


def test_a_study_of_single_texts_has_no_page(study_of_texts: Callable[[], Study]) -> None:
    assert not has_regions(stack_results(study_of_texts()))
    assert not regions.between_regions(stack_results(study_of_texts())["self"]).holds


@pytest.fixture
def study_of_texts(cross_encoder_folder: Path) -> Callable[[], Study]:
    def collected() -> Study:
        texts = [row["premise"] for row in cross_encoder.rows(6, seed=0)]
        return headbook.collect(
            texts, model=str(cross_encoder_folder), annotator="none", language="none",
            importance="off", circuits="off", metrics="sink_share,region_excess",
        )  # fmt: skip

    return collected
