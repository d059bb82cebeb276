"""Remove rows of ``moves.tsv`` and ``names.tsv`` that name what a checkout no longer has.

Usage: python prune.py CHECKOUT [--write]

CHECKOUT is a commit before the move. Prints each row that would go; with ``--write`` they go. Rows
of files that are there in neither form are printed by ``check.py``, and are corrected by hand.
"""

import sys
from pathlib import Path

from check import HERE, modules_of, path_of

MODULES = modules_of(Path(sys.argv[1]) / "src" / "headbook")
SHORT = {name.removeprefix("headbook."): module for name, module in MODULES.items()}


def there(old: str, kind: str) -> bool:
    """Whether a row of names.tsv still names something."""
    if kind in {"option", "column"}:
        return True
    if kind == "module":
        return old in SHORT
    parts = old.split(".")
    place = next((i for i in range(len(parts) - 1, 0, -1) if ".".join(parts[:i]) in SHORT), 0)
    module, rest = SHORT.get(".".join(parts[:place])), parts[place:]
    known = module is not None and rest[0] in module.definitions
    return known and (len(rest) < 2 or rest[1] in module.members.get(rest[0], set()))


def main() -> None:
    write = "--write" in sys.argv
    lines = (HERE / "names.tsv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines[1:] if there(*(line.split("\t")[i] for i in (0, 2)))]
    for line in lines[1:]:
        if line not in kept:
            print("names.tsv:", line)
    if write:
        (HERE / "names.tsv").write_text("\n".join([lines[0], *kept]) + "\n", encoding="utf-8")
    paths = {path_of(m.name, m.package): m for m in MODULES.values()}
    rows = (HERE / "moves.tsv").read_text(encoding="utf-8").splitlines()
    kept = [rows[0]]
    for line in rows[1:]:
        old, new, note = line.split("\t")
        if not old.endswith("/") and old not in paths and (
            new == "dropped" or "may be gone" in note):
            print("moves.tsv:", line)
            continue
        head, mark, split = note.partition("split: ")
        if mark and old in paths:
            parts = []
            for part in split.split("; "):
                names, arrow, path = part.partition(" -> ")
                known = [n.strip() for n in names.split(",")]
                left = [n for n in known if n in paths[old].definitions]
                if left != known:
                    print(f"moves.tsv: {old} no longer defines {set(known) - set(left)}")
                if left:
                    parts.append(f"{', '.join(left)}{arrow}{path}")
            note = f"{head}{mark}{'; '.join(parts)}" if parts else head.strip()
        kept.append("\t".join((old, new, note)))
    if write:
        (HERE / "moves.tsv").write_text("\n".join(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
