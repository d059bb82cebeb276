"""Names of a Python file with their scopes: what each one stands for, and where it is written."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Scope:
    """A module, class, function, lambda or comprehension, with the names that are bound in it."""

    kind: str
    above: "Scope | None"
    node: ast.AST
    bound: set[str] = field(default_factory=set)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # local name: module, name
    outer: set[str] = field(default_factory=set)  # names of global and nonlocal statements
    defined: set[str] = field(default_factory=set)  # bound by anything but an import

    def find(self, name: str) -> "Scope | None":
        """Return the scope that binds a name as seen from here, or None for a builtin."""
        scope: Scope | None = self
        first = True
        while scope is not None:
            if name in scope.bound and name not in scope.outer and (scope.kind != "class" or first):
                return scope
            first = False
            scope = scope.above
        return None

    def between(self, end: "Scope") -> Iterator["Scope"]:
        """Yield the scopes from here up to another one, without that one."""
        scope: Scope | None = self
        while scope is not None and scope is not end:
            yield scope
            scope = scope.above


def bind(scope: Scope, body: list[ast.AST]) -> None:
    """Collect what a scope binds, without going into inner scopes."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, FUNCTIONS | ast.ClassDef):
            scope.bound.add(node.name)
            scope.defined.add(node.name)
            waiting += [*node.decorator_list]
            if isinstance(node, ast.ClassDef):
                waiting += [*node.bases, *node.keywords]
            else:
                waiting += [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
            continue
        if isinstance(node, ast.Lambda):
            waiting += [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
            continue
        if isinstance(node, COMPREHENSIONS):
            # A walrus inside binds here; the targets do not.
            waiting += [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            waiting.append(node.generators[0].iter)
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                scope.bound.add(local)
                scope.imports[local] = (alias.name if alias.asname else local, "")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                local = alias.asname or alias.name
                scope.bound.add(local)
                scope.imports[local] = (node.module or "", alias.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            scope.outer.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            scope.bound.add(node.id)
            scope.defined.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.bound.add(node.name)
            scope.defined.add(node.name)
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            scope.bound.add(node.name)
            scope.defined.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            scope.bound.add(node.rest)
            scope.defined.add(node.rest)
        elif isinstance(node, ast.arg):
            scope.bound.add(node.arg)
            scope.defined.add(node.arg)
            continue  # the annotation is outside
        waiting += ast.iter_child_nodes(node)


class Walker:
    """Walks a module with scopes; subclasses say what happens at names and attributes."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope("module", None, tree)
        bind(self.module, [*tree.body])
        self.scope = self.module
        self.tree = tree
        self.annotation = False

    def run(self) -> None:
        """Walk everything."""
        for node in self.tree.body:
            self.visit(node)

    def visit(self, node: ast.AST) -> None:
        """Walk one node in the scope of now."""
        if isinstance(node, FUNCTIONS):
            self.on_definition(node)
            for each in [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]:
                if each is not None:
                    self.visit(each)
            a = node.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []),
                     *([a.kwarg] if a.kwarg else [])]
            for each in every:
                self.visit_annotation(each.annotation)
            self.visit_annotation(node.returns)
            self.inside("function", node, [*every, *node.body], node.body)
        elif isinstance(node, ast.Lambda):
            for each in [*node.args.defaults, *node.args.kw_defaults]:
                if each is not None:
                    self.visit(each)
            a = node.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []),
                     *([a.kwarg] if a.kwarg else [])]
            self.inside("function", node, [*every, node.body], [node.body])
        elif isinstance(node, ast.ClassDef):
            self.on_definition(node)
            for each in [*node.decorator_list, *node.bases]:
                self.visit(each)
            for each in node.keywords:
                self.visit(each.value)
            self.inside("class", node, [*node.body], node.body)
        elif isinstance(node, COMPREHENSIONS):
            self.visit(node.generators[0].iter)
            scope = Scope("comprehension", self.scope, node)
            for generator in node.generators:
                bind(scope, [generator.target])
            self.scope = scope
            for number, generator in enumerate(node.generators):
                self.visit(generator.target)
                if number:
                    self.visit(generator.iter)
                for each in generator.ifs:
                    self.visit(each)
            if isinstance(node, ast.DictComp):
                self.visit(node.key)
                self.visit(node.value)
            else:
                self.visit(node.elt)
            self.scope = scope.above
        elif isinstance(node, ast.AnnAssign):
            self.visit(node.target)
            self.visit_annotation(node.annotation)
            if node.value is not None:
                self.visit(node.value)
        else:
            self.on_node(node)
            for each in ast.iter_child_nodes(node):
                self.visit(each)

    def visit_annotation(self, node: ast.AST | None) -> None:
        """Walk an annotation, whose strings are code."""
        if node is not None:
            before, self.annotation = self.annotation, True
            self.visit(node)
            self.annotation = before

    def inside(self, kind: str, node: ast.AST, bound: list[ast.AST], body: list[ast.AST]) -> None:
        """Walk the body of an inner scope."""
        scope = Scope(kind, self.scope, node)
        bind(scope, bound)
        self.scope = scope
        before, self.annotation = self.annotation, False
        for each in body:
            self.visit(each)
        self.annotation = before
        self.scope = scope.above

    def on_definition(self, node: ast.AST) -> None:
        """Called at the name of a function or class, in the scope around it."""

    def on_node(self, node: ast.AST) -> None:
        """Called at every other node, before its children."""
