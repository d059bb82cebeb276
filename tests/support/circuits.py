"""Results on what heads read and write, made of chosen or seeded numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from headbook.study.circuits import (
    COMPOSITION,
    EXEMPLAR_TOKENS,
    NUMBER_COLUMNS,
    PROMOTED_TOKENS,
    CircuitResults,
    OutputSpace,
)
from headbook.study.sentence_data import Ranking
from headbook.study.study import Study

VOCABULARY, BAND, SEQUENCES = 504, 0.06, 20
N_EXEMPLARS = 12


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
    study: Study,
    heads: pd.DataFrame,
    composition: pd.DataFrame,
    *,
    vocabulary: int = VOCABULARY,
    words: Sequence[str] = (),
    seed: int = 0,
) -> CircuitResults:
    """Return results for heads with chosen numbers; listed tokens are drawn at random.

    Args:
        study: study of a model with a language-model head.
        heads: columns ``stack, layer, head, copying_score, copying_low, copying_high, copy_rate,
            copy_rate_negative, exemplar_key_rank``.
        composition: rows of the table of that name.
        vocabulary: number of tokens.
        words: tokens that are listed; those of the sentences if none are given.
        seed: seed of tokens and exemplars.
    """
    random = np.random.default_rng(seed)
    stored = {sentence.number: sentence for sentence in study.sentence_data.sentences.values()}
    side = study.manifest.stacks[0].keys
    texts = {number: sentence.texts[side] for number, sentence in stored.items()}
    words = [*(words or dict.fromkeys(p for text in texts.values() for p in text.pieces))]
    strongest: dict[tuple[str, int, int], list[Any]] = {}
    for exemplar in study.sentence_data.exemplars:
        if exemplar.ranking is Ranking.STRONGEST and exemplar.index + 1 in texts:
            strongest.setdefault(tuple(exemplar.head), []).append(exemplar)
    numbers, promoted, exemplars = [], [], []
    for row in heads.to_dict("records"):
        head = (str(row["stack"]), int(row["layer"]), int(row["head"]))
        rank = float(row["exemplar_key_rank"])
        place = {"stack": head[0], "layer": head[1], "head": head[2]}
        top, bottom = rank <= 10, rank > vocabulary - 10
        numbers.append(
            number_rows(
                head,
                {
                    ("copying_score", ""): row["copying_score"],
                    ("copying_score", "permuted low"): row["copying_low"],
                    ("copying_score", "permuted high"): row["copying_high"],
                    ("copy_rate", ""): row["copy_rate"],
                    ("copy_rate_negative", ""): row["copy_rate_negative"],
                    ("attended_rank", ""): (rank, max(1.0, rank - 3), min(vocabulary, rank + 30)),
                    ("attended_rank", "in top 10"): 2 if top else 0,
                    ("attended_rank", "in bottom 10"): 2 if bottom else 0,
                },
            )
        )
        shown = random.permutation(len(words))
        for kind, sign in (("promoted", 1), ("suppressed", -1)):
            for n in range(10):
                value = sign * float(1.6 - 0.1 * n)
                promoted.append(
                    place
                    | {"kind": kind, "key_token": "", "rank": n + 1, "value": value,
                       "token": words[shown[(n + 10 * (sign < 0)) % len(words)]],
                       "low": value - 0.2, "high": value + 0.2, "n_sentences": N_EXEMPLARS}
                )  # fmt: skip
        for key in shown[20:23]:
            for n in range(5):
                promoted.append(
                    place
                    | {"kind": "read", "key_token": words[key % len(words)], "rank": n + 1,
                       "token": words[shown[n]], "value": 1.0 - 0.1 * n, "low": 0.4, "high": 1.4,
                       "n_sentences": 6}
                )  # fmt: skip
        for n, exemplar in enumerate(strongest.get(head, ())[:N_EXEMPLARS]):
            text = texts[exemplar.index + 1]
            last = exemplar.query + 1 >= len(text.pieces)
            start = place | {
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
            for kind, sign in (("promoted", 1), ("suppressed", -1)):
                for m in range(5):
                    token = words[random.integers(len(words))]
                    own = (kind == "promoted" and top) or (kind == "suppressed" and bottom)
                    token = start["key_token"] if m == 0 and own else token
                    exemplars.append(
                        start
                        | {"kind": kind, "rank": m + 1, "token": token, "value": sign * (2 - m / 4)}
                    )
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


def small_circuits(study: Study) -> CircuitResults:
    """Return results in which L1·H1 copies and promotes, and L1·H0 suppresses what it attends to."""
    stack = study.manifest.stacks[0]
    heads = head_rows(
        stack.name, stack.n_layers, stack.n_heads,
        copying_score={(1, 1): 0.9, (1, 0): -0.8},
        copy_rate={(1, 1): 0.3},
        copy_rate_negative={(1, 0): 0.2},
        exemplar_key_rank={(1, 1): 2.0, (1, 0): VOCABULARY - 1.0},
    )  # fmt: skip
    upper = [(1, head) for head in range(min(2, stack.n_heads))]
    pairs = [((1, 1), (0, 0), 0.16, -0.5), ((1, 1), (0, 1), 0.12, -0.01)]
    pairs += [((1, 0), (0, 0), 0.1, -0.2), ((1, 0), (0, 1), 0.14, -0.06)]
    pairs = [pair for pair in pairs if pair[0] in upper]
    return circuit_results(study, heads, pair_rows(pairs, stack=stack.name))


def towards_results(study: Study, ranks: dict[tuple[int, int], tuple[float, float, float]],
                    control: float = 11_000, vocabulary: int = 21_357) -> CircuitResults:  # fmt: skip
    """Return words to and from which heads move sentence vectors.

    Args:
        study: study of a sentence encoder.
        ranks: rank of the word attended to, with its interval, by layer and head; others at chance.
        control: rank of other content words.
        vocabulary: number of words.
    """
    stack = study.manifest.stacks[0]
    stored = [*study.sentence_data.sentences.values()][:N_EXEMPLARS]
    texts = {sentence.number: sentence.texts[stack.keys] for sentence in stored}
    words = [*dict.fromkeys(p for text in texts.values() for p in text.pieces)]
    numbers, promoted, exemplars = [], [], []
    random = np.random.default_rng(1)
    for layer, head in np.ndindex(stack.n_layers, stack.n_heads):
        rank = ranks.get((layer, head), (vocabulary / 2, vocabulary / 3, vocabulary / 1.5))
        name, place = (stack.name, layer, head), {"stack": stack.name, "layer": layer, "head": head}
        numbers.append(
            number_rows(name, {("towards_rank", ""): rank, ("towards_control", ""): control})
        )
        for kind, sign in (("to", 1), ("from", -1)):
            for n in range(10):
                value = sign * (0.4 - 0.02 * n)
                promoted.append(place | {
                    "kind": kind, "key_token": "", "rank": n + 1,
                    "token": words[random.integers(len(words))], "value": value,
                    "low": value - 0.05, "high": value + 0.05, "n_sentences": N_EXEMPLARS,
                })  # fmt: skip
        for n, (number, text) in enumerate(texts.items()):
            start = place | {
                "exemplar": n + 1, "sentence": number, "query": None, "key": 1,
                "weight": 0.3 - 0.01 * n, "key_token": text.pieces[1], "key_rank": rank[0],
                "true_token": "",
            }  # fmt: skip
            for kind, amount in (("to", 5), ("from", 3)):
                exemplars += [
                    start | {"kind": kind, "rank": m + 1, "value": 0.5 - 0.1 * m,
                             "token": words[random.integers(len(words))]}
                    for m in range(amount)
                ]  # fmt: skip
    frame = pd.DataFrame(exemplars, columns=[*EXEMPLAR_TOKENS.columns])
    return CircuitResults(
        space=OutputSpace.SENTENCE_VECTORS,
        vocabulary=vocabulary,
        remarks=("Sentence vectors: a total effect through later layers.",),
        numbers=pd.concat(numbers, ignore_index=True),
        promoted=pd.DataFrame(promoted, columns=[*PROMOTED_TOKENS.columns]),
        exemplars=frame,
        sentences=sentence_rows(texts, frame),
    )
