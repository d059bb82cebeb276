"""The command line run inside the process of a test, and what it prints."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from headbook.cli import main as cli
from sites import EPOCH

FEW = (
    "--metrics=attention_distance,cosine_to_input,nearest_tokens",
    "--annotator=none", "--exemplars=1", "--sentence-pages=1", "--title=T", "--importance=off",
)  # fmt: skip


class Output(NamedTuple):
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str


Run = Callable[..., Output]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a command in this process."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)

    def once(*arguments: object) -> Output:
        monkeypatch.setattr(sys, "argv", ["headbook", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Output(code, out, err)

    with warnings.catch_warnings():
        yield once
    logging.disable(logging.NOTSET)
