"""Replace whole lines by content: python lines.py CHECKOUT. `lines.txt` has pairs of blocks.

A pair is ``<<<``, the old lines without their indent, ``===``, the new lines (the first without
indent, the others with four spaces for each further level), ``>>>``. Prints the blocks that fit nowhere or twice.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
root = Path(sys.argv[1]).resolve()
blocks = re.findall(r"<<<\n(.*?)\n===\n(.*?)\n>>>", (HERE / "lines.txt").read_text(encoding="utf-8"), re.DOTALL)
texts = {p: p.read_text(encoding="utf-8") for t in ("src", "tests", "benchmarks", "docs") for p in sorted((root / t).rglob("*.py"))}
texts |= {p: p.read_text(encoding="utf-8") for p in [*(root / "docs").glob("*.md"), root / "CONTRIBUTING.md", root / "README.md"]}
changed = set()
for old, new in blocks:
    lines = [re.escape(l.strip()) for l in old.split("\n")]
    pattern = re.compile(r"(?m)^([ ]*)" + r"\n[ ]*".join(lines) + r"[ ]*$")
    found = [(p, m) for p, t in texts.items() for m in pattern.finditer(t)]
    if not found:
        if not any(new.split("\n")[0].strip() in t for t in texts.values()):
            print("nowhere:", old.split("\n")[0][:100])
        continue
    for path in {p for p, _ in found}:
        def put(m):
            return "\n".join(m[1] + l for l in new.split("\n"))
        texts[path] = pattern.sub(put, texts[path])
        changed.add(path)
for path in changed:
    path.write_text(texts[path], encoding="utf-8")
print(len(changed), "files")
