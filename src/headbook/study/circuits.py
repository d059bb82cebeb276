"""Results of `headbook.circuits` on what heads read and write, and their tables.

Numbers of single heads are rows of the table `heads`, where each is a metric of its own
(`headbook.metrics.circuits`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimates
from headbook.schema import AttentionStack, HeadKey, SinkView
from headbook.study.tables import ESTIMATE_COLUMNS, HEAD_COLUMNS, HEADS, TableSpec

if TYPE_CHECKING:
    from headbook.study.study import Study


class OutputSpace(StrEnum):
    """Vectors by which the outputs of heads are read as tokens."""

    NONE = ""
    """Nothing was measured."""
    UNEMBEDDING = "unembedding"
    """Unembedding of the language-model head."""
    SENTENCE_VECTORS = "sentence vectors"
    """Sentence vectors of single words, for sentence encoders."""
    INPUT_EMBEDDINGS = "input embeddings"
    """Input embeddings, for other models without an output vocabulary."""


COMPOSITION: "TableSpec[Study]" = TableSpec(
    "composition",
    "Pairs of heads of different layers whose weights fit together, the strongest of each kind, "
    "and what changes without the lower head in one input of the upper head.",
    {
        "stack": HEAD_COLUMNS["stack"],
        "kind": "input of the upper head: q (query), k (key) or v (value)",
        "layer": "layer of the upper head, counted from 0",
        "head": "upper head, counted from 0",
        "lower_layer": "layer of the lower head, counted from 0",
        "lower_head": "lower head, counted from 0",
        "value": "Frobenius norm of the product of both heads' matrices over the product of "
        "their norms",
        "random": "mean of the same for random matrices of these shapes",
        "rank": "rank of the value among all pairs of this kind, 1 for the largest",
        "intervention": "change of the measure if the lower head's mean output is taken out of "
        "this input of the upper head; empty if not measured",
        "low": "lower end of the 95 % interval of the change",
        "high": "upper end",
        "n_sentences": "sequences on which the change was measured",
        "measure": "induction_score, or the strongest weight of the upper head",
        "before": "measure of the whole model",
    },
    lambda study: study.circuits.composition,
    optional=True,
)
PROMOTED_TOKENS: "TableSpec[Study]" = TableSpec(
    "promoted_tokens",
    "Tokens whose logits a head raises or lowers most, tokens that it promotes where it reads one "
    "token, and words to and from which it moves the sentence vector.",
    HEAD_COLUMNS
    | {
        "kind": "promoted or suppressed (over the queries of longest output); read (where the "
        "head reads key_token); to or from (of sentence vectors)",
        "key_token": "token that is read; empty for other kinds",
        "rank": "1 for the largest",
        "token": "token of the vocabulary",
        "value": "mean contribution to the token's centred logit, or cosine with the word",
        "low": ESTIMATE_COLUMNS["low"],
        "high": ESTIMATE_COLUMNS["high"],
        "n_sentences": ESTIMATE_COLUMNS["n_sentences"],
    },
    lambda study: study.circuits.promoted,
    optional=True,
)
EXEMPLAR_TOKENS: "TableSpec[Study]" = TableSpec(
    "exemplar_tokens",
    "What the output of a head promotes at each of its twelve strongest sentences of the sample.",
    HEAD_COLUMNS
    | {
        "exemplar": "1 for the strongest",
        "sentence": "number of the sentence in the input, from 1",
        "query": "position of the query, from 0; empty for sentence vectors",
        "key": "position of the key that receives most attention, from 0",
        "weight": "attention weight; for sentence vectors the length of the change",
        "key_token": "token of the key",
        "key_rank": "rank of that token among all tokens by the head's contribution",
        "true_token": "next or masked token; empty without one",
        "true_probability": "probability that the model gives it",
        "true_contribution": "contribution of the head to its centred logit",
        "kind": "promoted, suppressed, to or from",
        "rank": "1 for the largest",
        "token": "token of the vocabulary",
        "value": "contribution to the token's centred logit, or cosine with the word",
    },
    lambda study: study.circuits.exemplars,
    optional=True,
)
NUMBER_COLUMNS = (*HEAD_COLUMNS, "metric", "label", *ESTIMATE_COLUMNS)
TEXT_COLUMNS = (
    "stack", "metric", "label", "kind", "measure", "key_token", "true_token", "token", "text",
)  # fmt: skip
LIST_COLUMNS = ("starts", "ends")
SENTENCE_COLUMNS = ("sentence", "text", "starts", "ends")


def _without_none(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with empty texts for missing texts, and NaN for missing numbers."""
    columns = {
        str(name): table[name].astype(object).fillna("").astype("str")
        if name in TEXT_COLUMNS
        else pd.to_numeric(table[name])
        for name in table
        if name not in LIST_COLUMNS
    }
    return table.assign(**columns)


@dataclass(frozen=True, eq=False)
class CircuitResults:
    """Results on what the heads of a model read and write.

    Attributes:
        space: vectors by which outputs are read as tokens.
        vocabulary: number of tokens or words that are ranked.
        types: number of token types behind copying scores.
        remarks: what is approximate, one sentence each.
        numbers: numbers of single heads, with the columns of `NUMBER_COLUMNS`.
        composition, promoted, exemplars: tables of the same names.
        sentences: texts of the exemplars, with the character offsets of their tokens as lists:
            columns of `SENTENCE_COLUMNS`.
        error: largest difference between the summed contributions of embedding, heads and
            feed-forward blocks and the centred logits, relative to the largest of these; NaN if not
            measured.
        missing: by stack, or the empty name for all stacks, why heads have no results.
    """

    space: OutputSpace = OutputSpace.NONE
    vocabulary: int = 0
    types: int = 0
    remarks: tuple[str, ...] = ()
    numbers: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*NUMBER_COLUMNS]))
    composition: pd.DataFrame = field(default_factory=lambda: COMPOSITION.empty)
    promoted: pd.DataFrame = field(default_factory=lambda: PROMOTED_TOKENS.empty)
    exemplars: pd.DataFrame = field(default_factory=lambda: EXEMPLAR_TOKENS.empty)
    sentences: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=[*SENTENCE_COLUMNS])
    )
    error: float = float("nan")
    missing: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def join(cls, parts: Iterable["CircuitResults"]) -> "CircuitResults":
        """Return the results of several measurements of one model as one."""
        parts = list(parts)
        tables = {
            name: _without_none(pd.concat(frames, ignore_index=True))
            for name in ("numbers", "composition", "promoted", "exemplars", "sentences")
            if (frames := [table for part in parts if len(table := getattr(part, name))])
        }
        return cls(
            space=next((part.space for part in parts if part.space), OutputSpace.NONE),
            vocabulary=max((part.vocabulary for part in parts), default=0),
            types=max((part.types for part in parts), default=0),
            remarks=tuple(dict.fromkeys(remark for part in parts for remark in part.remarks)),
            error=float(np.fmax.reduce([part.error for part in parts])),
            missing={stack: why for part in parts for stack, why in part.missing.items()},
            **tables,
        )

    def estimates(self, stack: AttentionStack) -> Mapping[HeadKey, Estimates]:
        """Return the numbers of the heads of a stack by metric and label.

        *Shape:* ``(layer, head)`` each; NaN for heads without a number.
        """
        own = self.numbers[self.numbers["stack"] == stack.name]
        found = {}
        for (metric, label), rows in own.groupby(["metric", "label"], sort=False):
            cells = rows["layer"].to_numpy(int), rows["head"].to_numpy(int)
            arrays = []
            for column in ("value", "low", "high", "n_sentences", "n_observations"):
                array = np.full((stack.n_layers, stack.n_heads), np.nan)
                array[cells] = rows[column].to_numpy(float)
                arrays.append(array)
            value, low, high, sentences, observations = arrays
            counts = np.nan_to_num(sentences).astype(np.int64)
            key = HeadKey(str(metric), SinkView.RAW, str(label))
            found[key] = Estimates(value, low, high, counts, observations, sentences)
        return found

    @property
    def head_rows(self) -> pd.DataFrame:
        """Numbers of single heads as rows of the table ``heads``."""
        return self.numbers.assign(view=str(SinkView.RAW))[[*HEADS.columns]]
