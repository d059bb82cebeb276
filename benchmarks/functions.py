"""Functions of the heads of a study beside the types and roles by the rules before.

Usage: python benchmarks/functions.py STUDY [--changed]

A line for each head: its type and the kind of its role by the old rules, its function with the
number that decides, and its sentence. Then the number of heads by old role and new function.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from headbook.report.answers.head_roles import head_roles
from headbook.report.facts.functions import HeadFunction, functions_of
from headbook.report.head_types import head_types
from headbook.report.results import StackResults, stack_results
from headbook.results.formats import head_name
from headbook.study.study import Study

SAME_KIND = {
    "position": "offset", "near_uniform": "even", "broadcast": "same_keys", "sink": "sink_only",
    "mostly_sink": "sink_mostly", "unmeasured": "not_measured",
}  # fmt: skip


def number_text(function: HeadFunction) -> str:
    """Return the number of a function, where it is from, and what it had to reach."""
    if function.number is None:
        return ""
    row = dict(function.number.row.key)
    source = ".".join(str(row[name]) for name in ("metric", "measure", "label") if row.get(name))
    text = f"{source} {function.number.as_text('interval')}"
    if function.even is not None:
        text += f", even {function.even.as_text()}"
    return f"{text}, needed {function.number.unit.text(function.threshold)}"


def main() -> None:
    """Print the functions of all heads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--changed", action="store_true", help="only heads whose kind differs")
    options = parser.parse_args()
    for stack in stack_results(Study.load(options.study)).values():
        sys.stdout.write("\n".join(lines_of(stack, changed=options.changed)) + "\n")


def lines_of(stack: StackResults, *, changed: bool) -> Iterator[str]:
    """Yield a line for each head, then the numbers of heads by old role and function.

    Args:
        changed: whether only heads whose kind differs have a line.
    """
    types, roles = head_types(stack), head_roles(stack)
    changes: Counter[tuple[str, str]] = Counter()
    for head, function in functions_of(stack).items():
        kind, old = roles[head].kind, types[head.layer, head.head]
        changes[kind, function.id] += 1
        if changed and SAME_KIND.get(kind, kind) == function.id:
            continue
        sink = function.sink.as_text("whole") if function.sink else ""
        before = f"{old.short if old else ''} / {kind}: {roles[head].plain}"
        after = f"{function.id} ({function.noun}): {function.text.text}"
        yield f"{head_name(head)}\t{before}\t{after}\t{number_text(function)}; sink {sink}"
    yield f"\n{stack.stack.name}: old role -> function"
    for (kind, function_id), count in sorted(changes.items(), key=lambda item: -item[1]):
        yield f"{count:5} {kind} -> {function_id}"


if __name__ == "__main__":
    main()
