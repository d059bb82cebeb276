"""Two files of parallel lines are pairs, the first the source."""

import gzip
from pathlib import Path

import pytest

from headbook.config import Config
from headbook.errors import InputError
from headbook.inputs import InputLayout, input_sources, open_corpus
from headbook.inputs.parallel import with_pairs
from headbook.run.arguments import check_arguments


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_files_of_one_stem_are_pairs() -> None:
    Path("a.en").write_text("one\n\ntwo\nthree\n")
    Path("a.de").write_text("eins\nnichts\nzwei\n \n")
    for inputs in (["a.en", "a.de"], [Path("a.en"), Path("a.de")]):
        check_arguments([*map(str, inputs)], Config())
        with open_corpus(input_sources(inputs, InputLayout())) as corpus:
            assert [(s.text, s.target, s.origin) for s in corpus] == [
                ("one", "eins", "a.en + a.de:1"),
                ("two", "zwei", "a.en + a.de:3"),
                ("three", None, "a.en + a.de:4"),
            ]
            [file] = corpus.files
            assert (file.name, file.sentences, file.blank) == ("a.en + a.de", 3, 1)
            assert len(file.sha256) == 64
    with open_corpus(["a.de", "a.en"]) as corpus:
        assert corpus.files[0].name == "a.de + a.en"


def test_pairs_stand_among_other_inputs_and_may_be_compressed() -> None:
    for name in ("wmt.de-en.eng_Latn.gz", "wmt.de-en.deu_Latn.gz"):
        Path(name).write_bytes(gzip.compress(f"{name[10:13]}\n".encode()))
    Path("a.txt").write_text("alone\n")
    names = ["a.txt", "wmt.de-en.eng_Latn.gz", "wmt.de-en.deu_Latn.gz", "a.txt"]
    with open_corpus(names) as corpus:
        assert [(s.text, s.target) for s in corpus] == [
            ("alone", None), ("eng", "deu"), ("alone", None),
        ]  # fmt: skip


def test_other_files_are_no_pairs() -> None:
    for name in ("a.en", "b.de", "a.txt", "a.tsv", "a.en1"):
        Path(name).write_text("text\n")
    for names in (
        ["a.en", "b.de"], ["a.en", "a.en"], ["a.txt", "a.tsv"], ["a.en", "a.fr"], ["a.en", "a.en1"],
    ):  # fmt: skip
        assert [*with_pairs(names)] == names
    with pytest.raises(InputError, match=r"a\.en: a file of kind '\.en'; .*such as a\.en a\.de$"):
        open_corpus(["a.en", "b.de"])


@pytest.mark.parametrize(("lines", "shorter", "longer"), [(2, "a.en", "a.de"), (4, "a.de", "a.en")])
def test_unequal_lengths_are_one_line(lines: int, shorter: str, longer: str) -> None:
    Path("a.en").write_text("x\n" * lines)
    Path("a.de").write_text("x\n" * 3)
    number = min(lines, 3) + 1
    with pytest.raises(
        InputError, match=f"^{shorter}:{number}: no line beside line .* of {longer};"
    ):
        open_corpus(["a.en", "a.de"])
