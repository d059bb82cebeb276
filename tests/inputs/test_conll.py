"""CoNLL files of a word and a tag on each line give texts with words and labels."""

import json
from pathlib import Path

import pytest

from headbook.inputs import Word, open_corpus


@pytest.mark.parametrize("mark", ["\t", " ", "  "])
def test_words_are_joined_and_tags_are_labels(tmp_path: Path, mark: str) -> None:
    rows = [
        "-DOCSTART-|O", "", "# id 7 domain=en", "EU|B-ORG", "rejects|O", "#|O", "", "", "a|O",
        "café|B-LOC",
    ]  # fmt: skip
    file = tmp_path / "a.conll"
    file.write_text("\r\n".join(row.replace("|", mark) for row in rows), newline="")
    with open_corpus([file]) as corpus:
        first, second = corpus
    assert (first.text, first.words) == ("EU rejects #", (Word(0, 2), Word(3, 10), Word(11, 12)))
    assert json.loads(first.metadata["labels"]) == ["B-ORG", "O", "O"]
    assert (first.origin, second.origin) == ("a.conll:4", "a.conll:9")
    assert (second.text, second.metadata) == ("a café", {"labels": '["O", "B-LOC"]'})
    assert first.bare_words
