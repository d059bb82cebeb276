"""What is lost without each head, as one more column of the list of heads."""

from typing import Any

import numpy as np
import pandas as pd

from headbook.pages.heads.headvalues import Results
from headbook.report.numbers.changes import head_changes, unit
from headbook.study.importancetables import EFFECT, EXACT
from headbook.study.sentencedata import heads_of
from headbook.study.summaries.removals import Removals

KEY = f"{EFFECT}/mean"
TITLE = "Change without the head"


def effect_choice(results: Results) -> dict[str, Any] | None:
    """What the list's script needs to offer the column; None where no head was replaced."""
    removals = _removals(results)
    if removals is None:
        return None
    labels = [[KEY, TITLE, f"{unit(removals)}, mean output in its place"]]
    return {"id": EFFECT, "title": "Importance", "share": False, "labels": labels}


def effect_values(results: Results) -> dict[str, dict[str, bytes | str]] | None:
    """Numbers of all heads in the order of the list; packed as those of metrics.

    ``guess`` has a 1 where the value is an estimate, which has no interval.
    """
    removals = _removals(results)
    if removals is None:
        return None
    heads = [head for r in results.values() for head in heads_of(r.stack)]
    places = pd.MultiIndex.from_tuples(heads)
    frame = head_changes(removals).set_index(["stack", "layer", "head"]).reindex(places)
    value, low, high = (frame[name].to_numpy(float) for name in ("value", "low", "high"))
    guess = ~np.isnan(value) & (frame["kind"] != EXACT).to_numpy()
    return {
        KEY: {
            "value": value.astype("<f8").tobytes(),
            "low": low.astype("<f4").tobytes(),
            "high": high.astype("<f4").tobytes(),
            "thin": "0" * len(heads),
            "guess": "".join(map(str, guess.astype(int))),
        }
    }


def _removals(results: Results) -> Removals | None:
    study = next(iter(results.values())).study
    return study.corpus_sums.removals
