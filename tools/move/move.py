"""Move the code base into the files of the plan: steps 9 to 14 of ``order.md``.

Usage: python move.py CHECKOUT [--step N ...] [--keep-dropped] [--force] [--dry] [--no-format]

Reads ``moves.tsv``, ``names.tsv`` and ``tree.md`` beside it (through ``Plan`` of ``check.py``) and
the code as it is in CHECKOUT; rewrites ``src``, ``tests``, ``docs``, ``benchmarks``, ``templates``
and the files beside them. Without ``--step`` all steps are done at once; with it, those named.
What would be lost or cannot be decided is printed as ``ERROR``, and nothing is written then (unless
``--force``). ``NOTE`` and ``HAND`` lines say what was decided and what is left to be done by hand.

``--keep-dropped`` keeps files of the plan that are ``dropped``, where something still uses them, in
a subfolder ``dropped`` of their folder: a rehearsal while they are not yet gone.

Positions come from ``ast`` and edits are made in the text, so that every comment and every line
that need not change stays byte for byte; ``ruff`` sorts imports and formats at the end.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import check  # noqa: E402
from check import DROPPED, Plan, modules_of, path_of, read  # noqa: E402

STEPS = {
    "headbook": 9, "analysis": 9, "inputs": 9, "text": 9, "model": 10, "attention": 11,
    "metrics": 11, "study": 11, "passes": 12, "ablation": 12, "collection": 12, "report": 13,
    "comparison": 13, "charts": 13, "pages": 14, "site": 14, "cli": 14,
}  # fmt: skip
# What the plan moves only when the code has changed (order.md, B): it waits with its neighbours.
WAIT = {
    ("collection.run", "Run"): "collection/collect.py",
    **{("collection.collect", n): "collection/collect.py"
       for n in ("_prepared", "_gpu", "_rarities", "FEW", "USUAL")},
}  # fmt: skip
WAITS_WHOLE = {"pages.head.headstrips": "pages/head.py"}
# Names that meet in a file of step B only, because something waits there.
RENAME = {("headbook.pages.head.headstrips", "KINDS"): "STRIP_TITLES"}
# Variables of loops that have the name of an import in their new file: module, function, old, new.
LOOPS = [
    ("collection.gaps", "_annotation", "count", "number"),
    ("model.calls", "_ask", "field", "place"),
    ("report.findings.twins", "like_untrained", "metric", "each"),
    ("pages.geometry.geometryfindings", "_alike", "metric", "name"),
]
# Lines that would be too long: new file, old text, new text.
POLISH = [
    ("analysis/mixture_loop.py", "then what its parts explain.", "then what parts explain."),
    ("report/findings/states.py", "How many anchors the heads of each layer have, by `ANCHOR_COLUMNS`; "
     "empty where none were counted.", "How many anchors heads of each layer have, by `ANCHOR_COLUMNS`; "
     "empty where none are known."),
    ("pages/parts/sentence_maps.py",
     'take {written(needed)}; expected at most {written(MAX_QUERY_KEY_BYTES)}"\n',
     'take {written(needed)}; expected at most "\n'
     '            f"{written(MAX_QUERY_KEY_BYTES)}"\n'),
    # Modules that stand in a tuple: their functions have names of their own now.
    ("tests/test_compiled.py", "[sums.row_sums(weights, scope) for sums in (map_sums, map_sums)]",
     "[\n        take(weights, scope) for take in (map_sums.numba_row_sums, map_sums.torch_row_sums)\n    ]"),
    ("tests/test_compiled.py", "[sums.word_sums(weights, scope) for sums in (map_sums, map_sums)]",
     "[\n        take(weights, scope) for take in (map_sums.numba_word_sums, map_sums.torch_word_sums)\n    ]"),
    ("tests/test_compiled.py",
     "(sums.pair_sums(weights, mass, pairs) for sums in (map_sums, map_sums))",
     "(\n        take(weights, mass, pairs)\n"
     "        for take in (map_sums.numba_pair_sums, map_sums.torch_pair_sums)\n    )"),
]  # fmt: skip
# Rows of the table of folders in CONTRIBUTING.md, and a row behind another; whole lines.
FOLDER_ROWS = {
    "model": "the model: loading it, what it is made of, its tokens, the attention hook, forward passes "
    "with and without interventions, and states against the vocabulary",
    "study": "a study: saved, loaded, merged, and as tables; what survives of a batch",
    "passes": "the passes over texts and model, which share what watches them (`observers`), and the "
    "checks before and during a run",
    "report": "numbers of a study by name, and what follows from them (types, roles, relations); "
    "`report/findings`: rules that turn numbers into sentences; `report/tables`: rows of the table "
    "`tests`, for every claim; `wording`: how both are written",
    "collection": "from files and a model to a study: all passes, one after the other (`collect`), and "
    "what the study cannot have (`missing`)",
    "charts": "tables to pictures, all of SVG, PDF and PNG, by theme: heads, layers, attention, tokens, "
    "language, ablation, comparison, film",
    "pages": "studies to pages, frozen values without HTML: `pages/heads` fills `templates/heads.html` "
    "for `heads.html`; `pages/parts` is what several have, among it the one `Table` "
    "(`pages/parts/table`); `pages/comparison` and `pages/film`: pages of several models",
    "site": "pages and tables to files: the site, as a folder, as one archive or as one file; figures "
    "for papers",
}
ABLATION_ROW = ("| `src/headbook/ablation` | sets of heads are taken away: replacements, estimates from "
                "gradients, and what becomes of the model's output |")
PICTURE = ("                   attention, metrics, analysis       comparison, charts",
           "         attention, metrics, analysis, ablation       comparison, charts")
GENERIC = {"list", "dict", "tuple", "set", "frozenset", "type", "defaultdict"}


class Report:
    """What is to be told."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = defaultdict(list)

    def __call__(self, kind: str, text: str) -> None:
        if text not in self.lines[kind]:
            self.lines[kind].append(text)

    def show(self) -> None:
        for kind in ("NOTE", "HAND", "ERROR"):
            for line in self.lines[kind]:
                print(f"{kind}: {line}")


tell = Report()


@dataclass(frozen=True)
class Binding:
    """What a name of a file stands for."""

    kind: str  # def, from, module, package, ext
    module: str = ""
    name: str = ""
    alias: str = ""  # as it is called there
    types: bool = False
    lazy: bool = False
    text: str = ""  # import of a library, as a statement


@dataclass
class Ref:
    """One use of a name."""

    name: str
    binding: Binding
    start: int
    end: int
    statement: int
    chain: list[tuple[str, int]] = field(default_factory=list)  # attributes behind it, with ends
    string: bool = False
    depth: int = 0
    scopes: tuple[dict[str, object], ...] = ()
    store: bool = False


LOCAL = object()


class Source:
    """A file, its statements, and what each name in it means."""

    def __init__(self, name: str, file: Path, known: dict[str, object]) -> None:
        self.name, self.file, self.known = name, file, known
        self.data = file.read_bytes()
        self.tree = ast.parse(self.data)
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.bindings: dict[str, Binding] = {}
        self.statements: list[ast.stmt] = []
        self.names: list[set[str]] = []  # what each statement defines
        self.imports: list[tuple[ast.stmt, bool]] = []  # of the module and of functions; lazy
        self.refs: list[Ref] = []
        self.bound: set[str] = set()  # names bound anywhere inside functions and classes
        self.spans: list[tuple[int, int]] = []
        self.patches: list[tuple[ast.Call, int]] = []
        body = list(self.tree.body)
        self.doc = None
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            self.doc = body.pop(0)
        last = self.doc.end_lineno if self.doc else 0
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom) or self.pure_types(node):
                self._top_imports(node)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                start, _ = self.spans[-1]  # the docstring of a constant
                self.spans[-1] = (start, self.starts[node.end_lineno])
            else:
                self.statements.append(node)
                self.names.append(self._defined(node))
                self.spans.append((self.starts[last], self.starts[node.end_lineno]))
                for each in self.names[-1]:
                    self.bindings.setdefault(each, Binding("def", name, each, each))
            last = node.end_lineno
        self.tail = self.data[self.starts[last]:] if body else b""
        for number, node in enumerate(self.statements):
            self._visit(node, (), None, number)
        for node in body:
            if self.pure_types(node):
                for inner in node.body:
                    self.imports.append((inner, False))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.append((node, False))

    @staticmethod
    def pure_types(node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            and not node.orelse
            and all(isinstance(x, ast.Import | ast.ImportFrom) for x in node.body)
        )  # fmt: skip

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def _defined(self, node: ast.stmt) -> set[str]:
        found: set[str] = set()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return {node.name}
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                found |= {x.id for x in ast.walk(target)
                          if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
            return found
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            for inner in [*node.body, *getattr(node, "orelse", [])]:
                found |= self._defined(inner)
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    found |= {a.asname or a.name.partition(".")[0] for a in inner.names}
        return found

    def _top_imports(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            for inner in node.body:
                for local, binding in self._bound_by(inner, types=True):
                    self.bindings.setdefault(local, binding)
        else:
            for local, binding in self._bound_by(node):
                self.bindings[local] = binding

    def _bound_by(self, node: ast.stmt, *, types: bool = False, lazy: bool = False):
        """Local names and what they stand for."""
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{self.name}: a relative import"
            for alias in node.names:
                local = alias.asname or alias.name
                module = node.module or ""
                if not (module == "headbook" or module.startswith("headbook.")):
                    text = f"from {module} import {alias.name}"
                    text += f" as {alias.asname}" if alias.asname else ""
                    yield local, Binding("ext", alias=local, types=types, lazy=lazy, text=text)
                elif f"{module}.{alias.name}" in self.known:
                    yield local, Binding("module", f"{module}.{alias.name}", "", local, types, lazy)
                else:
                    yield local, Binding("from", module, alias.name, local, types, lazy)
        else:
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                if alias.name.partition(".")[0] != "headbook":
                    text = f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
                    yield local, Binding("ext", alias=local, types=types, lazy=lazy, text=text)
                elif alias.asname:
                    yield local, Binding("module", alias.name, "", local, types, lazy)
                else:
                    yield local, Binding("package", "headbook", "", local, types, lazy)

    # -- which name means what ------------------------------------------------------------------

    def _scope(self, body: list[ast.stmt], arguments: ast.arguments | None) -> dict[str, object]:
        found: dict[str, object] = {}
        if arguments:
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            every += [x for x in (arguments.vararg, arguments.kwarg) if x]
            found |= {x.arg: LOCAL for x in every}
        outer: set[str] = set()

        def look(node: ast.AST) -> None:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[node.name] = LOCAL
                for each in node.decorator_list:
                    look(each)
                return
            if isinstance(node, ast.Lambda):
                return
            if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                for each in ast.walk(node):
                    if isinstance(each, ast.NamedExpr):
                        found[each.target.id] = LOCAL
                return
            if isinstance(node, ast.Global | ast.Nonlocal):
                outer.update(node.names)
                if isinstance(node, ast.Global):
                    tell("NOTE", f"{self.name}: `global {', '.join(node.names)}`")
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.append((node, True))
                for local, binding in self._bound_by(node, lazy=True):
                    found[local] = LOCAL if binding.kind == "ext" else binding
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                found[node.id] = LOCAL
            elif isinstance(node, ast.ExceptHandler) and node.name:
                found[node.name] = LOCAL
            elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                found[node.name] = LOCAL
            elif isinstance(node, ast.MatchMapping) and node.rest:
                found[node.rest] = LOCAL
            for each in ast.iter_child_nodes(node):
                look(each)

        for node in body:
            look(node)
        for name in outer:
            found.pop(name, None)
        self.bound |= found.keys()
        return found

    def _meaning(self, name: str, scopes: tuple, cls: dict | None) -> object:
        if cls is not None and name in cls:
            return cls[name]
        for scope in reversed(scopes):
            if name in scope:
                return scope[name]
        return self.bindings.get(name, LOCAL)

    def _emit(self, node: ast.Name, chain, scopes, cls, number, base=None, depth=0) -> None:
        found = self._meaning(node.id, scopes, cls)
        if found is LOCAL:
            return
        start, end = self.span(node) if base is None else (
            base + node.col_offset, base + node.end_col_offset)  # fmt: skip
        if self.data[start:end] != node.id.encode():
            tell("ERROR", f"{self.name}: cannot find {node.id} at byte {start} (inside an f-string?)")
            return
        self.refs.append(Ref(node.id, found, start, end, number, chain, base is not None, depth,
                             scopes, isinstance(node.ctx, ast.Store)))  # fmt: skip

    def _text(self, node: ast.Constant, scopes, cls, number, *, strict: bool) -> None:
        """Names in a string that is a type."""
        start, end = self.span(node)
        raw = self.data[start:end]
        quote = re.match(rb"[A-Za-z]*(\"\"\"|'''|\"|')", raw)
        if quote is None or raw[quote.end(): -len(quote[1])] != node.value.encode():
            return
        try:
            inner = ast.parse(node.value, mode="eval")
        except SyntaxError:
            return
        names = [n for n in ast.walk(inner) if isinstance(n, ast.Name)]
        if strict and not (names and all(n.id[:1].isupper() and not n.id.isupper() for n in names)):
            return
        self._visit(inner.body, scopes, cls, number, base=start + quote.end(), types=True)

    def _visit(self, node, scopes, cls, number, *, base=None, types=False, strict=False) -> None:
        go = lambda x, s=scopes, c=cls, t=types, st=strict: self._visit(  # noqa: E731
            x, s, c, number, base=base, types=t, strict=st)
        depth = len(scopes)
        if node is None:
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = node.args
            if not isinstance(node, ast.Lambda):
                for each in node.decorator_list:
                    go(each)
                every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                every += [x for x in (arguments.vararg, arguments.kwarg) if x]
                for each in every:
                    if each.annotation:
                        go(each.annotation, t=True)
                if node.returns:
                    go(node.returns, t=True)
            for each in [*arguments.defaults, *arguments.kw_defaults]:
                go(each)
            body = [node.body] if isinstance(node, ast.Lambda) else node.body
            scope = self._scope(body, arguments)
            for each in body:
                go(each, s=(*scopes, scope), c=None, t=False)
        elif isinstance(node, ast.ClassDef):
            for each in [*node.decorator_list]:
                go(each)
            for each in [*node.bases, *node.keywords]:
                go(each, t=isinstance(each, ast.Subscript))
            scope = self._scope(node.body, None)
            for each in node.body:
                go(each, c=scope)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            first = node.generators[0]
            go(first.iter)
            inner = {x.id: LOCAL for g in node.generators for x in ast.walk(g.target)
                     if isinstance(x, ast.Name)}
            self.bound |= inner.keys()
            deep = (*scopes, inner)
            for place, each in enumerate(node.generators):
                if place:
                    go(each.iter, s=deep)
                go(each.target, s=deep)
                for test in each.ifs:
                    go(test, s=deep)
            if isinstance(node, ast.DictComp):
                go(node.key, s=deep)
                go(node.value, s=deep)
            else:
                go(node.elt, s=deep)
        elif isinstance(node, ast.AnnAssign):
            go(node.target)
            go(node.annotation, t=True)
            go(node.value)
        elif isinstance(node, ast.Attribute):
            chain, inner = [], node
            while isinstance(inner, ast.Attribute):
                end = (self.span(inner)[1] if base is None else base + inner.end_col_offset)
                chain.insert(0, (inner.attr, end))
                inner = inner.value
            if isinstance(inner, ast.Name):
                self._emit(inner, chain, scopes, cls, number, base, depth)
            else:
                go(inner)
        elif isinstance(node, ast.Name):
            self._emit(node, [], scopes, cls, number, base, depth)
        elif isinstance(node, ast.Constant):
            if types and isinstance(node.value, str) and base is None:
                self._text(node, scopes, cls, number, strict=strict)
        elif isinstance(node, ast.Subscript):
            go(node.value)
            word = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(
                node.value, "id", "")  # fmt: skip
            if word == "Literal":
                return
            generic = word in GENERIC or (word[:1].isupper() and not word.isupper())
            go(node.slice, t=types or generic, st=strict or not types)
        elif isinstance(node, ast.Call):
            word = getattr(node.func, "id", getattr(node.func, "attr", ""))
            go(node.func, t=False)
            for place, each in enumerate(node.args):
                go(each, t=word == "cast" and place == 0)
            for each in node.keywords:
                go(each.value, t=word == "TypeVar" and each.arg == "bound")
            if word in {"setattr", "object"} and len(node.args) > 1:
                self.patches.append((node, number))
                self.refs_at_patch = True
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if depth == 0 and cls is None:
                self.imports.append((node, False))
        else:
            for each in ast.iter_child_nodes(node):
                go(each)


def dotted(path: str) -> str:
    """The module of a path below src/headbook."""
    parts = path.removesuffix(".py").split("/")
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(("headbook", *parts))


def import_line(module: str, name: str, local: str) -> str:
    tail = f" as {local}" if local != name else ""
    return f"from {module} import {name}{tail}"


def rewrapped(text: str, column: int) -> str:
    """A docstring whose lines have at most 100 letters again."""
    lines = text.split("\n")
    place = 0
    while place < len(lines):
        line = lines[place]
        if place and len(line) > 100 and " " in line.strip():
            words, kept = line, ""
            cut = line.rfind(" ", 0, 101)
            indent = re.match(r" *", line)[0] if place else " " * column
            if cut > len(indent) + 20:
                kept, words = line[:cut], line[cut + 1:]
                lines[place] = kept
                following = lines[place + 1] if place + 1 < len(lines) else ""
                joins = (following.strip() and re.match(r" *", following)[0] == indent
                         and not following.strip().startswith(('"""', "- ", "*"))
                         and not re.match(r"\d+\. |\w+: ", following.strip()))
                if joins:
                    lines[place + 1] = f"{indent}{words} {following.strip()}"
                else:
                    lines.insert(place + 1, f"{indent}{words}")
        place += 1
    return "\n".join(lines)


class Move:
    """The whole move."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.root: Path = given.checkout.resolve()
        self.package = self.root / "src" / "headbook"
        self.modules = modules_of(self.package)
        self.plan = Plan(self.modules)
        self.steps = set(given.step or range(9, 15))
        tree = (HERE / "tree.md").read_text(encoding="utf-8").splitlines()
        self.order = [m[1] for line in tree if (m := check.ORDER.match(line))]
        self.said = {m[1].removeprefix("src/headbook/"): m[2] for line in tree
                     if (m := re.match(r"^- `(src/headbook/[\w/]+\.py)` \(\d+\) (.*)$", line))}
        self.tree = tree
        self.old = {m.name: path_of(m.name, m.package) for m in self.modules.values()}
        self._resolved: dict[tuple[str, str], tuple[str, str] | None] = {}
        self._placed: dict[tuple[str, str], str] = {}
        self._check_rows()
        self.sources = {name: Source(name, self.package / self.old[name], self.modules)
                        for name in self.modules}
        self.renames: dict[tuple[str, str], str] = {
            key: new for key, new in RENAME.items() if key[0] in self.modules}
        self.rows = self._rows()
        # Definitions that names.tsv declares to be the same as another one: one of them stays.
        self.declared = {
            (f"headbook.{row['old'].rpartition('.')[0]}", row["old"].rpartition(".")[2])
            for row in read("names.tsv")
            if row["new"].startswith("(") and ("stays" in row["new"] or "imported" in row["new"])
        }
        self.same: dict[tuple[str, str], tuple[str, str]] = {}
        self.unify: dict[tuple[str, tuple], tuple] = {}
        self.removed: set[tuple[str, int]] = set()
        self.direct: dict[tuple[str, int], bool] = {}
        self.kept: set[str] = set()
        if given.keep_dropped:
            self.kept = {n for n in self.modules if self.plan.target.get(n) == DROPPED
                         and self.sources[n].statements}

    # -- where things go ------------------------------------------------------------------------

    def _check_rows(self) -> None:
        paths = {*self.old.values()}
        finals = {row["new"] for row in read("moves.tsv")}
        for fault in self.plan.faults:
            if fault.endswith("is missing"):
                path = fault.split()[1]
                if path in finals or (self.given.keep_dropped and "dropped/" in path):  # moved before
                    name = next(n for n, p in self.old.items() if p == path)
                    self.plan.target[name] = path
                else:
                    tell("ERROR", f"{path} stands in no row of moves.tsv")
            elif fault.endswith("is no file of the package"):
                row = next(r for r in read("moves.tsv") if r["old"] == fault.split()[1])
                if row["new"] in paths:
                    tell("NOTE", f"{row['old']} is not there: moved before, or gone")
                else:
                    tell("ERROR", f"{row['old']} of moves.tsv is not there, nor {row['new']}: "
                         "correct the row")
            elif " defines no " in fault:
                module, _, name = fault.removeprefix("moves.tsv: ").partition(" defines no ")
                tell("NOTE", f"moves.tsv: {module} no longer defines {name}; the split is ignored")
            elif " has no " in fault:
                pass  # a cut that has happened
            else:
                tell("ERROR", fault)

    def _rows(self) -> dict[tuple[str, str], str]:
        """New names by module and name."""
        found = {}
        for row in read("names.tsv"):
            if row["kind"] in {"class", "function", "constant"} and not row["new"].startswith(
                ("(", "dropped")):
                module, _, name = row["old"].rpartition(".")
                if f"headbook.{module}" in self.modules:
                    found[f"headbook.{module}", name] = row["new"].rpartition(".")[2]
        return found

    def step_of(self, path: str) -> int:
        return STEPS[check.folder_of(path).partition("/")[0]]

    def _kept_place(self, module: str) -> str:
        *folders, last = self.old[module].removesuffix(".py").split("/")
        parent = (folders[0] if folders else "")
        word = f"{folders[-1]}_{last}" if last == "page" else last
        return "/".join(x for x in (parent, "dropped" if parent else "", f"{word}.py") if x)

    def place(self, module: str, name: str = "") -> str:
        """The new path of a definition or of the rest of a module."""
        key = module, name
        if key not in self._placed:
            self._placed[key] = self._place(module, name)
        return self._placed[key]

    def _place(self, module: str, name: str) -> str:
        short = module.removeprefix("headbook.")
        if (short, name) in WAIT:
            path = WAIT[short, name]
        elif short in WAITS_WHOLE:
            path = WAITS_WHOLE[short]
        else:
            path = self.plan.split.get((module, name)) if name else None
            path = path or self.plan.target.get(module, self.old[module])
        if path == DROPPED:
            if module in self.kept:
                return self._kept_place(module)
            target = self.plan.target.get(module, DROPPED)
            if not self.given.keep_dropped or target == DROPPED:
                return DROPPED
            path = target
        if self.step_of(path) not in self.steps:
            return self.old[module]
        return path

    def resolve(self, module: str, name: str) -> tuple[str, str] | None:
        key = module, name
        if key not in self._resolved:
            self._resolved[key] = self.plan.resolve(module, name)
        return self._resolved[key]

    def final(self, module: str, name: str) -> str:
        return self.renames.get((module, name), name)

    def stays_exported(self, module: str, name: str, inside: str) -> bool:
        """Whether a package file goes on giving a name that it has from elsewhere."""
        found = self.modules.get(module)
        return (
            found is not None and found.package and bool(name)
            and name in found.imports and name not in found.definitions
            and self.place(module) == self.old[module]
            and not inside.startswith(self.old[module].removesuffix("__init__.py") or "\0")
        )  # fmt: skip

    # -- what a name means in the new tree -----------------------------------------------------

    def meaning(self, binding: Binding, inside: str):
        """('def', module, name), ('module', name), ('export', module, name), ('ext', text)."""
        found = self._meaning(binding, inside)
        while found[0] == "def" and found[1:] in self.same:
            found = ("def", *self.same[found[1:]])
        return self.unify.get((inside, found), found)

    def _meaning(self, binding: Binding, inside: str):
        if binding.kind == "ext":
            return ("ext", binding.text)
        if binding.kind == "def":
            return ("def", binding.module, binding.name)
        if binding.kind == "module":
            return ("module", binding.module)
        if binding.kind == "package":
            return ("package", "headbook")
        if self.stays_exported(binding.module, binding.name, inside):
            return ("export", binding.module, binding.name)
        found = self.resolve(binding.module, binding.name)
        if found is None:
            other = self.sources.get(binding.module)
            if other and binding.name in other.bindings:
                there = other.bindings[binding.name]
                if there.kind == "ext":
                    tell("NOTE", f"{inside}: takes {binding.name} of a library from {binding.module}")
                    return ("ext", re.sub(r" as \w+$", "", there.text)
                            + (f" as {binding.alias}" if binding.alias != binding.name else ""))
            tell("ERROR", f"{inside}: {binding.module} has no {binding.name}")
            return ("ext", f"from {binding.module} import {binding.name}")
        if not found[1]:
            return ("module", found[0])
        return ("def", *found)

    def new_module(self, module: str) -> str:
        """The new path of a module as a whole."""
        return self.place(module)

    # -- chunks and namespaces ------------------------------------------------------------------

    def layout(self) -> None:
        """Which statements of which source make each new file."""
        self.files: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
        self.main: dict[str, list[str]] = defaultdict(list)  # sources that go there as a whole
        names = {row["old"]: i for i, row in enumerate(read("moves.tsv"))}
        ordered = sorted(self.sources, key=lambda n: names.get(self.old[n], 10_000))
        self.where: dict[tuple[str, int], str] = {}
        for module in ordered:
            source = self.sources[module]
            places: dict[str, list[int]] = defaultdict(list)
            for number, defined in enumerate(source.names):
                found = {self.place(module, each) for each in defined} or {self.place(module)}
                if len(found) > 1:
                    tell("ERROR", f"{module}: {sorted(defined)} go to several files {found}")
                path = sorted(found)[0]
                places[path].append(number)
                self.where[module, number] = path
            target = self.place(module)
            if target != DROPPED:
                self.main[target].append(module)
                places.setdefault(target, [])
            for path, numbers in places.items():
                if path != DROPPED:
                    self.files[path].append((module, numbers))

    def whole(self, path: str) -> bool:
        """Whether a new file is one old file, all of it."""
        chunks = [c for c in self.files[path] if c[1] or c[0] in self.main[path]]
        solid = [c for c in chunks if c[1]] or [
            min(chunks, key=lambda c: len(self.old[c[0]]))]
        if path.endswith("__init__.py"):
            own = [c for c in chunks if self.old[c[0]] == path]
            solid = own or solid
            others = [c for c in chunks if c[1] and c not in solid]
            if others:
                return False
        return len(solid) == 1 and not self.removed & {
            (solid[0][0], i) for i in range(len(self.sources[solid[0][0]].statements))
        } and len(solid[0][1]) == len(self.sources[solid[0][0]].statements)

    def only(self, path: str) -> str:
        chunks = [c for c in self.files[path] if c[1]]
        if path.endswith("__init__.py") and not chunks:
            chunks = [c for c in self.files[path] if self.old[c[0]] == path] or sorted(
                self.files[path], key=lambda c: len(self.old[c[0]]))
        return (chunks or self.files[path])[0][0]

    def local_of(self, ref: Ref, path: str, module: str):
        """The meaning of a use in a new file, and the name that it would have there."""
        meaning = self.meaning(ref.binding, path)
        if meaning[0] == "def":
            final = self.final(*meaning[1:])
            if self.place(*meaning[1:]) == path:
                return meaning, final
            renamed = ref.binding.kind == "from" and ref.binding.alias != ref.binding.name
            return meaning, ref.name if renamed else final
        if meaning[0] == "module":
            return meaning, None
        return meaning, ref.name

    def settle_names(self) -> None:
        """Rename what would collide in merged files, until nothing does."""
        self.aliases: dict[tuple[str, tuple], str] = {}
        for _ in range(20):
            changed = False
            for path in sorted(self.files):
                if self.whole(path):
                    continue
                met: dict[str, set[tuple]] = defaultdict(set)
                for module, numbers in self.files[path]:
                    source = self.sources[module]
                    for number in numbers:
                        for each in source.names[number] - {"__all__"}:
                            met[self.final(module, each)].add(("def", module, each))
                    for ref in source.refs:
                        if ref.statement in numbers and not ref.binding.lazy:
                            meaning, local = self.local_of(ref, path, module)
                            if local is not None:
                                local = self.aliases.get((path, meaning), local)
                                met[local].add(meaning)
                for name, meanings in met.items():
                    if len(meanings) > 1:
                        changed |= self._part(path, name, meanings)
            if not changed:
                return
        tell("ERROR", "names that meet do not come apart")

    def _part(self, path: str, name: str, meanings: set[tuple]) -> bool:
        own = sorted(m for m in meanings if m[0] == "def" and self.place(m[1], m[2]) == path)
        foreign = sorted((m for m in meanings if m not in own), key=str)

        def origin(m: tuple) -> tuple[str, str] | None:
            return self.resolve(*m[1:]) if m[0] == "export" else m[1:] if m[0] == "def" else None

        for m in foreign:  # the same by two ways
            for other in own + foreign:
                if m != other and origin(m) and origin(m) == origin(other):
                    kept, gone = (m, other) if m[0] == "export" and other not in own else (other, m)
                    self.unify[path, gone] = kept
                    tell("NOTE", f"{path}: {name} is imported from {kept[1]} alone")
                    return True
        for m in own:
            others = [x for x in own + foreign if x != m and x[0] == "def"]
            equal = [x for x in own if x != m and self.text_of(*x[1:]) == self.text_of(*m[1:])]
            if m[1:] in self.declared and others:
                self.leave_out(path, m, others[0])
                return True
            if equal and not any(x[1:] in self.rows for x in (m, equal[0])):
                other = equal[0]
                self.leave_out(path, m, other)
                return True
        for m in foreign:
            if origin(m) in self.declared:
                other = next((x for x in own + foreign if x != m), None)
                if other:
                    self.unify[path, m] = other
                    tell("NOTE", f"{path}: {name} of {m[1]} is that of {other[1]}, as names.tsv says")
                    return True
        rows = [m for m in own if (m[1], m[2]) in self.rows and m[1:] not in self.renames]
        if len(own) > 1 and not rows:
            # Two that are the same may be one.
            tell("ERROR", f"{path}: {name} is defined by "
                 + " and ".join(f"{m[1]}.{m[2]}" for m in sorted(own))
                 + ", and names.tsv has no new name for either")
            return False
        if rows and (len(own) > 1 or foreign):
            for m in rows:
                self.renames[m[1:]] = self.rows[m[1:]]
                tell("NOTE", f"renamed {m[1]}.{m[2]} to {self.rows[m[1:]]}, which meets another "
                     f"{name} in {path}")
            return True
        named = [m for m in foreign if m[0] == "def" and m[1:] in self.rows
                 and m[1:] not in self.renames]
        for m in [*named, *foreign]:
            if own or m in named or m != foreign[0]:
                if m[0] == "def" and m[1:] in self.rows and m[1:] not in self.renames:
                    self.renames[m[1:]] = self.rows[m[1:]]
                    tell("NOTE", f"renamed {m[1]}.{m[2]} to {self.rows[m[1:]]}, which meets "
                         f"another {name} in {path}")
                else:
                    if m[0] == "ext":
                        alias = f"{m[1].split()[1].rpartition('.')[2]}_{name}"
                    else:
                        alias = f"{m[1].rpartition('.')[2]}_{name}".lower() if not name.isupper(
                        ) else f"{m[1].rpartition('.')[2].upper()}_{name}"
                    self.aliases[path, m] = alias
                    tell("HAND", f"{path}: two {name}; that of {m[1]} is imported as {alias}")
                return True
        return False

    again = False

    def rename(self, meaning: tuple, why: str) -> bool:
        """Give a definition the name of names.tsv now, if it has one."""
        key = meaning[1:]
        if key in self.rows and key not in self.renames:
            self.renames[key] = self.rows[key]
            tell("NOTE", f"renamed {key[0]}.{key[1]} to {self.rows[key]}, which meets {why}")
            return True
        return False

    def text_of(self, module: str, name: str) -> str:
        """What a definition is, to compare it with another."""
        source = self.sources[module]
        return next(ast.dump(s) for s, n in zip(source.statements, source.names, strict=True)
                    if name in n)

    def leave_out(self, path: str, gone: tuple, kept: tuple) -> None:
        """Keep one of two definitions that are the same."""
        source = self.sources[gone[1]]
        number = next(i for i, n in enumerate(source.names) if gone[2] in n)
        if len(source.names[number]) > 1:
            tell("ERROR", f"{path}: {gone[1]}.{gone[2]} is the same as {kept[1]}.{kept[2]}, but is "
                 "defined together with others")
        if self.text_of(*gone[1:]) != self.text_of(*kept[1:]):
            tell("HAND", f"{path}: {gone[1]}.{gone[2]} is left out for {kept[1]}.{kept[2]}, as "
                 "names.tsv says; their texts differ: look")
        self.same[gone[1:]] = kept[1:]
        self.removed.add((gone[1], number))
        for module, numbers in self.files[path]:
            if module == gone[1]:
                numbers.remove(number)
        tell("NOTE", f"{path}: {gone[1]}.{gone[2]} is left out; {kept[1]}.{kept[2]} is the same")

    # -- writing a file -------------------------------------------------------------------------

    def write_all(self) -> dict[str, bytes]:
        found = {}
        for path in sorted(self.files):
            if self.whole(path):
                module = self.only(path)
                found[path] = self.rewritten(self.sources[module], path)
            else:
                found[path] = self.merged(path)
        return found

    def attribute(self, ref: Ref, path: str, source: Source, module: str):
        """Where an attribute of a module object is now: (new path, name) or None for the module."""
        if not ref.chain:
            return None
        word = ref.chain[0][0]
        known = self.modules[module]
        if known.package and self.place(module) == self.old[module]:
            inner = f"{module}.{word}"
            return (self.place(inner), "") if inner in self.modules else None
        found = self.resolve(module, word)
        if found is None or not found[1]:
            return None
        return self.place(*found), self.final(*found)

    def users(self, module: str, name: str) -> set[str]:
        """New files whose code, of an old module, uses a global name of it."""
        source = self.sources[module]
        return {self.where[module, r.statement] for r in source.refs
                if r.name == name and not r.store and r.binding is source.bindings.get(name)
                and self.where[module, r.statement] != DROPPED}

    def patched(self, module: str, name: str, who: str) -> tuple[str, str]:
        """The new file and name to replace where a test replaced a name of a module."""
        source = self.sources[module]
        if name not in source.bindings:
            return self.place(module), name
        binding = source.bindings[name]
        users = self.users(module, name)
        if binding.kind == "def":
            home = self.place(module, name)
            final = self.final(module, name)
            if len(users) == 1:
                (home,) = users
            elif users - {home}:
                tell("HAND", f"{who}: replaces {module}.{name}, used in {sorted(users)} now; "
                     f"changed to {home}")
            return home, final
        meaning = self.meaning(binding, self.place(module))
        local = name
        target = sorted(users)[0] if users else self.place(module)
        if meaning[0] == "def":
            local = self.final(*meaning[1:]) if binding.alias == binding.name else name
        if len(users) > 1:
            tell("HAND", f"{who}: replaces {module}.{name}, used in {sorted(users)} now; "
                 f"changed to {target}")
        return target, self.aliases.get((target, meaning), local)

    def by_name(self, source: Source, path: str, binding: Binding, target: str, ref: Ref,
                name: str, taken: set[str]) -> bool:
        """Whether a name of a module is imported, as the module's own name is taken in a file."""
        base = dotted(target).rpartition(".")[2]
        if source.name not in self.modules or base not in taken:
            return False
        if base == binding.module.rpartition(".")[2]:
            return False
        if name not in taken:
            return True
        there = self.resolve(binding.module, ref.chain[0][0])
        if self.rename(("def", *there), f"a local name in {path}"):
            self.again = True
        return False

    def module_local(self, path: str, binding: Binding, taken: set[str], where: str) -> str:
        """How an imported module is called in a file."""
        base = dotted(path).rpartition(".")[2]
        old = binding.module.rpartition(".")[2]
        if base == old:
            return binding.alias or base
        if base in taken:
            alias = binding.alias or old
            tell("HAND", f"{where}: module {base} is imported as {alias}, as {base} is a name there")
            return alias
        return base

    def edits_of(self, source: Source, path: str, inside: set[int] | None, need) -> list:
        """Edits of names in the text; ``need`` takes what must be imported.

        Args:
            path: the new file; for tests and documents a name of their own.
            inside: statements that count; None for all.
            need: called with (meaning, local name, types only, kind of import).
        """
        edits: list[tuple[int, int, bytes]] = []
        own = source.name in self.modules
        taken = source.bound | {n for n, b in source.bindings.items() if b.kind != "module"}
        skip = set()
        for node, number in source.patches:
            if inside is not None and number not in inside:
                continue
            first, second = node.args[0], node.args[1]
            if (isinstance(first, ast.Name) and isinstance(second, ast.Constant)
                    and isinstance(second.value, str)):
                start, _ = source.span(first)
                ref = next((r for r in source.refs if r.start == start), None)
                if ref is None or ref.binding.kind != "module":
                    continue
                target, name = self.patched(ref.binding.module, second.value, path)
                if target == DROPPED:
                    tell("ERROR", f"{path}: replaces a name of {ref.binding.module}, dropped")
                    continue
                local = self.module_local(target, ref.binding, taken, path)
                edits.append((ref.start, ref.end, local.encode()))
                a, b = source.span(second)
                edits.append((a, b, f'"{name}"'.encode()))
                need(("path", target), local, ref.binding)
                skip.add(start)
        for ref in source.refs:
            if (inside is not None and ref.statement not in inside) or ref.start in skip:
                continue
            b = ref.binding
            if not own and b.kind in {"def", "ext"}:
                continue
            meaning = self.meaning(b, path)
            if meaning[0] == "def":
                home, final = self.place(*meaning[1:]), self.final(*meaning[1:])
                if home == DROPPED:
                    tell("ERROR", f"{path} uses {meaning[1]}.{meaning[2]}, which is dropped")
                    continue
                if home == path and own:
                    local = final
                elif b.kind == "from" and b.alias != b.name:
                    local = self.aliases.get((path, meaning), ref.name)
                else:
                    local = self.aliases.get((path, meaning), final)
                    if not own and local != ref.name and (local in taken):
                        local = ref.name
                if local != ref.name:
                    if any(local in s and s[local] is not b for s in ref.scopes):
                        if self.rename(meaning, f"a local name in {path}"):
                            self.again = True
                        tell("AGAIN" if self.again else "ERROR", f"{path}: {local} (was {ref.name}) is a local name where it "
                             f"is used, in {source.name} at byte {ref.start}")
                    edits.append((ref.start, ref.end, local.encode()))
                if home != path or not own:
                    need(meaning, local, b, ref)
            elif meaning[0] == "module":
                found = self.attribute(ref, path, source, meaning[1])
                if not ref.chain and (self.place(meaning[1]) != self.old[meaning[1]]
                                      or any(m == meaning[1] for m, _ in self.renames)):
                    line = source.data[: ref.start].count(b"\n") + 1
                    tell("HAND", f"{path}: module {meaning[1]} is used as a value (line {line} of the "
                         "old file): names that are taken from it later are not changed")
                target, name = found if found else (self.place(meaning[1]), "")
                if target == DROPPED:
                    tell("ERROR", f"{path} uses {meaning[1]}.{name}, which is dropped")
                    continue
                if target == path and own:
                    if not name:
                        tell("ERROR", f"{path}: {ref.name} is this very file now")
                        continue
                    if any(name in s for s in ref.scopes):
                        there = self.resolve(meaning[1], ref.chain[0][0])
                        if self.rename(("def", *there), f"a local name in {path}"):
                            self.again = True
                        tell("AGAIN" if self.again else "ERROR", f"{path}: {name} (was {ref.name}.{ref.chain[0][0]}) is a local "
                             f"name where it is used, in {source.name} at byte {ref.start}")
                    edits.append((ref.start, ref.chain[0][1], name.encode()))
                    continue
                if name and self.by_name(source, path, b, target, ref, name, taken):
                    there = self.resolve(meaning[1], ref.chain[0][0])
                    edits.append((ref.start, ref.chain[0][1], name.encode()))
                    need(("def", *there), name, b, ref)
                    continue
                local = self.module_local(target, b, taken, path)
                local = self.aliases.get((path, ("path", target)), local)
                end = ref.end
                text = local
                if name:
                    end, text = ref.chain[0][1], f"{local}.{name}"
                if self.data_differs(source, ref.start, end, text):
                    edits.append((ref.start, end, text.encode()))
                need(("path", target), local, b, ref)
            elif meaning[0] == "package":
                words = ["headbook", *(w for w, _ in ref.chain)]
                ends = [ref.end, *(e for _, e in ref.chain)]
                for size in range(len(words), 1, -1):
                    if ".".join(words[:size]) in self.modules:
                        module = ".".join(words[:size])
                        target = self.place(module)
                        end = ends[size - 1]
                        text = dotted(target)
                        if size < len(words) and self.resolve(module, words[size]):
                            m2, n2 = self.resolve(module, words[size])
                            if n2 and not self.stays_exported(module, words[size], ""):
                                target = self.place(m2, n2)
                                text = f"{dotted(target)}.{self.final(m2, n2)}"
                                end = ends[size]
                        if self.data_differs(source, ref.start, end, text):
                            edits.append((ref.start, end, text.encode()))
                        break
                need(meaning, "headbook", b, ref)
            else:
                local = self.aliases.get((path, meaning), ref.name)
                if local != ref.name:
                    edits.append((ref.start, ref.end, local.encode()))
                need(meaning, local, b, ref)
        if own:  # names at their definitions
            for number, node in enumerate(source.statements):
                if inside is not None and number not in inside:
                    continue
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    final = self.final(source.name, node.name)
                    if final != node.name:
                        start = source.at(node.lineno, node.col_offset)
                        at = source.data.index(b" " + node.name.encode(), start) + 1
                        edits.append((at, at + len(node.name.encode()), final.encode()))
            for module, function, old, new in LOOPS:
                if source.name != f"headbook.{module}":
                    continue
                number = next((i for i, n in enumerate(source.names) if function in n), None)
                if number is None:
                    tell("HAND", f"LOOPS: {module} has no {function} any more")
                elif inside is None or number in inside:
                    a, b = source.spans[number]
                    found = re.compile(rb"(?<![.\w\"'`])" + old.encode() + rb"\b(?!\s*=[^=])")
                    for match in found.finditer(source.data, a, b):
                        line = source.data[: match.start()].rpartition(b"\n")[2]
                        if b'"""' not in line:
                            edits.append((match.start(), match.end(), new.encode()))
        edits += self.words_in(source, inside)
        return edits

    @staticmethod
    def data_differs(source: Source, start: int, end: int, text: str) -> bool:
        return source.data[start:end] != text.encode()

    # -- texts in code ---------------------------------------------------------------------------

    def words_in(self, source: Source, inside: set[int] | None) -> list:
        """Edits of modules that strings and comments name."""
        edits = []
        tests = source.name not in self.modules
        called = {}
        for local, binding in source.bindings.items():
            if not tests and binding.kind in {"def", "from"} and binding.alias == binding.name:
                meaning = self._meaning(binding, "")
                if meaning[0] == "def" and self.final(*meaning[1:]) != local:
                    called[local] = self.final(*meaning[1:])
        spans = None if inside is None else [source.spans[i] for i in inside]
        for token in tokenize.tokenize(io.BytesIO(source.data).readline):
            if token.type not in {tokenize.STRING, tokenize.COMMENT}:
                continue
            line = source.data[source.starts[token.start[0] - 1]: source.starts[token.start[0]]]
            column = len(line.decode()[: token.start[1]].encode())
            start = source.starts[token.start[0] - 1] + column
            if spans is not None and not any(a <= start < b for a, b in spans):
                continue
            old = token.string
            new = self.words(old, source.name if not tests else source.file.name, tests=tests)
            if called and "`" in new:
                new = re.sub(r"(?<=`)([A-Za-z_]\w*)(?=[.`(])", lambda m: called.get(m[1], m[1]), new)
            if new != old and "\n" in new:
                new = rewrapped(new, token.start[1])
            if new != old:
                edits.append((start, start + len(old.encode()), new.encode()))
        return edits

    def words(self, text: str, who: str, *, tests: bool = False, prose: bool = False) -> str:
        """A text with the new names of modules and files in it."""

        def link(match: re.Match) -> str:
            label, up, path = match[1], match[2], match[3]
            module = self.by_path.get(f"{path}.py")
            if module is None:
                return match[0]
            first = label.partition(".")[0]
            found = self.resolve(module, first)
            target = self.place(*found) if found and found[1] else self.place(module)
            if target == DROPPED:
                tell("HAND", f"{who}: a link to {path}.py, which is dropped")
                return match[0]
            word = self.final(*found) + label[len(first):] if found and found[1] else label
            return f"[`{word}`]({up}src/headbook/{target})"

        def path_(match: re.Match) -> str:
            module = self.by_path.get(match[2])
            if module is None:
                return match[0]
            target = self.place(module)
            if target == DROPPED:
                tell("HAND", f"{who}: names {match[2]}, which is dropped")
                return match[0]
            return match[1] + target

        def name(match: re.Match) -> str:
            words = match[0].split(".")
            for size in range(len(words), 1, -1):
                module = ".".join(words[:size])
                if module in self.modules:
                    break
            else:
                return match[0]
            rest = words[size:]
            if not rest:
                target = self.place(module)
            elif tests and not prose:
                target, rest[0] = self.patched(module, rest[0], who)
            else:
                found = self.resolve(module, rest[0])
                if found and found[1] and not self.stays_exported(module, rest[0], ""):
                    target, rest[0] = self.place(*found), self.final(*found)
                else:
                    target = self.place(module)
            if target == DROPPED:
                if self.sources[module].statements:
                    tell("HAND", f"{who}: names {match[0]}, which is dropped")
                return match[0]
            return ".".join([dotted(target), *rest])

        def slashed(match: re.Match) -> str:
            module = self.by_path.get(f"{match[2]}.py")
            if module is None:
                if f"headbook.{match[2].replace('/', '.')}" in self.modules and prose:
                    tell("HAND", f"{who}: names the folder {match[2]}")
                return match[0]
            target = self.place(module)
            if target == DROPPED:
                return match[0]
            return f"{match[1]}{target.removesuffix('.py')}{match[3]}"

        whole = re.fullmatch(r'"((?:[a-z_]+/)*[a-z_]+\.py)"', text)
        if whole and tests and whole[1] in self.by_path:
            target = self.place(self.by_path[whole[1]])
            return f'"{target}"' if target != DROPPED else text
        text = re.sub(r"\[`([\w.]+)`\]\(((?:\.\./)*)src/headbook/([\w/]+)\.py\)", link, text)
        text = re.sub(r"(src/headbook/)([\w/]+\.py)\b", path_, text)
        text = re.sub(r"(?<![\w./])headbook(?:\.[A-Za-z_]\w*)+", name, text)
        return re.sub(r"(`)([a-z_]+(?:/[a-z_]+)+)(`)", slashed, text)

    # -- files that stay whole, tests, documents ---------------------------------------------------

    def rewritten(self, source: Source, path: str) -> bytes:
        """A file whose statements stay where they are, with new imports."""
        wanted: dict[tuple, set[str]] = defaultdict(set)  # by binding: (import statement)
        used: dict[int, set[tuple]] = defaultdict(set)

        def need(meaning, local, binding, ref=None) -> None:
            used[id(binding)].add((meaning, local))

        edits = self.edits_of(source, path, None, need)
        done: set[tuple] = set()
        for node, lazy in source.imports:
            edits += self.import_edits(source, node, path, used, lazy=lazy, done=done)
        return self.apply(source, edits, 0, len(source.data))

    def import_edits(self, source: Source, node, path, used, *, lazy: bool, done) -> list:
        """Edits of one import statement."""
        start, end = source.span(node)
        own = source.name in self.modules
        if isinstance(node, ast.ImportFrom):
            if not (node.module or "").startswith("headbook"):
                return []
            bindings = self.bindings_of(source, node)
            lines: dict[str, list[str]] = defaultdict(list)
            alone: list[str] = []
            for local, binding in bindings:
                pairs = used.get(id(binding))
                meaning = self.meaning(binding, path)
                if not pairs:  # given on, or for its effect
                    if meaning[0] == "def":
                        pairs = {(meaning, local)}
                    elif meaning[0] == "module":
                        pairs = {(("path", self.place(meaning[1])),
                                  self.module_local(self.place(meaning[1]), binding, set(), path))}
                    else:
                        pairs = {(meaning, local)}
                for what, called in sorted(pairs, key=str):
                    if what[0] == "def":
                        home = self.place(*what[1:])
                        if home == DROPPED:
                            tell("ERROR", f"{path} imports {what[1]}.{what[2]}, which is dropped")
                            continue
                        if home == path and own:
                            if called != self.final(*what[1:]):
                                alone.append(f"{called} = {self.final(*what[1:])}")
                            continue
                        lines[dotted(home)].append((self.final(*what[1:]), called))
                    elif what[0] == "path":
                        if what[1] == DROPPED:
                            tell("ERROR", f"{path} imports {meaning}, which is dropped")
                            continue
                        parent, _, base = dotted(what[1]).rpartition(".")
                        if not parent:
                            alone.append("import headbook")
                        else:
                            lines[parent].append((base, called))
                    elif what[0] == "export":
                        lines[what[1]].append((what[2], called))
                    else:
                        alone.append(what[1])
            indent = b" " * node.col_offset
            comment = re.match(rb"  #.*", source.data[end: source.starts[node.end_lineno]].rstrip())
            tail = comment[0] if comment else b""
            texts = []
            for module, names in sorted(lines.items()):
                names = sorted({n if n == c else f"{n} as {c}" for n, c in names})
                text = f"from {module} import {', '.join(names)}"
                key = (lazy, text)
                if not lazy:
                    names = [n for n in names if (module, n) not in done]
                    done |= {(module, n) for n in names}
                    if not names:
                        continue
                    text = f"from {module} import {', '.join(names)}"
                if len(text) + node.col_offset > 95:
                    inner = ",\n".join(f"{' ' * node.col_offset}    {n}" for n in names)
                    text = f"from {module} import (\n{inner},\n{' ' * node.col_offset})"
                texts.append(text.encode())
            texts += [x.encode() for x in sorted({*alone})]
            if not texts:
                line_end = source.starts[node.end_lineno]
                return [(source.starts[node.lineno - 1], line_end, b"")]
            new = (tail + b"\n" + indent).join(texts)
            if new == source.data[start:end]:
                return []
            return [(start, end, new)]
        edits = []
        for alias in node.names:
            if alias.name in self.modules and alias.name != "headbook":
                target = self.place(alias.name)
                binding = next(b for n, b in source._bound_by(ast.Import(names=[alias])))
                if target == DROPPED:
                    tell("ERROR", f"{path} imports {alias.name}, which is dropped")
                    continue
                a, _ = source.span(alias)
                edits.append((a, a + len(alias.name), dotted(target).encode()))
        return edits

    def bindings_of(self, source: Source, node: ast.ImportFrom):
        """Names of an import with the very objects that uses hold."""
        found = []
        for alias in node.names:
            local = alias.asname or alias.name
            mine = None
            for ref in source.refs:
                b = ref.binding
                if ref.name == local and b.alias == local and (
                    (b.kind == "from" and b.module == node.module and b.name == alias.name)
                    or (b.kind == "module" and b.module == f"{node.module}.{alias.name}")
                ):
                    mine = b
                    found.append((local, b))
            if mine is None:
                found += [(n, b) for n, b in source._bound_by(ast.ImportFrom(
                    module=node.module, names=[alias], level=0))]
        unique, seen = [], set()
        for local, b in found:
            if id(b) not in seen:
                seen.add(id(b))
                unique.append((local, b))
        return unique

    @staticmethod
    def apply(source: Source, edits: list, start: int, end: int) -> bytes:
        """The text between two places with edits made."""
        parts, at = [], start
        taken: list[tuple[int, int, bytes]] = []
        for edit in sorted({*edits}):
            if not (start <= edit[0] and edit[1] <= end):
                continue
            if taken and edit[0] < taken[-1][1]:
                inner, outer = edit, taken[-1]
                if inner[1] - inner[0] > outer[1] - outer[0]:
                    inner, outer = outer, inner
                    taken[-1] = outer
                if inner != outer and inner[2] != outer[2]:
                    tell("NOTE", f"{source.name}: two edits of {source.data[outer[0]:outer[1]]!r}")
                continue
            taken.append(edit)
        for a, b, text in taken:
            parts += [source.data[at:a], text]
            at = b
        return b"".join([*parts, source.data[at:end]])

    # -- merged files ----------------------------------------------------------------------------

    def merged(self, path: str) -> bytes:
        """A new file from statements of several."""
        chunks = [c for c in self.files[path] if c[1]]
        entries: dict[str, tuple[bool, str]] = {}  # import statement: at run time
        wanted: dict[tuple[str, bool], bool] = {}
        pieces = []
        runtime: set[str] = set()
        types: set[str] = set()
        for module, numbers in self.sort_chunks(path, chunks):
            source = self.sources[module]
            used: dict[int, set[tuple]] = defaultdict(set)

            def need(meaning, local, binding, ref=None, module=module) -> None:
                used[id(binding)].add((meaning, local))
                if binding.lazy:
                    return
                text = self.statement_of(meaning, local, path)
                if text is None:
                    return
                late = ref is not None and ref.string and binding.kind == "def"
                (types if binding.types or late else runtime).add(text)

            edits = self.edits_of(source, path, {*numbers}, need)
            for node, lazy in source.imports:
                if lazy:
                    edits += self.import_edits(source, node, path, used, lazy=True, done=set())
            first = True
            for number in numbers:
                a, b = source.spans[number]
                if source.names[number] == {"__all__"}:
                    tell("NOTE", f"{path}: __all__ of {module} is left out")
                    continue
                text = self.apply(source, edits, a, b)
                blank = len(text) - len(text.lstrip(b"\n"))
                gap = 2 if first else min(blank, 2)
                if number and number - 1 not in numbers:
                    gap = max(gap, 1)
                pieces.append(b"\n" * gap + text.lstrip(b"\n"))
                first = False
            if source.tail.strip() and len(source.statements) - 1 in numbers:
                pieces.append(source.tail)
        types -= runtime
        head = self.docstring(path)
        imports = "\n".join(sorted(runtime))
        if types:
            imports += "\nfrom typing import TYPE_CHECKING\n"
        text = head + b"\n" + imports.encode() + b"\n"
        if types:
            text += b"\nif TYPE_CHECKING:\n" + "".join(f"    {x}\n" for x in sorted(types)).encode()
        return text + b"\n" + b"".join(pieces)

    def statement_of(self, meaning, local, path) -> str | None:
        if meaning[0] == "def":
            home = self.place(*meaning[1:])
            return import_line(dotted(home), self.final(*meaning[1:]), local)
        if meaning[0] == "path":
            parent, _, base = dotted(meaning[1]).rpartition(".")
            return import_line(parent, base, local) if parent else "import headbook"
        if meaning[0] == "export":
            return import_line(meaning[1], meaning[2], local)
        if meaning[0] == "package":
            return "import headbook"
        alias = self.aliases.get((path, meaning))
        if alias:
            return re.sub(r" as \w+$", "", meaning[1]) + f" as {alias}"
        return meaning[1]

    def sort_chunks(self, path: str, chunks):
        """Chunks in an order in which each uses only what stands before it."""
        names = {m: i for i, (m, _) in enumerate(chunks)}
        needs: dict[str, set[str]] = {m: set() for m, _ in chunks}
        eager: dict[str, set[str]] = {m: set() for m, _ in chunks}
        for module, numbers in chunks:
            for ref in self.sources[module].refs:
                if ref.statement not in numbers:
                    continue
                meaning = self.meaning(ref.binding, path)
                if meaning[0] == "module" and ref.chain:
                    found = self.resolve(meaning[1], ref.chain[0][0])
                    meaning = ("def", *found) if found and found[1] else meaning
                if meaning[0] == "def" and self.place(*meaning[1:]) == path:
                    if meaning[1] != module and meaning[1] in needs:
                        needs[module].add(meaning[1])
                        if not ref.string and ref.depth == 0:
                            eager[module].add(meaning[1])
        def ordered(graph):
            done, left = [], [m for m, _ in chunks]
            while left:
                for m in left:
                    if not (graph[m] & {*left} - {m}):
                        done.append(m)
                        left.remove(m)
                        break
                else:
                    return None
            return done
        order = ordered(needs)
        if order is None:
            order = ordered(eager)
            tell("NOTE", f"{path}: parts use each other; sorted by what runs at import")
        if order is None:
            tell("ERROR", f"{path}: no order of {sorted(names)} works at import")
            order = [m for m, _ in chunks]
        by = dict(chunks)
        return [(m, by[m]) for m in order]

    def docstring(self, path: str) -> bytes:
        """What a merged file says of itself: the plan's line, then what its sources explained."""
        mains = [m for m in self.main[path] if self.sources[m].statements]
        order = [m for m, _ in self.sort_chunks(path, [c for c in self.files[path] if c[1]])]
        mains = [m for m in order if m in mains] or order
        docs = [ast.get_docstring(self.sources[m].tree) or "" for m in mains]
        if len(mains) == 1 and self.final_sources(path) == 1:
            node = self.sources[mains[0]].doc
            source = self.sources[mains[0]]
            text = source.data[slice(*source.span(node))].decode() if node else '""""""'
            return (self.words(text, path) + "\n").encode()
        line = self.said.get(path, "").strip() or docs[0].partition("\n")[0]
        raw = any("\\" in d for d in docs)
        paragraphs = self.summary(line)
        for doc in docs:
            _, _, rest = doc.partition("\n\n")
            if rest.strip():
                paragraphs.append(rest.strip())
        text = "\n\n".join(paragraphs)
        if "\n" in text:
            text += "\n"
        return ((("r" if raw else "") + '"""' + self.words(text, path) + '"""') + "\n").encode()

    def final_sources(self, path: str) -> int:
        return len([m for m, n in self.files[path] if n and self.place(m) == path])

    @staticmethod
    def summary(line: str) -> list[str]:
        """One line of at most 93 letters, and what is left as a paragraph."""
        line = line if line.endswith((".", "!", "?")) else f"{line}."
        if len(line) <= 93:
            return [line]
        for mark in (". ", "; ", ": ", ", "):
            places = [m.start() for m in re.finditer(re.escape(mark), line) if 20 < m.start() < 92]
            if places:
                at = places[-1]
                rest = line[at + len(mark):]
                rest = rest[0].upper() + rest[1:]
                lines, row = [], ""
                for word in rest.split():
                    if len(row) + len(word) + 1 > 99:
                        lines.append(row)
                        row = word
                    else:
                        row = f"{row} {word}".strip()
                return [line[:at] + ".", "\n".join([*lines, row])]
        return [line]

    # -- the whole --------------------------------------------------------------------------------

    def run(self) -> None:
        self.by_path = {self.old[n]: n for n in self.modules}
        self.layout()
        for _ in range(10):
            self.again = False
            self.settle_names()
            tell.lines["AGAIN"].clear()
            new = self.write_all()
            if not self.again:
                break
        self.package_files(new)
        outside: dict[Path, bytes] = {}
        for folder in ("tests", "benchmarks", "docs"):
            for file in sorted((self.root / folder).rglob("*.py")):
                source = Source(f"{folder}:{file.stem}", file, self.modules)
                text = self.rewritten(source, file.relative_to(self.root).as_posix())
                if text != source.data:
                    outside[file] = text
        for file in self.prose():
            old = file.read_text(encoding="utf-8")
            text = self.words(old, file.relative_to(self.root).as_posix(), prose=True)
            if file.name == "CONTRIBUTING.md" and 14 in self.steps:
                text = self.map_of_folders(text)
            text = self.per_file_ignores(text) if file.name == "pyproject.toml" else text
            if text != old:
                outside[file] = text.encode()
        for path, was, becomes in POLISH:
            tests = path.startswith("tests/")
            table, key = (outside, self.root / path) if tests else (new, path)
            if key in table and was.encode() in table[key]:
                table[key] = table[key].replace(was.encode(), becomes.encode())
            elif tests and 11 in self.steps or not tests and path in new and self.step_of(
                path) in self.steps:
                tell("NOTE", f"POLISH: {path} has no {was[:60]!r} any more")
        self.proof(new)
        # numba imports `coverage`, and finds this file where tests have benchmarks on their path: it
        # imports Headbook in the midst of an import of Headbook.
        taken = self.root / "benchmarks" / "coverage.py"
        if taken.is_file():
            better = taken.with_name("interval_coverage.py")
            outside[better] = outside.pop(taken, taken.read_bytes())
            self.gone.append(taken)
            for file in [better, *self.prose(), *sorted((self.root / "tests").rglob("*.py"))]:
                data = outside.get(file) or file.read_bytes()
                text = data.replace(b"benchmarks/coverage.py", b"benchmarks/interval_coverage.py")
                if text != data:
                    outside[file] = text
            tell("NOTE", "benchmarks/coverage.py is interval_coverage.py now: numba took it for a library")
        if 14 in self.steps:
            self.templates(new, outside)
        tell.show()
        errors = tell.lines["ERROR"]
        kinds = Counter(check.folder_of(p).partition("/")[0] for p in new)
        print(f"{len(self.modules)} files become {len(new)}: "
              + ", ".join(f"{k} {n}" for k, n in sorted(kinds.items())))
        if (errors and not self.given.force) or self.given.dry:
            print(f"{len(errors)} errors; nothing is written")
            sys.exit(bool(errors))
        self.write(new, outside)
        print(f"written; {len(errors)} errors" )

    def package_files(self, new: dict[str, bytes]) -> None:
        """Package files of old folders that still hold something, and of new ones."""
        for path in [*new]:
            folder = path.rpartition("/")[0]
            while folder:
                init = f"{folder}/__init__.py"
                if init not in new:
                    old = self.package / init
                    if old.is_file():
                        new[init] = old.read_bytes()
                    elif folder.endswith("dropped"):
                        new[init] = b'"""What is dropped from the code, and not yet gone."""\n'
                    else:
                        tell("ERROR", f"{init} has no source")
                folder = folder.rpartition("/")[0]

    def prose(self) -> list[Path]:
        found = [self.root / n for n in ("CONTRIBUTING.md", "README.md", "CHANGELOG.md", "Makefile",
                                         "pyproject.toml", "eslint.config.mjs")]
        for folder, kinds in (("docs", ("*.md",)), ("benchmarks", ("*.md",)),
                              ("templates", ("*.html", "*.js", "*.ts", "*.css", "*.txt")),
                              (".ci", ("*",))):
            for kind in kinds:
                found += sorted((self.root / folder).rglob(kind))
        return [f for f in found if f.is_file()]

    @staticmethod
    def map_of_folders(text: str) -> str:
        """CONTRIBUTING.md: its table of folders and its picture."""
        for folder, said in FOLDER_ROWS.items():
            text, n = re.subn(rf"^\| `src/headbook/{folder}` \|.*$",
                              lambda m, f=folder, s=said: f"| `src/headbook/{f}` | {s} |", text, flags=re.M)
            if n != 1:
                tell("HAND", f"CONTRIBUTING.md: no row of {folder}")
        if "| `src/headbook/ablation` |" not in text:
            text = re.sub(r"^(\| `src/headbook/passes` \|.*)$",
                          lambda m: f"{m[1]}\n{ABLATION_ROW}", text, flags=re.M)
        if PICTURE[0] not in text:
            tell("HAND", "CONTRIBUTING.md: the picture of the flow needs ablation")
        text = text.replace("| `charts/vega` or `charts/drawn` |", "| the module of its theme in `charts` |")
        return text.replace(*PICTURE)

    @staticmethod
    def per_file_ignores(text: str) -> str:
        """Rows for the same file become one, rows for files that are gone go."""
        seen: dict[str, str] = {}
        lines = []
        for line in text.splitlines(keepends=True):
            match = re.match(r'^"(src/headbook/[\w/]+\.py)" = \[(.*)\]', line)
            if match and match[1] in seen:
                at = next(i for i, x in enumerate(lines) if x.startswith(f'"{match[1]}"'))
                codes = {*re.findall(r'"(\w+)"', lines[at].partition("=")[2]),
                         *re.findall(r'"(\w+)"', match[2])}
                lines[at] = f'"{match[1]}" = [{", ".join(f"{chr(34)}{c}{chr(34)}" for c in sorted(codes))}]\n'
                continue
            if match:
                seen[match[1]] = line
            lines.append(line)
        return "".join(lines)

    def proof(self, new: dict[str, bytes]) -> None:
        """Every statement is there again, once, and the same but for names."""

        class Plain(ast.NodeTransformer):
            def visit_Name(self, node):
                return ast.Name(id="_", ctx=node.ctx)

            def visit_Attribute(self, node):
                inner = self.visit(node.value)
                return inner if isinstance(inner, ast.Name) else ast.Attribute(
                    value=inner, attr=node.attr, ctx=node.ctx)

            def visit_Constant(self, node):
                return ast.Constant(value="_") if isinstance(node.value, str) else node

            def visit_ImportFrom(self, node):
                return None

            def visit_Import(self, node):
                return None

            def visit_FunctionDef(self, node):
                node = self.generic_visit(node)
                node.name = "_"
                return node

            def visit_ClassDef(self, node):
                node = self.generic_visit(node)
                node.name = "_"
                return node

        def dump(node: ast.stmt) -> str:
            try:
                return ast.dump(Plain().visit(node))
            except Exception:  # noqa: BLE001 - a function of imports alone
                return "?"

        was, now = Counter(), Counter()
        where = {}
        for module, source in self.sources.items():
            for number, node in enumerate(ast.parse(source.data).body):
                pass
            tree = ast.parse(source.data)
            statements = [n for n in tree.body if any(
                n.lineno == s.lineno and type(n) is type(s) for s in source.statements)]
            for number, node in enumerate(statements):
                if (module, number) in self.removed:
                    continue
                if self.where[module, number] != DROPPED and source.names[number] != {"__all__"}:
                    text = dump(node)
                    was[text] += 1
                    where[text] = f"{module}: {sorted(source.names[number])}"
        for path, data in new.items():
            try:
                tree = ast.parse(data)
            except SyntaxError as error:
                tell("ERROR", f"{path}: {error}")
                continue
            body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
            for node in body:
                if isinstance(node, ast.Import | ast.ImportFrom) or Source.pure_types(node):
                    continue
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    continue
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                    continue
                now[dump(node)] += 1
        was -= Counter({k: n for k, n in was.items() if "__all__" in where[k]})
        for text in was - now:
            tell("ERROR", f"lost or changed: {where[text]}")
        print(f"proof: {sum(was.values())} statements of src, {sum((was & now).values())} the same "
              "in the new files but for names")

    def write(self, new: dict[str, bytes], outside: dict[Path, bytes]) -> None:
        for name, path in self.old.items():
            if path not in new:
                (self.package / path).unlink()
        for path, data in new.items():
            file = self.package / path
            if not file.parent.is_dir():
                file.parent.mkdir(parents=True)
            if not file.is_file() or file.read_bytes() != data:
                file.write_bytes(data)
        for file in self.gone:
            file.unlink()
        for file, data in outside.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        for folder in sorted(self.package.rglob("*"), reverse=True):
            if folder.is_dir() and folder.name != "__pycache__":
                left = [f for f in folder.iterdir() if f.name != "__pycache__"]
                if not left:
                    shutil.rmtree(folder)
        self.test_imports()
        if not self.given.no_format:
            self.tidy()

    def test_imports(self) -> None:
        """Order of folders, and doors of libraries."""
        file = self.root / "tests" / "test_imports.py"
        text = file.read_text(encoding="utf-8")
        there = {p.parts[0] for p in (f.relative_to(self.package) for f in
                                      self.package.rglob("*.py")) if len(p.parts) > 1}
        old = re.search(r"FOLDERS = \[\n(.*?)\]", text, re.S)
        known = re.findall(r'"(\w+)"', old[1])
        order = [f for f in self.order if f == "headbook" or f in there]
        for each in known:  # old folders that are still there, where they were
            if each in there and each not in order:
                before = known[known.index(each) - 1]
                order.insert(order.index(before) + 1 if before in order else len(order), each)
        rows = "".join(f'    "{f}",\n' for f in order)
        text = text.replace(old[0], f"FOLDERS = [\n{rows}]")
        users: dict[str, set[str]] = defaultdict(set)
        anywhere = {"numpy", "pandas", "torch", "headbook", "__future__"} | {*sys.stdlib_module_names}
        for f in sorted(self.package.rglob("*.py")):
            tree = ast.parse(f.read_bytes())
            for node in ast.walk(tree):
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                    node.body = []
            parts = f.relative_to(self.package).with_suffix("").parts
            module = ".".join(parts).removesuffix(".__init__")
            for node in ast.walk(tree):
                names = ([a.name for a in node.names] if isinstance(node, ast.Import) else
                         [node.module] if isinstance(node, ast.ImportFrom) else [])
                for n in names:
                    if n.partition(".")[0] not in anywhere:
                        users[n.partition(".")[0]].add(module)
        found = re.search(r"DOORS = \{\n(.*?)\n\}", text, re.S)
        listed = re.findall(r'^    "(\w+)":', found[1], re.M)
        if {*users} != {*listed}:
            tell("HAND", f"tests/test_imports.py: libraries {sorted({*users} ^ {*listed})}")
        rows = "".join(
            f'    "{lib}": {{{", ".join(f"{chr(34)}{m}{chr(34)}" for m in sorted(users[lib]))}}},\n'
            for lib in listed if users[lib])  # fmt: skip
        text = text.replace(found[0], f"DOORS = {{\n{rows}}}")

        def short(match: re.Match) -> str:
            module = f"headbook.{match[1]}"
            if module in self.modules and self.place(module) != DROPPED:
                return f'"{dotted(self.place(module)).removeprefix("headbook.")}"'
            return match[0]

        head, mark, rest = text.partition("MODULES = {")
        rest = re.sub(r'"((?:[a-z_]+\.)+[a-z_]+)"', short, rest)
        rest = re.sub(r'\{("[\w.]+"), \1\}', r"{\1}", rest)
        file.write_text(head + mark + rest, encoding="utf-8")

    def tidy(self) -> None:
        ruff = next((str(p) for p in (self.root / ".venv/bin/ruff", Path(sys.prefix) / "bin/ruff")
                     if p.is_file()), "ruff")
        for command in (["check", "--select", "I,F401,B033", "--fix", "-q", "src"],
                        ["check", "--select", "I", "--fix", "-q", "tests", "benchmarks", "docs"],
                        ["format", "-q"]):
            subprocess.run([ruff, *command], cwd=self.root, check=False)

    # -- templates and scripts --------------------------------------------------------------------

    def templates(self, new: dict[str, bytes], outside: dict[Path, bytes]) -> None:
        """Templates mirror pages; scripts get names that say something."""
        root = self.root / "templates"
        renamed: dict[str, str] = {}
        scripts: dict[str, str] = {}
        for line in self.tree:
            match = re.match(r"^- `templates/([\w./]+)` \(\d+\)(.*)$", line)
            if not match:
                continue
            path, said = match[1], match[2]
            was = re.search(r"\(was (\w+\.\w+)\)", said)
            if was:
                renamed[f"{path.rpartition('/')[0]}/{was[1]}"] = path
            elif "/" in path and path.endswith(".html") and not (root / path).is_file():
                renamed[path.rpartition("/")[2]] = path
        renamed = {a: b for a, b in renamed.items() if (root / a).is_file()}
        scripts = {Path(a).stem: Path(b).stem for a, b in renamed.items() if a.endswith(".js")}
        pages = {a: b for a, b in renamed.items() if a.endswith(".html")}
        # Python: templates by their attribute, and where templates are listed.
        listing = [p for p in new if p.startswith("site/")]
        for path in [*new]:
            text = new[path].decode()
            if path.startswith("pages/"):
                text = re.sub(r'(template: ClassVar\[str\] = ")([\w./]+)"',
                              lambda m: f'{m[1]}{pages.get(m[2], m[2])}"', text)
            if path in listing:
                text = self.lists_of_templates(text, pages, scripts, path)
            text = self.script_files(text, scripts)
            new[path] = text.encode()
        for folder in ("tests", "docs", "benchmarks"):
            for file in sorted((self.root / folder).rglob("*.py")):
                data = outside.get(file, file.read_bytes())
                text = self.script_files(data.decode(), scripts)
                if text.encode() != data:
                    outside[file] = text.encode()
        # Templates and scripts themselves; a new name may be the old one of another file.
        before = dict(outside)
        for file in [*outside]:
            if file.is_relative_to(root):
                del outside[file]
        for file in sorted(p for p in root.rglob("*") if p.suffix in {".html", ".js", ".ts", ".css"}):
            own = file.relative_to(root).as_posix()
            was = file.read_bytes()
            text = before.get(file, was).decode()
            for a, b in pages.items():
                text = re.sub(rf'((?:include|import|from|extends) ")' + re.escape(a) + '"',
                              lambda m, b=b: f'{m[1]}{b}"', text)
            if file.suffix in {".js", ".ts"}:
                text = self.script_files(text, scripts)
                text = re.sub(r'\buse\("(\w+)"\)', lambda m: f'use("{scripts.get(m[1], m[1])}")', text)
                text = re.sub(r'(for \(const name of \[)([^\]]*)(\]\)[^;]{0,120}?await use\(name\))',
                              lambda m: m[1] + re.sub(r'"(\w+)"', lambda n: f'"{scripts.get(n[1], n[1])}"',
                                                      m[2]) + m[3], text)
                text = re.sub(r"`(\w+)\.js`", lambda m: f"`{scripts.get(m[1], m[1])}.js`", text)
            target = root / renamed.get(own, own)
            if target != file:
                self.gone.append(file)
                outside[target] = text.encode()
            elif text.encode() != was:
                outside[file] = text.encode()
        for name in ("test_page_names.py",):
            ready = HERE / "files" / name
            if ready.is_file():
                outside[self.root / "tests" / name] = ready.read_bytes()

    gone: list[Path] = []

    @staticmethod
    def script_files(text: str, scripts: dict[str, str]) -> str:
        """Names of scripts as files."""
        text = re.sub(r"(assets/)(\w+)(\.js)", lambda m: f"{m[1]}{scripts.get(m[2], m[2])}{m[3]}", text)
        text = re.sub(r'("assets" / ")(\w+)(\.js")', lambda m: f"{m[1]}{scripts.get(m[2], m[2])}{m[3]}", text)
        return re.sub(r"(``?)(\w+)(\.js``?)", lambda m: f"{m[1]}{scripts.get(m[2], m[2])}{m[3]}", text)

    @staticmethod
    def lists_of_templates(text: str, pages: dict, scripts: dict, path: str) -> str:
        """The scripts of each template, and templates without contents."""

        def names(block: str) -> str:
            block = re.sub(r'"([\w/]+\.html)"', lambda m: f'"{pages.get(m[1], m[1])}"', block)
            return re.sub(r'"(\w+)"', lambda m: f'"{scripts.get(m[1], m[1])}"', block)

        for start in ("WITHOUT = (", "EVERY = (", "ATTENTION = (", "OWN = {", "ASKED = {"):
            at = text.find(f"\n{start}") + 1
            if at:
                close = "}" if start.endswith("{") else ")"
                line = text.index("\n", at)
                end = line if text[line - 1] == close else text.index(f"\n{close}", at)
                text = text[:at] + names(text[at:end]) + text[end:]
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--step", type=int, nargs="+", choices=range(9, 15))
    for name in ("keep-dropped", "force", "dry", "no-format"):
        parser.add_argument(f"--{name}", action="store_true")
    Move(parser.parse_args()).run()


if __name__ == "__main__":
    main()
