"""Check the plan of the move against a checkout of Headbook.

Usage: python check.py CHECKOUT [--dropped] [--edges] [--progress]

CHECKOUT is the folder with ``src/headbook``, as it was before the move. The script reads
``tree.md``, ``moves.tsv`` and ``names.tsv`` beside it, and parses the code; it imports and changes
nothing. It ends with 1 where one of these does not hold:

1. every Python file of ``src/headbook`` stands in ``moves.tsv``, once, or below a folder that does;
2. every new path of ``moves.tsv`` stands in ``tree.md``, each module of ``tree.md`` has a source;
3. every definition that a note of ``moves.tsv`` splits off exists in its old file;
4. every old name of ``names.tsv`` exists in the code, every new name once, members that override
   get the new name of what they override, and no class name is left that two classes share;
5. in the new tree, no import goes up in the order of folders that ``tree.md`` gives, and neither
   modules nor folders import each other in a circle;
6. no folder holds more than 20 modules;
7. pages, site, command line and what they import load neither torch nor transformers nor spaCy,
   and what answers at once (help, lists, checks of arguments) loads nothing slow at all;
8. no two top-level names meet in one new module, be they defined there or imported.

Notes of ``moves.tsv`` may say ``split: NAME, NAME -> PATH; NAME -> PATH`` (definitions that go
elsewhere), ``cut: NAME`` (an import that the move ends) and ``lazy: NAME`` (an import that moves
into a function). ``--dropped`` lists what uses dropped code, ``--edges`` the imports between
folders. ``--progress`` checks nothing of that: it counts the old paths and old names that a checkout
during the move still has, and ends with 0 when none is left. What was merged, or named and placed
better than the plan says, does not count against it.
"""

import argparse
import ast
import csv
import re
import sys
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

HERE = Path(__file__).parent
MOST = 20  # modules of a folder
DROPPED = "dropped"
ORDER = re.compile(r"^\d+\. `([\w/]+)/?`")  # a line of the order of folders in tree.md
FILE = re.compile(r"^- `([\w/.]+\.py)` \((\d+)\)")  # a line of a module in tree.md
CUT = re.compile(r"cut: (\w+)")
LAZY = re.compile(r"lazy: (\w+)")
HEAVY = {"torch", "transformers", "spacy"}
SLOW = HEAVY | {"pandas", "altair", "scipy", "numba", "wordfreq"}
LIGHT = ("report/", "comparison/", "charts/", "pages/", "site/", "cli/")  # folders without the first
FAST = (  # what answers at once, and loads none of them
    "cli/", "inputs/", "metrics/", "__init__", "config", "output_folder", "collection/arguments",
    "model/checkpoint",
)  # fmt: skip
SPLIT = re.compile(r"([\w*, ]+?) -> ([\w/]+\.py|dropped)")


def read(name: str) -> list[dict[str, str]]:
    """Rows of a table beside this script."""
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


class Module:
    """One file of today's package."""

    def __init__(self, name: str, file: Path, package: bool) -> None:
        self.name, self.package = name, package
        self.tree = ast.parse(file.read_text(encoding="utf-8"))
        self.lines = len(file.read_text(encoding="utf-8").splitlines())
        self.definitions: dict[str, ast.stmt] = {}
        self.imports: dict[str, tuple[str, str, bool]] = {}  # local name: module, name, types only
        self.lazy: set[str] = set()  # local names that functions import
        self.slow: dict[str, str] = {}  # local names of torch and its like: which library
        self.members: dict[str, set[str]] = {}
        for node in self.tree.body:
            self._define(node)
        self._import(self.tree, types=False, lazy=False)

    def _define(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.definitions[node.name] = node
            if isinstance(node, ast.ClassDef):
                self.members[node.name] = set(members(node))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for each in ast.walk(target):
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                        self.definitions.setdefault(each.id, node)
        elif isinstance(node, ast.If | ast.Try):
            for each in node.body:
                self._define(each)

    def _import(self, tree: ast.AST, *, types: bool, lazy: bool) -> None:
        for node in ast.iter_child_nodes(tree):
            only = types or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
                roots = [getattr(node, "module", None) or alias.name for alias in node.names]
                if inside:
                    self.lazy |= {alias.asname or alias.name for alias in node.names}
                elif not only:
                    pairs = zip(names, roots, strict=True)
                    found = {name: root.partition(".")[0] for name, root in pairs}
                    self.slow |= {n: root for n, root in found.items() if root in SLOW}
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headbook"):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name, only)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith("headbook"):
                        self.imports[alias.asname or "headbook"] = (alias.name, "", only)
            self._import(node, types=only, lazy=inside)


def members(node: ast.ClassDef) -> list[str]:
    """Methods, properties, fields and values of a class."""
    found = []
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(each.name)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.append(each.target.id)
        elif isinstance(each, ast.Assign):
            found += [target.id for target in each.targets if isinstance(target, ast.Name)]
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            found.append(each.attr)
    return found


def modules_of(root: Path) -> dict[str, Module]:
    """Today's modules by dotted name."""
    found = {}
    for file in sorted(root.rglob("*.py")):
        parts = ("headbook", *file.relative_to(root).with_suffix("").parts)
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        found[name] = Module(name, file, package)
    return found


def path_of(name: str, package: bool) -> str:
    """A module's path below src/headbook."""
    parts = name.split(".")[1:]
    return "/".join([*parts, "__init__"] if package else parts) + ".py"


class Plan:
    """Where every definition goes."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.faults: list[str] = []
        self.modules = modules
        self.target: dict[str, str] = {}
        self.split: dict[tuple[str, str], str] = {}
        self.cut: set[tuple[str, str]] = set()
        self.lazy: set[tuple[str, str]] = set()
        folders: dict[str, str] = {}
        paths = {path_of(m.name, m.package): m.name for m in modules.values()}
        for row in read("moves.tsv"):
            old, new, note = (row[key] for key in ("old", "new", "note"))
            if old.endswith("/"):
                folders[old] = new
            elif old not in paths and (new == DROPPED or "may be gone" in note):
                pass  # dropped by now
            elif old not in paths:
                self.faults.append(f"moves.tsv: {old} is no file of the package")
            elif paths[old] in self.target:
                self.faults.append(f"moves.tsv: {old} stands there twice")
            else:
                self.target[paths[old]] = new
                self._split(modules[paths[old]], note)
        for path, name in paths.items():
            if name not in self.target:
                place = next((each for each in folders if path.startswith(each)), None)
                if place is None:
                    self.faults.append(f"moves.tsv: {path} is missing")
                else:
                    self.target[name] = folders[place] + path.removeprefix(place)

    def _split(self, module: Module, note: str) -> None:
        for name in CUT.findall(note):
            if name not in {*module.imports, *module.definitions}:
                self.faults.append(f"moves.tsv: {module.name} has no {name}")
            self.cut.add((module.name, name))
        self.lazy |= {(module.name, name) for name in LAZY.findall(note)}
        for names, path in SPLIT.findall(note.partition("split: ")[2]):
            for name in (each.strip() for each in names.split(",")):
                if name not in module.definitions:
                    self.faults.append(f"moves.tsv: {module.name} defines no {name}")
                self.split[module.name, name] = path

    def place(self, module: str, name: str) -> str:
        """The new path of a definition."""
        return self.split.get((module, name), self.target.get(module, DROPPED))

    def resolve(self, module: str, name: str) -> tuple[str, str] | None:
        """The module and name that an imported name stands for; an empty name is a module."""
        if f"{module}.{name}" in self.modules and name:
            return f"{module}.{name}", ""
        found = self.modules.get(module)
        if found is None:
            return None
        if name in found.definitions or not name:
            return module, name
        if name in found.imports:
            return self.resolve(*found.imports[name][:2])
        return None

    def edges(self) -> dict[tuple[str, str], set[tuple[str, bool]]]:
        """Imports between new modules: from, to, and what is used, with whether for types alone."""
        found: dict[tuple[str, str], set[tuple[str, bool]]] = defaultdict(set)
        for module in self.modules.values():
            nodes = [(n, d) for n, d in module.definitions.items()]
            for name, node in nodes:
                start = self.place(module.name, name)
                for (to, what), types in self._uses(module, node):
                    end = self.place(to, what)
                    if start not in {end, DROPPED}:
                        found[start, end].add((f"{to}.{what}".removeprefix("headbook."), types))
        return found

    def loads(self, libraries: set[str]) -> dict[str, set[str]]:
        """New modules that import a library at once, and the definitions that use it."""
        found: dict[str, set[str]] = defaultdict(set)
        for module in self.modules.values():
            slow = {name for name, library in module.slow.items() if library in libraries}
            for name, node in module.definitions.items():
                used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & slow
                if used and self.place(module.name, name) != DROPPED:
                    found[self.place(module.name, name)].add(f"{module.name}.{name}")
        return found

    def at_once(self) -> dict[str, set[str]]:
        """Imports between new modules that are made when a module is imported."""
        found: dict[str, set[str]] = defaultdict(set)
        for module in self.modules.values():
            for name, node in module.definitions.items():
                start = self.place(module.name, name)
                for each in ast.walk(node):
                    local = each.id if isinstance(each, ast.Name) else ""
                    if local in module.imports and not module.imports[local][2]:
                        known = module.lazy | {n for m, n in self.lazy if m == module.name}
                        got = self.resolve(*module.imports[local][:2])
                        if got and local not in known and (module.name, local) not in self.cut:
                            ends = [self.place(*got)] if got[1] else [self.target.get(got[0], DROPPED)]
                            found[start] |= {*ends} - {start, DROPPED}
                    elif local in module.definitions:
                        found[start] |= {self.place(module.name, local)} - {start, DROPPED}
        return found

    def _uses(self, module: Module, node: ast.AST):
        local = {a.arg for f in ast.walk(node) if isinstance(f, ast.arguments)
                 for a in [*f.posonlyargs, *f.args, *f.kwonlyargs]}
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                short = each.value if len(each.value) < 120 else ""
                for word in re.findall(r"[A-Za-z_]\w*", short):
                    if word in module.imports and module.imports[word][2]:
                        got = self.resolve(*module.imports[word][:2])
                        if got and got[1]:
                            yield got, True
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                if each.value.id in module.imports:
                    got = self.resolve(*module.imports[each.value.id][:2])
                    if got and not got[1]:
                        inner = self.resolve(got[0], each.attr)
                        if inner:
                            yield inner, module.imports[each.value.id][2]
            if not isinstance(each, ast.Name) or (module.name, each.id) in self.cut:
                continue
            if each.id in module.imports:
                got = self.resolve(*module.imports[each.id][:2])
                if got and got[1]:
                    yield got, module.imports[each.id][2]
            elif each.id in module.definitions and each.id not in local:
                yield (module.name, each.id), False


def folder_of(path: str) -> str:
    """The folder of a new path; the package's own is ``headbook``, and __main__ is cli's."""
    return "cli" if path == "__main__.py" else path.rpartition("/")[0] or "headbook"


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Nodes in a circle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def check_tree(plan: Plan, order: list[str], listed: dict[str, int]) -> None:
    """Paths of both files agree, and folders are no corridors."""
    used = {*plan.target.values(), *plan.split.values()} - {DROPPED}
    main = {path for path in used if not path.startswith("metrics/")}
    plan.faults += [f"tree.md: {path} is missing" for path in sorted(main - listed.keys())]
    plan.faults += [f"tree.md: {path} has no source" for path in sorted(listed.keys() - used)]
    sizes = Counter(folder_of(p) for p in listed if not p.endswith("__init__.py"))
    plan.faults += [f"tree.md: {n} modules in {each}" for each, n in sizes.items() if n > MOST]
    folders = {folder_of(path).partition("/")[0] for path in listed}
    plan.faults += [f"tree.md: {each} is not in the order" for each in sorted(folders - set(order))]


def check_imports(plan: Plan, order: list[str], *, show: bool) -> None:
    """No arrow up, no circle."""
    rank = {folder: place for place, folder in enumerate(order)}
    modules: dict[str, set[str]] = defaultdict(set)
    folders: dict[str, set[str]] = defaultdict(set)
    up: dict[tuple[str, str], set[str]] = defaultdict(set)
    counted: Counter[tuple[str, str]] = Counter()
    for (start, end), names in plan.edges().items():
        if end == DROPPED or start == "__init__.py":
            continue
        one, other = folder_of(start), folder_of(end)
        tops = one.partition("/")[0], other.partition("/")[0]
        if rank.get(tops[1], 0) > rank.get(tops[0], 0):
            up[start, end] |= {name for name, _ in names}
        if any(not types for _, types in names):
            modules[start].add(end)
            if one != other:
                folders[one].add(other)
                counted[one, other] += 1
    for (start, end), names in sorted(up.items()):
        plan.faults.append(f"up: {start} -> {end} ({', '.join(sorted(names))})")
    for name, graph in (("modules", modules), ("folders", folders)):
        if found := circle(graph):
            plan.faults.append(f"circle of {name}: {' <- '.join(found)}")
    if show:
        for (one, other), number in sorted(counted.items()):
            print(f"{one} -> {other}: {number}")


def check_light(plan: Plan, places: tuple[str, ...], libraries: set[str]) -> None:
    """Some modules, and what they import at once, load none of these libraries."""
    heavy, edges = plan.loads(libraries), plan.at_once()
    paths = {*plan.target.values(), *plan.split.values()}
    for start in sorted(path for path in paths if path.startswith(places)):
        waiting, seen = [(start, (start,))], {start}
        while waiting:
            path, route = waiting.pop()
            if path in heavy:
                plan.faults.append(f"loads a library: {' -> '.join(route)} ({min(heavy[path])})")
                break
            for end in sorted(edges.get(path, set()) - seen):
                seen.add(end)
                waiting.append((end, (*route, end)))


def overrides(plan: Plan, rows: dict[str, str]) -> list[str]:
    """Members of subclasses that do not follow the member of their base that gets a new name."""
    bases: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for module in plan.modules.values():
        for name, node in module.definitions.items():
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                local = base.value if isinstance(base, ast.Subscript) else base
                word = getattr(local, "id", "")
                known = module.imports.get(word, (module.name, word))
                if found := plan.resolve(*known[:2]):
                    bases[module.name, name].append(found)
    faults = []
    for (place, name), direct in bases.items():
        waiting, above = [*direct], []
        while waiting:
            above.append(waiting.pop())
            waiting += bases.get(above[-1], [])
        for member in plan.modules[place].members.get(name, ()):
            own = f"{place}.{name}.{member}".removeprefix("headbook.")
            for at, base in above if plan.place(place, name) != DROPPED else ():
                given = rows.get(f"{at}.{base}.{member}".removeprefix("headbook."))
                if given and rows.get(own, "").rpartition(".")[2] != given.rpartition(".")[2]:
                    faults.append(f"names.tsv: {own} overrides what becomes {given}")
    return faults


def check_names(plan: Plan) -> tuple[int, dict[tuple[str, str], str]]:
    """Old names exist, new ones are free; the number of rows, and new names by module and name."""
    rows = read("names.tsv")
    modules = {name.removeprefix("headbook."): module for name, module in plan.modules.items()}
    renamed: dict[tuple[str, str], str] = {}
    new: Counter[tuple[str, str]] = Counter()
    for row in rows:
        old, kind = row["old"], row["kind"]
        if kind != "module":  # several may become one
            new[kind, row["new"]] += 1
        if kind in {"option", "column"}:
            continue
        if kind == "module":
            if old not in modules:
                plan.faults.append(f"names.tsv: no module {old}")
            continue
        parts = old.split(".")
        place = next((i for i in range(len(parts) - 1, 0, -1) if ".".join(parts[:i]) in modules), 0)
        module = modules.get(".".join(parts[:place]))
        rest = parts[place:]
        known = module is not None and rest and rest[0] in module.definitions
        if known and len(rest) > 1:
            known = rest[1] in module.members.get(rest[0], set())
        if not known:
            plan.faults.append(f"names.tsv: {old} is not defined")
        elif len(rest) == 1:
            renamed[module.name, rest[0]] = row["new"].rpartition(".")[2]
    plan.faults += overrides(plan, {row["old"]: row["new"] for row in rows})
    for (kind, name), number in new.items():
        free = kind in {"option", "column"} or name.startswith(("dropped", "("))
        if number > 1 and not free:
            plan.faults.append(f"names.tsv: {name} is given {number} times")
    classes: Counter[str] = Counter()
    for module in plan.modules.values():
        for name, node in module.definitions.items():
            if isinstance(node, ast.ClassDef) and plan.place(module.name, name) != DROPPED:
                final = renamed.get((module.name, name), name)
                if not final.startswith(("dropped", "(")):
                    classes[final] += 1
    plan.faults += [f"names.tsv: {n} classes are called {name}"
                    for name, n in sorted(classes.items()) if n > 1]
    return len(rows), renamed


def collisions(
    plan: Plan, renamed: dict[tuple[str, str], str]
) -> dict[str, dict[str, list[str]]]:
    """Top-level names that would meet in one new module, after all have been renamed."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module in plan.modules.values():
        for name, node in module.definitions.items():
            path = plan.place(module.name, name)
            if path == DROPPED or path.startswith("metrics/") or name == "__all__":
                continue
            final = renamed.get((module.name, name), name)
            if not final.startswith("("):
                found[path][final].add(f"{module.name.removeprefix('headbook.')}.{name}")
            for each in ast.walk(node):
                local = each.id if isinstance(each, ast.Name) else ""
                got = plan.resolve(*module.imports[local][:2]) if local in module.imports else None
                if got and got[1] and plan.place(*got) not in {path, DROPPED}:
                    plain = renamed.get(got, got[1])
                    seen = plain if local == module.imports[local][1] else local
                    if not plain.startswith("("):
                        found[path][seen].add(".".join(got).removeprefix("headbook."))
    return {path: {n: sorted(m) for n, m in names.items() if len(m) > 1}
            for path, names in found.items()}


def has(modules: dict[str, Module], dotted: str) -> bool:
    """Whether a definition, or a member of a class, is there."""
    parts = dotted.split(".")
    place = next((i for i in range(len(parts) - 1, 0, -1) if ".".join(parts[:i]) in modules), 0)
    module, rest = modules.get(".".join(parts[:place])), parts[place:]
    known = module is not None and rest[0] in module.definitions
    return known and (len(rest) < 2 or rest[1] in module.members.get(rest[0], set()))


def names_left(modules: dict[str, Module]) -> list[str]:
    """Old names that are still in use: at their old place, or in the new module without a new name.

    What was merged, inlined or named better than `names.tsv` says is not counted.
    """
    short = {name.removeprefix("headbook."): module for name, module in modules.items()}
    rows = [row for row in read("names.tsv") if row["kind"] in {"class", "function", "constant"}]
    new = {row["new"] for row in rows}
    found = []
    for row in rows:
        here = {row["old"]}
        if not row["new"].startswith("("):
            container, _, name = row["new"].rpartition(".")
            here.add(f"{container}.{row['old'].rpartition('.')[2]}")
        found += sorted(each for each in here - new if "." in each and has(short, each))
    return found


def show_progress(modules: dict[str, Module], listed: dict[str, int]) -> bool:
    """Say how far a checkout under way has come; true when no old path and no old name is left."""
    there = {path_of(module.name, module.package) for module in modules.values()}
    old = {row["old"] for row in read("moves.tsv") if not row["old"].endswith("/")}
    paths = sorted((old & there) - listed.keys())
    names = names_left(modules)
    main = {path for path in there if not path.startswith("metrics/")}
    print(f"{len(main & listed.keys())} of {len(listed)} files of tree.md are there, "
          f"{len(main - listed.keys())} others")
    print(f"{len(paths)} old paths left" + f": {', '.join(paths[:8])}" * bool(paths))
    print(f"{len(names)} old names left" + f": {', '.join(names[:8])}" * bool(names))
    complete = not paths and not names
    print("complete" if complete else "not complete")
    return complete


def main() -> None:
    """Check, and say what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    for name in ("dropped", "edges", "progress"):
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args()
    modules = modules_of(given.checkout / "src" / "headbook")
    text = (HERE / "tree.md").read_text(encoding="utf-8").splitlines()
    order = [match[1] for line in text if (match := ORDER.match(line))]
    files = [match for line in text if (match := FILE.match(line))]
    listed = {path.removeprefix("src/headbook/"): int(lines)
              for path, lines in (match.groups() for match in files) if path.startswith("src/")}
    if given.progress:
        sys.exit(not show_progress(modules, listed))
    plan = Plan(modules)
    check_tree(plan, order, listed)
    check_imports(plan, order, show=given.edges)
    check_light(plan, LIGHT, HEAVY)
    check_light(plan, FAST, SLOW)
    rows, renamed = check_names(plan)
    met = collisions(plan, renamed)
    plan.faults += [f"two names meet: {path}: {name} from {', '.join(places)}"
                    for path, names in sorted(met.items())
                    for name, places in sorted(names.items())]
    if given.dropped:
        for (start, end), names in sorted(plan.edges().items()):
            if end == DROPPED:
                print(f"{start} uses {', '.join(sorted(name for name, _ in names))}")
    kept = [path for path in listed if not path.endswith("__init__.py")]
    print(f"today: {len(modules)} files, {sum(m.lines for m in modules.values()):,} lines")
    print(f"tree.md: {len(listed)} files without metrics ({len(kept)} modules, "
          f"{len(listed) - len(kept)} package files), {sum(listed.values()):,} lines expected")
    print(f"dropped: {sum(t == DROPPED for t in plan.target.values())} files; "
          f"names.tsv: {rows} rows")
    for fault in plan.faults:
        print(fault)
    print("all holds" if not plan.faults else f"{len(plan.faults)} faults")
    sys.exit(bool(plan.faults))


if __name__ == "__main__":
    main()
