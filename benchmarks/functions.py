"""Print the functions of the heads of a study.

Usage: python benchmarks/functions.py STUDY

A line for each head: its function with its sentence, the number that decided with its threshold,
and the share on the sink. Then the number of heads of each function.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from headbook.report.facts.functions import HeadFunction, functions_of
from headbook.report.results import StackResults, stack_results
from headbook.results.formats import head_name
from headbook.study.study import Study


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
    options = parser.parse_args()
    for stack in stack_results(Study.load(options.study)).values():
        sys.stdout.write("\n".join(lines_of(stack)) + "\n")


def lines_of(stack: StackResults) -> Iterator[str]:
    """Yield a line for each head, then the numbers of heads by function."""
    functions = functions_of(stack)
    for head, function in functions.items():
        sink = function.sink.as_text("whole") if function.sink else ""
        named = f"{function.id} ({function.noun}): {function.text.text}"
        yield f"{head_name(head)}\t{named}\t{number_text(function)}; sink {sink}"
    yield f"\n{stack.stack.name}: heads by function"
    for function_id, count in Counter(each.id for each in functions.values()).most_common():
        yield f"{count:5} {function_id}"


if __name__ == "__main__":
    main()
