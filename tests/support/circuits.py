"""Results on what heads read and write, made of chosen or seeded numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from chosen_results import Fake, head_table
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.study.circuits import (
    COMPOSITION,
    EXEMPLAR_TOKENS,
    NUMBER_COLUMNS,
    PROMOTED_TOKENS,
    CircuitResults,
    OutputSpace,
)
from headbook.study.sentence_data import Exemplar, Ranking, StoredText
from headbook.study.study import Study

VOCABULARY, BAND, SEQUENCES = 504, 0.06, 20
N_EXEMPLARS, WORDS = 12, 21_357


def number_rows(head: tuple[str, int, int], numbers: dict[tuple[str, str], Any]) -> pd.DataFrame:
    """Return rows of one head: values, or tuples of a value and both ends of its interval."""
    rows = []
    for (metric, label), given in numbers.items():
        value, low, high = given if isinstance(given, tuple) else (given, np.nan, np.nan)
        rows.append((*head, metric, label, value, low, high, N_EXEMPLARS, N_EXEMPLARS))
    return pd.DataFrame(rows, columns=[*NUMBER_COLUMNS])


def pair_rows(
    pairs: Sequence[tuple[tuple[int, int], tuple[int, int], float, float]],
    *,
    stack: str = "self",
    kind: str = "k",
    random: float = 0.042,
    before: float = 0.8,
) -> pd.DataFrame:
    """Return rows of composition: upper head, lower head, value, and change by an intervention."""
    order = np.argsort([-value for _, _, value, _ in pairs]).argsort() + 1
    rows = [
        {
            "stack": stack,
            "kind": kind,
            "layer": upper[0],
            "head": upper[1],
            "lower_layer": lower[0],
            "lower_head": lower[1],
            "value": value,
            "random": random,
            "rank": int(rank),
            "intervention": change,
            "low": change - 0.02,
            "high": change + 0.02,
            "n_sentences": SEQUENCES,
            "measure": "induction_score",
            "before": before,
        }
        for (upper, lower, value, change), rank in zip(pairs, order, strict=True)
    ]
    return pd.DataFrame(rows, columns=[*COMPOSITION.columns])


def circuit_results(
    study: Study, heads: pd.DataFrame, composition: pd.DataFrame, *, vocabulary: int = VOCABULARY
) -> CircuitResults:
    """Return results for heads with chosen numbers; listed tokens are drawn at random.

    Args:
        study: study of a model with a language-model head.
        heads: numbers of heads by the columns of `COLUMNS`, with stack, layer and head.
        composition: rows of the table of that name.
        vocabulary: number of tokens.
    """
    random = np.random.default_rng(0)
    texts = stored_texts(study)
    words = [*dict.fromkeys(piece for text in texts.values() for piece in text.pieces)] or ["a"]
    strongest: dict[HeadName, list[Exemplar]] = {}
    for exemplar in study.sentence_data.exemplars:
        if exemplar.ranking is Ranking.STRONGEST and exemplar.index + 1 in texts:
            strongest.setdefault(exemplar.head, []).append(exemplar)
    numbers, promoted, exemplars = [], list[dict[str, Any]](), list[dict[str, Any]]()
    for row in heads.to_dict("records"):
        head = (str(row["stack"]), int(row["layer"]), int(row["head"]))
        place = {"stack": head[0], "layer": head[1], "head": head[2]}
        given = row["exemplar_key_rank"]
        rank = float(given[0] if isinstance(given, tuple) else given)
        own = "promoted" if rank <= 10 else "suppressed" if rank > vocabulary - 10 else ""
        known = {key: row[name] for name, key in COLUMNS.items() if name in row}
        counts = {("attended_rank", "in top 10"): 2.0 * (own == "promoted"),
                  ("attended_rank", "in bottom 10"): 2.0 * (own == "suppressed")}  # fmt: skip
        numbers.append(number_rows(head, known | counts))
        drawn = [words[n] for n in random.integers(len(words), size=30)]
        promoted += [place | listed for listed in listed_tokens(drawn)]
        for n, exemplar in enumerate(strongest.get(HeadName(*head), ())[:N_EXEMPLARS]):
            start = place | exemplar_columns(n, exemplar, texts[exemplar.index + 1], rank)
            for kind, sign in (("promoted", 1), ("suppressed", -1)):
                tokens = [start["key_token"] if kind == own else drawn[20], *drawn[21:25]]
                exemplars += [
                    start
                    | {"kind": kind, "rank": m + 1, "token": token, "value": sign * (2 - m / 4)}
                    for m, token in enumerate(tokens)
                ]
    frame = pd.DataFrame(exemplars, columns=[*EXEMPLAR_TOKENS.columns])
    return CircuitResults(
        space=OutputSpace.UNEMBEDDING,
        vocabulary=vocabulary,
        types=400,
        remarks=(
            "Norms: gains are folded in, scales are left out of scores and compositions.",
            "Rotary positions: composition is taken at relative offset 0.",
        ),
        numbers=pd.concat(numbers, ignore_index=True),
        composition=composition,
        promoted=pd.DataFrame(promoted, columns=[*PROMOTED_TOKENS.columns]),
        exemplars=frame,
        sentences=sentence_rows(texts, frame),
    )


# Columns of chosen numbers, with metric and label.
COLUMNS = {
    "copying_score": ("copying_score", ""),
    "copying_low": ("copying_score", "permuted low"),
    "copying_high": ("copying_score", "permuted high"),
    "copy_rate": ("copy_rate", ""),
    "copy_rate_negative": ("copy_rate_negative", ""),
    "exemplar_key_rank": ("attended_rank", ""),
}


def stored_texts(study: Study) -> dict[int, StoredText]:
    """Return the texts of the last stack's queries by the number of the sentence."""
    stored, side = study.sentence_data.sentences.values(), study.manifest.stacks[-1].queries
    return {each.number: each.texts[side] for each in stored}


def listed_tokens(drawn: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows of promoted, suppressed and read tokens."""
    rows = []
    for kind, sign, tokens in (("promoted", 1, drawn[:10]), ("suppressed", -1, drawn[10:20])):
        for n, token in enumerate(tokens):
            value = sign * (1.6 - 0.1 * n)
            rows.append((kind, "", n + 1, token, value, value - 0.2, value + 0.2, N_EXEMPLARS))
    for key in dict.fromkeys(drawn[20:23]):
        rows += [("read", key, n + 1, drawn[n], 1 - 0.1 * n, 0.4, 1.4, 6) for n in range(5)]
    columns = [name for name in PROMOTED_TOKENS.columns if name not in {"stack", "layer", "head"}]
    return [dict(zip(columns, row, strict=True)) for row in rows]


def exemplar_columns(n: int, exemplar: Exemplar, text: StoredText, rank: float) -> dict[str, Any]:
    """Return the columns that all rows of an exemplar share."""
    last = exemplar.query + 1 >= len(text.pieces)
    return {
        "exemplar": n + 1,
        "sentence": exemplar.index + 1,
        "query": exemplar.query,
        "key": exemplar.key,
        "weight": exemplar.score,
        "key_token": text.pieces[exemplar.key],
        "key_rank": rank,
        "true_token": "" if last else text.pieces[exemplar.query + 1],
        "true_probability": np.nan if last else 0.5 + 0.04 * n,
        "true_contribution": np.nan if last else 0.9 - 0.1 * n,
    }


def sentence_rows(texts: dict[int, Any], exemplars: pd.DataFrame) -> pd.DataFrame:
    """Return the texts of exemplars with the offsets of their tokens."""
    rows = [
        (
            number,
            texts[number].text,
            [start for start, _ in texts[number].spans],
            [end for _, end in texts[number].spans],
        )
        for number in sorted({*exemplars["sentence"]})
    ]
    return pd.DataFrame(rows, columns=["sentence", "text", "starts", "ends"])


def head_rows(stack: str, n_layers: int, n_heads: int, **numbers: Any) -> pd.DataFrame:
    """Return a row for each head, of a head that does nothing unless numbers are given.

    Args:
        numbers: values by layer and head for a column.
    """
    rows = []
    for place in np.ndindex(n_layers, n_heads):
        plain = {
            "copying_score": 0.01,
            "copying_low": -BAND,
            "copying_high": BAND,
            "copy_rate": 0.01,
            "copy_rate_negative": 0.01,
            "exemplar_key_rank": VOCABULARY / 2,
        }
        own = {name: given[place] for name, given in numbers.items() if place in given}
        rows.append({"stack": stack, "layer": place[0], "head": place[1]} | plain | own)
    return pd.DataFrame(rows)


SCORES: Mapping[HeadKey, Fake] = {
    HeadKey("previous_score", SinkView.RAW, ""): Fake([[0.9, 0.6, 0.1, 0.1], [0.1] * 4], 0.05),
    HeadKey("induction_score", SinkView.RAW, ""): Fake([[0.0] * 4, [0.5, 0.8, 0.1, 0.1]], 0.01),
}


def small_study(study: Study) -> Study:
    """Return a study of two layers of four heads with a circuit.

    L1·H1 copies, promotes the token that it attends to, and uses L0·H0; L1·H0 suppresses the token
    that it attends to.
    """
    stack = study.manifest.stacks[0]
    heads = head_rows(
        stack.name, stack.n_layers, stack.n_heads,
        copying_score={(1, 1): 0.9, (1, 0): -0.8},
        copy_rate={(1, 1): 0.3},
        copy_rate_negative={(1, 0): 0.2},
        exemplar_key_rank={(1, 1): (2.0, 1.0, 6.0), (1, 0): VOCABULARY - 1.0},
    )  # fmt: skip
    pairs = [((1, 1), (0, 0), 0.16, -0.5), ((1, 1), (0, 1), 0.12, -0.01)]
    pairs += [((1, 0), (0, 0), 0.1, -0.2), ((1, 0), (0, 1), 0.14, -0.06)]
    circuits = circuit_results(study, heads, pair_rows(pairs, stack=stack.name))
    random = {stack.name: head_table(SCORES, SEQUENCES)}
    sums = replace(study.corpus_sums, random=random)
    return replace(study, corpus_sums=sums, circuits=circuits, baselines={})


def towards_results(
    study: Study,
    ranks: Mapping[tuple[int, int], tuple[float, float, float]],
    control: float = 11_000,
) -> CircuitResults:
    """Return words to and from which heads move sentence vectors.

    Args:
        study: study of a sentence encoder.
        ranks: rank of the word attended to, with its interval, by layer and head; others at chance.
        control: rank of other content words.
    """
    stack, texts = study.manifest.stacks[0], stored_texts(study)
    texts = dict([*texts.items()][:N_EXEMPLARS])
    words = [*dict.fromkeys(piece for text in texts.values() for piece in text.pieces)]
    numbers, promoted, exemplars = [], list[dict[str, Any]](), list[dict[str, Any]]()
    chance = (WORDS / 2, WORDS / 3, WORDS / 1.5)
    for layer, head in np.ndindex(stack.n_layers, stack.n_heads):
        rank = ranks.get((layer, head), chance)
        name, place = (stack.name, layer, head), {"stack": stack.name, "layer": layer, "head": head}
        found = {("towards_rank", ""): rank, ("towards_control", ""): control}
        numbers.append(number_rows(name, found))
        for kind, sign in (("to", 1), ("from", -1)):
            promoted += [
                place | {"kind": kind, "key_token": "", "rank": n + 1, "token": word,
                         "value": sign * (0.4 - 0.02 * n), "low": -0.5, "high": 0.5,
                         "n_sentences": N_EXEMPLARS}
                for n, word in enumerate(words[:10])
            ]  # fmt: skip
        for n, (number, text) in enumerate(texts.items()):
            start = place | {
                "exemplar": n + 1, "sentence": number, "query": None, "key": 1,
                "weight": 0.3 - 0.01 * n, "key_token": text.pieces[1], "key_rank": rank[0],
                "true_token": "",
            }  # fmt: skip
            exemplars += [
                start | {"kind": kind, "rank": m + 1, "value": 0.5 - 0.1 * m, "token": words[m]}
                for kind, amount in (("to", 5), ("from", 3))
                for m in range(amount)
            ]
    frame = pd.DataFrame(exemplars, columns=[*EXEMPLAR_TOKENS.columns])
    return CircuitResults(
        space=OutputSpace.SENTENCE_VECTORS,
        vocabulary=WORDS,
        remarks=("Sentence vectors: a total effect through later layers.",),
        numbers=pd.concat(numbers, ignore_index=True),
        promoted=pd.DataFrame(promoted, columns=[*PROMOTED_TOKENS.columns]),
        exemplars=frame,
        sentences=sentence_rows(texts, frame),
    )
