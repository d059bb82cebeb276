"""Rename local variables and parameters that carry retired words: python localnames.py CHECKOUT [--dry].

`local.tsv` holds: where (`src`, `tests`, a folder, or the end of a file's old or new path), old name,
new name; the first row that fits a file counts. A name is changed only inside the function (or
comprehension) that binds it, with its line under ``Args:`` and its keyword in calls that resolve to
the function; where the new name is used there already, it is told and left. mypy finds keywords of
methods that this does not see (`Unexpected keyword argument`).
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from rename import Edits, Moves, Project, Renamer, dotted, prose_of  # noqa: E402
from scopes import FUNCTIONS  # noqa: E402

root = Path(sys.argv[1]).resolve()
project, moves, edits = Project(root), Moves(HERE / "moves.tsv"), Edits()
rows = [line.split("\t") for line in (HERE / "local.tsv").read_text().splitlines() if line and line[0] != "#"]
notes: list[str] = []
renamed_parameters: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))  # function name: old: new


def words_of(file) -> dict[str, str]:
    rel = str(file.path.relative_to(root))
    short = rel.removeprefix("src/headbook/")
    found: dict[str, str] = {}
    for where, old, new in rows:
        place = moves.place(dotted(where), "").replace(".", "/")
        fits = rel.startswith(where + "/") or short == where or short.startswith(where + "/") \
            or (place and short == place + ".py") or rel == where
        if fits:
            found.setdefault(old, new)
    return found


class Locals(Renamer):
    def run(self) -> None:
        self.words = words_of(self.file)
        self.refused: set[tuple[int, str]] = set()
        if self.words:
            super().run()

    def fits(self, scope, old, new) -> bool:
        key = (id(scope), old)
        if key in self.refused:
            return False
        used = {n.id for n in ast.walk(scope.node) if isinstance(n, ast.Name)}
        used |= {a.arg for a in ast.walk(scope.node) if isinstance(a, ast.arg)}
        if new in used:
            name = getattr(scope.node, "name", scope.kind)
            notes.append(f"{self.rel()}:{scope.node.lineno}: {old} -> {new}: {name} has {new} already")
            self.refused.add(key)
            return False
        return True

    def on_definition(self, node) -> None:
        if not isinstance(node, FUNCTIONS):
            return
        a = node.args
        for each in [*a.posonlyargs, *a.args, *a.kwonlyargs]:
            new = self.words.get(each.arg)
            if new:
                used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                used |= {x.arg for x in ast.walk(node) if isinstance(x, ast.arg)}
                if new not in used:
                    self.edit(each.lineno, each.col_offset, each.arg, new)
                    if each in a.kwonlyargs or True:
                        renamed_parameters[node.name][each.arg].add(new)
                    self.document(node, each.arg, new)

    def document(self, node, old, new) -> None:
        doc = node.body[0] if node.body else None
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
            for number in range(doc.lineno, doc.end_lineno + 1):
                raw = self.file.lines[number - 1].decode()
                for match in [*re.finditer(rf"``{old}``", raw), *re.finditer(rf"^\s+(?:\w+, )*{old}(?=[,:])", raw)]:
                    at = raw.index(old, match.start())
                    self.edit(number, len(raw[:at].encode()), old, new)

    def on_node(self, node) -> None:
        if isinstance(node, ast.Name) and node.id in self.words:
            scope = self.scope.find(node.id)
            if scope is not None and scope.kind in {"function", "comprehension"} and node.id not in scope.imports:
                new = self.words[node.id]
                if self.fits(scope, node.id, new):
                    self.edit(node.lineno, node.col_offset, node.id, new)
        elif isinstance(node, ast.Lambda):
            a = node.args
            for each in [*a.args, *a.kwonlyargs]:
                if each.arg in self.words:
                    self.edit(each.lineno, each.col_offset, each.arg, self.words[each.arg])

    def on_string(self, node) -> None: ...
    def prose(self) -> None: ...


for file in project.files.values():
    Locals(project, file, {}, edits, notes).run()

# Keywords in calls of functions with these parameters.
for file in project.files.values():
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name == "partial" and node.args:
                name = getattr(node.args[0], "id", getattr(node.args[0], "attr", ""))
            for keyword in node.keywords:
                new = renamed_parameters.get(name, {}).get(keyword.arg)
                if new and len(new) == 1:
                    edits.add(file, keyword.lineno, keyword.col_offset, keyword.arg, next(iter(new)))
total = edits.apply(project.files, dry="--dry" in sys.argv)
print("\n".join(sorted(set(notes))))
print(total, "replacements")
