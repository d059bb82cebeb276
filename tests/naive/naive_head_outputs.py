"""What heads write as definitions read: loops over the pairs of one sentence and one head."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, permutations
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from naive_ratios import Part
from single_head import Viewed

Vector = Sequence[float]
SHARES = {"top 1 %": 0.01, "top 5 %": 0.05}
HIGH = ("top 1 %", "top 5 %", "0.9")


def cosine(a: Vector, b: Vector) -> float:
    """Of two vectors that have a length."""
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def cosines(vectors: dict[int, Vector]) -> dict[tuple[int, int], float]:
    """Of every two, the earlier first."""
    some = {i: v for i, v in vectors.items() if any(v)}
    return {(i, j): cosine(some[i], some[j]) for i, j in combinations(sorted(some), 2)}


@dataclass(frozen=True, eq=False)
class Written:
    """One head over one text in one view.

    Attributes:
        sentences: by word, the number of its sentence in the passage.
    """

    seen: Viewed
    sentences: Sequence[int] = ()

    @cached_property
    def vectors(self) -> dict[int, Vector]:
        """What is written, by position."""
        values = self.seen.look.values
        width = len(values[0])
        return {
            r.query: [sum(w * values[j][x] for j, w in r.weights.items()) for x in range(width)]
            for r in self.seen.rows
        }

    @cached_property
    def firsts(self) -> set[int]:
        """Positions whose token does not repeat the one before, of those that count."""
        counted = {r.query for r in self.seen.rows}
        token = [t.id for t in self.seen.queries.tokens]
        return {i for i in counted if i - 1 not in counted or token[i] != token[i - 1]}

    @cached_property
    def similar(self) -> dict[tuple[int, int], float]:
        """Cosine of each two positions."""
        return cosines({i: v for i, v in self.vectors.items() if i in self.firsts})

    def same(self, pair: tuple[int, int]) -> bool:
        """Whether two positions have the same token."""
        one, other = (self.seen.queries.tokens[i].id for i in pair)
        return one == other

    def within(self, pair: tuple[int, int]) -> bool:
        """Whether two positions are of one sentence."""
        return self.part(pair[0]) == self.part(pair[1])

    @cached_property
    def different(self) -> dict[tuple[int, int], float]:
        """Cosine of each two positions with different tokens."""
        return {pair: s for pair, s in self.similar.items() if not self.same(pair)}

    @cached_property
    def away(self) -> dict[tuple[int, int], float]:
        """The same without the mean."""
        there = {i: v for i, v in self.vectors.items() if any(v) and i in self.firsts}
        mean = [sum(each) / len(there) for each in zip(*there.values(), strict=True)]
        rest = {i: [a - b for a, b in zip(v, mean, strict=True)] for i, v in there.items()}
        floor = 1e-5 * math.hypot(*mean)
        return cosines({i: v for i, v in rest.items() if math.hypot(*v) > floor})

    @cached_property
    def rows(self) -> dict[tuple[int, int], float]:
        """Cosine of each two rows of attention."""
        n = len(self.seen.keys.tokens)
        return cosines(
            {
                r.query: [r.weights.get(j, 0) for j in range(n)]
                for r in self.seen.rows
                if r.query in self.firsts
            }
        )

    def part(self, position: int) -> int:
        """Return the sentence of a token, or of the next one that belongs to a word."""
        words = [t.word for t in self.seen.queries.tokens[position:] if t.word is not None]
        return self.sentences[words[0]] if words and self.sentences else 0

    @property
    def joined(self) -> bool:
        """Whether the text has several sentences."""
        return len({*self.sentences}) > 1


@dataclass(frozen=True)
class Least:
    """By label, the least similarity of high pairs: of all pairs, and of different tokens.

    Attributes:
        distance: mean distance of pairs of different tokens.
    """

    every: dict[str, float]
    different: dict[str, float]
    distance: float


def far(pair: tuple[int, int]) -> int:
    """Distance of two positions, from 64 on as one."""
    return min(pair[1] - pair[0], 64)


def least(texts: Sequence[Written], step: int = 1) -> Least:
    """Where the top shares of a head begin, and how far pairs are apart."""
    distances = [far(pair) for text in texts for pair in text.different]
    return Least(
        _begin([text.similar for text in texts], step),
        _begin([text.different for text in texts], step),
        float(np.mean(distances)) if distances else math.nan,
    )


def _begin(texts: Sequence[dict[tuple[int, int], float]], step: int) -> dict[str, float]:
    """Where the top shares begin: halfway between the last in and the first out.

    Of every so many pairs of a sentence, numbered by their later token, then by the earlier one.
    """
    some = [
        round(s, 6)
        for text in texts
        for (i, j), s in text.items()
        if (j * (j - 1) // 2 + i) % step == 0
    ]
    ordered = sorted(some, reverse=True)
    found = {"0.9": 0.9}
    for label, share in SHARES.items():
        if ordered:
            inside = math.ceil(share * len(ordered))
            found[label] = (ordered[inside - 1] + ordered[min(inside, len(ordered) - 1)]) / 2
    return found


def high(
    pairs: dict[tuple[int, int], float], known: dict[str, float], label: str
) -> list[tuple[int, int]]:
    """Pairs of high similarity."""
    return [p for p, s in pairs.items() if round(s, 6) >= known.get(label, math.inf)]


def _by_distance(pairs: dict[tuple[int, int], float]) -> dict[str, Part]:
    found = {}
    for label in ("all", *map(str, range(1, 32)), "32+"):
        some = [
            s
            for (i, j), s in pairs.items()
            if label == "all" or label == ("32+" if j - i >= 32 else str(j - i))
        ]
        found[label] = Part(sum(some), len(some), len(some))
    return found


def context_similarity(text: Written, _: Least) -> dict[str, Part]:
    found = {"all": _by_distance(text.similar)["all"]}
    for side in ("within", "across"):
        pairs = {p: s for p, s in text.similar.items() if text.within(p) == (side == "within")}
        found |= {f"{side}:{d}": part for d, part in _by_distance(pairs).items() if d != "all"}
    return found


def context_similarity_centred(text: Written, _: Least) -> dict[str, Part]:
    return _by_distance(text.away)


def row_similarity(text: Written, _: Least) -> dict[str, Part]:
    return _by_distance(text.rows)


def high_pair_distance(text: Written, known: Least) -> dict[str, Part]:
    found = {}
    for label in HIGH:
        pairs = high(text.different, known.different, label)
        reach = sum(far(pair) for pair in pairs)
        found[label] = Part(reach / known.distance if pairs else 0, len(pairs), len(pairs))
    return found


Kind = Callable[[tuple[int, int]], bool]


def _excess(pairs: dict[tuple[int, int], float], kind: Kind) -> dict[str, Part]:
    """Differences of means at each distance, by weight."""
    above = below = events = 0.0
    for distance in {far(pair) for pair in pairs}:
        one = [s for pair, s in pairs.items() if far(pair) == distance and kind(pair)]
        other = [s for pair, s in pairs.items() if far(pair) == distance and not kind(pair)]
        if one and other:
            weight = len(one) * len(other) / (len(one) + len(other))
            above += weight * float(np.mean(one) - np.mean(other))
            below += weight
            events += len(one) + len(other)
    return {"": Part(above, below, events)}


def _odds(
    pairs: dict[tuple[int, int], float], kind: Kind, known: dict[str, float]
) -> dict[str, Part]:
    """Mantel and Haenszel's sums."""
    found = {}
    for label in HIGH:
        chosen = {*high(pairs, known, label)}
        above = below = events = 0.0
        for distance in {far(pair) for pair in pairs}:
            cells = {(a, b): 0 for a in (True, False) for b in (True, False)}
            for pair in pairs:
                if far(pair) == distance:
                    cells[pair in chosen, kind(pair)] += 1
            n = sum(cells.values())
            above += cells[True, True] * cells[False, False] / n
            below += cells[True, False] * cells[False, True] / n
            if all(cells[True, side] + cells[False, side] for side in (True, False)):
                events += cells[True, True] + cells[True, False]
        found[label] = Part(above, below, events)
    return found


def sentence_excess(text: Written, _: Least) -> dict[str, Part]:
    return _excess(text.different, text.within)


def repetition_excess(text: Written, _: Least) -> dict[str, Part]:
    return _excess(text.similar, text.same)


def repetition_lift(text: Written, known: Least) -> dict[str, Part]:
    return _odds(text.similar, text.same, known.every)


def same_sentence_preference(text: Written, known: Least) -> dict[str, Part]:
    return _odds(text.different, text.within, known.different)


class Lift(NamedTuple):
    """How often pairs of a token type are high, over 1 %, with its lower end."""

    low: float
    lift: float
    token: int


def anchor(texts: Sequence[Written], known: Least, least_texts: int) -> Lift | None:
    """Return the token type whose pairs with other tokens are high most often."""
    parts: dict[int, list[Part]] = {}
    for text in texts:
        chosen = {*high(text.different, known.different, "top 1 %")}
        n, d = Counter[int](), Counter[int]()
        for pair in text.different:
            for i in pair:
                token = text.seen.queries.tokens[i].id
                d[token] += 1
                n[token] += pair in chosen
        for token in d:
            parts.setdefault(token, []).append(Part(n[token], d[token], 1))
    lifts = []
    for token, some in parts.items():
        if len(some) >= least_texts:
            total = sum(p.d for p in some)
            share = sum(p.n for p in some) / total
            error = math.sqrt(sum((p.n - share * p.d) ** 2 for p in some)) / total
            lifts.append(Lift(100 * (share - 2 * error), 100 * share, token))
    return max(lifts, key=lambda lift: (round(lift.low, 9), -lift.token)) if lifts else None


def output_anisotropy(texts: list[Viewed]) -> list[dict[str, Part]]:
    """Mean cosine over all pairs of tokens of different texts, pair by pair.

    A text's residual is counted twice: once as one side of its pairs, once as the other.
    """
    units = []
    for text in map(Written, texts):
        some = [v for i, v in text.vectors.items() if any(v) and i in text.firsts]
        units.append([np.array(v) / math.hypot(*v) for v in some])
    above, below = [0.0] * len(texts), [0] * len(texts)
    for (one, own), (other, others) in permutations(enumerate(units), 2):
        assert one != other
        above[one] += sum(float(u @ v) for u in own for v in others)
        below[one] += len(own) * len(others)
    mean = sum(above) / sum(below) if sum(below) else 0.0
    return [
        {"": Part(2 * n - mean * d, d, len(own) if d else 0)}
        for n, d, own in zip(above, below, units, strict=True)
    ]


NAIVE: dict[str, Callable[[Written, Least], dict[str, Part]]] = {
    metric.__name__: metric
    for metric in (
        context_similarity, context_similarity_centred, row_similarity, high_pair_distance,
        sentence_excess, repetition_excess, repetition_lift, same_sentence_preference,
    )
}  # fmt: skip


def boundaries(labels: Sequence[int]) -> str:
    """Return a segmentation as in NLTK: 1 after each segment's last unit but the last one's."""
    return "".join(str(int(a != b)) for a, b in pairwise(labels)) + "0" * bool(labels)


def pk(ref: str, hyp: str, k: int) -> tuple[int, int]:
    """Errors and windows of `nltk.metrics.segmentation.pk`."""
    errors = 0
    for i in range(len(ref) - k + 1):
        errors += (ref[i : i + k].count("1") > 0) != (hyp[i : i + k].count("1") > 0)
    return errors, len(ref) - k + 1


def windowdiff(ref: str, hyp: str, k: int) -> tuple[int, int]:
    """Errors and windows of `nltk.metrics.segmentation.windowdiff`."""
    errors = 0
    for i in range(len(ref) - k + 1):
        errors += min(1, abs(ref[i : i + k].count("1") - hyp[i : i + k].count("1")))
    return errors, len(ref) - k + 1


def gap_scores(places: Sequence[int], away: dict[tuple[int, int], float]) -> list[float]:
    """Mean similarity of ten tokens before each gap with ten after it; NaN without a pair."""
    found = []
    for gap in range(1, len(places)):
        before, after = places[max(0, gap - 10) : gap], places[gap : gap + 10]
        some = [away[i, j] for i in before for j in after if (i, j) in away]
        found.append(sum(some) / len(some) if some else math.nan)
    return found


def dips(scores: Sequence[float]) -> str:
    """Return ends where a gap is the lowest of five a side and half a deviation below the mean."""
    known = [round(s, 6) for s in scores if not math.isnan(s)]
    rounded = [math.inf if math.isnan(s) else round(s, 6) for s in scores]
    if not known:
        return "0" * (len(scores) + 1)
    below = float(np.mean(known) - 0.5 * np.std(known))
    return (
        "".join(
            str(int(s < below and s == min(rounded[max(0, i - 5) : i + 6])))
            for i, s in enumerate(rounded)
        )
        + "0"
    )


def stops(places: Sequence[int], text: Viewed) -> str:
    """Return ends after full stops that no other follows, but not after the last token."""
    flags = [text.queries.tokens[i].stop for i in places]
    ends = [a and not b for a, b in pairwise(flags)]
    return "".join(str(int(end)) for end in ends) + "0"


def favoured(places: Sequence[int], text: Viewed, given: dict[int, float]) -> str:
    """Of those the ones whose token gets more attention than the mean token."""
    mean = sum(given.get(i, 0.0) for i in places) / len(places)
    ends = zip(stops(places, text), places, strict=True)
    return "".join("1" if end == "1" and given.get(i, 0.0) > mean else "0" for end, i in ends)


def even(ref: str) -> str:
    """As many ends at even distances."""
    segments = ref.count("1") + 1
    return boundaries([i * segments // len(ref) for i in range(len(ref))])


def received(text: Viewed) -> dict[int, float]:
    """Attention that each token gets."""
    found: dict[int, float] = {}
    for row in text.rows:
        for j, weight in row.weights.items():
            found[j] = found.get(j, 0.0) + weight
    return found


def matched(ref: str, hyp: str, within: int) -> int:
    """Return the ends of the largest matching, by scipy."""
    true, proposed = ([i for i, c in enumerate(ends) if c == "1"] for ends in (ref, hyp))
    if not true or not proposed:
        return 0
    near = np.abs(np.subtract.outer(true, proposed)) <= within
    rows, columns = linear_sum_assignment(near, maximize=True)
    return int(near[rows, columns].sum())


def compared(ref: str, hyp: str) -> dict[str, tuple[float, float]]:
    """Numerators and denominators of F1, Pk and WindowDiff."""
    k = max(1, round(len(ref) / (2 * (ref.count("1") + 1))))
    ends = ref.count("1") + hyp.count("1")
    return {
        "f1": (2 * matched(ref, hyp, 0), ends),
        "f1_1": (2 * matched(ref, hyp, 1), ends),
        "f1_2": (2 * matched(ref, hyp, 2), ends),
        "pk": pk(ref, hyp, k),
        "windowdiff": windowdiff(ref, hyp, k),
    }


def segmentation(texts: Sequence[Written]) -> dict[str, Part]:
    """Of one passage, as several heads say together."""
    places = [r.query for r in texts[0].seen.rows]
    if not texts[0].joined:
        return {}
    scores = [gap_scores(places, text.away) for text in texts]
    mean = [float(np.nanmean(each)) for each in zip(*scores, strict=True)]
    given: dict[int, float] = {}
    for text in texts:
        for j, weight in received(text.seen).items():
            given[j] = given.get(j, 0.0) + weight / len(texts)
    ref = boundaries([texts[0].part(i) for i in places])
    rules = {
        "similarity": dips(mean),
        "attention": favoured(places, texts[0].seen, given),
        "punctuation": stops(places, texts[0].seen),
        "even": even(ref),
    }
    return {
        f"{measure}:{rule}": Part(n, d, ref.count("1"))
        for rule, hyp in rules.items()
        for measure, (n, d) in compared(ref, hyp).items()
    }
