"""Heads and layers that lead a metric: the tested basis of "most", "least" and "lowest".

A test is paired by sentence, on all sentences (`headbook.analysis.leaders`). Numbers without sums
by sentence or bucket, such as those of weights, are not tested, and pages say so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate, Estimates
from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.leaders import leaders_of, ranks_of
from headbook.analysis.paired import ClusterSums
from headbook.report.results import StackResults
from headbook.report.wording import count_text, is_share, number_word
from headbook.results.formats import head_name, number, word_list
from headbook.schema import HeadKey, HeadName, Place, TokenKey

NOT_TESTED = " (not tested)"  # note after the name of the first one
MAX_NAMED = 3  # heads by name; of more, pages give the number


@dataclass(frozen=True)
class Leaders:
    """The heads, or layers, of the largest or smallest number.

    Attributes:
        places: the first one, then those that the test does not tell from it, in their order:
            layer and head, or the layer alone. Only the first one where nothing was tested.
        candidates: how many were compared.
        is_tested: whether there are sums by sentence.
        second: the best one that is told from the first; None if none is.
        p: family-wise p value of the difference of both; NaN without a second one.
        left_out: how many heads have a number of too few sentences to be compared.
    """

    places: tuple[tuple[int, ...], ...]
    candidates: int
    is_tested: bool
    second: tuple[int, ...] | None = None
    p: float = np.nan
    left_out: int = 0

    @property
    def first(self) -> tuple[int, ...]:
        """The place of the largest or smallest number."""
        return self.places[0]

    @property
    def leads_alone(self) -> bool:
        """Whether the test tells the first one from all others."""
        return self.is_tested and len(self.places) == 1

    @property
    def none_differs(self) -> bool:
        """Whether the test tells the first one from none of several others."""
        return self.is_tested and len(self.places) == self.candidates > 1


def head_leaders(results: StackResults, key: HeadKey, *, lowest: bool = False) -> Leaders | None:
    """Return the heads that lead a metric; None without a number that is trusted."""
    return _cached(results, _head_leaders, key, lowest=lowest)


def layer_leaders(results: StackResults, key: HeadKey, *, lowest: bool = False) -> Leaders | None:
    """Return the layers that lead a metric, all heads of each together; None without a number."""
    return _cached(results, _layer_leaders, key, lowest=lowest)


def token_leaders(results: StackResults, key: TokenKey, *, lowest: bool = False) -> Leaders | None:
    """Return the layers that lead a number of tokens; None without one."""
    estimates = results.tokens(*key)
    if estimates is None:
        return None
    places = [(int(layer),) for layer in np.flatnonzero(~np.isnan(estimates.value))]
    sums = results.token_buckets(key)
    # How many sentences a bucket of tokens holds is not stored.
    sentences = np.zeros(0 if sums is None else len(sums.n), np.int64)
    return leaders_among(places, estimates.value, sums, sentences, lowest=lowest)


Finder = Callable[..., Leaders | None]


def _made_leaders(_: StackResults) -> dict[tuple[Finder, HeadKey, bool], Leaders | None]:
    """Return the leaders that were tested before: pages ask for them several times."""
    return {}


def _cached(results: StackResults, finder: Finder, key: HeadKey, *, lowest: bool) -> Leaders | None:
    """Return the leaders of a number; None without one."""
    made, question = results.cached(_made_leaders), (finder, key, lowest)
    if question not in made:
        known = results.has_value(*key)
        made[question] = finder(results, key, lowest=lowest) if known else None
    return made[question]


def _trusted_places(values: Estimates) -> list[Place]:
    """Return layer and number of the heads with enough sentences, in order."""
    return [(int(layer), int(head)) for layer, head in np.argwhere(~np.isnan(values.trusted))]


def _head_leaders(results: StackResults, key: HeadKey, *, lowest: bool) -> Leaders | None:
    values = results.heads(*key)
    places = _trusted_places(values)
    sums, sentences = results.cluster_sums(key), results.sentences_of_clusters(key)
    leaders = leaders_among(places, values.value, sums, sentences, lowest=lowest)
    left_out = int(np.isfinite(values.value).sum()) - len(places)
    return leaders and replace(leaders, left_out=left_out)


def _layer_leaders(results: StackResults, key: HeadKey, *, lowest: bool) -> Leaders | None:
    values, sums = results.layers(*key).value, results.cluster_sums(key)
    places = [(layer,) for layer in results.stack.attention_layers if not np.isnan(values[layer])]
    of_layers = sums and ClusterSums(sums.n.sum(2), sums.d.sum(2))
    sentences = results.sentences_of_clusters(key)
    return leaders_among(places, values, of_layers, sentences, lowest=lowest)


def leaders_among(
    places: Sequence[tuple[int, ...]],
    values: Floats,
    sums: ClusterSums | None,
    sentences: Ints,
    *,
    lowest: bool,
) -> Leaders | None:
    """Return the places that lead by ratios of sums; None without a place.

    Args:
        values: the ratios, by place.
        sums: numerators and denominators by cluster; None if nothing can be tested.
        sentences: number of sentences of each cluster.
    """
    if not places:
        return None
    if sums is None or len(places) < 2:
        first = min(places, key=lambda place: float(values[place]) * (1 if lowest else -1))
        return Leaders((first,), len(places), is_tested=False)
    n, d = _of_places(places, values, sums)
    order, ranks = leaders_of(n, d, sentences, lowest=lowest)
    leading = tuple(places[place] for place in order)
    others = np.flatnonzero(ranks.apart)
    if not len(others):
        return Leaders(leading, len(places), is_tested=True)
    second = int(others[np.abs(ranks.difference[others]).argmin()])
    return Leaders(leading, len(places), True, places[second], float(ranks.p[second]))


def _of_places(
    places: Sequence[tuple[int, ...]], values: Floats, sums: ClusterSums
) -> tuple[Floats, Floats]:
    """Return the numerators and denominators of places. *Shape:* ``(cluster, place)`` each."""
    columns = tuple(np.array(axis) for axis in zip(*places, strict=True))
    cells = np.ravel_multi_index(columns, values.shape)
    n, d = (part.reshape(len(part), -1)[:, cells].astype(np.float64) for part in sums)
    return n, d


class RankRange(NamedTuple):
    """The ranks that a head may have by a metric, as far as a paired test tells heads apart.

    Attributes:
        above, below: how many heads the test tells from it, with more and with less.
        candidates: how many heads were compared, itself included.
    """

    above: int
    below: int
    candidates: int


def rank_range(results: StackResults, key: HeadKey, place: Place) -> RankRange | None:
    """Return the ranks that a head may have; None if the number of heads cannot be compared."""
    sums, values = results.cluster_sums(key), results.heads(*key)
    places = _trusted_places(values)
    if sums is None or place not in places:
        return None
    n, d = _of_places(places, values.value, sums)
    ranks = ranks_of(n, d, places.index(place), results.sentences_of_clusters(key))
    above, below = (int((ranks.apart & (sign * ranks.difference > 0)).sum()) for sign in (-1, 1))
    return RankRange(above, below, len(places))


def alike_note(results: StackResults, leaders: Leaders) -> str:
    """Return the places that a test does not tell from the first one, as a note after its name.

    Empty if it leads alone: `` (alike: L0·H1 and L2·H3)``, `` (alike: layer 2)``, `` (alike: nine
    others)``; `` (not tested)`` without sums by sentence.
    """
    if not leaders.is_tested:
        return NOT_TESTED
    notes = [f"alike: {_alike(results, leaders)}"] if leaders.places[1:] else []
    if leaders.left_out:
        heads = count_text(leaders.left_out, "head")
        notes.append(f"without {heads} measured on too few {results.study.manifest.text_noun}s")
    return f" ({'; '.join(notes)})" if notes else ""


def _alike(results: StackResults, leaders: Leaders) -> str:
    """Return the places that a test does not tell from the first one, by name or as a number."""
    others = leaders.places[1:]
    if len(others) > MAX_NAMED:
        return f"{number_word(len(others))} others"
    if len(leaders.first) == 1:
        layers = word_list([str(layer) for (layer,) in sorted(others)])
        return f"layer{'s' * (len(others) > 1)} {layers}"
    stack = results.stack.name
    return word_list([head_name(HeadName(stack, *place)) for place in others])


class Chosen(NamedTuple):
    """The head that leads a metric, and whether one half of the sentences confirms the other.

    Attributes:
        head: the head with the highest or lowest number of all sentences.
        value, uniform: its number, and that of uniform attention.
        confirmed: the head with the highest or lowest number on the half that chooses.
        held_out, held_out_uniform: both numbers of ``confirmed`` on the other half.
        is_above_uniform: whether the interval of ``held_out`` lies above uniform attention, which
            may be constant, and is printed otherwise.
        note: heads that a test does not tell from ``head``, as a note after its name.
    """

    head: HeadName
    value: Estimate
    uniform: Estimate
    confirmed: HeadName
    held_out: Estimate
    held_out_uniform: Estimate
    is_above_uniform: bool
    note: str

    @property
    def place(self) -> Place:
        """Layer and number of the head."""
        return self.head.layer, self.head.head


def chosen_head(results: StackResults, key: HeadKey, *, lowest: bool = False) -> Chosen | None:
    """Return the head with the highest or lowest value; None without enough observations."""
    leaders = head_leaders(results, key, lowest=lowest)
    if leaders is None:
        return None
    selected = highest(results.split(SELECTION, *key), lowest=lowest)
    if selected is None:
        return None
    layer, head = leaders.first
    held_out = results.split(HELD_OUT, *key).at(*selected)
    uniform = results.split(HELD_OUT, *key, of="uniform").at(selected[0])
    limit = float(np.fmax(uniform.value, uniform.high))
    low, baseline = (
        number(value, share=is_share(results.by_id[key.metric])) for value in (held_out.low, limit)
    )
    return Chosen(
        HeadName(results.stack.name, layer, head),
        results.heads(*key).at(layer, head),
        results.uniform(*key).at(layer),
        HeadName(results.stack.name, *selected),
        held_out,
        uniform,
        is_above_uniform=bool(held_out.low > limit) and low != baseline,
        note=alike_note(results, leaders),
    )


def highest(numbers: Estimates, *, lowest: bool = False) -> Place | None:
    """Return layer and head of the highest value with enough observations, or None.

    Args:
        lowest: whether to return the lowest value instead.
    """
    value = numbers.trusted
    if np.isnan(value).all():
        return None
    position = int(np.nanargmin(value) if lowest else np.nanargmax(value))
    layer, head = np.unravel_index(position, value.shape)
    return int(layer), int(head)
