"""The values of a site's tables, by what they are of, and the printed numbers that they give.

Usage: python tests/support/site_tables.py SITE PAGE…
"""

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.metrics.patterns.type_shares import EVEN
from printed_numbers import Printed

SCALES = {"%": 0.01, "points": 0.01, "× 10⁻³": 0.001, "thousandths": 0.001}
TIE = 1e-9  # a value in the middle of two roundings may go either way

# Columns of tables that hold values, with those of their ends, and the role of what they hold.
VALUES = {
    "value": ("low", "high", "value"), "mean": ("low", "high", "value"),
    "difference": ("difference_low", "difference_high", "difference"),
    "baseline_value": ("", "", "baseline"), "p": ("", "", "p"), "ratio": ("", "", "value"),
    "mean_head": ("", "", "baseline"), "mean_head_ratio": ("", "", "value"),
    "uniform": ("", "", "baseline"), "change": ("", "", "value"), "before": ("", "", "value"),
    "after": ("", "", "value"), "score": ("", "", "value"),
    "sum_of_single_effects": ("", "", "value"),
    "random_low": ("", "", "value"), "random_high": ("", "", "value"),
    "few_share": ("", "", "value"), "without": ("", "", "value"),
    "weight": ("", "", "value"), "first": ("", "", "value"),
    "second": ("", "", "value"), "margin": ("", "", "value"),
    "share_high": ("", "", "value"), "share_changed": ("share_low", "share_high", "value"),
}  # fmt: skip
TEXTS = (
    "stack", "metric", "view", "label", "claim", "split", "target", "replacement", "query_class",
    "key_class",
)  # fmt: skip
RENAMED = {
    "words": {"class": "label", "state": "view"},
    "class_flows": {"ratio": "value", "share": "first"},  # the interval is that of the ratio
    "composition": {  # the interval is that of the intervention
        "value": "first",
        "intervention": "value",
        "random": "baseline_value",
    },
    "exemplar_tokens": {
        "true_probability": "first",
        "true_contribution": "second",
        "key_rank": "score",
    },
}
ASKED = {"class_flows"}  # tables of numbers that stand only where a hint names the table
LARGE = {"nearest", "tokens", "types", "uses", "public_demo"}  # of tokens: no page of heads


class Tables:
    """All values of a site's tables, with what each is of."""

    def __init__(self, data: Path) -> None:
        files = (file for file in sorted(data.glob("*.parquet")) if file.stem not in LARGE)
        frames = [_facts(file.stem, pd.read_parquet(file)) for file in files]
        self.facts = pd.concat([*frames, _facts("exemplars", _exemplars(data))], ignore_index=True)
        ends = ("value", "low", "high")
        self._columns: dict[str, NDArray[Any]] = {n: self.facts[n].to_numpy() for n in ends}
        loss = self.facts.query("claim == 'whole model'")["value"].max()  # NaN without one
        self._scales = SCALES | {"loss": loss / 100}

    def holding(self, number: Printed) -> pd.DataFrame:
        """Return the values that give a printed number, of the head and metric beside it."""
        columns, scale = self._columns, self._scales.get(number.unit, 1.0)
        found = rounds_to(columns["value"], number.value, scale)
        for end, text in zip(("low", "high"), number.ends or (), strict=False):
            found &= rounds_to(columns[end], text, scale)
        places = np.flatnonzero(found)
        facts = self.facts.iloc[places]
        if "table" not in number.of:  # some table of dozens of numbers a head holds any number
            facts = facts[~facts["table"].isin(ASKED)]
        for name, values in number.of.items():
            facts = facts[facts[name].isin(values)]
        return facts[_of_heads(facts, number)] if len(facts) else facts


def _of_heads(facts: pd.DataFrame, number: Printed) -> "pd.Series[bool]":
    """Mark the facts about the heads that a number stands beside, their layers, or named layers."""
    layer, head = facts["layer"], facts["head"]
    whole = (layer < 0) & (head < 0)
    if number.layers:
        whole |= layer.isin(number.layers) & (head < 0)
    for stack, x, y in number.heads:
        own = head == y if x < 0 else (layer == x) & head.isin([y] if number.layers else [y, -1])
        whole |= own & facts["stack"].isin([stack, ""])
    return whole if number.heads or number.layers else layer.notna()


def rounds_to(values: NDArray[Any], text: str, scale: float) -> NDArray[np.bool_]:
    """Mark the values that a page would print as a given text."""
    digits = text.lstrip("<> ").replace(",", "").replace("−", "-")
    value, places = float(digits), len(digits.partition(".")[2])
    numbers = values.astype(float) / scale
    if text.startswith("<"):
        found: NDArray[np.bool_] = (numbers > 0) & (numbers < value)
    elif text.startswith(">"):
        # In files of six digits, a share just below 1 is 1.
        found = (numbers > value) & (numbers <= (100 if scale == SCALES["%"] else 0))
    else:
        found = np.abs(numbers - value) <= 0.5 * 10.0**-places + TIE
    return found


def _exemplars(data: Path) -> pd.DataFrame:
    """Return the exemplars of heads; the label is the sentence."""
    file, packed = data / "exemplars.jsonl", data / "exemplars.jsonl.gz"
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else file.read_bytes()
    table = pd.DataFrame([json.loads(line) for line in content.splitlines()])
    return table.assign(label="sentence " + table["sentence"].astype(str))


def _facts(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each value of a table."""
    table = _labelled(name, table)
    frames = []
    for column, (low, high, role) in VALUES.items():
        if column in table:
            frame = pd.DataFrame(index=table.index)
            for part, source in (("value", column), ("low", low), ("high", high)):
                frame[part] = table[source].astype(float) if source in table else np.nan
            for place in ("layer", "head"):
                known = table[place] if place in table else pd.Series(-1, table.index)
                frame[place] = pd.to_numeric(known).astype("Int64").fillna(-1).astype(int)
            for text in TEXTS:
                frame[text] = table[text].astype(str) if text in table else ""
            what = "baseline" if name == "controls" else role
            frames.append(frame.assign(table=name, part=column, role=what))
    facts = pd.concat(frames, ignore_index=True)
    excess = facts[(facts["metric"] == "dependency_excess") & (facts["role"] == "value")]
    even = facts[(facts["metric"] == "type_shares") & facts["label"].isin([*EVEN.values()])]
    more = (excess.assign(role="difference"), even.assign(role="baseline"))
    facts = pd.concat([facts, *more], ignore_index=True)
    return facts[facts["value"].notna()]


def _labelled(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a label as pages print it beside the values."""
    if name == "pairs":  # a pair belongs to both heads, the label is the other one
        names = [_names(table, which) for which in ("other_", "")]
        turned = table.assign(layer=table["other_layer"], head=table["other_head"], label=names[1])
        return pd.concat([table.assign(label=names[0]), turned], ignore_index=True)
    if name == "composition":  # a pair belongs to both heads
        lower = table.assign(layer=table["lower_layer"], head=table["lower_head"])
        table = pd.concat([table, lower], ignore_index=True)
    if name in RENAMED:
        return table.rename(columns=RENAMED[name])
    if name == "tests":  # "3.1 times uniform attention" is of two cells of a row
        ratio = table["value"] / table["baseline_value"].replace(0, np.nan)
        parts = table["label"].str.split("/")  # of ablations: group, replacement, target
        replaced = parts.str[-2].where(table["claim"] == "ablation")
        return table.assign(ratio=ratio, replacement=replaced.fillna(table["view"]))
    if name == "top_tokens":
        ends = zip(table["query"], table["key"], strict=True)
        return table.assign(label=[" → ".join(filter(None, each)) for each in ends])
    if name == "effect_tokens":
        return table.assign(label="rank " + table["rank"].astype(str))
    return table


def _names(table: pd.DataFrame, which: str) -> list[str]:
    heads = zip(table[f"{which}layer"], table[f"{which}head"], strict=True)
    return [f"L{layer}·H{head}" for layer, head in heads]


def missing_numbers(numbers: Sequence[Printed], tables: Tables) -> list[str]:
    """Return the printed numbers that no table holds, with page and context."""
    return [str(number) for number in numbers if tables.holding(number).empty]


def main() -> None:
    """Print the numbers of pages that are in no table."""
    import test_printed_numbers

    site = Path(sys.argv[1])
    for page in sys.argv[2:]:
        numbers = test_printed_numbers.numbers_of(site, page)
        missing = missing_numbers(numbers, Tables(site / "data"))
        lines = [f"{page}: {len(numbers)} numbers, {len(missing)} in no table", *missing]
        sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
