"""Words to and from which a head moves the sentence vectors of a sentence encoder.

A sentence encoder has no output vocabulary. Its own vectors of single words take the place of one:
s - s', the change of a sentence vector if the output of a head is replaced by its mean, is compared
with the vector of each word by cosine. All vectors have unit length; the mean of the words is
subtracted from the words. The change is a total effect through later layers.

The test of a head takes the 12 sentences that the head moves most: the rank, among all words, of
the word of the sentence that the head attends to most, beside the ranks of the other content words
of these sentences.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import normalize

from headbook.ablation.ablator import HeadAblator, HeadSet
from headbook.ablation.costs import AblationCosts
from headbook.ablation.replacements import MeanOutputs
from headbook.ablation.sample import AblationSample
from headbook.ablation.targets import pooled
from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.intervals import critical_value, median_interval
from headbook.metrics.base import CircuitMetric
from headbook.metrics.circuits import towards_control, towards_rank
from headbook.model.forward import run_forward
from headbook.model.load import Model
from headbook.model.probe import hidden_states_of
from headbook.model.tokens.special import special_ids
from headbook.schema import CONTENT, HeadName, Replacement, Side
from headbook.study.circuits import (
    EXEMPLAR_TOKENS,
    NUMBER_COLUMNS,
    PROMOTED_TOKENS,
    CircuitResults,
    OutputSpace,
)
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence

MAX_WORDS = 25_000  # single words that are run alone
MIN_LETTERS = 3  # of a word
WORDS_PER_PASS = 512
ENTRIES_PER_CHUNK = 4096  # vocabulary entries that are tokenized together
ROUNDED = 8  # decimals of the length of a change
N_EXEMPLARS = 12  # sentences that a head moves most
N_LISTED = 10  # words of a head in each direction
N_TO, N_FROM = 5, 3  # words of one sentence in each direction
TO, FROM = "to", "from"


def why_no_towards(model: Model, n_sentences: int) -> str:
    """Return why sentence vectors are not compared with words; empty if they are.

    Args:
        model: the model.
        n_sentences: number of different sentences of the sample.
    """
    if not model.pooling or model.config.is_encoder_decoder:
        return "the checkpoint is no sentence encoder"
    if n_sentences < N_EXEMPLARS:
        return (
            f"the sample has {n_sentences} different sentence{'s' * (n_sentences != 1)}; "
            f"words that sentence vectors move to need {N_EXEMPLARS}"
        )
    return ""


class MovedVectors:
    """Changes of sentence vectors without each head, collected while the heads are ablated.

    An instance is the observer of passes in which heads are replaced by their means.

    Args:
        ablator: ablates heads of a sentence encoder.
        sample: sentences.

    Attributes:
        change: sentence vector of the unablated model minus that without the head, in single
            precision; NaN until the head was ablated. *Shape:* ``(sentence, head, width)``.
    """

    def __init__(self, ablator: HeadAblator, sample: AblationSample) -> None:
        indices = np.concatenate([batch.index for batch in sample.batches])
        self._row = {int(index): row for row, index in enumerate(indices)}
        self._column = {head: column for column, head in enumerate(ablator.head_names)}
        self._model = ablator.heads.model
        self.change: Floats = np.zeros((0, 0, 0), np.float32)

    def __call__(
        self, batch: Batch, clean: torch.Tensor, sets: Sequence[HeadSet], ablated: torch.Tensor
    ) -> None:
        """Add the changes of a pass over single heads."""
        if not self.change.size:
            shape = len(self._row), len(self._column), clean.shape[-1]
            self.change = np.full(shape, np.nan, np.float32)
        valid = batch.texts[Side.SOURCE].valid
        whole, without = (_sentence_vectors(each, valid, self._model) for each in (clean, ablated))
        rows = [self._row[int(index)] for index in batch.index]
        columns = [self._column[head] for (head,) in sets]
        moved = (whole - without).transpose(0, 1).cpu().numpy()
        self.change[np.ix_(rows, columns)] = moved

    @property
    def is_complete(self) -> bool:
        """Whether every head was ablated on every sentence."""
        return bool(self.change.size) and not np.isnan(self.change[..., 0]).any()


def towards_cost(
    heads: Sequence[HeadName], costs: AblationCosts, n_sentences: int, moved: MovedVectors | None
) -> str:
    """Return the number of forward passes of `measure_towards`, as a message.

    Args:
        heads: all heads.
        costs: costs of ablating heads.
        n_sentences: number of sentences.
        moved: changes of sentence vectors; None if heads have yet to be ablated.
    """
    passes = 1 if moved else 3 + sum(costs.of([head]) for head in heads)
    amount = f"about {np.ceil(passes):,.0f} forward passes" if passes > 1 else "one forward pass"
    return (
        f"words that sentence vectors move to: {amount} over {n_sentences:,} sentences, and up to "
        f"{MAX_WORDS:,} single words"
    )


def measure_towards(
    ablator: HeadAblator,
    sample: AblationSample,
    moved: MovedVectors | None = None,
    advanced: Callable[[int], None] = lambda _: None,
) -> CircuitResults:
    """Return the words to and from which each head moves sentence vectors, with their test.

    Args:
        ablator: ablates heads of a sentence encoder.
        sample: sentences, at least `N_EXEMPLARS` different ones.
        moved: changes of the vectors of these sentences; None to ablate all heads.
        advanced: progress callback; its argument is the number of passes over one batch.
    """
    vectors = _word_vectors(ablator, words := single_words(ablator.heads.model))
    received = _received(ablator, sample, advanced)
    moved_vectors = (moved or _moved(ablator, sample, advanced)).change
    items = [item for batch in sample.batches for item in batch.items]
    hashes = np.concatenate([batch.content_hash for batch in sample.batches])
    different = np.unique(hashes, return_index=True)[1]
    row_of, model = {word: row for row, word in enumerate(words)}, ablator.heads.model
    spoken = {row: _content_words(model, items[row], row_of) for row in different}
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, head in enumerate(ablator.head_names):
        length = np.linalg.norm(moved_vectors[:, number].astype(np.float64), axis=1)
        order = np.argsort(-length[different].round(ROUNDED), kind="stable")
        rows = different[order[:N_EXEMPLARS]]
        if length[rows[-1]] < 10**-ROUNDED:  # rounding has no direction
            continue
        cosines = (moved_vectors[rows, number] / length[rows, None]) @ vectors.T
        exemplars = []
        for row, scores in zip(rows, cosines, strict=True):
            weights = received[head.layer][row][head.head]
            key = max(spoken[row], key=weights.__getitem__, default=None)
            place = {"sentence": items[row].sentence.index + 1, "weight": length[row], "key": key}
            exemplars.append(place | _ranks([*words], spoken[row], key, scores))
        for table, table_row in _head_rows([*words], exemplars, cosines):
            tables[table].append(head._asdict() | table_row)
    frames = circuit_tables(tables)
    return CircuitResults(
        space=OutputSpace.SENTENCE_VECTORS,
        vocabulary=len(words),
        sentences=exemplar_sentences(items, frames["exemplars"], Side.SOURCE),
        **frames,
    )


def single_words(model: Model) -> dict[str, list[int]]:
    """Return words of the vocabulary, with the token ids of each word as a text of its own.

    Words are entries of at least `MIN_LETTERS` letters that are the only ordinary token of such a
    text, the first `MAX_WORDS` of the vocabulary.
    """
    tokenizer, special = model.tokenizer, special_ids(model)
    rows: dict[str, list[int]] = {}
    for start in range(0, len(tokenizer), ENTRIES_PER_CHUNK):
        entries = range(start, min(start + ENTRIES_PER_CHUNK, len(tokenizer)))
        texts = (tokenizer.decode([entry]).strip() for entry in entries if entry not in special)
        words = [text for text in texts if text.isalpha() and len(text) >= MIN_LETTERS]
        encoded = tokenizer(words)["input_ids"] if words else []
        for word, ids in zip(words, encoded, strict=True):
            ordinary = [token for token in ids if token not in special]
            if len(ordinary) == 1 and tokenizer.decode(ordinary).strip() == word:
                rows.setdefault(word, ids)
        if len(rows) >= MAX_WORDS:
            break
    return dict(list(rows.items())[:MAX_WORDS])


def _word_vectors(ablator: HeadAblator, words: Mapping[str, Sequence[int]]) -> Floats:
    """Return the sentence vectors of single words, minus their mean, of unit length.

    *Shape:* ``(word, width)``.
    """
    heads, parts = ablator.heads, list[torch.Tensor]()
    ids = torch.tensor([*words.values()], device=heads.model.device)
    outputs: list[torch.Tensor] = []
    handle = heads.architecture.layers[heads.read][-1].register_forward_hook(
        lambda _, __, output: outputs.append(hidden_states_of(output))
    )
    try:
        with torch.inference_mode():
            for block in ids.split(WORDS_PER_PASS):
                valid = torch.ones_like(block)
                heads.model.base_model(input_ids=block, attention_mask=valid)
                parts.append(_sentence_vectors(outputs.pop(), valid.bool(), heads.model))
    finally:
        handle.remove()
    vectors = torch.cat(parts)
    centred: Floats = normalize(vectors - vectors.mean(0), dim=-1).cpu().numpy()
    return centred


def _sentence_vectors(states: torch.Tensor, valid: torch.Tensor, model: Model) -> torch.Tensor:
    """Return sentence vectors of unit length in double precision."""
    return normalize(pooled(states.double(), valid, model.pooling), dim=-1)


def _moved(
    ablator: HeadAblator, sample: AblationSample, advanced: Callable[[int], None]
) -> MovedVectors:
    """Ablate all heads, one at a time, and return the changes of sentence vectors."""
    moved, sets = MovedVectors(ablator, sample), [[head] for head in ablator.head_names]
    means = sum(map(ablator.means, sample.batches), start=MeanOutputs())
    for batch in sample.batches:
        ablator.effects(batch, sets, Replacement.MEAN, means, observe=moved)
        advanced(len(sets))
    return moved


def _received(
    ablator: HeadAblator, sample: AblationSample, advanced: Callable[[int], None]
) -> list[list[Floats]]:
    """Return the attention that each head gives to each token from ordinary tokens.

    Returns:
        An array for each layer and sentence, *shape* ``(head, token)``.
    """
    heads = ablator.heads
    received: list[list[Floats]] = [[] for _ in heads.architecture.layers[heads.read]]
    for batch in sample.batches:
        ordinary = batch.texts[Side.SOURCE].ordinary[:, None, :, None]

        def keep(place: Any, attention: Any, ordinary: torch.Tensor = ordinary) -> None:
            rows = ordinary.to(attention.weights)
            received[place.layer] += list((attention.weights * rows).sum(2).double().cpu().numpy())

        run_forward(heads.model, heads.architecture, batch, keep)
        advanced(1)
    return received


def _content_words(
    model: Model, item: TokenizedSentence, row_of_word: Mapping[str, int]
) -> dict[int, int]:
    """Return the row of each content word that has a vector, by the position of its token.

    Words without tags count as content words.
    """
    tokens = item.tokens[Side.SOURCE]
    rows = {}
    for position in np.flatnonzero(tokens.initial):
        word = tokens.words[tokens.word[position]]
        text = model.tokenizer.decode([int(tokens.ids[position])]).strip()
        alone = (tokens.word == tokens.word[position]).sum() == 1
        if alone and text in row_of_word and (not word.upos or word.upos in CONTENT):
            rows[int(position)] = row_of_word[text]
    return rows


def _ranks(
    words: Sequence[str], spoken: Mapping[int, int], key: int | None, scores: Floats
) -> dict[str, Any]:
    """Return the attended word of a sentence with its rank, and the ranks of other content words.

    Args:
        words: all words.
        spoken: row of each content word of the sentence, by position.
        key: position of the attended word; None without a content word.
        scores: cosines of the change and all words. *Shape:* ``(word,)``.
    """
    if key is None:
        return {"key_token": "", "key_rank": None, "other_ranks": []}
    rank_of = {row: int((scores > scores[row]).sum()) + 1 for row in spoken.values()}
    others = [rank for row, rank in rank_of.items() if row != spoken[key]]
    return {
        "key_token": words[spoken[key]],
        "key_rank": rank_of[spoken[key]],
        "other_ranks": others,
    }


def _head_rows(
    words: Sequence[str], exemplars: Sequence[dict[str, Any]], cosines: Floats
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names of tables with the rows of one head.

    Args:
        words: all words.
        exemplars: sentences that the head moves most, the first moved most.
        cosines: cosines of changes and words. *Shape:* ``(sentence, word)``.
    """
    attended: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    for place, (exemplar, scores) in enumerate(zip(exemplars, cosines, strict=True), 1):
        others += [(rank, place) for rank in exemplar.pop("other_ranks")]
        if exemplar["key"] is not None:
            attended.append((exemplar["key_rank"], place))
        start = exemplar | {"exemplar": place, "true_token": ""}
        for kind, order in ((TO, largest(scores, N_TO)), (FROM, largest(-scores, N_FROM))):
            for rank, row in enumerate(order, 1):
                word = {"kind": kind, "rank": rank, "token": words[row], "value": scores[row]}
                yield "exemplars", start | word
    for metric, ranked in ((towards_rank.METRIC, attended), (towards_control.METRIC, others)):
        if ranked:
            yield "numbers", _median_row(metric, ranked)
    for table_row in _listed(words, cosines):
        yield "promoted", table_row


def _median_row(metric: CircuitMetric, ranked: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the median of ranks of words in sentences, with its interval."""
    values, sentences = np.array(ranked, np.float64).T
    low, high = median_interval(values, sentences.astype(np.int64))
    return {
        "metric": metric.id,
        "label": "",
        "value": metric.measure(values),
        "low": low,
        "high": high,
        "n_sentences": len({*sentences}),
        "n_observations": len(values),
    }


def _listed(words: Sequence[str], cosines: Floats) -> list[dict[str, Any]]:
    """Return the words of largest and smallest mean cosine, with Student's t intervals."""
    mean, n_sentences = cosines.mean(0), len(cosines)
    error = cosines.std(0, ddof=1) / np.sqrt(n_sentences)
    half_width = critical_value(np.array(n_sentences)) * error
    return [
        {
            "kind": kind,
            "key_token": "",
            "rank": rank,
            "token": words[row],
            "value": mean[row],
            "low": mean[row] - half_width[row],
            "high": mean[row] + half_width[row],
            "n_sentences": n_sentences,
        }
        for kind, sign in ((TO, 1), (FROM, -1))
        for rank, row in enumerate(largest(sign * mean, N_LISTED), 1)
    ]


def largest(scores: Floats, count: int) -> Ints:
    """Return the indices of the largest scores, largest first; of equal ones, the first."""
    count = min(count, len(scores))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")][:count]


def circuit_tables(rows: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Return the tables of results by name of the field; columns that a row lacks are empty."""
    columns: dict[str, Iterable[str]] = {
        "numbers": NUMBER_COLUMNS,
        "promoted": PROMOTED_TOKENS.columns,
        "exemplars": EXEMPLAR_TOKENS.columns,
    }
    return {
        name: pd.DataFrame(rows.get(name, []), columns=[*names]) for name, names in columns.items()
    }


def exemplar_sentences(
    items: Sequence[TokenizedSentence], exemplars: pd.DataFrame, side: Side
) -> pd.DataFrame:
    """Return the texts of exemplars with the character offsets of their tokens."""
    wanted = {*exemplars["sentence"]}
    rows = [
        (
            item.sentence.index + 1,
            tokens.text,
            tokens.spans[:, 0].tolist(),
            tokens.spans[:, 1].tolist(),
        )
        for item in sorted(items, key=lambda item: item.sentence.index)
        for tokens in [item.tokens[side]]
        if item.sentence.index + 1 in wanted
    ]
    return pd.DataFrame(rows, columns=["sentence", "text", "starts", "ends"])
