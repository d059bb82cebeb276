"""Pages of two heads, and of sentences that two models read."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from comparisons import Compared
from headbook.comparison.comparison import compare
from headbook.comparison.drift import PATTERN_DRIFT, divergence_text
from headbook.comparison.head_pairs import listed_sentences, paired_stacks
from headbook.pages.comparison.headpair import headpair_pages
from headbook.pages.comparison.sentencepair import sentencepair_pages, sentencepairs_page
from headbook.report.facts.functions import functions_of
from headbook.results.formats import head_file, head_page
from headbook.schema import HeadName, SinkView, heads_of
from headbook.study.sentence_data import MappedSentence, MapSample
from headbook.study.study import Study
from html_pages import broken_links, data_file, elements, html_of, text_of
from naive_comparison import divergence

pytest_plugins = ["comparisons"]
pytestmark = pytest.mark.slow

HEAD = HeadName("self", 1, 1)


def naive_drift(one: MappedSentence, other: MappedSentence, head: HeadName) -> float:
    """Mean divergence of the queries of a sentence that are no special tokens."""
    a, b = (each.maps["self"][head.layer, head.head].tolist() for each in (one, other))
    (text,) = one.texts.values()
    values = [divergence(a[q], b[q]) for q, special in enumerate(text.special) if not special]
    return sum(values) / len(values)


def articles(site: Compared, head: HeadName) -> list[dict[str, str]]:
    found = elements(html_of(site.folder / head_page(head)), "article")
    return [e.attributes for e in found if "pairmap" in e.attributes["class"]]


def test_sentences_stand_strictly_by_rank(compared: Callable[[str], Compared]) -> None:
    site = compared("tuned")
    sides = site.found.sides
    for head in heads_of(sides.a.manifest.stack("self")):
        found = [(naive_drift(*both, head), both[0].index) for both in sides.mapped()]
        order = [index for _, index in sorted(found, key=lambda each: -each[0])]
        places = [0, 1, 2, (len(order) - 1) // 2]
        there = articles(site, head)
        wanted = [f"sentence {order[place] + 1}" for place in places]
        assert [each["data-sentence"] for each in there] == wanted
        assert [each["data-map"] for each in there] == ["1", "2", "3", "median"]


def test_maps_on_a_page_are_the_stored_ones(compared: Callable[[str], Compared]) -> None:
    """In steps of 1/255, first of the one model, then of the other."""
    site = compared("tuned")
    kept = {each[0].index: each for each in site.found.sides.mapped()}
    _, values = data_file(site.folder / f"data/heads/{head_file(HEAD)}.js")
    for article in articles(site, HEAD):
        both = kept[int(article["data-sentence"].removeprefix("sentence ")) - 1]
        maps = [each.maps["self"][HEAD.layer, HEAD.head].astype(float) for each in both]
        value = values[article["data-map"]]
        assert value["keys"]["pieces"] == list(next(iter(both[0].texts.values())).pieces)
        steps = np.frombuffer(value["weights"], np.uint8).reshape(2, *maps[0].shape)
        np.testing.assert_allclose(steps / 255, maps, atol=0.5 / 255 + 1e-9)
        rows = [divergence(*pair) for pair in zip(*(m.tolist() for m in maps), strict=True)]
        special = next(iter(both[0].texts.values())).special
        apart = [-1 if is_special else row for row, is_special in zip(rows, special, strict=True)]
        assert int(article["data-looks"]) == apart.index(max(apart))


def test_the_lead_has_the_mean_over_all_queries(compared: Callable[[str], Compared]) -> None:
    site = compared("tuned")
    found = site.found.heads["self"]
    column = found.column(PATTERN_DRIFT, str(SinkView.RAW))
    text = text_of(html_of(site.folder / head_page(HEAD)))
    assert column is not None
    value = divergence_text(float(found.value[HEAD.layer, HEAD.head, column]))
    assert f"Its attention diverges by {value} nats" in text


@pytest.mark.parametrize("kind", ["tuned", "equal", "apart"])
def test_pages_hold_no_nan_and_lead_somewhere(
    compared: Callable[[str], Compared], kind: str
) -> None:
    folder = compared(kind).folder
    pages = [*folder.glob("heads/*.html"), *sorted(folder.glob("sentences/*.html"))[:5]]
    assert len(pages) > 8
    for page in pages:
        assert not re.search(r"\bnan\b", text_of(html_of(page)), re.IGNORECASE), page
        assert not broken_links(folder, page), page


def test_a_model_is_exactly_equal_to_itself(compared: Callable[[str], Compared]) -> None:
    folder = compared("equal").folder
    for page in folder.glob("heads/*.html"):
        text = text_of(html_of(page))
        assert "exactly equal in both models" in text
        assert "numbers are exactly equal" in text
        assert "Largest differences" not in text
    sentence = next(folder.glob("sentences/0*.html"))
    assert "Attention is exactly equal in both models." in text_of(html_of(sentence))


def test_heads_of_other_shapes_stand_beside_those_they_are_matched_with(
    compared: Callable[[str], Compared],
) -> None:
    site = compared("apart")
    (paired,) = paired_stacks(site.found)
    matched = site.found.matched["self-decoder"] if paired.matched is None else paired.matched
    for place, head in enumerate(matched.a):
        partner = matched.partner(place)
        text = text_of(html_of(site.folder / head_page(head)))
        named = f"Matched with L{partner.layer}·H{partner.head}" if partner else "No counterpart"
        assert named in text
        assert "between the words that both have read" in text


def test_maps_between_words_sum_to_one_or_are_empty(compared: Callable[[str], Compared]) -> None:
    site = compared("apart")
    (paired,) = paired_stacks(site.found)
    assert paired.words
    pair = next(each for each in paired.pairs if each.b is not None)
    some = 0
    for both in paired.sentences:
        maps = paired.maps(both, pair)
        text = next(iter(both[0].texts.values())).text
        assert all(piece in text for piece in maps.keys.pieces)
        sums = np.stack([maps.a.sum(1), maps.b.sum(1)])
        np.testing.assert_allclose(sums, np.broadcast_to(maps.counted, sums.shape), atol=1e-9)
        assert not np.triu(maps.a, 1).any()  # the other model sees earlier words only
        some += int(maps.counted.sum())
    assert some > 10


@pytest.mark.parametrize("name", ["tuned", "apart"])
def test_the_functions_of_both_heads_are_named(
    compared: Callable[[str], Compared], name: str
) -> None:
    (paired,) = paired_stacks(compared(name).found)
    for pair, (page, _) in zip(paired.pairs, headpair_pages(paired, frozenset()), strict=True):
        heads = [(paired.a, pair.a), (paired.b, pair.b)][: len(page.sides)]
        functions = [functions_of(results)[head] for results, head in heads if head]
        assert [(side.noun, side.text) for side in page.sides] == [
            (function.noun, function.text.text) for function in functions
        ]
        assert [side.style for side in page.sides] == [f"f-{each.family}" for each in functions]


def test_the_list_of_sentences_begins_with_those_that_differ_most(
    compared: Callable[[str], Compared],
) -> None:
    site = compared("tuned")
    sides = site.found.sides
    heads = heads_of(sides.a.manifest.stack("self"))
    kept = {each[0].index: each for each in sides.mapped()}
    listed = [{e.index for e in study.sentence_data.listed} for study in (sides.a, sides.b)]
    both = listed[0] & listed[1]
    means = {n: sum(naive_drift(*kept[n], head) for head in heads) for n in both}
    assert len(means) > 1
    order = sorted(means, key=lambda index: -means[index])
    page = html_of(site.folder / "sentences" / "index.html")
    found = [int(n) - 1 for n in re.findall(r"sentence (\d+), ", text_of(page))]
    assert found == order


def test_sentences_whose_maps_are_not_kept_are_compared_by_those_of_their_pages(
    compared: Callable[[str], Compared],
) -> None:
    """Which are in steps of 1/255."""
    sides = compared("tuned").found.sides
    kept = listed_sentences(sides, paired_stacks(compared("tuned").found))
    bare = [replace(study, map_sample=MapSample()) for study in (sides.a, sides.b)]
    found = compare(bare[0], bare[1])
    coarse = listed_sentences(found.sides, paired_stacks(found))
    assert len(coarse) == len(kept) > 5
    for one, other in zip(coarse, kept, strict=True):
        assert (one.coarse, other.coarse) == (True, False)
        np.testing.assert_allclose(one.drift["self"], other.drift["self"], atol=0.01)
    pages = [page for page, _ in sentencepair_pages(found.sides, paired_stacks(found), coarse[:2])]
    assert all(page.coarse and page.stacks[0].heads for page in pages)


def with_lists(study: Study, listed: set[int], mapped: int) -> Study:
    """A study that lists some sentences and keeps the maps of the first few keys."""
    data = study.sentence_data
    sentences = {n: replace(each, listed=n in listed) for n, each in data.sentences.items()}
    kept, own = study.map_sample.sentences, [n + 1 for n in listed]
    tokens, nearest = (table[table["sentence"].isin(own)] for table in (data.tokens, data.nearest))
    return replace(
        study,
        sentence_data=replace(data, sentences=sentences, tokens=tokens, nearest=nearest),
        map_sample=MapSample({key: kept[key] for key in sorted(kept)[:mapped]}),
    )


def test_sentences_are_those_that_both_list_or_keep_the_maps_of(
    compared: Callable[[str], Compared],
) -> None:
    sides = compared("tuned").found.sides
    a, b = with_lists(sides.a, {0, 1, 2, 3}, 5), with_lists(sides.b, {2, 3, 4}, 5)
    found = compare(a, b, names=("one", "other"))
    stacks = paired_stacks(found)
    listed = listed_sentences(found.sides, stacks)
    mapped = {each.index for each in a.map_sample.sentences.values()}
    assert [each.a.index for each in listed] == sorted({2, 3} | mapped)
    assert {each.a.index for each in listed if each.followed} == {2, 3}
    assert {each.a.index for each in listed if not each.coarse} == mapped
    alone = len(listed) - 2
    assert alone > 0
    page = sentencepairs_page(found.sides, listed)
    assert page.lists.startswith("one lists 4 sentences, other 3, and both 2 of the same")
    assert f"Of {alone} more both keep attention maps" in page.lists
    for each, paths in sentencepair_pages(found.sides, stacks, listed):
        followed = each.number - 1 in {2, 3}
        assert each.followed == bool(paths) == bool(each.stacks[0].paths) == followed
        assert each.stacks[0].heads or each.number - 1 not in mapped


def test_sentences_are_found_again_in_another_order(
    compared: Callable[[str], Compared],
) -> None:
    """By their texts: those of the second study come five places later."""
    sides = compared("tuned").found.sides
    later = replace(
        sides.b,
        sentence_data=sides.b.sentence_data.shifted(5),
        map_sample=sides.b.map_sample.shifted(5),
    )
    found = compare(sides.a, later)
    there, wanted = (
        listed_sentences(each.sides, paired_stacks(each))
        for each in (found, compared("tuned").found)
    )
    assert [(e.a.index, e.b.index - 5) for e in there] == [(e.a.index, e.b.index) for e in wanted]
    for one, other in zip(there, wanted, strict=True):
        np.testing.assert_array_equal(one.drift["self"], other.drift["self"])
    pages = [*sentencepair_pages(found.sides, paired_stacks(found), there[:2])]
    same = [*sentencepair_pages(sides, paired_stacks(compared("tuned").found), wanted[:2])]
    for (_, paths), (_, expected) in zip(pages, same, strict=True):
        assert paths["self-b"]["metrics"] == expected["self-b"]["metrics"]


def test_paths_of_both_models_have_one_axis(compared: Callable[[str], Compared]) -> None:
    site = compared("apart")
    files = sorted((site.folder / "data" / "sentences").glob("*-paths.js"))
    assert files
    for file in files:
        _, data = data_file(file)
        mine, theirs = data["self-a"], data["self-b"]
        assert [each["id"] for each in mine["metrics"]] == [e["id"] for e in theirs["metrics"]]
        for one, other in zip(mine["metrics"], theirs["metrics"], strict=True):
            for pair in zip(one["views"], other["views"], strict=True):
                lines = [line for view in pair for line in view["values"]]
                values = [value for line in lines for value in line if value is not None]
                low, high = pair[0]["ends"]
                assert pair[0]["ends"] == pair[1]["ends"]
                assert low <= min(values) <= max(values) <= high


def test_tokens_of_both_models_begin_at_the_same_letter(
    compared: Callable[[str], Compared],
) -> None:
    site = compared("apart")
    sides = site.found.sides
    theirs = {each.index: each for each in sides.b.sentence_data.listed}
    pairs = 0
    for one in sides.a.sentence_data.listed:
        if one.index not in theirs:
            continue
        file = site.folder / f"data/sentences/{one.number:04d}-paths.js"
        places = data_file(file)[1]["self-places"]
        texts = [next(iter(each.texts.values())) for each in (one, theirs[one.index])]
        for place, other in enumerate(places):
            if other is not None:
                assert texts[0].spans[place][0] == texts[1].spans[other][0]
                pairs += 1
    assert pairs > 5


def test_pages_are_small(compared: Callable[[str], Compared]) -> None:
    def size(file: Path) -> int:
        return file.stat().st_size

    for kind in ("tuned", "apart"):
        folder = compared(kind).folder
        assert max(map(size, folder.glob("heads/*.html"))) <= 60_000
        assert max(map(size, folder.glob("sentences/*.html"))) <= 60_000
