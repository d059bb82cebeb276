"""Tokens that the outputs of heads promote and suppress on the sentences of the sample.

The contribution of a head to the logits at a query is z W_O W_U / sigma, with the head's output z,
the unembedding W_U and the scale sigma of the final norm in the
pass of the whole model (direct logit attribution, Elhage et al. 2021). The mean output over the
other half of the sentences is subtracted first, so that contributions are the direct effects of
mean replacement.

Products with the vocabulary are made for a few vectors of some heads of one layer at a time: the
mean over the queries of longest output, the strongest sentences, the values of read tokens.

Without an output vocabulary, centred input embeddings of unit length take the place of W_U, and the
length of z W_O that of sigma: contributions are cosines.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import torch

from headbook.analysis.accumulators import HELD_OUT, SELECTION, RatioSums
from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.intervals import median_interval
from headbook.circuits.sample_outputs import SampleOutputs
from headbook.circuits.towards import circuit_tables, exemplar_sentences
from headbook.metrics.circuits import attended_rank
from headbook.model.architecture import AttentionPlace
from headbook.study.circuits import CircuitResults, OutputSpace
from headbook.study.sums.token_sums import KEY, Affinities, favoured_tokens
from headbook.text.batch import Batch

N_LISTED = 10  # promoted and suppressed tokens of a head
N_EXEMPLARS = 12  # strongest sentences of a head
N_UP, N_DOWN = 5, 3  # promoted and suppressed tokens of an exemplar
N_KEY_TOKENS, N_READ = 10, 5  # read tokens of a head, and tokens that each of them promotes
MIN_OCCURRENCES = 5  # of a read token in the sample
LONGEST = 0.1  # share of the queries of each half whose output is longest
MAX_BLOCK_LOGITS = 1 << 24  # contributions in memory at a time

Rows = Iterator[tuple[str, dict[str, Any]]]  # name of a table, and a row


def top_key_tokens(affinities: Mapping[str, Affinities]) -> dict[AttentionPlace, Ints]:
    """Return the vocabulary entries that each head favours as keys, -1 if there are fewer.

    *Shape:* ``(head, 10)`` for each place.
    """
    entries = {}
    for stack, sums in affinities.items():
        for layer in range(sums.sums.shape[1]):
            favoured = favoured_tokens(sums, layer, KEY)
            often = favoured.count >= MIN_OCCURRENCES
            order = np.argsort(~often, axis=1, kind="stable")[:, :N_KEY_TOKENS]
            item = np.take_along_axis(favoured.item, order, 1)
            is_often = np.take_along_axis(often, order, 1)
            entries[AttentionPlace(stack, layer)] = np.where(is_often, sums.key[item], -1)
    return entries


def measure_outputs(outputs: SampleOutputs, batches: Iterable[Batch]) -> CircuitResults:
    """Return the tokens that heads promote.

    Args:
        outputs: outputs of all heads, without sentences; afterwards with those of the batches.
        batches: small batches of the sample, such as `AblationSample.batches`.

    Raises:
        ModelError: the way from outputs to tokens is unknown.
    """
    for batch in batches:
        outputs.add(batch)
        if outputs.is_full:
            break
    return _results(outputs)


def _results(outputs: SampleOutputs) -> CircuitResults:
    """Return numbers and tables of all heads."""
    if outputs.directions is None or not sum(map(len, outputs.queries)):
        return CircuitResults()
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    queries = np.concatenate(outputs.queries)
    chosen = {place: _choose_exemplars(outputs, place) for place in outputs.places}
    probability = _true_probabilities(outputs, queries[:, 2], chosen.values())
    n_entries = min(outputs.directions.matrix.shape[1], len(outputs.model.tokenizer))
    for place in outputs.places:
        layer = LayerContributions(
            outputs, place, queries, chosen[place], probability=probability, n_entries=n_entries
        )
        for name, row in layer.rows():
            tables[name].append({"stack": place.stack, "layer": place.layer} | row)
    frames = circuit_tables(tables)
    return CircuitResults(
        space=outputs.directions.space,
        vocabulary=n_entries,
        remarks=outputs.remarks,
        sentences=exemplar_sentences(outputs.items, frames["exemplars"], outputs.side),
        **frames,
    )


def _choose_exemplars(outputs: SampleOutputs, place: AttentionPlace) -> list[Floats]:
    """Return the strongest sentences of each head of a layer, equal ones once.

    Ties are in the order of the input. Rows hold sentence, weight, row of the query, and position
    of the key. *Shape:* ``(exemplar, 4)`` for each head.
    """
    strongest = np.stack(outputs.strongest[place])
    index = np.array([item.sentence.index for item in outputs.items])
    order = np.argsort(index, kind="stable")
    different = order[np.unique(np.array(outputs.hashes)[order], return_index=True)[1]]
    chosen = []
    for head in range(strongest.shape[1]):
        rows = np.column_stack([different, strongest[different, head]])
        rows = rows[np.lexsort((index[different], -rows[:, 1].round(6)))]
        chosen.append(rows[rows[:, 1] > 0][:N_EXEMPLARS])
    return chosen


def _true_probabilities(
    outputs: SampleOutputs, true: Ints, chosen: Iterable[list[Floats]]
) -> dict[int, float]:
    """Return the probability of the true token at the queries of exemplars, by row."""
    wanted = {int(row) for heads in chosen for head in heads for row in head[:, 2]}
    rows = np.array(sorted(row for row in wanted if true[row] >= 0), np.int64)
    if outputs.lens is None or not len(rows):
        return {}
    states = torch.cat(outputs.states)[rows].to(outputs.model.device)
    block_rows = max(1, MAX_BLOCK_LOGITS // outputs.lens.size)
    parts = []
    ids = torch.from_numpy(true[rows]).to(states.device)
    for block, block_ids in zip(states.split(block_rows), ids.split(block_rows), strict=True):
        logs = outputs.lens.logits(block).float().log_softmax(-1)
        parts.append(logs.gather(1, block_ids[:, None])[:, 0].exp().cpu())
    return dict(zip(rows.tolist(), torch.cat(parts).tolist(), strict=True))


class LayerContributions:
    """Contributions of the heads of one attention call to logits.

    Args:
        outputs: outputs of all heads.
        place: the attention call.
        queries: sentence, position and true token of each query. *Shape:* ``(query, 3)``.
        chosen: exemplars of each head, as `_choose_exemplars` returns them.
        probability: probability of the true token, by row of the query.
        n_entries: number of tokens of the vocabulary.
    """

    def __init__(
        self,
        outputs: SampleOutputs,
        place: AttentionPlace,
        queries: Ints,
        chosen: list[Floats],
        *,
        probability: Mapping[int, float],
        n_entries: int,
    ) -> None:
        assert outputs.directions is not None
        self._outputs, self._place, self._queries = outputs, place, queries
        self._chosen, self._probability = chosen, probability
        self._n_entries = n_entries
        self._matrix = outputs.directions.matrix
        self._reads = outputs.directions.space is OutputSpace.UNEMBEDDING
        self._half = np.array(outputs.half)[queries[:, 0]]
        z = torch.cat(outputs.outputs[place])
        self._weight = outputs.output_weights(place, z.shape[-1]).to(self._matrix.device)
        means = [z[self._half == half].mean(0) for half in (SELECTION, HELD_OUT)]
        if len({*self._half.tolist()}) < len(means):  # one half has no query
            means = [z.mean(0)] * len(means)
        centred = z - torch.stack(means[::-1])[torch.from_numpy(self._half)]
        gram = (self._weight.mT @ self._weight).cpu()
        squares = torch.einsum("nhe,hef,nhf->nh", centred, gram, centred)
        length = squares.clamp(min=0).sqrt()
        scale = torch.cat(outputs.scale)[:, None]
        if not self._reads:
            scale = length.clamp(min=torch.finfo(length.dtype).tiny)
        self._scaled = centred / scale[..., None]
        self._longest = self._longest_queries(length.numpy())

    def _longest_queries(self, length: Floats) -> Any:
        """Return the tenth of the queries of each half with the longest outputs above 0.

        *Shape:* ``(query, head)``, boolean.
        """
        longest = np.zeros(length.shape, bool)
        for half in (SELECTION, HELD_OUT):
            rows = np.flatnonzero(self._half == half)
            order = np.argsort(-length[rows], axis=0, kind="stable")[: ceil(LONGEST * len(rows))]
            np.put_along_axis(longest, rows[order], values=True, axis=0)
        return longest & (length > 0)

    def rows(self) -> Rows:
        """Yield the rows of all tables, head by head."""
        n_heads = self._scaled.shape[1]
        vectors = [self._vectors(head) for head in range(n_heads)]
        most_rows = max(map(len, vectors))
        step = max(1, MAX_BLOCK_LOGITS // max(1, most_rows * self._matrix.shape[1]))
        for start in range(0, n_heads, step):
            heads = range(start, min(start + step, n_heads))
            written = torch.cat(
                [vectors[head].to(self._matrix) @ self._weight[head].T for head in heads]
            )
            contributions = (written @ self._matrix)[:, : self._n_entries]
            sizes = [len(vectors[head]) for head in heads]
            for head, rows in zip(heads, contributions.split(sizes), strict=True):
                for name, row in self._head_rows(head, rows):
                    yield name, {"head": head} | row

    @cached_property
    def _read(self) -> tuple[Ints, torch.Tensor]:
        """Head, slot and sentence of read tokens, beside masses and sums of values."""
        parts = self._outputs.read[self._place]
        if not parts:
            return np.zeros((0, 3), np.int64), torch.zeros(0, self._scaled.shape[-1] + 1)
        return np.concatenate([where for where, _ in parts]), torch.cat([rows for _, rows in parts])

    def _slots(self, head: int) -> dict[int, Any]:
        """Return the rows of `_read` of each read token of a head, by slot."""
        where = self._read[0]
        mine = np.flatnonzero(where[:, 0] == head)
        return {int(slot): mine[where[mine, 1] == slot] for slot in np.unique(where[mine, 1])}

    def _vectors(self, head: int) -> torch.Tensor:
        """Return the outputs of a head whose contributions to all tokens are computed.

        In the order of rows: the mean over the longest outputs of the selection half; exemplars;
        read tokens. *Shape:* ``(row, width)``.
        """
        longest = self._longest[:, head] & (self._half == SELECTION)
        mean = self._scaled[longest, head].sum(0, keepdim=True) / max(1, longest.sum())
        exemplars = self._scaled[self._chosen[head][:, 2].astype(np.int64), head]
        sums = [self._read[1][rows].sum(0, keepdim=True) for rows in self._slots(head).values()]
        read = [total[:, 1:] / total[:, :1] for total in sums]
        return torch.cat([mean, exemplars, *read])

    def _head_rows(self, head: int, contributions: torch.Tensor) -> Rows:
        """Yield the rows of one head without the names of layer and head."""
        n_exemplars = len(self._chosen[head])
        yield from self._promoted(head, contributions[0])
        yield from self._exemplars(head, contributions[1 : 1 + n_exemplars])
        slots = self._slots(head).items()
        entries = self._outputs.key_tokens[self._place][head] if slots else ()
        for (slot, rows), values in zip(slots, contributions[1 + n_exemplars :], strict=True):
            ids = values.topk(N_READ).indices.tolist()
            mass, sums = self._read[1][rows].double().split([1, self._scaled.shape[-1]], 1)
            where = self._read[0][rows, 2]
            ratios = self._ratios(head, ids, sums.numpy(), mass.numpy()[:, 0], where)
            key = self._outputs.model.token_strings[int(entries[slot])]
            yield from self._token_rows("read", ids, ratios, key)

    def _promoted(self, head: int, contributions: torch.Tensor) -> Rows:
        """Yield promoted and suppressed tokens, with values on the held-out half."""
        longest = self._longest[:, head]
        if not longest[self._half == SELECTION].any():
            return
        count = min(N_LISTED, self._n_entries)
        held_out = longest & (self._half == HELD_OUT)
        sentence, index = np.unique(self._queries[held_out, 0], return_inverse=True)
        sums = np.zeros((len(sentence), self._scaled.shape[-1]))
        np.add.at(sums, index, self._scaled[held_out, head].double().numpy())
        counts = np.bincount(index, minlength=len(sentence)).astype(np.float64)
        for kind, largest in (("promoted", True), ("suppressed", False)):
            ids = contributions.topk(count, largest=largest).indices.tolist()
            ratios = self._ratios(head, ids, sums, counts, sentence)
            yield from self._token_rows(kind, ids, ratios, "")

    def _ratios(
        self, head: int, ids: list[int], sums: Floats, weight: Floats, sentence: Ints
    ) -> RatioSums:
        """Return mean contributions to some tokens, over sentences.

        Args:
            head: the head.
            ids: vocabulary entries.
            sums: summed outputs over scales. *Shape:* ``(sentence, width)``.
            weight: summed weights. *Shape:* ``(sentence,)``.
            sentence: numbers of the sentences.
        """
        directions = (self._weight[head].T.double() @ self._matrix[:, ids].double()).cpu().numpy()
        denominator = np.broadcast_to(weight[:, None], (len(weight), len(ids)))
        half = np.array(self._outputs.half)[sentence]
        return RatioSums.of(sums @ directions, denominator, denominator, half)

    def _token_rows(self, kind: str, ids: list[int], ratios: RatioSums, key: str) -> Rows:
        """Yield rows of the table of promoted tokens."""
        low, high = ratios.interval()
        columns = zip(ids, ratios.value, low, high, ratios.n_sentences, strict=True)
        for rank, (token, *estimate) in enumerate(columns, 1):
            yield (
                "promoted",
                {
                    "kind": kind,
                    "key_token": key,
                    "rank": rank,
                    "token": self._outputs.model.token_strings[token],
                    **dict(zip(("value", "low", "high", "n_sentences"), estimate, strict=True)),
                },
            )

    def _exemplars(self, head: int, contributions: torch.Tensor) -> Rows:
        """Yield the exemplars of a head, and the ranks of the tokens that they attend to."""
        names = self._outputs.model.token_strings
        key_side = self._outputs.architecture.stacks[self._place.stack].keys
        ranks = []
        for number, values in enumerate(contributions, 1):
            if not values.any():  # a head without output promotes nothing
                continue
            sentence, weight, row, key = self._chosen[head][number - 1]
            key_id = int(self._outputs.key_ids[key_side][int(sentence)][int(key)])
            true = int(self._queries[int(row), 2])
            if key_id < self._n_entries:
                ranks.append(int((values > values[key_id]).sum()) + 1)
            start = {
                "exemplar": number,
                "sentence": self._outputs.items[int(sentence)].sentence.index + 1,
                "query": int(self._queries[int(row), 1]),
                "key": int(key),
                "weight": weight,
                "key_token": names[key_id],
                "key_rank": ranks[-1] if key_id < self._n_entries else None,
                "true_token": names[true] if true >= 0 else "",
                "true_probability": self._probability.get(int(row)),
                "true_contribution": float(values[true]) if true >= 0 else None,
            }
            for kind, count, largest in (("promoted", N_UP, True), ("suppressed", N_DOWN, False)):
                found = values.topk(min(count, len(values)), largest=largest)
                for rank, (value, token) in enumerate(zip(*map(torch.Tensor.tolist, found)), 1):  # noqa: B905
                    token_row = {"kind": kind, "rank": rank, "token": names[token], "value": value}
                    yield "exemplars", start | token_row
        if ranks and self._reads:
            yield from self._rank_rows(np.array(ranks))

    def _rank_rows(self, ranks: Ints) -> Rows:
        """Yield the median rank of attended tokens, and counts of the first and last ranks."""
        low, high = median_interval(ranks.astype(np.float64), np.arange(len(ranks)))
        for label, value in attended_rank.measure(ranks, self._n_entries).items():
            yield (
                "numbers",
                {
                    "metric": attended_rank.METRIC.id,
                    "label": label,
                    "value": value,
                    "low": low if label == attended_rank.MEDIAN else None,
                    "high": high if label == attended_rank.MEDIAN else None,
                    "n_sentences": len(ranks),
                    "n_observations": len(ranks),
                },
            )
