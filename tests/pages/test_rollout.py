"""What sentence pages say of last states, by attention rollout."""

from typing import Any

import numpy as np

from browser_views import ink_steps
from headbook.charts.theme import rgba_ramp
from headbook.pages.parts.rollout import COLOURS, MOST_TOKENS, sources
from headbook.study.sentence_data import StoredText
from html_pages import data_file, elements, html_of
from html_pages import text as text_of_cell
from sites import Site


def text(*pieces: str, special: tuple[int, ...] = ()) -> StoredText:
    """A text of such tokens."""
    n = len(pieces)
    flags = tuple(i in special for i in range(n))
    return StoredText("", pieces, ((0, 0),) * n, flags, (-1,) * n, ("",) * n, 0, generated=False)


def steps(*rows: list[int]) -> Any:
    return np.array(rows, dtype=np.uint8)


def test_last_states_in_words() -> None:
    found = sources(
        {"half": steps([255, 0, 0], [128, 76, 51], [0, 25, 230])},
        text("[CLS]", "cat", "cat", special=(0,)),
    )
    assert found is not None
    assert found.mixture.sentences == (
        "Lowest share of own input: “cat” (token 1), 30\u202f% (50\u202f% “[CLS]”, 20\u202f% “cat” "
        "(token 2)).",
        "Highest share of own input: “cat” (token 2), 90\u202f% (10\u202f% “cat” (token 1)).",
    )
    assert [row.name for row in found.table.rows] == ["0 [CLS]", "1 cat", "2 cat"]
    assert [*map(text_of_cell, found.table.rows[0].cells)] == ["100\u202f%", ""]


def test_measured_ratios_are_drawn_and_run_to_their_largest_share() -> None:
    half, measured = steps([51, 0], [102, 51]), steps([204, 51], [0, 255])
    for shares, drawn, title, most in (
        ({"half": half, "measured": measured}, measured, "measured context-mixing ratios", 255),
        ({"half": half}, half, "one half in each layer", 102),
    ):
        found = sources(shares, text("a", "b"))
        assert found is not None
        assert found.mixture.title == title
        inks = ink_steps(found.mixture.image, rgba_ramp(COLOURS))
        np.testing.assert_array_equal(inks, np.rint(drawn / most * (COLOURS - 1)))
        assert f"{round(100 * most / 255)}\u202f%, the largest share here" in found.mixture.note


def test_long_sentences_show_their_first_tokens() -> None:
    n = MOST_TOKENS + 5
    found = sources({"half": np.eye(n, dtype=np.uint8) * 255}, text(*"x" * n))
    assert found is not None
    assert (len(found.table.rows), found.cut) == (MOST_TOKENS, 5)
    assert len(found.mixture.rows) == MOST_TOKENS


def test_a_sentence_of_special_tokens_says_nothing_in_words() -> None:
    found = sources({"half": steps([255])}, text("</s>", special=(0,)))
    assert found is not None
    assert found.mixture.sentences == ()


def test_nothing_measured_nothing_shown() -> None:
    assert sources({}, text("a")) is None


def test_sentence_pages_show_a_rollout_and_norms(encoder_site: Site) -> None:
    sentence = html_of(encoder_site.folder / "sentences" / "0001.html")
    pictures = [e for e in elements(sentence, "image") if e.attributes["href"].startswith("data:")]
    assert len(pictures) == 1
    assert any("data-carried" in e.attributes for e in elements(sentence, "p"))
    _, data = data_file(encoder_site.folder / "data" / "sentences" / "0001.js")
    assert "norms" in data["self"]
    shares = html_of(encoder_site.folder / "metrics" / "output_norm_share.html")
    tables = [each.attributes["class"].split() for each in elements(shares, "table")]
    assert all("all-heads" in each for each in tables)  # a layer's heads together say nothing
