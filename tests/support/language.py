"""Check the language of sources: names, docstrings, and what scripts of pages say.

Usage: python tests/support/language.py

Prints each place with what is wrong there, and ends with 1 if there are any. `retired_words` holds
what pages no longer say; built pages are checked by tests.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pygments.lexers import JavascriptLexer
from pygments.token import Name, String
from wordfreq import zipf_frequency

from retired_words import retired_in

ROOT = Path(__file__).parents[2]
SOURCE, TEMPLATES = ROOT / "src" / "headbook", ROOT / "templates"
PYTHON = [SOURCE, ROOT / "tests", ROOT / "benchmarks", ROOT / "docs"]
HERE = "tests/support/language.py"

# Words that are no part of identifiers, with what took their place.
RETIRED = {
    "survey": "corpus_sums", "surveyor": "CorpusPass", "portrait": "sentence_data",
    "portraits": "sentence_data_parts", "portrayer": "SentencePass", "anatomy": "architecture",
    "handed": "mapped", "told": "what it is", "said": "what it is", "triptych": "exemplar_maps",
    "story": "claim", "stories": "claims", "ways": "directions", "way": "direction",
    "shown": "what it is", "answers": "what they are",
}  # fmt: skip
# The same in Python alone.
IN_PYTHON = RETIRED | {
    "twin": "baseline", "twins": "baselines", "judge": "target functions", "judges": "targets",
    "judged": "verdict", "removal": "ablation", "removals": "ablation", "aside": "not_measured",
    "room": "memory",
}  # fmt: skip
# Whole identifiers.
WHOLE = {
    "Control": "Baseline", "LayerView": "LayerAttention", "TokenView": "TokenStates",
    "FlowView": "LayerFlow", "Scores": "QueriesAndKeys", "Press": "PageWriter",
    "ShownText": "StoredText",
}  # fmt: skip
# Columns of tables and options of the command line, which users have.
KEPT = {"way", "answers"}  # answers: of pages to their questions

PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Parts of identifiers below this frequency in English (Zipf) are misspelt, or known here.
RARE, SHORT = 1.5, 4
KNOWN = frozenset(
    """
    ablate ablated ablations ablator annotates annotators anonymise argmax atexit attrib attrs
    bibtex bitsandbytes bools bzip centibels checkpointheads choosable clopper coarsened conll
    conllu coreference dataclasses deberta decompressors denoises dequantised dicts docstring
    docstrings drawable dtype dtypes endtag entropies epilog fallbacks getattr getitem gguf gzipped
    halvings headbook headpair hrefs hsic htmls isatty jsonl kwargs layerwise linearised logits
    longrope mallopt mbart metavar metricpair minibatch minibatches mmap multiword ndim negentropy
    networkx newdoc nllb noising normalizer nosink numerators openpyxl optimiser patchable peft
    pissa poolings punct pytest quantiles quantised quantizations randomise recomputed renorm
    renormalised resample resampled resave resumable returncode rgba roundings safetensors
    sentencepair sentencepairs showwarning sitemap softmax sparkline splitmix startendtag starttag
    subword tokenise tokenize tokenizer tokenizers toml torchao traceback treebank uint unablated
    unblended uncited uncompared unembedding ungrouped unheld unjoinable unpadded unparsed
    unpointed unrepresentable unskipped unspaced unstored untraced unwritable upos webp windowdiff
    wordfreq xlsx xref zipf zstd
""".split()  # noqa: SIM905 - a list would fill a page
)

# Docstrings that begin so refer to another one, or describe a thing by a question.
LEANING = re.compile(
    r"(What|Whether|Which|Where|How|Why|The same|It|Its|They|Those|That|Them|Such|All of them"
    r"|None|Of|By|As|So|This one|One of them)\b"
)
TEXTS = {String.Double, String.Single, String.Backtick}  # of scripts
SELECTOR = re.compile(r"[.#\[]|[\w-]+\[")  # how selectors begin

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Problem(NamedTuple):
    """A place in the sources, and what is wrong there."""

    place: str
    text: str


def is_retired(name: str, words: dict[str, str] = RETIRED) -> bool:
    """Return whether a name is one of those that mislead, or has one as a part."""
    parts = {part.lower() for part in PARTS.findall(name)}
    return name in WHOLE or (bool(parts & words.keys()) and name not in KEPT)


def names_of(code: str) -> Iterator[str]:
    """Yield the names of Python code, those inside f-strings included."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NAME:
            yield token.string
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr):
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
            yield from (n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute))


def names_of_script(code: str) -> Iterator[str]:
    """Yield names of JavaScript or of its types, without the language's own like ``Number``."""
    tokens = JavascriptLexer().get_tokens(code)
    yield from (text for kind, text in tokens if kind in Name and kind is not Name.Builtin)


def defined_names(code: str) -> Iterator[str]:
    """Yield the names that Python code defines: functions, classes, arguments and variables."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def misspelt(name: str) -> list[str]:
    """Return the parts of a name that are neither English words nor known."""
    parts = (part.lower() for part in PARTS.findall(name))
    return [
        part
        for part in parts
        if len(part) >= SHORT and part not in KNOWN and zipf_frequency(part, "en") < RARE
    ]


def docstrings(code: str) -> Iterator[tuple[str, Documented, str]]:
    """Yield the name, the node and the docstring of a module and of all that it defines."""

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, Documented, str]]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{child.name}"
                if text := ast.get_docstring(child):
                    yield name, child, text
                name += "."
            yield from below(child, name)

    tree = ast.parse(code)
    if text := ast.get_docstring(tree):
        yield "", tree, text
    yield from below(tree, "")


def leans(node: Documented, text: str) -> bool:
    """Return whether a docstring cannot be read alone.

    "Whether" may begin that of truth values.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and text.startswith("Whether "):
        return node.returns is None or "bool" not in ast.unparse(node.returns)
    return LEANING.match(text) is not None


def texts_of_script(code: str) -> Iterator[str]:
    """Yield texts in quotation marks, those with gaps piece by piece, without selectors."""
    tokens = JavascriptLexer().get_tokens(code)
    for kind, group in groupby(tokens, key=lambda token: token[0]):
        text = "".join(value for _, value in group).strip("\"'`")
        if kind in TEXTS and text and not SELECTOR.match(text):
            yield text


def files_below(*folders: Path, endings: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the address and the text of each file with one of some endings."""
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.suffix in endings and file.is_file():
                yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def python_names() -> Iterator[Problem]:
    """Yield retired names in Python, but for those of tests, which are sentences."""
    for place, code in files_below(*PYTHON, endings=(".py",)):
        names = {name for name in names_of(code) if not name.startswith("test_")}
        for name in sorted(names) if place != HERE else ():
            if is_retired(name, IN_PYTHON):
                yield Problem(place, f"retired name {name}")


def spelling() -> Iterator[Problem]:
    """Yield names of the package and of benchmarks that are misspelt."""
    for place, code in files_below(SOURCE, ROOT / "benchmarks", endings=(".py",)):
        for name in sorted({*defined_names(code)}):
            for part in misspelt(name):
                yield Problem(place, f"misspelt or unknown word {part!r} in {name}")


def script_names() -> Iterator[Problem]:
    """Yield retired names and retired words of scripts."""
    for place, code in files_below(TEMPLATES, endings=(".js", ".ts")):
        for name in sorted({*names_of_script(code)}):
            if is_retired(name):
                yield Problem(place, f"retired name {name}")
        # What appears only after a click or under the pointer; a lone word is a name of code.
        for text in texts_of_script(code):
            if " " in text.strip() and place.endswith(".js"):
                yield from (Problem(place, f"retired word {word}") for word in retired_in(text))


def template_names() -> Iterator[Problem]:
    """Yield retired variables and classes of templates and style sheets."""
    for place, text in files_below(TEMPLATES, endings=(".html",)):
        code = " ".join(re.findall(r"{[{%](.*?)[%}]}", text, re.DOTALL))
        code = re.sub(r"\"[^\"]*\"|'[^']*'", "", code)
        classes = " ".join(re.findall(r'class="([^"]*)"', text))
        for name in sorted({*re.findall(r"[A-Za-z_]\w*", f"{code} {classes}")}):
            if is_retired(name):
                yield Problem(place, f"retired name {name}")
    for place, text in files_below(TEMPLATES, endings=(".css",)):
        for name in sorted({*re.findall(r"\.([a-z][\w-]*)", text)}):
            if is_retired(name):
                yield Problem(place, f"retired class {name}")


def file_names() -> Iterator[Problem]:
    """Yield files with retired names."""
    for folder in (SOURCE, ROOT / "tests", TEMPLATES):
        for file in sorted(folder.rglob("*.*")):
            if is_retired(file.stem) and "__pycache__" not in file.parts:
                yield Problem(file.relative_to(ROOT).as_posix(), "retired name")


def class_names() -> Iterator[Problem]:
    """Yield classes of one name in several modules: who searches for a class finds one."""
    places: dict[str, list[str]] = {}
    for place, code in files_below(SOURCE, endings=(".py",)):
        for node in ast.parse(code).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(place)
    for name, files in places.items():
        if len(files) > 1:
            yield Problem(files[0], f"class {name} is in {', '.join(files[1:])}, too")


def docstring_beginnings() -> Iterator[Problem]:
    """Yield docstrings that lean on others."""
    for place, code in files_below(SOURCE, endings=(".py",)):
        for name, node, text in docstrings(code):
            # Pages print the docstring of a metric's module below the metric's name.
            is_metric = "/metrics/" in place and isinstance(node, ast.Module)
            if leans(node, text) and not is_metric:
                yield Problem(place, f"docstring of {name or 'module'}: {text.splitlines()[0]}")


CHECKS: tuple[Callable[[], Iterator[Problem]], ...] = (
    python_names, spelling, script_names, template_names, file_names, class_names,
    docstring_beginnings,
)  # fmt: skip


def main() -> None:
    """Print every problem."""
    problems = [problem for check in CHECKS for problem in check()]
    for problem in problems:
        print(f"{problem.place}: {problem.text}")  # noqa: T201
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
