"""A very long text is cut before it is tokenized, to the same tokens, and pages say so."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headbook
import tiny
from headbook.inputs import TextRecord
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import CHARACTERS_PER_TOKEN, SentenceTokenizer, shorten_text
from headbook.run.collect import collect
from headbook.schema import Side
from headbook.text.annotate import Annotator

WORDS = (
    "the", "old", "dog", "sees", "a", "small", "red", "bird", "near", "garden", "and", "runs",
    "unhappily", "towards", "water,", "naïve", "東京", "...", "fisherman's",
)  # fmt: skip
FAMILIES = ["bert", "roberta", "gpt2", "llama", "t5", "modernbert"]
SOME: dict[str, Any] = {"metrics": "attention_to", "importance": "off", "language": "none"}


def many(size: int, seed: int, between: str = " ") -> str:
    """A text of about so many characters."""
    return between.join(np.random.default_rng(seed).choice(WORDS, size // 5))


TEXTS = {
    "words": many(100_000, 0),
    "words with spaces and breaks": many(100_000, 1, " \t\u3000  \n"),
    "one word": "a" * 100_000,
    "long words": " ".join("ab" * 400 for _ in range(200)),
    "no spaces": many(100_000, 2, ""),
    "many spaces first": " " * 50_000 + many(50_000, 3),
    "signs": "?! " * 30_000,
    "characters of several numbers": "e\u0301 👩‍👩‍👧 ﬁ " * 10_000,
}


def tokens_of(model: Model, text: str) -> tuple[list[int], list[tuple[int, int]], int]:
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    (item,) = encoder.tokenize([TextRecord(0, "", text, origin="a.txt:1")])
    own = item.tokens[Side.SOURCE]
    return own.ids.tolist(), [(int(a), int(b)) for a, b in own.spans], own.lost


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("family", tiny.by_level(FAMILIES))
def test_tokens_are_those_of_the_whole_text(
    tiny_folder: Callable[[str], Path], family: str, name: str
) -> None:
    model = load_model(str(tiny_folder(family)), device="cpu")
    text = TEXTS[name].strip()
    kept = shorten_text(text, model.tokenizer, model.max_length)
    assert text.startswith(kept)
    whole, cut = tokens_of(model, text), tokens_of(model, kept)
    assert cut[:2] == whole[:2]
    assert (cut[2] > 0) == (whole[2] > 0)
    if name == "words":
        assert len(kept) <= model.max_length * CHARACTERS_PER_TOKEN


@pytest.mark.parametrize("name", TEXTS)
def test_tokens_of_a_trained_tokenizer_are_those_of_the_whole_text(name: str) -> None:
    model = load_model("demo", device="cpu")
    text = TEXTS[name].strip()
    whole = tokens_of(model, text)
    assert tokens_of(model, shorten_text(text, model.tokenizer, model.max_length))[:2] == whole[:2]


def test_what_is_short_stays_whole(tiny_folder: Callable[[str], Path]) -> None:
    model = load_model(str(tiny_folder("bert")), device="cpu")
    text = many(model.max_length * CHARACTERS_PER_TOKEN - 500, 0)[
        : model.max_length * CHARACTERS_PER_TOKEN
    ]
    assert shorten_text(text, model.tokenizer, model.max_length) is text


def test_a_line_of_ten_megabytes_takes_seconds_and_pages_say_so(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """With annotation, which takes no text of more than a million characters."""
    file = tmp_path / "texts.txt"
    long = many(10_000_000, 4).replace("\n", " ")
    file.write_text(f"The dog sees the bird.\n{long}\nThe bird sings.\n", encoding="utf-8")
    start = time.monotonic()
    study = collect(file, model=str(tiny_folder("bert")), **SOME)
    assert time.monotonic() - start < 20
    text = study.sentence_data.sentences[1].texts[Side.SOURCE]
    assert text.lost > 0
    assert text.left_out == len(long.strip()) - len(text.text) > 9_000_000
    assert study.manifest.counts["source.left_out"] == text.left_out
    headbook.render(study, tmp_path / "site")
    page = (tmp_path / "site/sentences/0002.html").read_text(encoding="utf-8")
    assert f"at the end, and {text.left_out:,} characters after them were cut." in page
    overview = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    assert f"and {text.left_out:,} characters after them lost." in overview
