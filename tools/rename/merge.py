"""Add the rows of `more.tsv` to the plan's names: python merge.py NAMES_OF_THE_PLAN MOVES > names.tsv.

A row of `more.tsv` says the new name alone; its module follows from MOVES. A row of the plan with
the same old name is replaced. Run again when either file has changed.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from rename import Moves, is_member, Row, table  # noqa: E402

plan, moves = Path(sys.argv[1]), Moves(Path(sys.argv[2]))
rows = {r["old"]: r for r in table(plan)}
tops = {r["old"]: r["new"] for r in rows.values()}
added = []
for line in (HERE / "more.tsv").read_text(encoding="utf-8").splitlines():
    old, new, kind, why = line.split("\t")
    added.append((old, new, kind, why))
    if kind == "class":
        tops[old] = new
drop = {l.strip() for l in (HERE / "drop.txt").read_text().splitlines()} if (HERE / "drop.txt").exists() else set()
final = {o: r for o, r in rows.items() if o not in drop}
for old, new, kind, why in added:
    if old.startswith("tests:"):
        final[old] = {"old": old, "new": f"{old.rpartition('.')[0]}.{new}", "kind": kind, "why": why}
        continue
    row = Row(old, new, kind, why)
    depth = 2 if is_member(row) else 1
    parts = old.split(".")
    module, top = ".".join(parts[:-depth]), parts[-depth]
    place = moves.place(module, top) or module
    container = place
    if depth == 2:
        container += "." + tops.get(".".join(parts[:-1]), top).rpartition(".")[2]
    final[old] = {"old": old, "new": f"{container}.{new}", "kind": kind, "why": why}
print("old\tnew\tkind\twhy")
for r in final.values():
    print("\t".join(r[k] or "" for k in ("old", "new", "kind", "why")))
