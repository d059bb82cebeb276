"""The page of families: what became of every architecture of transformers that reads text."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from notext import NO_TEXT
from published import PUBLISHED, imitated

RETURNED = "eager, as returned"
OUTCOMES = {
    "whole": "Lacks none of the four",
    "hook": "Works, something is missing",
    "returned": "Works through `output_attentions`",
    "refused": "Refused",
    "questionable": "Not as it should be",
    "bug": "Fails",
    "not built": "Not tried",
    "other": "No text architecture",
}
HEADINGS = {
    "whole": "missing beside the four",
    "hook": "missing",
    "returned": "missing",
    "refused": "the line that the user sees",
    "not built": "why",
    "other": "why",
}
SHORT = {  # gaps of a run, as a table has room for them
    "values and their output projection": "values",
    "states after attention": "`mid`",
    "states of tokens": "states",
    "queries, keys and values": "q, k, v",
    "importance of heads": "importance",
}
# Available for a few families only.
EVERYWHERE = ("comparison with token", "Attention rollout with measured ratios")
BEHIND = {"`mid`", "values", "states", "q, k, v"}
INTRODUCTION = """\
# Families

Results for every type of model of transformers {version} that reads text, {all} in all. Each
is built from a tiny configuration with random weights (text part of models with pictures or
sound), and seven texts of 3 to 47 tokens are collected in padded batches. The configuration has
the options of the published checkpoint that its row names (relative attention, windows, soft caps,
shared keys and so on, with small sizes), or the defaults of its class. Types used most come first.

| result | types | share |
|---|---|---|
{counts}

{others} types are not text architectures, each with its reason below: they have no attention, or
do not take text alone. Shares are of the other {text}. Of these {works} work ({share}), and {whole}
have all four of these parts of a study ({whole_share}): `mid`, the state after attention; *values*
behind their output projection; *q, k, v*, queries, keys and values; *states* of tokens.

*Works* means that every self-check passes, no weight is missing, and the weights that a run reads
are, within 1e-4, those that a fresh copy of the model returns with its own eager attention for each
text alone, in every stack for which it returns one for each layer. {blind} of them return no such
weights in any stack, so that only their self-checks are known.

`mid` and *values* are detected by [a search](../src/headbook/model/block_match.py) that accepts
only sums that agree number by number. *Values* are missing if more than a gate or a norm stands
between the head outputs and the output projection. Without values, or without attention in each
layer, there is no rollout with measured ratios. Models outside transformers' attention interface
are read in [their own matrix products](../src/headbook/model/matrix_products.py) if these determine
the weights; *q, k, v* are missing if weights come from `output_attentions`. Comparisons of tokens
with their own embedding and rollout with measured ratios are not listed, since few architectures
allow them. The site names layers without softmax attention; layers keep the numbers of the model.

*Not tried* are types for which no tiny configuration could be made. A tiny random model shows how
attention is computed, not that a large one fits into memory.

Made by this command, which goes on where an earlier call stopped:

```sh
python benchmarks/families.py --rows rows.jsonl --page docs/families.md
```
"""


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Return the page, in Markdown.

    Args:
        rows: one for each type, as `families.judge` gives them.
    """
    groups = {name: [row for row in rows if outcome(row) == name] for name in OUTCOMES}
    groups = {name: sorted(g, key=_place) for name, g in groups.items() if g}
    return "\n".join([
        _introduction(rows, groups),
        *(_section(name, group) for name, group in groups.items()),
    ])  # fmt: skip


def outcome(row: dict[str, Any]) -> str:
    """One of `OUTCOMES`."""
    if row["state"] != "right":
        return "other" if row["type"] in NO_TEXT else str(row["state"])
    if row["attention"].startswith(RETURNED):
        return "returned"
    return "hook" if BEHIND & {*_missing(row)} else "whole"


def _introduction(rows: Sequence[dict[str, Any]], groups: dict[str, list[dict[str, Any]]]) -> str:
    right = [row for row in rows if row["state"] == "right"]
    others, whole = len(groups.get("other", ())), len(groups.get("whole", ()))
    text = len(rows) - others
    counts = [
        f"| {OUTCOMES[name]} | {len(group)} | "
        f"{'–' if name == 'other' else _percent(len(group), text)} |"
        for name, group in groups.items()
    ]
    return INTRODUCTION.format(
        version=version("transformers"),
        all=len(rows),
        counts="\n".join(counts),
        others=others,
        text=text,
        works=len(right),
        share=_percent(len(right), text),
        blind=sum(not row["compared"] for row in right),
        whole=whole,
        whole_share=_percent(whole, text),
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"


def _section(name: str, group: Sequence[dict[str, Any]]) -> str:
    heading = HEADINGS.get(name, "what")
    lines = [f"| `{row['type']}` | {imitated(row['type'])} | {_line(row)} |" for row in group]
    columns = [f"| type | options of | {heading} |", "|---|---|---|"]
    return "\n".join([f"## {OUTCOMES[name]}", "", *columns, *lines, ""])


def _place(row: dict[str, Any]) -> tuple[int, str]:
    """Order of rows: the types used most, then the others by name."""
    order, name = [*PUBLISHED], str(row["type"])
    return (order.index(name) if name in PUBLISHED else len(order)), name


def _line(row: dict[str, Any]) -> str:
    if row["state"] == "right":
        notes = ["learned sink"] if row["learned_sink"] else []
        notes += ["batches of one length"] if "without padding" in row["attention"] else []
        return ", ".join(_missing(row)) + "".join(f" ({note})" for note in notes)
    if row["state"] == "questionable":
        worst = max(row["apart"].values())
        checks = ", ".join(str(name) for name in row["failed"]) or "none"
        weights = ", ".join(f"`{name}`" for name in row["missing"]) or "none"
        return f"failed checks: {checks}; missing weights: {weights}; apart by {worst:.2g}"
    why = NO_TEXT.get(row["type"], row["why"])
    return str(why).replace("|", "\\|").replace("<", "&lt;")


def _missing(row: dict[str, Any]) -> list[str]:
    gaps = (_short(gap) for gap in row["lacks"] if not gap.startswith(EVERYWHERE))
    return sorted({*gaps}, key=lambda gap: (gap not in BEHIND, gap))


def _short(gap: str) -> str:
    """Return a gap in few words, without the layers that it names."""
    what = gap.partition(" of layers ")[0]
    return SHORT.get(gap, SHORT.get(what, gap))
