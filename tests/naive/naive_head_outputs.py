"""What heads write as definitions read: loops over the pairs of one sentence and one head."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

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
    def similar(self) -> dict[tuple[int, int], float]:
        """Cosine of each two positions."""
        return cosines(self.vectors)

    @cached_property
    def away(self) -> dict[tuple[int, int], float]:
        """The same without the mean."""
        there = {i: v for i, v in self.vectors.items() if any(v)}
        mean = [sum(each) / len(there) for each in zip(*there.values(), strict=True)]
        rest = {i: [a - b for a, b in zip(v, mean, strict=True)] for i, v in there.items()}
        floor = 1e-5 * math.hypot(*mean)
        return cosines({i: v for i, v in rest.items() if math.hypot(*v) > floor})

    @cached_property
    def rows(self) -> dict[tuple[int, int], float]:
        """Cosine of each two rows of attention."""
        n = len(self.seen.keys.tokens)
        return cosines({r.query: [r.weights.get(j, 0) for j in range(n)] for r in self.seen.rows})

    def part(self, position: int) -> int:
        """Return the sentence of a token, or of the next one that belongs to a word."""
        words = [t.word for t in self.seen.queries.tokens[position:] if t.word is not None]
        return self.sentences[words[0]] if words and self.sentences else 0

    @property
    def joined(self) -> bool:
        """Whether the text has several sentences."""
        return len({*self.sentences}) > 1


Least = dict[str, float]  # by label, the least similarity of high pairs


def least(texts: Sequence[Written], step: int = 1) -> Least:
    """Where the top shares of a head begin: halfway between the last in and the first out.

    Of every so many pairs of a sentence, numbered by their later token, then by the earlier one.
    """
    some = [
        round(s, 6)
        for t in texts
        for (i, j), s in t.similar.items()
        if (j * (j - 1) // 2 + i) % step == 0
    ]
    ordered = sorted(some, reverse=True)
    found = {"0.9": 0.9}
    for label, share in SHARES.items():
        if ordered:
            inside = math.ceil(share * len(ordered))
            found[label] = (ordered[inside - 1] + ordered[min(inside, len(ordered) - 1)]) / 2
    return found


def high(text: Written, known: Least, label: str) -> list[tuple[int, int]]:
    """Pairs of high similarity."""
    return [p for p, s in text.similar.items() if round(s, 6) >= known.get(label, math.inf)]


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
    return _by_distance(text.similar)


def context_similarity_centred(text: Written, _: Least) -> dict[str, Part]:
    return _by_distance(text.away)


def row_similarity(text: Written, _: Least) -> dict[str, Part]:
    return _by_distance(text.rows)


def high_pair_distance(text: Written, known: Least) -> dict[str, Part]:
    mean = np.mean([j - i for i, j in text.similar]) if text.similar else 0.0
    found = {}
    for label in HIGH:
        pairs = high(text, known, label)
        far = sum(j - i for i, j in pairs)
        found[label] = Part(far, len(pairs) * float(mean), len(pairs))
    return found


def repetition_lift(text: Written, known: Least) -> dict[str, Part]:
    def same(pair: tuple[int, int]) -> bool:
        one, other = (text.seen.queries.tokens[i].id for i in pair)
        return one == other

    share = sum(map(same, text.similar)) / max(len(text.similar), 1)
    found = {}
    for label in HIGH:
        pairs = high(text, known, label)
        found[label] = Part(sum(map(same, pairs)), share * len(pairs), len(pairs) if share else 0)
    return found


def same_sentence_preference(text: Written, known: Least) -> dict[str, Part]:
    found = {}
    for label in HIGH:
        chosen = {*high(text, known, label)}
        above = below = 0.0
        for distance in {j - i for i, j in text.similar}:
            cells = {(a, b): 0 for a in (True, False) for b in (True, False)}
            for i, j in text.similar:
                if j - i == distance:
                    cells[(i, j) in chosen, text.part(i) == text.part(j)] += 1
            n = sum(cells.values())
            above += cells[True, True] * cells[False, False] / n
            below += cells[True, False] * cells[False, True] / n
        found[label] = Part(above, below, len(chosen) * text.joined)
    return found


NAIVE: dict[str, Callable[[Written, Least], dict[str, Part]]] = {
    metric.__name__: metric
    for metric in (
        context_similarity, context_similarity_centred, row_similarity, high_pair_distance,
        repetition_lift, same_sentence_preference,
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
    """Mean similarity of ten tokens before each gap with ten after it."""
    found = []
    for gap in range(1, len(places)):
        before, after = places[max(0, gap - 10) : gap], places[gap : gap + 10]
        some = [away[i, j] for i in before for j in after if (i, j) in away]
        found.append(sum(some) / len(some) if some else 0.0)
    return found


def dips(scores: Sequence[float]) -> str:
    """Return ends where a gap is the lowest of five a side and half a deviation below the mean."""
    rounded = [round(s, 6) for s in scores]
    if not rounded:
        return "0"
    below = float(np.mean(rounded) - 0.5 * np.std(rounded))
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


def compared(ref: str, hyp: str) -> dict[str, tuple[float, float]]:
    """Numerators and denominators of F1, Pk and WindowDiff."""
    k = max(1, round(len(ref) / (2 * (ref.count("1") + 1))))
    hits = sum(a == b == "1" for a, b in zip(ref, hyp, strict=True))
    return {
        "f1": (2 * hits, ref.count("1") + hyp.count("1")),
        "pk": pk(ref, hyp, k),
        "windowdiff": windowdiff(ref, hyp, k),
    }


def segmentation(texts: Sequence[Written]) -> dict[str, Part]:
    """Of one passage, as several heads say together."""
    places = [r.query for r in texts[0].seen.rows]
    if not texts[0].joined:
        return {}
    scores = [gap_scores(places, text.away) for text in texts]
    mean = [sum(each) / len(each) for each in zip(*scores, strict=True)]
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
