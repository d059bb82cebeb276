"""Rename members of classes: definitions and overrides by syntax, uses by the types that mypy finds."""

import ast
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).parent


def types_of(root: Path, python: Path, wanted: set[str]) -> dict:
    """Run `memberuses.py` under the project's Python; returns what mypy knows of members."""
    out = Path("/tmp") / f"memberuses.{os.getpid()}.json"
    names = Path("/tmp") / f"memberuses.{os.getpid()}.names"
    names.write_text("\n".join(sorted(wanted)))
    subprocess.run([python, HERE / "memberuses.py", root, names, out], check=True, cwd=root)
    found = json.loads(out.read_text())
    out.unlink()
    names.unlink()
    return found


def rename_members(project, rows, every, moves, given) -> int:
    from rename import (  # noqa: PLC0415
        CODE, Edits, File, Renamer, Walker, locate, print_result, prose_of, statements,
    )

    root = project.root
    wanted: dict[tuple[str, str], tuple[str, object]] = {}  # (class, member): new, row
    for row in rows:
        locate(project, row, moves)
        old, new = row.old.rpartition(".")[2], row.new.rpartition(".")[2]
        if row.new.startswith("("):
            row.state = f"by hand: {row.new}"
        elif row.where[1]:
            wanted[".".join(row.where), old] = (new, row)
    names = {member for _, member in wanted}
    python = root / ".venv/bin/python"
    found = types_of(root, python, names)
    # found: classes {fullname: {"mro": [...], "names": [...]}} of the project,
    #        uses [[path, line, column, name, [defining classes], how]]
    classes = found["classes"]
    renamed: dict[tuple[str, str], str] = {}
    notes: list[str] = []
    for (cls, member), (new, row) in wanted.items():
        if cls not in classes:
            row.state = f"missing: mypy knows no {cls}"
            continue
        owner = next((c for c in classes[cls]["mro"] if c in classes and member in classes[c]["names"]), None)
        has_new = any(c in classes and new in classes[c]["names"] for c in classes[cls]["mro"])
        if owner is None:
            row.state = "done" if has_new else f"missing: {cls} has no {member}"
            continue
        if has_new and new != member:
            row.state = f"ambiguous: {cls} has {member} and {new}"
            continue
        row.state = "applied"
        if owner != cls:
            notes.append(f"ROW {row.old}: {member} is defined in {owner}, renamed there")
        renamed[owner, member] = new
    # Classes that have all members of a protocol are taken for its implementations.
    for (cls, member), new in list(renamed.items()):
        wanted_members = set(classes[cls].get("protocol", ()))
        for other, facts in classes.items() if wanted_members else ():
            there = {n for c in facts["mro"] if c in classes for n in classes[c]["names"]}
            if wanted_members <= there and member in facts["names"]:
                renamed.setdefault((other, member), new)
    # Overrides, and the same member in bases.
    for (cls, member), new in list(renamed.items()):
        for other, facts in classes.items():
            if cls in facts["mro"] and other != cls and member in facts["names"]:
                before = renamed.setdefault((other, member), new)
                if before != new:
                    notes.append(f"CLASH {other}.{member}: {before} or {new}")
            if new in facts["names"] and cls in facts["mro"] and other != cls:
                notes.append(f"CLASH {other} has a {new} of its own, {cls}.{member} becomes that")
        for base in classes[cls]["mro"][1:]:
            if base in classes and member in classes[base]["names"] and (base, member) not in renamed:
                notes.append(f"BASE {cls}.{member} is renamed, {base}.{member} is not")
    edits = Edits()
    by_path = {str(p): f for p, f in project.files.items()}
    untyped: Counter[str] = Counter()
    for path, line, column, name, owners, how in found["uses"]:
        file = by_path.get(path)
        if file is None:
            continue
        hits = {renamed.get((owner, name)) for owner in owners}
        rel = Path(path).relative_to(root)
        if not owners:
            notes.append(f"UNTYPED {rel}:{line}: .{name} ({how})")
            continue
        if hits == {None}:
            continue
        if len(hits) > 1:
            notes.append(f"MIXED {rel}:{line}: .{name} of {owners} ({how}): {hits}")
            continue
        new = hits.pop()
        raw = file.lines[line - 1].decode()
        as_bytes = len(raw[:column].encode())
        if not edits.add(file, line, column, name, new) and not edits.add(file, line, as_bytes, name, new):
            notes.append(f"POSITION {rel}:{line}:{column}: {name} -> {new} ({how})")
    seen = {(p, l, c) for p, l, c, *_ in found["uses"]}
    # What mypy has not visited (unreachable), definitions, docstrings, strings.
    for file in project.files.values():
        rel = file.path.relative_to(root)
        module = file.name if project.modules.get(file.name) is file else ""
        mypy_module = found["modules"].get(str(file.path), module)
        classes_here: dict[int, str] = {}
        stack = [(file.tree, mypy_module)]
        while stack:
            node, prefix = stack.pop()
            for each in ast.iter_child_nodes(node):
                if isinstance(each, ast.ClassDef):
                    classes_here[id(each)] = f"{prefix}.{each.name}"
                    stack.append((each, f"{prefix}.{each.name}"))
                else:
                    stack.append((each, prefix))

        class Definitions(Walker):
            def on_definition(self, node):
                if self.scope.kind == "class":
                    new = renamed.get((classes_here.get(id(self.scope.node), ""), node.name))
                    if new and not isinstance(node, ast.ClassDef):
                        raw = file.lines[node.lineno - 1]
                        match = re.match(rb"\s*(?:async\s+)?def\s+", raw)
                        edits.add(file, node.lineno, match.end(), node.name, new)

            def on_node(self, node):
                if isinstance(node, ast.Name):
                    where = self.scope.find(node.id)
                    if where is not None and where.kind == "class":
                        new = renamed.get((classes_here.get(id(where.node), ""), node.id))
                        if new:
                            edits.add(file, node.lineno, node.col_offset, node.id, new)
                elif isinstance(node, ast.Attribute) and node.attr in names:
                    column = node.end_col_offset - len(node.attr.encode())
                    if (str(file.path), node.end_lineno, column) not in seen:
                        owner = Renamer.of(self.helper, node.value)
                        base = node.value
                        where = self.scope.find(base.id) if isinstance(base, ast.Name) else None
                        foreign = where is not None and where.imports.get(base.id, ("", "x"))[1] == ""
                        if not (owner and not owner[1]) and not foreign:
                            notes.append(f"UNSEEN {rel}:{node.lineno}: {ast.unparse(node)[-60:]}")

        walker = Definitions(file.tree)
        helper = Renamer(project, file, {}, edits, notes)
        walker.helper = helper
        walker.run()
        # Strings that are names of members
        docs = set()
        for node in ast.walk(file.tree):
            for each in statements(node):
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    docs.add(id(each.value))
        lines_with = Counter()
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                word = node.value
                parts = {word, *word.split(".")} if re.fullmatch(r"[\w.]+", word) else set()
                parts |= {p.strip(" *") for p in word.split("/")} if "/" in word and len(word) < 80 else set()
                for each in sorted(parts & names):
                    notes.append(f'STRING {rel}:{node.lineno}: "{word}" ({each})')
        strings(file, helper, renamed, classes, edits, names, moves, project)
        prose_members(file, renamed, classes, classes_here, helper, edits, notes, names, project)
    templates(root, renamed, names, notes, edits, given)
    documents_members(root, renamed, classes, names, edits, notes)
    total = edits.apply(project.files, dry=given.dry)
    decided = decisions(given.decisions)
    left = [n for n in notes if not any(n.startswith(d) for d in decided)]
    print_result(rows, left, total, dry=given.dry)
    return 0


def lookup(renamed, classes, cls, member):
    """The new name of a member of a class, its own or inherited."""
    for each in classes.get(cls, {"mro": []})["mro"]:
        if (each, member) in renamed:
            return renamed[each, member]
        if each in classes and member in classes[each]["names"]:
            return None
    return None


def strings(file, helper, renamed, classes, edits, names, moves, project) -> None:
    """Keys of ``{Class: {"field": ...}}``, and strings that `strings.tsv` lists."""
    helper.scope = helper.module
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values):
                if isinstance(key, ast.Name) and isinstance(value, ast.Dict):
                    target = helper.meaning(helper.module, key.id)
                    for inner in value.keys if target and target[1] else ():
                        if isinstance(inner, ast.Constant) and inner.value in names:
                            if new := lookup(renamed, classes, ".".join(target), inner.value):
                                edits.add(file, inner.lineno, inner.col_offset + 1, inner.value, new)
    listed = HERE / "strings.tsv"
    for line in listed.read_text().splitlines() if listed.exists() else ():
        module, old, new = line.split("\t")
        here = file.name.removeprefix("headbook.") or "x"
        if here in {module, moves.place(module, "")} or str(file.path).endswith(module):
            for node in ast.walk(file.tree):
                if isinstance(node, ast.Constant) and node.value == old:
                    edits.add(file, node.lineno, node.col_offset + 1, old, new)


def decisions(file: Path) -> list[str]:
    return [l for l in file.read_text().splitlines() if l] if file.exists() else []


def prose_members(file, renamed, classes, classes_here, helper, edits, notes, names, project) -> None:
    """Names of members in docstrings: under ``Attributes:``, and in backticks."""
    from rename import CODE, prose_of  # noqa: PLC0415

    rel = file.path.relative_to(project.root)
    spans = []  # first and last line of each class, inner ones last
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef):
            spans.append((node.lineno, node.end_lineno, classes_here[id(node)], node))

    def at(line):
        inner = [s for s in spans if s[0] <= line <= s[1]]
        return min(inner, key=lambda s: s[1] - s[0])[2] if inner else ""

    # Attributes sections
    for first, last, cls, node in spans:
        doc = node.body[0] if node.body else None
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str):
            inside = False
            indent = 0
            for number in range(doc.lineno, doc.end_lineno + 1):
                raw = file.lines[number - 1].decode()
                stripped = raw.strip()
                here = len(raw) - len(raw.lstrip())
                if stripped in {"Attributes:", "Args:"}:
                    inside, indent = True, here
                elif inside and stripped and here <= indent:
                    inside = False
                elif inside and here == indent + 4 and (match := re.match(r"\s*([\w, ]+):", raw)):
                    for word in re.finditer(r"\w+", raw[: match.end(1)]):
                        if new := lookup(renamed, classes, cls, word[0]):
                            edits.add(file, number, len(raw[: word.start()].encode()), word[0], new)
    for number, begin, piece in prose_of(file):
        for match in CODE.finditer(piece):
            parts = match[2].split(".")
            column = begin + len(piece[: match.start(2)].encode())
            if len(parts) == 1:
                if parts[0] in names:
                    cls = at(number)
                    new = lookup(renamed, classes, cls, parts[0])
                    if new:
                        edits.add(file, number, column, parts[0], new)
                    elif match[1] == "`":
                        notes.append(f"PROSE {rel}:{number}: `{parts[0]}`")
                continue
            for index in range(1, len(parts)):
                if parts[index] not in names:
                    continue
                owner = parts[index - 1]
                target = helper.meaning(helper.module, parts[0]) if index == 1 else None
                if parts[0] == "headbook":
                    target = project.resolve(".".join(parts[: index - 1]), owner)
                cls = ".".join(target) if target and target[1] else ""
                if not cls:
                    same = {c for c in classes if c.rpartition(".")[2] == owner}
                    cls = same.pop() if len(same) == 1 else ""
                shift = len(".".join(parts[:index]).encode()) + 1
                if new := lookup(renamed, classes, cls, parts[index]):
                    edits.add(file, number, column + shift, parts[index], new)
                elif not cls:
                    notes.append(f"PROSE {rel}:{number}: `{match[2]}`")


def documents_members(root: Path, renamed, classes, names, edits, notes) -> None:
    """``Class.member`` in backticks of Markdown."""
    from rename import CODE  # noqa: PLC0415

    for path in [root / "CONTRIBUTING.md", root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        fenced = False
        for number, raw in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            fenced = raw.startswith("```python") or (fenced and not raw.startswith("```"))
            for match in re.finditer(r"\b([A-Z]\w+)\.(\w+)", raw) if fenced else ():  # of a class itself
                same = {c for c in classes if c.rpartition(".")[2] == match[1]}
                new = lookup(renamed, classes, same.pop(), match[2]) if len(same) == 1 else None
                if new:
                    edits.by_file[path][number, len(raw[: match.start(2)].encode())] = (match[2], new)
            for match in CODE.finditer(raw):
                parts = match[2].split(".")
                if len(parts) < 2 or parts[-1] not in names:
                    continue
                same = {c for c in classes if c.rpartition(".")[2] == parts[-2]}
                new = lookup(renamed, classes, same.pop(), parts[-1]) if len(same) == 1 else None
                if new:
                    at = match.start(2) + len(".".join(parts[:-1])) + 1
                    edits.by_file[path][number, len(raw[:at].encode())] = (parts[-1], new)


def templates(root: Path, renamed, names, notes, edits, given) -> None:
    """Attributes in templates: renamed where a decision says so, else told."""
    decided = {}
    for line in decisions(given.decisions):
        if line.startswith("TEMPLATE-YES "):  # file, expression, and the new name if there are several
            words = line.split(" ")
            decided[" ".join(words[1:3])] = words[3] if len(words) > 3 else True
        elif line.startswith("TEMPLATE-NO "):
            decided[line.split(" ", 1)[1]] = False
    by_name = defaultdict(set)
    for (_, member), new in renamed.items():
        by_name[member].add(new)
    for path in sorted((root / "templates").rglob("*")):
        if path.suffix not in {".html", ".txt", ".cff", ".bib", ".js"} or path.suffix == ".js":
            continue
        lines = path.read_bytes().split(b"\n")
        text = b"\n".join(lines).decode()
        for match in re.finditer(r"\{[{%](.*?)[%}]\}", text, re.DOTALL):
            for use in re.finditer(r"(?<=[\w\]\)])\.(\w+)", match[1]):
                name = use[1]
                if name not in by_name:
                    continue
                at = match.start(1) + use.start(1)
                line = text.count("\n", 0, at) + 1
                start = text.rfind("\n", 0, at) + 1
                before = re.search(r"[\w\]\)]+$", match[1][: use.start()])
                key = f"{path.relative_to(root)} {before[0]}.{name}"
                if decided.get(key) is None:
                    notes.append(f"TEMPLATE {key} ({line}) -> {by_name[name]}")
                elif decided[key]:
                    new = decided[key] if isinstance(decided[key], str) else next(iter(by_name[name]))
                    if new not in by_name[name] or (decided[key] is True and len(by_name[name]) > 1):
                        notes.append(f"TEMPLATE {key} ({line}): which of {by_name[name]}?")
                        continue
                    edits.by_file[path][line, len(text[start:at].encode())] = (name, new)
