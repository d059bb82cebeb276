"""Small files that people have are read as the table in their folder says, or refused in one line.

What models make of them is tested beside the code that does it.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from headbook.errors import InputError
from headbook.inputs import InputLayout, open_corpus
from headbook.inputs.records import Remark
from headbook.study.groups import find_facets

FOLDER = Path(__file__).parent / "files"
TABLE = FOLDER / "README.md"


@dataclass(frozen=True)
class Read:
    """What is read from a file.

    Attributes:
        texts: texts, each a text or a source with its target.
        metadata: metadata of each sentence.
        ids: id of each sentence.
        blank: number of blank lines and rows.
        remarks: counts of what was done beyond reading.
        words: words of each sentence that came with the file; None if it has none.
    """

    texts: list[str | tuple[str, str]]
    metadata: list[dict[str, str]] | None = None
    ids: list[str] | None = None
    blank: int = 0
    remarks: dict[Remark, int] | None = None
    words: list[list[str]] | None = None


@dataclass(frozen=True)
class Refused:
    """The beginning of the line with which a file is refused, and a word of the rest."""

    beginning: str
    word: str


def lines(name: str) -> Read:
    """All lines of a file of text as they are."""
    return Read([*filter(None, (FOLDER / name).read_text(encoding="utf-8").splitlines())])


def chat(name: str) -> Read:
    """The texts of a file of objects, white space at their ends aside."""
    rows = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return Read([json.loads(row)["text"] for row in rows])


DOG, SENTENCES = ["A", "dog"], ["Forest fire near the ridge", "All residents asked to stay"]
CLASSED = ["The cat sees a bird", "The dog sleeps", "A red house", "Old fisherman runs"]
FILES: dict[str, Read | Refused] = {
    "target-label.csv": Read(
        [SENTENCES[0], f"{SENTENCES[1]} inside"],
        [
            {"keyword": "", "location": "Ohio", "target": "1"},
            {"keyword": "flood", "location": "", "target": "0"},
        ],
        ["0", "4"],
    ),
    "target-label.jsonl": Read([*SENTENCES], [{"target": "1"}, {"target": "0"}], ["0", "1"]),
    "quotes-two-rows.tsv": Read(
        ['"Yes', 'No"', "Third one here"], [{"label": "1"}, {"label": "0"}, {"label": "1"}]
    ),
    "quotes-leading.tsv": Read(['"Bonjour" dit-il', "La fin"], [{"label": "0"}, {"label": "1"}]),
    "translators.tsv": Read(
        [
            ("life is like a box", "la vie est comme une boite"),
            ("the cat sees a bird", "le chat voit un oiseau"),
        ],
        [{}, {}],
    ),
    "pairs-encoder.csv": Read(
        [f"The cat sees a bird\nA {animal} runs" for animal in ("dog", "bird", "cat", "fisher")],
        [{"label": f"LABEL_{number}"} for number in (0, 1, 2, 0)],
    ),
    "chat-pasted.jsonl": chat("chat-pasted.jsonl"),
    "chat-llama3.jsonl": chat("chat-llama3.jsonl"),
    "chat-messages.jsonl": Refused("chat-messages.jsonl:1: column 'messages'", "chats"),
    "labels-float.jsonl": Read([*CLASSED], [{"label": label} for label in ("1.0", "0.0") * 2]),
    "labels-float-missing.csv": Read(
        [*CLASSED], [{"label": label} for label in ("1.0", "0.0", "", "1.0")]
    ),
    "words-as-list.jsonl": Read(
        ["EU rejects German call"],
        [{"ner_tags": "[3, 0, 7, 0]"}],
        words=[["EU", "rejects", "German", "call"]],
    ),
    "translation.jsonl": Read([("A dog", "Un chien")], [{}]),
    "objects.json": Read(["A dog runs", "A cat"], [{"label": "1"}, {"label": "0"}]),
    "form-accent.conllu": Read(["A entrée"], words=[["A", "entrée"]]),
    "form-nfd.conllu": Read(["A café"], words=[["A", "café"]]),
    "one-bad-sentence.conllu": Read(
        ["A dog", "A entrée", "A dog"], words=[DOG, ["A", "entrée"], DOG]
    ),
    "hidden-words.conllu": Refused("hidden-words.conllu:1: a treebank whose words", "licence"),
    "eleven-columns.conllu": Read(["A dog"], words=[DOG]),
    "comments-only.conllu": Read(["A dog"], remarks={Remark.COMMENTS: 1}, words=[DOG]),
    "german.txt": lines("german.txt"),
    "thai.txt": lines("thai.txt"),
    "glyphs.txt": lines("glyphs.txt"),
    "dynamic-positions.txt": lines("dynamic-positions.txt"),
    "utf16-no-bom.txt": Read(["Good day", "The dog"]),
    "empty-columns.csv": Read(["Good day", "The dog"], [{"label": "1"}, {"label": "0"}]),
    "semicolons.csv": Read(["Good day", "The dog"], [{"label": "1"}, {"label": "0"}]),
    "blank-rows.csv": Read(["Good day", "The dog"], [{"label": "1"}, {"label": "0"}], blank=3),
    "proteins.txt": lines("proteins.txt"),
}


def named_files() -> list[str]:
    """Names of files in the first column of the table."""
    rows = TABLE.read_text(encoding="utf-8").splitlines()
    cells = [row.split("|")[1] for row in rows if re.match(r"\| *[\w-]+\.", row)]
    return [name.strip() for cell in cells for name in cell.split(",")]


def test_every_file_of_the_folder_is_in_the_table_and_checked() -> None:
    present = sorted(file.name for file in FOLDER.iterdir() if file != TABLE)
    assert sorted(named_files()) == present
    assert sorted(FILES) == present


@pytest.mark.filterwarnings("ignore::headbook.errors.HeadbookWarning")
@pytest.mark.parametrize("name", named_files())
def test_a_file_is_read_as_the_table_says(name: str) -> None:
    right = FILES[name]
    if isinstance(right, Refused):
        with pytest.raises(InputError) as error:
            open_corpus([FOLDER / name])
        message = str(error.value)
        assert message.startswith(right.beginning)
        assert right.word in message
        assert "\n" not in message
        return
    with open_corpus([FOLDER / name]) as corpus:
        sentences, [file] = [*corpus], corpus.files
    pairs = [(s.text, s.target) if s.target else s.text for s in sentences]
    assert pairs == right.texts
    assert not any("\0" in sentence.text for sentence in sentences)
    if right.metadata is not None:
        assert [s.metadata for s in sentences] == right.metadata
    if right.ids is not None:
        assert [s.id for s in sentences] == right.ids
    assert (file.blank, file.remarks) == (right.blank, right.remarks or {})
    spelled = [s.words and [s.text[w.start : w.end] for w in s.words] for s in sentences]
    assert [words for words in spelled if words is not None] == (right.words or [])


@pytest.mark.parametrize("name", ["target-label.csv", "target-label.jsonl"])
def test_a_target_that_is_a_label_groups_sentences(name: str) -> None:
    with open_corpus([FOLDER / name]) as corpus:
        assert not corpus.pairs
        assert find_facets([*corpus] * 2, "target").columns == ("target",)
        assert find_facets([*corpus] * 2, "Target").columns == ("target",)


def test_one_text_of_a_pair_may_be_chosen() -> None:
    layout = InputLayout(text_column="text_b")
    with open_corpus([FOLDER / "pairs-encoder.csv"], layout=layout) as corpus:
        assert [s.text for s in corpus][:2] == ["A dog runs", "A bird runs"]
        assert {*next(iter(corpus)).metadata} == {"text", "label"}
