"""The live sentence of the overview: its choice, its word, and means by plain loops over heads."""

from dataclasses import replace

import numpy as np
import pytest

from headbook.report.answers.overview import live_sentence
from headbook.report.answers.overview.live_sentence import (
    MAX_TOKENS,
    LiveSentence,
    claim_word,
    first_word,
    is_right_to_left,
    live_sentences,
    mean_map,
)
from headbook.report.facts.functions import FunctionFamily, HeadFunction, functions_of
from headbook.report.results import StackResults, stack_results
from headbook.results.sentence import NOTHING
from headbook.schema import HeadName, Side, heads_of
from headbook.study.sentence_data import SentenceData, StoredSentence, StoredText
from headbook.study.study import Study
from sites import Site


def lives_of(study: Study) -> dict[str, LiveSentence]:
    return {live.stack: live for live in live_sentences(stack_results(study))}


def all_even(results: StackResults) -> dict[HeadName, HeadFunction]:
    return {
        head: HeadFunction(head, "even", "even", NOTHING, FunctionFamily.EVEN)
        for head in heads_of(results.stack)
    }


def text_of(pieces: str, *, tags: str = "", words: tuple[int, ...] = ()) -> StoredText:
    tokens = tuple(pieces.split())
    special = tuple(token.startswith("[") for token in tokens)
    return StoredText(
        text=pieces,
        pieces=tokens,
        spans=((0, 0),) * len(tokens),
        special=special,
        words=words or tuple(-1 if s else n for n, s in enumerate(special)),
        tags=tuple(tags.split()) or ("",) * len(tokens),
        lost=0,
        generated=False,
    )


def with_texts(study: Study, texts: list[StoredText]) -> Study:
    """A study whose sentences have these texts and maps of as many tokens."""
    (stack,) = study.manifest.stacks
    sentences = {
        n: StoredSentence(n, "", {}, {Side.SOURCE: text}, listed=True)
        for n, text in enumerate(texts)
    }
    shape = stack.n_layers, stack.n_heads
    drawn = np.random.default_rng(0)
    maps = {
        (stack.name, n): drawn.integers(0, 255, (*shape, len(t.pieces), len(t.pieces))).astype(
            np.uint8
        )
        for n, t in enumerate(texts)
    }
    return replace(study, sentence_data=SentenceData(sentences, maps))


def test_means_and_strongest_heads_are_those_of_plain_loops(any_site: Site) -> None:
    study = any_site.study
    results = stack_results(study)
    for stack, live in lives_of(study).items():
        maps = study.sentence_data.maps[stack, live.number - 1] / 255
        functions = functions_of(results[stack])
        assert sum(each.heads for each in live.families) == len(functions)
        for each in live.families:
            places = [
                (head.layer, head.head)
                for head, function in functions.items()
                if function.family is each.family
            ]
            assert each.heads == len(places)
            for q, k in np.ndindex(*live.sizes):
                weights = [float(maps[place][q, k]) for place in places]
                assert each.mean[q, k] == pytest.approx(np.mean(weights))
                assert each.weight[q, k] == pytest.approx(max(weights))
                head = live.heads[each.strongest[q, k]]
                assert maps[head.layer, head.head][q, k] == pytest.approx(max(weights))


def test_each_stack_has_its_side_of_one_sentence(
    pair_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_sentence, "families_of", lambda _: {FunctionFamily.EVEN: "even"})
    monkeypatch.setattr(live_sentence, "functions_of", all_even)
    lives = lives_of(pair_site.study)
    for live in lives.values():
        texts = pair_site.study.sentence_data.sentences[live.number - 1].texts
        assert live.crosses == (live.stack == "cross")
        sides = {"encoder": (Side.SOURCE,) * 2, "decoder": (Side.TARGET,) * 2}
        queries, keys = sides.get(live.stack, (Side.TARGET, Side.SOURCE))
        assert (live.queries, live.keys) == (texts[queries], texts[keys])
    assert len({live.number for live in lives.values()}) == 1


def test_the_strongest_head_attends_from_another_word(any_site: Site) -> None:
    for live in lives_of(any_site.study).values():
        if live.strongest is None:
            continue
        _, query, weight = live.strongest
        assert not live.queries.special[query]
        assert live.crosses or query != live.word
        assert weight == pytest.approx(max(
            each.weight[q, live.word] for each in live.families for q in range(live.sizes[0])
            if not live.queries.special[q] and (live.crosses or q != live.word)
        ))  # fmt: skip


def test_sentences_without_split_words_come_first_and_long_ones_are_cut(
    encoder_site: Site,
) -> None:
    split = text_of("[CLS] a b c [SEP]", words=(-1, 0, 0, 1, -1))
    whole = text_of("[CLS] d e f [SEP]")
    long = text_of(" ".join("[CLS]" if not n else f"w{n}" for n in range(MAX_TOKENS + 5)))
    longer = text_of(" ".join(f"w{n}" for n in range(MAX_TOKENS + 9)))
    study = encoder_site.study
    (live,) = live_sentences(stack_results(with_texts(study, [long, split, whole, whole])))
    assert (live.number, live.cut) == (3, False)
    (live,) = live_sentences(stack_results(with_texts(study, [longer, long])))
    assert (live.number, live.sizes, live.cut) == (2, (MAX_TOKENS, MAX_TOKENS), True)
    assert live.families[0].mean.shape == live.sizes


def test_a_text_of_one_token_has_no_strongest_head(encoder_site: Site) -> None:
    (live,) = live_sentences(stack_results(with_texts(encoder_site.study, [text_of("hm")])))
    assert live.strongest is None
    assert live.word == 0


def test_without_stored_maps_or_families_there_is_none(
    encoder_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = encoder_site.study
    assert live_sentences(stack_results(replace(study, sentence_data=SentenceData()))) == ()
    monkeypatch.setattr(live_sentence, "families_of", lambda _: {})
    assert live_sentences(stack_results(study)) == ()


def test_the_word_is_the_content_word_that_receives_most() -> None:
    received = np.array([9.0, 1.0, 3.0, 2.0, 8.0])
    tagged = text_of("[CLS] cat the sat .", tags="- NOUN DET VERB PUNCT")
    assert first_word(tagged, received) == 3
    assert first_word(text_of("[CLS] cat the sat ."), received) == 2
    assert first_word(text_of("[CLS] [SEP]"), received[:2]) == 0
    assert first_word(text_of("[CLS] . !"), received[:3]) == 2


def test_a_claim_on_the_sink_shows_a_special_token(encoder_site: Site) -> None:
    study = with_texts(encoder_site.study, [text_of("[CLS] the cat [SEP]", tags="- DET NOUN -")])
    (results,) = stack_results(study).values()
    (live,) = live_sentences({"self": results})
    maps = mean_map(results, live, [(0, 0), (1, 1)])
    stored = study.sentence_data.maps["self", 0].astype(float)
    np.testing.assert_allclose(maps, (stored[0, 0] + stored[1, 1]) / 2 / 255)
    assert claim_word(live, maps, special=False) == 2
    assert live.keys.special[claim_word(live, maps, special=True)]


@pytest.mark.parametrize(
    ("text", "rtl"), [("אבג", True), ("123 مرحبا", True), ("a אבג", False), ("12", False)]
)
def test_texts_run_in_the_direction_of_their_first_letter(text: str, rtl: bool) -> None:
    assert is_right_to_left(text) == rtl
