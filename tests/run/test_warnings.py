"""What a run leaves out of its texts is counted: in warnings, in the study and on its pages."""

import warnings
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

import headbook
import tiny
from command_line import FEW as FEW_OPTIONS
from command_line import Run
from headbook.errors import HeadbookWarning
from headbook.study.study import Study, merge

LIMIT = 8
TEXTS = ["the old cat sees a small red bird near the house", "the cat sleeps", "a bird " * 9]
FEW: dict[str, Any] = {
    "annotator": "none", "language": "none", "metrics": "type_shares", "importance": "off",
    "max_length": LIMIT, "sentence_pages": "0", "circuits": "off",
}  # fmt: skip
FILES = Path(__file__).parents[1] / "inputs" / "files"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write("llama", tmp_path_factory.mktemp("warnings") / "model")


def warned(*inputs: Any, **options: Any) -> tuple[Study, list[str]]:
    """A study, and the messages of all warnings while it was collected."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study = headbook.collect(*inputs, **(FEW | options))
    return study, [str(w.message) for w in caught if w.category is HeadbookWarning]


def lost_tokens(model: Path) -> list[int]:
    """Tokens of each text beyond the limit, by the tokenizer alone."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = (tokenizer(text.strip())["input_ids"] for text in TEXTS)
    return [max(0, len(each) - LIMIT) for each in ids]


def test_cut_texts_are_counted(model: Path, tmp_path: Path) -> None:
    lost = lost_tokens(model)
    assert sorted(n > 0 for n in lost) == [False, True, True]
    study, messages = warned(TEXTS, model=str(model))
    (message,) = messages
    expected = f"2 source texts longer than {LIMIT} tokens: cut at the end, {sum(lost)} tokens lost"
    assert message.startswith(expected)
    assert "max_length=" in message
    assert repr(study).splitlines()[-1] == expected
    headbook.render(study, tmp_path / "site")
    assert expected in (tmp_path / "site" / "methods.html").read_text(encoding="utf-8")
    (both,) = (line for line in repr(merge([study, study])).splitlines() if "tokens lost" in line)
    assert both.startswith(f"4 source texts longer than {LIMIT} tokens")
    assert f" {2 * sum(lost)} tokens lost" in both


def test_whole_texts_are_not_mentioned(model: Path) -> None:
    study, messages = warned(TEXTS, model=str(model), max_length=100)
    assert not messages
    assert len(repr(study).splitlines()) == 3


def test_ablation_counts_cut_texts(model: Path) -> None:
    with pytest.warns(HeadbookWarning, match=f"2 source texts longer than {LIMIT} tokens"):
        headbook.ablate(TEXTS, str(model), heads=["L0-H0"], max_length=LIMIT)


def test_remarks_of_readers_are_counted(model: Path, tmp_path: Path) -> None:
    study, messages = warned([FILES / "comments-only.conllu"], model=str(model))
    expected = "comments-only.conllu: blocks of comments skipped: 1"
    assert messages == [expected]
    (facts,) = study.manifest.inputs
    assert [*facts.messages()] == [expected]
    study.save(tmp_path / "study")
    assert Study.load(tmp_path / "study").manifest.inputs == study.manifest.inputs
    headbook.render(study, tmp_path / "site")
    for name in ("index.html", "methods.html"):
        text = (tmp_path / "site" / name).read_text(encoding="utf-8")
        assert "blocks of comments skipped: 1" in text


@pytest.mark.slow
def test_the_terminal_has_a_line_for_each(model: Path, tmp_path: Path, run: Run) -> None:
    texts = tmp_path / "long.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    inputs = texts, FILES / "comments-only.conllu"
    options = "--max-length", LIMIT, "--language", "none", "--circuits", "off"
    folder = tmp_path / "study"
    code, _, err = run(
        "collect", *inputs, "--model", model, "--out", folder, *FEW_OPTIONS, *options
    )
    assert code == 0
    warned_lines = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert [line.split(" longer")[0] for line in warned_lines] == [
        "warning: comments-only.conllu: blocks of comments skipped: 1",
        "warning: 2 source texts",
    ]
