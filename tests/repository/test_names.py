"""Names in code are those of the field: none that a reader of the literature would misread."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pygments.lexers import JavascriptLexer
from pygments.token import Name

import headbook
from headbook.resources import folder

SOURCE = Path(headbook.__file__).parent
TEMPLATES = folder("templates")
HERE = Path(__file__).parents[1]
# Whole words of identifiers, with what took their place.
RETIRED = {
    "survey": "corpus_sums", "surveyor": "CorpusPass", "portrait": "sentence_data",
    "portraits": "sentence_data_parts", "portrayer": "SentencePass", "anatomy": "architecture",
    "handed": "mapped", "told": "what it is", "said": "what it is", "triptych": "exemplar_maps",
    "story": "claim", "stories": "claims", "ways": "directions", "way": "direction",
    "shown": "what it is", "answers": "what they are",
}  # fmt: skip
IN_PYTHON = RETIRED | {
    "twin": "baseline", "twins": "baselines", "judge": "target functions", "judges": "targets",
    "judged": "verdict", "removal": "ablation", "removals": "ablation", "aside": "not_measured",
    "room": "memory",
}  # fmt: skip
WHOLE = {
    "Control": "Baseline", "LayerView": "LayerAttention", "TokenView": "TokenStates",
    "FlowView": "LayerFlow", "Scores": "QueriesAndKeys", "Press": "PageWriter",
    "Number": "Estimate", "Numbers": "Estimates", "ShownText": "StoredText",
}  # fmt: skip
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Columns of tables and options of the command line, which users have.
KEPT = {"way", "answers"}  # answers: of pages to their questions


def retired(name: str, words: Mapping[str, str] = RETIRED) -> bool:
    """Whether a name is one of those that mislead, or has one as a part."""
    parts = {part.lower() for part in PARTS.findall(name)}
    return name in WHOLE or (bool(parts & words.keys()) and name not in KEPT)


def names_of(code: str) -> Iterator[str]:
    """Names of Python code, those inside f-strings included."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NAME:
            yield token.string
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr):
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
            yield from (n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute))


ROOTS = [SOURCE, HERE, HERE.parent / "benchmarks", HERE.parent / "docs"]


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_python_has_no_retired_name(root: Path) -> None:
    wrong = {}
    for file in sorted(root.rglob("*.py")):
        names = {n for n in names_of(file.read_text(encoding="utf-8")) if retired(n, IN_PYTHON)}
        names = {n for n in names if not n.startswith("test_")}  # sentences
        if names and file.name != Path(__file__).name:
            wrong[file.relative_to(root).as_posix()] = sorted(names)
    assert not wrong


def test_scripts_have_no_retired_name() -> None:
    wrong = {}
    for file in sorted([*TEMPLATES.rglob("*.js"), *TEMPLATES.rglob("*.ts")]):
        if names := {
            n for n in names_of_script(file.read_text(encoding="utf-8")) if retired(n, RETIRED)
        }:
            wrong[file.name] = sorted(names)
    assert not wrong


def names_of_script(code: str) -> Iterator[str]:
    """Names of JavaScript or of its types, without the language's own, such as ``Number``."""
    tokens = JavascriptLexer().get_tokens(code)
    yield from (text for kind, text in tokens if kind in Name and kind is not Name.Builtin)


def test_templates_have_no_retired_variable_and_no_retired_class() -> None:
    wrong = {}
    for file in sorted(TEMPLATES.rglob("*.html")):
        text = file.read_text(encoding="utf-8")
        code = " ".join(re.findall(r"{[{%](.*?)[%}]}", text, re.DOTALL))
        code = re.sub(r"\"[^\"]*\"|'[^']*'", "", code)
        classes = " ".join(re.findall(r'class="([^"]*)"', text))
        if names := {n for n in re.findall(r"[A-Za-z_]\w*", f"{code} {classes}") if retired(n)}:
            wrong[file.name] = sorted(names)
    styles = sorted((TEMPLATES / "assets").glob("*.css"))
    style = "".join(file.read_text(encoding="utf-8") for file in styles)
    names = {n for n in re.findall(r"\.([a-z][\w-]*)", style) if retired(n)}
    assert not wrong
    assert not names


def test_no_file_has_a_retired_name() -> None:
    files = [*SOURCE.rglob("*.py"), *HERE.rglob("*.*"), *TEMPLATES.rglob("*.*")]
    assert not sorted(file.name for file in files if retired(file.stem))


@pytest.mark.parametrize("name", ["survey", "_portrait", "ShownText", "told_by", "LayerView"])
def test_a_retired_name_is_seen(name: str) -> None:
    assert retired(name)
    assert name in names_of(f"x = f'{{{name}}}'")
    assert name in names_of_script(f"const x = {name};")


def test_names_of_the_language_are_no_fault() -> None:
    assert [*names_of_script("Number(x) + Numbers")] == ["x", "Numbers"]


def test_no_two_modules_define_a_class_of_one_name() -> None:
    """A reader who searches for a class finds one."""
    places: dict[str, list[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(file.relative_to(SOURCE).as_posix())
    assert not {name: files for name, files in places.items() if len(files) > 1}
