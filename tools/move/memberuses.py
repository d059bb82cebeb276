"""Write which class each attribute of a project belongs to, as mypy finds it: python memberuses.py ROOT NAMES OUT.

Runs under the project's own Python, with its configuration, on a copy of its cache without the
project's modules, so that these are analysed and their trees are there.
"""

import json
import shutil
import sqlite3
import sys
from pathlib import Path

from mypy import build, nodes, types
from mypy.config_parser import parse_config_file
from mypy.find_sources import create_source_list
from mypy.fscache import FileSystemCache
from mypy.main import process_options
from mypy.types import get_proper_type

ROOT, NAMES, OUT = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
wanted = set(NAMES.read_text().split())
OWN = ("headbook",)


def prepare_cache() -> Path:
    """A copy of the cache without modules of the project."""
    cache, copy = ROOT / ".mypy_cache", Path("/tmp/mypy_cache_names")
    if not copy.exists() and cache.exists():
        shutil.copytree(cache, copy)
    own = {"headbook"}
    for top in ("tests", "benchmarks", "docs"):
        own |= {each.stem if each.suffix == ".py" else each.name for each in (ROOT / top).iterdir()}
    for file in (copy / "3.11").glob("cache*.db"):
        connection = sqlite3.connect(file)
        paths = [row[0] for row in connection.execute("select path from files2")]
        mine = [(p,) for p in paths if p.partition("/")[0].partition(".")[0] in own]
        connection.executemany("delete from files2 where path = ?", mine)
        connection.commit()
        connection.close()
    return copy


sources, options = process_options(["--cache-dir", str(prepare_cache())], fscache=FileSystemCache())
options.export_types = True
options.preserve_asts = True
options.incremental = True
options.show_traceback = True
if hasattr(options, "num_workers"):
    options.num_workers = 0
result = build.build(sources, options)
print(len(result.errors), "messages of mypy", file=sys.stderr)
for line in result.errors[:5]:
    print(line, file=sys.stderr)
expression_types = result.types
uses: list[list] = []
classes: dict[str, dict] = {}
modules: dict[str, str] = {}


def infos(t) -> list | None:
    """Classes of a type; None if it is not known."""
    t = get_proper_type(t) if t is not None else None
    if t is None or isinstance(t, types.AnyType):
        return None
    if isinstance(t, types.Instance):
        if t.type.fullname == "builtins.type" and t.args:
            return infos(t.args[0])
        return [t.type]
    if isinstance(t, types.UnionType):
        found = []
        for each in t.items:
            part = infos(each)
            if part is None:
                return None
            found += part
        return found
    if isinstance(t, types.NoneType):
        return []
    if isinstance(t, types.TypeVarType):
        if t.values:
            return [i for v in t.values for i in (infos(v) or [])]
        return infos(t.upper_bound)
    if isinstance(t, types.TupleType):
        return infos(t.partial_fallback)
    if isinstance(t, types.TypeType):
        return infos(t.item)
    if isinstance(t, types.LiteralType):
        return infos(t.fallback)
    if isinstance(t, types.TypedDictType):
        return infos(t.fallback)
    if isinstance(t, types.CallableType):
        if t.is_type_obj():
            return [t.type_object()]
        return infos(t.fallback)
    if isinstance(t, types.Overloaded):
        if t.is_type_obj():
            return [t.type_object()]
        return infos(t.items[0].fallback)
    return [] if isinstance(t, types.UninhabitedType) else None


def owners(t, name: str) -> list[str] | None:
    found = infos(t)
    if found is None:
        return None
    result = []
    for info in found:
        for base in info.mro:
            if name in base.names:
                result.append(base.fullname)
                break
        else:
            result.append(f"? {info.fullname}")
    return result


FOLLOWED = """
defs body items impl func decorators base_type_exprs keywords removed_base_type_exprs expr exprs
lvalues rvalue lvalue else_body index from_expr msg vars types handlers finally_body target subject
patterns guards bodies callee args left right operands base begin_index end_index stride arguments
initializer left_expr sequences condlists indices generator key value if_expr cond else_expr call
name_exprs class_ref positionals keyword_values pattern metaclass
""".split()
KNOWN: dict[type, list[str]] = {}


def walk(start):
    """Every node below one; mypy's compiled visitors cannot be subclassed."""
    waiting, seen = [start], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, (list, tuple)):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
        elif isinstance(node, (nodes.Node, nodes.Argument)) and not isinstance(
            node, (nodes.TypeInfo, nodes.Var)
        ):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if node is not start and isinstance(node, nodes.MypyFile):
                continue
            yield node
            kind = type(node)
            if kind not in KNOWN:
                KNOWN[kind] = [name for name in FOLLOWED if hasattr(kind, name)]
            waiting += [getattr(node, name) for name in KNOWN[kind]]


class Uses:
    def __init__(self, path: str) -> None:
        self.path = path

    def run(self, tree) -> None:
        for node in walk(tree):
            if isinstance(node, nodes.ClassDef):
                self.visit_class_def(node)
            elif isinstance(node, nodes.MemberExpr):
                self.visit_member_expr(node)
            elif isinstance(node, nodes.SuperExpr):
                if node.name in wanted and node.info is not None:
                    found = next((b.fullname for b in node.info.mro[1:] if node.name in b.names), "?")
                    column = node.end_column - len(node.name.encode())
                    uses.append([self.path, node.end_line, column, node.name, [found], "super"])
            elif isinstance(node, nodes.CallExpr):
                self.visit_call_expr(node)

    def visit_class_def(self, o) -> None:
        info = o.info
        classes[info.fullname] = {
            "mro": [b.fullname for b in info.mro],
            "protocol": [*info.protocol_members] if info.is_protocol else [],
            "names": sorted(n for n, s in info.names.items() if not (s.plugin_generated)),
        }

    def visit_member_expr(self, e) -> None:
        if e.name in wanted:
            base = e.expr
            node = getattr(base, "node", None)
            if not isinstance(node, nodes.MypyFile):
                t = expression_types.get(base)
                if t is None and isinstance(node, nodes.TypeInfo):
                    found = owners(types.Instance(node, []), e.name)
                elif t is None and isinstance(node, nodes.Var):
                    found = owners(node.type, e.name)
                else:
                    found = owners(t, e.name)
                if isinstance(node, nodes.TypeInfo):
                    found = owners(types.Instance(node, []), e.name)
                column = e.end_column - len(e.name.encode())
                uses.append([self.path, e.end_line, column, e.name, found or [], "attribute"])

    def visit_call_expr(self, e) -> None:
        if any(n in wanted for n in e.arg_names if n):
            self.keywords(e)

    def keywords(self, e) -> None:
        callee = e.callee
        if getattr(callee, "fullname", "") == "functools.partial" and e.args:
            callee = e.args[0]
        full = getattr(callee, "fullname", "") or ""
        holder = None
        if full in {"dataclasses.replace", "copy.replace"} and e.args:
            holder = infos(expression_types.get(e.args[0]))
        elif isinstance(callee, nodes.MemberExpr) and callee.name == "_replace":
            holder = infos(expression_types.get(callee.expr))
        else:
            node = getattr(callee, "node", None)
            if isinstance(node, nodes.TypeInfo):
                holder = [node]
            else:
                t = get_proper_type(expression_types.get(callee)) if callee in expression_types else None
                if isinstance(t, types.TypeType):
                    holder = infos(t)
                elif isinstance(t, (types.CallableType, types.Overloaded)) and t.is_type_obj():
                    holder = [t.type_object()]
        if not holder:
            return
        for name, arg in zip(e.arg_names, e.args):
            if name in wanted:
                found = []
                for info in holder:
                    made = info.get("__init__")
                    known = ("dataclass" in info.metadata) or info.is_named_tuple
                    if not (made is None or made.plugin_generated or known):
                        continue
                    for base in info.mro:
                        if name in base.names:
                            found.append(base.fullname)
                            break
                if found:
                    uses.append([self.path, arg.line, arg.column, name, found, "keyword"])


for name, state in result.graph.items():
    tree = state.tree
    path = state.path
    if tree is None or path is None:
        continue
    absolute = (ROOT / path).resolve()
    if not absolute.is_relative_to(ROOT) or ".venv" in absolute.parts:
        continue
    modules[str(absolute)] = name
    Uses(str(absolute)).run(tree)

# Keywords stand before their values: their own positions come from the syntax.
import ast  # noqa: E402

places: dict[str, dict] = {}
for use in uses:
    if use[5] == "keyword":
        path = use[0]
        if path not in places:
            places[path] = {}
            for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
                if isinstance(node, ast.keyword) and node.arg:
                    places[path][node.value.lineno, node.value.col_offset, node.arg] = (node.lineno, node.col_offset)
        raw = Path(path).read_text(encoding="utf-8").split("\n")[use[1] - 1]
        column = len(raw[: use[2]].encode())  # mypy counts characters, ast bytes
        found = places[path].get((use[1], column, use[3])) or places[path].get((use[1], use[2], use[3]))
        if not found:  # a keyword of this name on the line of the value, if there is one alone
            here = {v for (line, _, name), v in places[path].items() if (line, name) == (use[1], use[3])}
            found = here.pop() if len(here) == 1 else None
        if found:
            use[1], use[2] = found
OUT.write_text(json.dumps({"uses": uses, "classes": classes, "modules": modules}))
print(len(uses), "uses,", len(classes), "classes,", len(modules), "modules", file=sys.stderr)
