"""Rename classes, constants, functions and members of Headbook by `names.tsv` and `more.tsv`.

Usage: python rename.py CHECKOUT --kind class|constant|function|member [--dry] [--only PREFIX]

A row of `more.tsv` says the new name alone; its module follows from `moves.tsv`. It takes the place
of a row of `names.tsv` with the same old name.

Works before and after the move of files: each row's module is looked for under its old path, where
`moves.tsv` sends the definition, and under the path of the new name. Positions come from `ast`
(exact, those inside f-strings included), meanings from the scopes of `scopes.py` and, for members,
from mypy. What could not be renamed or needs a decision is printed, by row.
"""

import argparse
import ast
import csv
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from check import SPLIT  # noqa: E402
from scopes import FUNCTIONS, Scope, Walker  # noqa: E402

ROOTS = ("src", "tests", "benchmarks", "docs")
SKIP = {"golden/study"}
DOTTED = re.compile(r"\bheadbook(?:\.[A-Za-z_]\w*)+")
CODE = re.compile(r"(?<!`)(`{1,2})([A-Za-z_][\w.]*)((?:\(\))?)\1(?!`)")
LINK = re.compile(r"\[`([A-Za-z_][\w.]*)`\]\(([^)#\s]+\.py)\)")
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def table(file: Path) -> list[dict[str, str]]:
    """Rows of a tab-separated table."""
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


class Moves:
    """Where `moves.tsv` sends each old module and definition, read without a checkout."""

    def __init__(self, file: Path) -> None:
        self.files: dict[str, str] = {}
        self.folders: dict[str, str] = {}
        self.split: dict[tuple[str, str], str] = {}
        for row in table(file) if file.exists() else ():
            old, new, note = row["old"], row["new"], row["note"] or ""
            if old.endswith("/"):
                self.folders[dotted(old)] = dotted(new)
            else:
                self.files[dotted(old)] = dotted(new)
                for names, path in SPLIT.findall(note.partition("split: ")[2]):
                    for name in names.split(","):
                        self.split[dotted(old), name.strip()] = dotted(path)

    def place(self, module: str, name: str) -> str:
        """The dotted module (without headbook) of a definition after the move; may be empty."""
        found = self.split.get((module, name), self.files.get(module))
        if found is None:
            for old, new in self.folders.items():
                if module.startswith(old + "."):
                    return new + module.removeprefix(old)
        return found or ""


def dotted(path: str) -> str:
    """A module's dotted name from its path below src/headbook."""
    return path.removesuffix("/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@dataclass
class File:
    """One Python file."""

    path: Path
    name: str  # dotted, "" for scripts outside the package
    text: str
    tree: ast.Module
    package: bool = False
    scope: Scope = None  # type: ignore[assignment]
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)


class Project:
    """All Python files of a checkout, with what their module-level names stand for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[Path, File] = {}
        self.modules: dict[str, File] = {}
        package = root / "src" / "headbook"
        for top in ROOTS:
            for path in sorted((root / top).rglob("*.py")):
                if ".venv" in path.parts:
                    continue
                text = path.read_text(encoding="utf-8")
                name, is_package = "", path.name == "__init__.py"
                if path.is_relative_to(package):
                    parts = ["headbook", *path.relative_to(package).with_suffix("").parts]
                    name = ".".join(parts[:-1] if is_package else parts)
                elif top != "src":
                    parts = [*path.relative_to(root / top).with_suffix("").parts]
                    name = ".".join(parts[:-1] if is_package else parts)
                file = File(path, name, text, ast.parse(text), is_package)
                file.scope = Walker(file.tree).module
                file.lines = text.encode().split(b"\n")
                for node in file.tree.body:
                    if isinstance(node, ast.ClassDef):
                        file.classes[node.name] = node
                self.files[path] = file
                if name and name not in self.modules:
                    self.modules[name] = file

    def resolve(self, module: str, name: str, seen: int = 0) -> tuple[str, str] | None:
        """The module and name where something imported is defined; an empty name is a module."""
        if not name:
            return (module, "") if module in self.modules else None
        file = self.modules.get(module)
        if file is None or seen > 20:
            return None
        if name in file.scope.defined:
            return module, name
        if name in file.scope.imports:
            return self.resolve(*file.scope.imports[name], seen + 1)
        if f"{module}.{name}" in self.modules:
            return f"{module}.{name}", ""
        return None


class Edits:
    """Replacements by position, applied together."""

    def __init__(self) -> None:
        self.by_file: dict[Path, dict[tuple[int, int], tuple[str, str]]] = defaultdict(dict)

    def add(self, file: File, line: int, column: int, old: str, new: str) -> bool:
        """Replace a name; the column counts bytes. False if the name does not stand there."""
        raw = old.encode()
        if file.lines[line - 1][column : column + len(raw)] != raw:
            return False
        self.by_file[file.path][line, column] = (old, new)
        return True

    def apply(self, files: dict[Path, File], *, dry: bool) -> int:
        """Write all files; returns the number of replacements."""
        total = 0
        for path, edits in self.by_file.items():
            if path in files:
                lines = list(files[path].lines)
            else:
                lines = path.read_bytes().split(b"\n")
            for (line, column), (old, new) in sorted(edits.items(), reverse=True):
                raw = lines[line - 1]
                assert raw[column : column + len(old.encode())] == old.encode(), (path, line, old)
                lines[line - 1] = raw[:column] + new.encode() + raw[column + len(old.encode()) :]
                total += 1
            if not dry:
                path.write_bytes(b"\n".join(lines))
        return total


@dataclass
class Row:
    """One row of names.tsv with what became of it."""

    old: str
    new: str
    kind: str
    why: str
    state: str = ""
    where: tuple[str, str] = ("", "")  # module and name in this checkout


def split_name(dots: str, modules: set[str]) -> tuple[str, list[str]]:
    """Split a dotted name into its longest known module (without headbook) and the rest."""
    parts = dots.split(".")
    for i in range(len(parts) - 1, 0, -1):
        if ".".join(parts[:i]) in modules:
            return ".".join(parts[:i]), parts[i:]
    return "", parts


def is_member(row: Row) -> bool:
    """Whether a row names a member of a class: its last but one part is capitalised."""
    parts = row.old.split(".")
    return len(parts) > 1 and parts[-2].lstrip("_")[:1].isupper()


def locate(project: Project, row: Row, moves: Moves) -> None:
    """Find the definition of a row's module-level name: its module in this checkout, and state."""
    if row.old.startswith("tests:"):  # a module of tests, benchmarks or docs
        module, _, name = row.old.removeprefix("tests:").rpartition(".")
        there = project.modules[module].scope.defined if module in project.modules else set()
        if name in there:
            row.where = (module, name)
        else:
            row.state = "done" if row.new.rpartition(".")[2] in there else "missing: not defined"
        return
    parts = row.old.split(".")
    depth = 2 if is_member(row) else 1
    old_module, top = ".".join(parts[:-depth]), parts[-depth]
    new_parts = row.new.split(".")
    by_hand = row.new.startswith("(") or row.new.startswith("dropped")
    new_module, new_top = ("", "") if by_hand else (".".join(new_parts[:-depth]), new_parts[-depth])
    places = []
    for each in (old_module, moves.place(old_module, top), new_module):
        full = f"headbook.{each}" if each else "headbook"
        if each and each != "dropped" and full in project.modules and full not in places:
            places.append(full)
    if not places:
        row.state = "missing: no module"
        return
    olds = [p for p in places if top in project.modules[p].scope.defined]
    news = [p for p in places if new_top and new_top in project.modules[p].scope.defined]
    if depth == 2:  # the class may have either name
        found = [(p, top) for p in olds] + [(p, new_top) for p in news]
        if not found:
            row.state = "missing: no class"
        else:
            row.where = found[-1]
        return
    if by_hand:
        row.state = f"by hand: {row.new}" if olds else "done or missing (by hand)"
        return
    if news and top != new_top:
        both = [p for p in olds if p in news]
        row.state = "done" if not both else "ambiguous: both names are there"
        if row.state == "done" and olds:
            row.state = f"ambiguous: old name in {olds}, new one in {news}"
        return
    if not olds:
        # Moved elsewhere or under another name: look for a definition of the new name anywhere.
        anywhere = [n for n, f in project.modules.items() if n.startswith("headbook")
                    and new_top in f.scope.defined]
        row.state = f"missing: not defined in {', '.join(places)}"
        if anywhere:
            row.state += f"; the new name is in {', '.join(anywhere)}"
        return
    if len(olds) > 1 and olds[0] != f"headbook.{old_module}":
        row.state = f"ambiguous: defined in {', '.join(olds)}"
        return
    row.where = (olds[0], top)


class Renamer(Walker):
    """Collects the edits of one file for names of modules."""

    def __init__(self, project: Project, file: File, names: dict[tuple[str, str], str],
                 edits: Edits, notes: list[str], *, lines=None, offset=0) -> None:
        super().__init__(file.tree)
        self.project, self.file, self.names = project, file, names
        self.edits, self.notes = edits, notes
        self.run_on = file

    # Meaning of names

    def meaning(self, scope: Scope, name: str) -> tuple[str, str] | None:
        """The definition that a name stands for in a scope, or a module with an empty name."""
        found = scope.find(name)
        if found is None:
            return None
        if name in found.imports and name not in found.defined:
            return self.project.resolve(*found.imports[name])
        if found.kind == "module" and self.file.name in self.project.modules:
            if self.project.modules[self.file.name] is self.file:
                return self.file.name, name
        return None

    def of(self, node: ast.AST) -> tuple[str, str] | None:
        """The definition or module that an expression of names and dots stands for."""
        if isinstance(node, ast.Name):
            return self.meaning(self.scope, node.id)
        if isinstance(node, ast.Attribute):
            base = self.of(node.value)
            if base and not base[1]:
                return self.project.resolve(base[0], node.attr)
        return None

    def kept_local(self, scope: Scope, name: str) -> bool:
        """Whether the local name is an alias, which stays."""
        found = scope.find(name)
        return found is not None and name in found.imports and found.imports[name][1] != name

    # Edits

    def edit(self, line: int, column: int, old: str, new: str) -> None:
        if not self.edits.add(self.file, line, column, old, new):
            self.notes.append(f"{self.rel()}:{line}: {old} not found at column {column}")

    def rel(self) -> str:
        return str(self.file.path.relative_to(self.project.root))

    def on_definition(self, node) -> None:
        if self.scope.kind == "module":
            new = self.names.get((self.file.name, node.name))
            if new and self.project.modules.get(self.file.name) is self.file:
                raw = self.file.lines[node.lineno - 1]
                match = re.match(rb"\s*(?:async\s+)?(?:def|class)\s+", raw)
                self.edit(node.lineno, match.end(), node.name, new)

    def on_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            target = self.meaning(self.scope, node.id)
            new = self.names.get(target) if target else None
            if new and not self.kept_local(self.scope, node.id):
                self.check_free(node, node.id, new)
                self.edit(node.lineno, node.col_offset, node.id, new)
        elif isinstance(node, ast.Attribute):
            base = self.of(node.value)
            if base and not base[1]:
                target = self.project.resolve(base[0], node.attr)
                new = self.names.get(target) if target else None
                # an alias in the module keeps its name
                if new and not self.aliased(base[0], node.attr):
                    column = node.end_col_offset - len(node.attr.encode())
                    self.edit(node.end_lineno, column, node.attr, new)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                target = self.project.resolve(node.module or "", alias.name)
                new = self.names.get(target) if target else None
                if new and not self.aliased(node.module or "", alias.name):
                    old = alias.name
                    raw = self.file.lines[alias.lineno - 1][alias.col_offset :].decode()
                    if alias.asname == new and raw.startswith(f"{old} as {new}"):
                        old = f"{old} as {new}"
                    self.edit(alias.lineno, alias.col_offset, old, new)
        elif isinstance(node, ast.Global):
            for name in node.names:
                if new := self.names.get((self.file.name, name)):
                    self.notes.append(f"{self.rel()}:{node.lineno}: global {name} -> {new}, by hand")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.on_string(node)
        elif isinstance(node, ast.Call):
            self.on_call(node)
        elif isinstance(node, ast.Assign):
            self.on_all(node)

    def aliased(self, module: str, name: str) -> bool:
        """Whether a module has a name under an alias of its own."""
        file = self.project.modules.get(module)
        if file is None or name in file.scope.defined or name not in file.scope.imports:
            return False
        other = file.scope.imports[name]
        return other[1] != name or self.aliased(*other)

    def check_free(self, node: ast.AST, old: str, new: str) -> None:
        end = self.scope.find(old)
        for scope in self.scope.between(end):
            if new in scope.bound and (scope.kind != "class" or scope is self.scope):
                name = getattr(scope.node, "name", scope.kind)
                self.notes.append(
                    f"{self.rel()}:{node.lineno}: CLASH {old} -> {new}: "
                    f"{name} (line {getattr(scope.node, 'lineno', 0)}) has a local {new}")

    def on_all(self, node: ast.Assign) -> None:
        if [getattr(t, "id", "") for t in node.targets] == ["__all__"] and self.scope.kind == "module":
            for each in getattr(node.value, "elts", ()):
                target = self.project.resolve(self.file.name, each.value)
                new = self.names.get(target) if target else None
                if new and not self.aliased(self.file.name, each.value):
                    self.edit(each.lineno, each.col_offset + 1, each.value, new)

    def on_call(self, node: ast.Call) -> None:
        """``setattr(module, "NAME", ...)`` and its like."""
        word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if word in {"setattr", "getattr", "hasattr", "delattr", "object"} and len(node.args) > 1:
            base, name = self.of(node.args[0]), node.args[1]
            if base and not base[1] and isinstance(name, ast.Constant):
                target = self.project.resolve(base[0], str(name.value))
                if new := self.names.get(target):
                    self.edit(name.lineno, name.col_offset + 1, name.value, new)

    def on_string(self, node: ast.Constant) -> None:
        text = node.value
        if DOTTED.search(text) and not self.is_docstring(node):
            self.dotted_in(node)
        if "\n" in text or len(text) > 200:
            return
        if self.annotation and re.fullmatch(r"[\w.\[\]|, ]+", text):
            try:
                tree = ast.parse(text, mode="eval")
            except SyntaxError:
                return
            # Positions inside the string: a single line without escapes.
            start = node.col_offset + 1
            for each in ast.walk(tree):
                if isinstance(each, ast.Name):
                    target = self.meaning(self.scope, each.id)
                    new = self.names.get(target) if target else None
                    if new and not self.kept_local(self.scope, each.id):
                        self.edit(node.lineno, start + each.col_offset, each.id, new)
                elif isinstance(each, ast.Attribute):
                    base = self.of(each.value)
                    target = self.project.resolve(base[0], each.attr) if base and not base[1] else None
                    if target and (new := self.names.get(target)):
                        column = start + each.end_col_offset - len(each.attr)
                        self.edit(node.lineno, column, each.attr, new)

    docstrings: set[int] = frozenset()  # type: ignore[assignment]

    def is_docstring(self, node: ast.Constant) -> bool:
        return id(node) in self.docstrings

    def run(self) -> None:
        self.docstrings = {
            id(each.value)
            for node in ast.walk(self.tree)
            for each in statements(node)
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        }
        super().run()
        for each in ast.walk(self.tree):  # strings of casts and type variables
            if isinstance(each, ast.Call):
                word = getattr(each.func, "id", getattr(each.func, "attr", ""))
                if word in {"cast", "TypeVar", "ForwardRef"}:
                    self.scope, self.annotation = self.module, True
                    for part in [*each.args[: 1 if word == "cast" else 9],
                                 *(k.value for k in each.keywords)]:
                        for inner in ast.walk(part):
                            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                                self.on_string(inner)
                    self.annotation = False

    def dotted_in(self, node: ast.Constant) -> None:
        """Dotted names and code inside a string: ``"headbook.x.NAME"``, ``"from headbook..."``."""
        for number in range(node.lineno, node.end_lineno + 1):
            raw = self.file.lines[number - 1].decode()
            begin = node.col_offset if number == node.lineno else 0
            end = node.end_col_offset if number == node.end_lineno else len(raw.encode())
            piece = raw.encode()[begin:end].decode()
            self.dots(piece, number, begin)
            for match in re.finditer(r"from (headbook[\w.]*) import ([\w, ]+)", piece):
                for word in re.finditer(r"\w+", match[2]):
                    target = self.project.resolve(match[1], word[0])
                    if target and (new := self.names.get(target)):
                        for use in re.finditer(rf"(?<![\w.]){word[0]}\b(?!\s*=)", piece):
                            column = begin + len(piece[: use.start()].encode())
                            self.edit(number, column, word[0], new)

    def dots(self, piece: str, number: int, begin: int) -> None:
        for match in DOTTED.finditer(piece):
            for start, old, new in self.renamed_parts(match[0]):
                column = begin + len(piece[: match.start() + start].encode())
                self.edit(number, column, old, new)

    def renamed_parts(self, dots: str):
        """Parts of a full dotted name that get another name: position, old and new."""
        parts = dots.split(".")
        for i in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:i])
            if module in self.project.modules:
                target = self.project.resolve(module, parts[i])
                if target and (new := self.names.get(target)):
                    yield len(module) + 1, parts[i], new
                return

    # Prose: docstrings and comments

    def prose(self) -> None:
        """Names in backticks of docstrings and comments."""
        for number, begin, piece in prose_of(self.file):
            for match in CODE.finditer(piece):
                dots, at = match[2], match.start(2)
                column = begin + len(piece[:at].encode())
                if dots.startswith("headbook."):
                    continue
                first, _, rest = dots.partition(".")
                self.scope = self.module
                target = self.meaning(self.module, first)
                if target and target[1]:
                    if new := self.names.get(target):
                        if match[1] == "``" and first.islower() and not match[3] and not rest:
                            self.notes.append(
                                f"{self.rel()}:{number}: PROSE ``{first}``: a value, or {new}?")
                        elif not self.kept_local(self.module, first):
                            self.edit(number, column, first, new)
                elif target and rest:
                    second = rest.partition(".")[0]
                    inner = self.project.resolve(target[0], second)
                    if inner and (new := self.names.get(inner)):
                        self.edit(number, column + len(first) + 1, second, new)
                elif target is None:
                    self.elsewhere(number, column, dots, match[1])
            self.dots(piece, number, begin)

    def elsewhere(self, number: int, column: int, dots: str, quotes: str) -> None:
        """A name in backticks that this module does not have: if only one thing is called so."""
        first, _, rest = dots.partition(".")
        known = {key for key in self.names if key[1] == first}
        others = [n for n, f in self.project.modules.items()
                  if first in f.scope.defined and n.startswith("headbook")]
        if first in self.ends and rest:  # module.name
            modules = self.ends[first]
            second = rest.partition(".")[0]
            hits = {self.names[m, second] for m in modules if (m, second) in self.names}
            if len(hits) == 1 and len(modules) == 1:
                self.edit(number, column + len(first) + 1, second, hits.pop())
                return
        if len(known) == 1 and len(others) == 1:
            key = known.pop()
            lower = first.islower()
            if not lower or "_" in first:
                self.edit(number, column, first, self.names[key])
            elif quotes == "`":
                self.notes.append(f"{self.rel()}:{number}: PROSE `{dots}`: perhaps {'.'.join(key)} -> {self.names[key]}")
        elif known:
            self.notes.append(f"{self.rel()}:{number}: PROSE `{dots}`: one of {sorted('.'.join(k) for k in known)}, {len(others)} definitions")

    ends: dict[str, set[str]] = {}  # noqa: RUF012


def statements(node: ast.AST) -> list[ast.stmt]:
    """The body of a node, if it is a list of statements."""
    body = getattr(node, "body", ())
    return body if isinstance(body, list) else []


def prose_of(file: File):
    """Lines of docstrings, attribute docstrings and comments: number, first byte, text."""
    for node in ast.walk(file.tree):
        for each in statements(node):
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) \
                    and isinstance(each.value.value, str):
                inner = each.value
                for number in range(inner.lineno, inner.end_lineno + 1):
                    begin = inner.col_offset if number == inner.lineno else 0
                    yield number, begin, file.lines[number - 1][begin:].decode()
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type == tokenize.COMMENT:
            line = file.lines[token.start[0] - 1]
            begin = len(line.decode()[: token.start[1]].encode())
            yield token.start[0], begin, line[begin:].decode()


def rename_names(project: Project, names: dict[tuple[str, str], str], *, dry: bool):
    """Rename module-level names everywhere; returns notes and the number of edits."""
    edits, notes = Edits(), []
    ends: dict[str, set[str]] = defaultdict(set)
    for module in project.modules:
        if module.startswith("headbook."):
            ends[module.rpartition(".")[2]].add(module)
    for file in project.files.values():
        renamer = Renamer(project, file, names, edits, notes)
        renamer.ends = ends
        renamer.run()
        renamer.scope = renamer.module
        renamer.prose()
    documents(project, names, edits, notes)
    clashes(project, names, notes)
    total = edits.apply(project.files, dry=dry)
    return notes, total


def clashes(project: Project, names: dict[tuple[str, str], str], notes: list[str]) -> None:
    """New names that modules have already, by definition or import."""
    for file in project.files.values():
        final: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for name in file.scope.bound:
            if name in file.scope.defined:
                key = (file.name, name)
                target = key if project.modules.get(file.name) is file else (str(file.path), name)
                final[names.get(target, name)].add(target)
            else:
                module, original = file.scope.imports[name]
                target = project.resolve(module, original) or (module, original)
                alias = bool(original) and original != name
                final[name if alias else names.get(target, name)].add(target)
        for name, targets in final.items():
            if len(targets) > 1:
                rel = file.path.relative_to(project.root)
                notes.append(f"{rel}: CLASH two things are called {name}: "
                             f"{', '.join('.'.join(t) for t in sorted(targets))}")


def documents(project: Project, names: dict[tuple[str, str], str], edits: Edits, notes: list[str]) -> None:
    """Names in Markdown: links to files, full dotted names, python blocks."""
    root = project.root
    for path in [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "benchmarks").glob("*.md"),
                 *(root / "tests").glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        lines = text.encode().split(b"\n")
        file = File(path, "", text, ast.parse(""), lines=lines)
        helper = Renamer(project, file, names, edits, notes)
        if path.name != "CHANGELOG.md":
            for match in LINK.finditer(text):
                target = (path.parent / match[2]).resolve()
                source = project.files.get(target)
                first, _, rest = match[1].partition(".")
                new = names.get((source.name, first)) if source else None
                if new:
                    line = text.count("\n", 0, match.start()) + 1
                    start = text.rfind("\n", 0, match.start()) + 1
                    helper.edit(line, len(text[start : match.start(1)].encode()), first, new)
        fenced = False
        for number, raw in enumerate(lines, 1):
            if path.name == "CHANGELOG.md":
                break
            helper.dots(raw.decode(), number, 0)
            fenced ^= raw.startswith(b"```")
            for match in CODE.finditer(raw.decode()) if not fenced else ():
                first = match[2].partition(".")[0]
                keys = {key for key in names if key[1] == first}
                if not keys or not (first[:1].isupper() and len(first) > 3):
                    continue
                column = len(raw.decode()[: match.start(2)].encode())
                if (number, column) in edits.by_file[path]:
                    continue
                everywhere = [n for n, f in project.modules.items() if first in f.scope.defined]
                if len(keys) == 1 and len(everywhere) == 1:
                    helper.edit(number, column, first, names[keys.pop()])
                else:
                    notes.append(f"{path.relative_to(root)}:{number}: PROSE `{match[2]}`: one of "
                                 f"{sorted('.'.join(k) for k in keys)}, {len(everywhere)} definitions")
        for match in FENCE.finditer(text):
            try:
                tree = ast.parse(match[1])
            except SyntaxError:
                continue
            above = text.count("\n", 0, match.start(1))
            block = File(path, "", match[1], tree, lines=lines)
            for node in ast.walk(tree):  # positions in the document
                if hasattr(node, "lineno"):
                    node.lineno += above
                    node.end_lineno += above
            Renamer(project, block, names, edits, notes).run()


def all_modules(project: Project) -> set[str]:
    return {n.removeprefix("headbook.") for n in project.modules if n.startswith("headbook.")}


def read_rows(moves: Moves) -> list[Row]:
    """Rows of `names.tsv`, then those of `more.tsv`, which take their place."""
    rows = {r["old"]: Row(r["old"], r["new"], r["kind"], r["why"] or "") for r in table(HERE / "names.tsv")}
    lines = (HERE / "more.tsv").read_text(encoding="utf-8").splitlines()
    added = [Row(*line.split("\t")) for line in lines]
    classes = {r.old: r.new for r in (*rows.values(), *(r for r in added if r.kind == "class"))}
    for row in added:
        parts = row.old.split(".")
        depth = 2 if is_member(row) else 1
        container = ".".join(parts[:-1])
        if not row.old.startswith("tests:"):
            module, top = ".".join(parts[:-depth]), parts[-depth]
            container = moves.place(module, top) or module
            if depth == 2:
                container += "." + classes.get(".".join(parts[:-1]), top).rpartition(".")[2]
        row.new = f"{container}.{row.new}"
        rows[row.old] = row
    return list(rows.values())


def print_result(rows: list[Row], notes: list[str], total: int, *, dry: bool) -> None:
    """Print notes, rows that did not apply, and counts."""
    for note in sorted(set(notes)):
        print(note)
    for row in rows:
        if row.state not in {"applied", "done"}:
            print(f"ROW {row.old} -> {row.new}: {row.state}")
    print(Counter(r.state.partition(":")[0] for r in rows), f"{total} replacements", "(dry)" * dry)


def main() -> int:
    """Rename, and print what became of the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--kind", required=True, choices=("class", "constant", "names", "function", "member"))
    parser.add_argument("--only", default="", help="prefix of old names, as a folder: analysis.")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--decisions", type=Path, default=HERE / "decisions.tsv")
    given = parser.parse_args()
    root = given.checkout.resolve()
    moves = Moves(HERE / "moves.tsv")
    rows = [r for r in read_rows(moves) if r.old.startswith(given.only)]
    project = Project(root)
    if given.kind == "member":
        from members import rename_members  # noqa: PLC0415

        return rename_members(project, [r for r in rows if is_member(r) and r.kind in
                                        {"class", "constant", "function", "field"}],
                              rows, moves, given)
    kinds = {"class": {"class", "constant"}, "constant": {"constant"}, "function": {"function"},
             "names": {"class", "constant", "function"}}[given.kind]
    rows = [r for r in rows if r.kind in kinds and not is_member(r)]
    names: dict[tuple[str, str], str] = {}
    for row in rows:
        locate(project, row, moves)
        if row.where[1]:
            row.state = "applied"
            names[row.where] = row.new.rpartition(".")[2]
    notes, total = rename_names(project, names, dry=given.dry)
    print_result(rows, notes, total, dry=given.dry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
