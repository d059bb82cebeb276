"""The documents of the project, and what stands in their code blocks."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ELSEWHERE = re.compile(r"(?:^|/)(?:\..*|node_modules|dist|build|site)/")  # others' documents
DOCUMENTS = sorted(
    file for file in ROOT.rglob("*.md") if not ELSEWHERE.search(file.relative_to(ROOT).as_posix())
)
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name(file: Path) -> str:
    """Return a document's address in the project."""
    return file.relative_to(ROOT).as_posix()


def read(file: Path) -> str:
    """Return a document's text."""
    return file.read_text(encoding="utf-8")


def prose(text: str) -> str:
    """Return a document without its code blocks."""
    return BLOCK.sub("", text)


def blocks(text: str, *languages: str) -> list[tuple[str, str]]:
    """Code blocks in order, each with its language; all, or those in some languages."""
    found = BLOCK.findall(text)
    return [each for each in found if not languages or each[0] in languages]


def commands(code: str) -> Iterator[str]:
    """Yield the commands of a block in ``sh``, each on one line, without comments."""
    for line in code.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s)#.*", "", line).strip()
        if command:
            yield re.sub(r"\s+", " ", command)


def all_commands() -> list[str]:
    """Every command of every document, once."""
    found = (
        c for file in DOCUMENTS for _, code in blocks(read(file), "sh") for c in commands(code)
    )
    return [*dict.fromkeys(found)]
