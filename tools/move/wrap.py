"""Break lines that renaming has made too long: python wrap.py CHECKOUT. Prints those left to do by hand.

Comments and paragraphs of docstrings are filled anew from the long line on; strings are cut at a
space outside braces; other code at a comma outside inner brackets (lines that `fmt: skip` keeps).
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from pathlib import Path

WIDTH = 100


def long_lines(root: Path) -> list[tuple[Path, int]]:
    ruff = [root / ".venv/bin/ruff", "check", "--select", "E501", "--output-format", "json", "--no-cache"]
    found = json.loads(subprocess.run(ruff, cwd=root, capture_output=True, text=True).stdout)
    return sorted(((Path(f["filename"]), f["location"]["row"]) for f in found), reverse=True)


def docstring_lines(text: str) -> dict[int, tuple[int, int]]:
    lines = {}
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", ())
        for each in body if isinstance(body, list) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
                for n in range(each.lineno, each.end_lineno + 1):
                    lines[n] = (each.lineno, each.end_lineno)
    return lines


def fill(words: list[str], indent: str) -> list[str]:
    lines, line = [], indent
    for word in words:
        more = f"{line}{' ' if line.strip() else ''}{word}"
        if len(more) > WIDTH and line.strip():
            lines.append(line)
            more = indent + word
        line = more
    return [*lines, line]


def fixed(lines: list[str], number: int, text: str) -> list[str] | None:
    """The lines of a file with one of them broken; None if it is left to somebody."""
    at = number - 1
    line = lines[at]
    docs = docstring_lines(text)
    indent = line[: len(line) - len(line.lstrip())]
    if number in docs:
        first, last = docs[number]
        if number == first:
            return None  # a summary has one line
        end = at
        while end + 1 < last and lines[end + 1].strip() and not lines[end + 1].strip().startswith(('"""', "- ", "* ", "```")) \
                and lines[end + 1].startswith(indent) and not re.match(r"\s*[\w, *]+:( |$)", lines[end + 1]):
            end += 1
            if len(lines[end]) - len(lines[end].lstrip()) != len(indent) and end > at + 1:
                pass
        inner = indent
        body = lines[at : end + 1]
        if len(body) > 1:
            inner = body[1][: len(body[1]) - len(body[1].lstrip())]
        elif re.match(r"\s*(- |[\w, *]+: )", line) and number != first:
            inner = indent + ("  " if line.lstrip().startswith("- ") else "    ")
        tail = ""
        if body[-1].rstrip().endswith('"""') and body[-1].strip() != '"""':
            tail = '"""'
            body[-1] = body[-1].rstrip()[:-3]
        words = " ".join(b.strip() for b in body).split(" ")
        filled = fill(words, inner)
        filled[0] = indent + filled[0].lstrip()
        filled[-1] += tail
        if max(map(len, filled)) > WIDTH:
            return None
        return lines[:at] + filled + lines[end + 1 :]
    if line.lstrip().startswith("# "):
        end = at
        while end + 1 < len(lines) and lines[end + 1].startswith(indent + "# "):
            end += 1
        words = " ".join(l.strip().removeprefix("# ") for l in lines[at : end + 1]).split(" ")
        filled = [f"{indent}# {l}" for l in fill_plain(words, WIDTH - len(indent) - 2)]
        return lines[:at] + filled + lines[end + 1 :]
    if match := re.fullmatch(r'(\s+)(f?)"(.*)"(.*)', line):
        space, prefix, inside, after = match.groups()
        if after in {"", ",", ")", "),"}:
            depth, best, limit = 0, -1, WIDTH - len(space) - len(prefix) - 2
            for i, c in enumerate(inside):
                if prefix:
                    depth += (c == "{") - (c == "}")
                if c == " " and depth == 0 and i + 1 <= limit:
                    best = i + 1
            rest = WIDTH - len(space) - len(prefix) - 2 - len(after)
            if 0 < best and len(inside) - best <= rest:
                second = inside[best:]
                mark = prefix if "{" in second or "}" in second else ""
                head = prefix if "{" in inside[:best] or "}" in inside[:best] else ""
                return [*lines[:at], f'{space}{head}"{inside[:best]}"', f'{space}{mark}"{second}"{after}', *lines[at + 1 :]]
        return None
    # other code: at the last comma that is as deep as the end of the line
    code, quote, depth, marks = line, "", 0, []
    for i, c in enumerate(line):
        if quote:
            quote = "" if c == quote and line[i - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c == "#":
            break
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and i < WIDTH and line[i + 1 : i + 2] == " ":
            marks.append((i, depth))
    fit = [i for i, d in marks if d == depth]
    if not fit or not line.rstrip().endswith(","):
        return None
    following = lines[at + 1] if at + 1 < len(lines) else ""
    inner = following[: len(following) - len(following.lstrip())] if depth else indent
    return [*lines[:at], line[: fit[-1] + 1], inner + line[fit[-1] + 2 :], *lines[at + 1 :]]


def fill_plain(words, width):
    lines, line = [], ""
    for word in words:
        more = f"{line} {word}".strip()
        if len(more) > width and line:
            lines.append(line)
            more = word
        line = more
    return [*lines, line]


root = Path(sys.argv[1]).resolve()
left = []
for path, number in long_lines(root):
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    new = fixed(lines, number, text)
    if new is not None:
        try:
            a, b = ast.parse(text), ast.parse("\n".join(new))
        except SyntaxError:
            new = None
    if new is None:
        left.append((path, number, lines[number - 1].strip()))
    else:
        path.write_text("\n".join(new), encoding="utf-8")
for path, number, line in sorted(left):
    print(f"{path.relative_to(root)}:{number}: {line}")
print(len(left), "left")
