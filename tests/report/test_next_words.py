"""Cases of the next or previous word of a class, as plain loops find them, and their test."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.attention.surface_rules import OFFSETS
from headbook.attention.word_pairs import HAS_OTHERS, SEEN
from headbook.report.next_word_tests import TARGETS, Target, count_target, next_word_tests
from headbook.study.sums.word_samples import StrongestWords
from sites import Site


def cases(words: StrongestWords, target: Target) -> Iterator[tuple[int, int, int]]:
    """Sentence of each case, its place among all words, and the place of its target."""
    tags = words.scheme.tags
    start = 0
    for sentence, length in enumerate(words.lengths.tolist()):
        places = range(length)
        named = [tags[tag] if tag >= 0 else "" for tag in words.tag[start : start + length]]
        asked = words.asked[start : start + length]
        of_class = [n for n in places if named[n] in target.tags and asked[n] & SEEN]
        for place in places:
            found = (
                [n for n in of_class if n > place][:1]
                if target.side == "next"
                else [n for n in of_class if n < place][-1:]
            )
            apart = named[place] in {"", "PUNCT", *target.tags}
            if found and not apart and asked[place] & HAS_OTHERS:
                yield sentence, start + place, found[0]
        start += length


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.phrase)
def test_cases_and_what_heads_and_offsets_find_are_those_of_loops(
    encoder_site: Site, target: Target
) -> None:
    words = encoder_site.study.corpus_sums.heads["self"].strongest_words
    assert words is not None
    found = count_target(words, words.named(), target)
    n_cases, heads = np.zeros(len(words.lengths), int), np.zeros(found.heads.shape, int)
    offsets = np.zeros(found.offsets.shape, int)
    for sentence, word, key in cases(words, target):
        n_cases[sentence] += 1
        heads[sentence] += words.strongest[word] == key
        place = word - int(words.lengths[:sentence].sum())
        offsets[sentence] += [key - place == offset for offset in OFFSETS]
    assert n_cases.any()
    np.testing.assert_array_equal(found.cases, n_cases)
    np.testing.assert_array_equal(found.heads, heads)
    np.testing.assert_array_equal(found.offsets, offsets)


def test_targets_are_chosen_on_one_half_and_reported_on_the_other(encoder_site: Site) -> None:
    results = encoder_site.results["self"]
    words = encoder_site.study.corpus_sums.heads["self"].strongest_words
    assert words is not None
    tests = next_word_tests(results)
    assert len(tests) == 8
    counts = {
        (half, target): count_target(words.of(half), words.of(half).named(), target)
        for half in (SELECTION, HELD_OUT)
        for target in TARGETS
    }
    for place, test in tests.items():
        margins = {}
        for target in TARGETS:
            selection = counts[SELECTION, target]
            if not counts[HELD_OUT, target].cases.any():
                continue  # nothing to report
            at_offset = selection.offsets.sum(0).max()
            margin = selection.heads[:, *place].sum() - at_offset
            margins[target] = margin / selection.cases.sum()
        assert margins[test.target] == max(margins.values())
        held_out = counts[HELD_OUT, test.target]
        share = held_out.heads[:, *place].sum() / held_out.cases.sum()
        assert test.share.value == pytest.approx(share)
        assert test.share.events == held_out.cases.sum()
        offset = held_out.offsets[:, OFFSETS.index(test.offset)].sum() / held_out.cases.sum()
        assert test.at_offset.value == pytest.approx(offset)
        assert test.margin.value == pytest.approx(share - offset)
        assert test.mean.value == pytest.approx(
            held_out.heads.sum() / held_out.cases.sum() / held_out.heads[0].size
        )
        assert 0 < test.p <= 1 or math.isnan(test.p)


def test_without_parts_of_speech_there_is_no_test(decoder_site: Site, pair_site: Site) -> None:
    for results in pair_site.results.values():
        assert next_word_tests(results) == {}
    assert next_word_tests(decoder_site.results["self"]) == {}
