"""What scripts get of a sentence: whole words in their own letters, maps and lengths in order."""

import numpy as np
import pytest

from headbook.pages.parts.sentence_maps import attention_data, text_data
from headbook.schema import AttentionStack, Side
from headbook.study.sentence_data import StoredSentence, StoredText

SPECIAL = ("[CLS]", "[SEP]")


def stored_text(text: str, pieces: list[tuple[str, int]]) -> StoredText:
    """A text in pieces, each with the number of its word, between two special tokens."""
    spans, end = [], 0
    for piece, _ in pieces:
        start = text.index(piece, end)
        end = start + len(piece)
        spans.append((start, end))
    return StoredText(
        text=text,
        pieces=(SPECIAL[0], *(piece for piece, _ in pieces), SPECIAL[1]),
        spans=((0, 0), *spans, (0, 0)),
        special=(True, *(False for _ in pieces), True),
        words=(-1, *(word for _, word in pieces), -1),
        tags=("",) * (len(pieces) + 2),
        lost=0,
        generated=False,
    )


@pytest.mark.parametrize(
    ("text", "pieces", "names", "units"),
    [
        ("re-do  it", [("re", 0), ("-", 0), ("do", 0), ("it", 1)], ["re-do", "it"], [1, 1, 1, 2]),
        ("كتابها جديد", [("كتاب", 0), ("ها", 0), ("جديد", 1)], ["كتابها", "جديد"], [1, 1, 2]),
        ("我喜欢", [("我", 0), ("喜", 1), ("欢", 1)], ["我", "喜欢"], [1, 2, 2]),
        ("a ▁b", [("a", 0), ("▁", -1), ("b", 1)], ["a", "▁", "b"], [1, 2, 3]),
        ("x x", [("x", 0), ("x", 1)], ["x", "x"], [1, 2]),
    ],
)  # fmt: skip
def test_words_have_the_letters_of_the_text(
    text: str, pieces: list[tuple[str, int]], names: list[str], units: list[int]
) -> None:
    """Joined pieces without markers, whatever the script; what has no word stands alone."""
    data = text_data(stored_text(text, pieces))
    assert data["names"] == [SPECIAL[0], *names, SPECIAL[1]]
    assert data["units"] == [0, *units, len(names) + 1]
    assert data["special"] == [1, *(0 for _ in pieces), 1]


def test_maps_are_bytes_in_order_and_lengths_have_four_digits() -> None:
    text = stored_text("ab c", [("a", 0), ("b", 0), ("c", 1)])
    sentence = StoredSentence(0, "", {}, {Side.SOURCE: text}, listed=True)
    stack = AttentionStack("self", 2, (0, 1), 2, 2, 4, False, Side.SOURCE, Side.SOURCE)
    maps = np.arange(2 * 2 * 25, dtype=np.uint8).reshape(2, 2, 5, 5)
    norms = np.linspace(0.123456, 9, 20, dtype=np.float32).reshape(2, 2, 5)
    data = attention_data(stack, sentence, maps, norms)
    assert list(data["weights"]) == list(range(100))
    assert data["norms"] == pytest.approx(norms.ravel(), rel=1e-3)
    assert data["norms"][0] == 0.1235
    assert "queries" not in data
    assert attention_data(stack, sentence, maps, None)["norms"] == []
