"""Head metrics as their definitions read: loops over one sentence, one head, one pair at a time.

Nothing here is shared with the package, so that agreement means something. A metric's twin is
found by the metric's id in `NAIVE`.
"""

import math
import statistics
from collections.abc import Callable, Mapping

from naive_excess import dependency_excess
from naive_head_outputs import output_anisotropy
from naive_patterns import attention_parts, block_ratio, pattern, type_shares
from naive_ratios import Part
from naive_trees import dependency_trees, phrase_trees
from single_head import Row, Viewed

OFFSETS = {"previous": -1, "self": 0, "next": 1}
REACH = 32
TAGS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM",
    "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip


NaiveMetric = Callable[[Viewed], dict[str, Part]]


def _entropy(row: Row) -> float:
    return -sum(w * math.log(w) for w in row.weights.values() if w > 0)


def _reach(v: Viewed) -> float:
    return sum(w * abs(r.query - j) for r in v.rows for j, w in r.weights.items())


def attention_distance(v: Viewed) -> dict[str, Part]:
    return {"": Part(_reach(v), sum(r.mass for r in v.rows), len(v.rows))}


def distance_ratio(v: Viewed) -> dict[str, Part]:
    even = sum(
        r.mass * statistics.mean(abs(r.query - j) for j in r.weights) for r in v.rows if r.weights
    )
    return {"": Part(_reach(v), even, len(v.rows))}


def attention_entropy(v: Viewed) -> dict[str, Part]:
    rows = [r for r in v.rows if r.trusted]
    return {"": Part(sum(map(_entropy, rows)), len(rows), len(rows))}


def relative_entropy(v: Viewed) -> dict[str, Part]:
    rows = [r for r in v.rows if r.trusted and len(r.weights) > 1]
    share = sum(_entropy(r) / math.log(len(r.weights)) for r in rows)
    return {"": Part(share, len(rows), len(rows))}


def sink_share(v: Viewed) -> dict[str, Part]:
    return {"": Part(sum(r.sink for r in v.rows), len(v.rows), len(v.rows))}


def attention_to(v: Viewed) -> dict[str, Part]:
    def is_kind(kind: str, i: int, j: int) -> bool:
        query, key = v.queries.tokens[i], v.keys.tokens[j]
        if kind in {"separator", "special", "punctuation"}:
            return bool(getattr(key, kind))
        if kind == "first":
            return j == 0
        if v.crosses:
            return False
        if kind in OFFSETS:
            return j - i == OFFSETS[kind]
        if kind == "same_token":
            return i != j and query.id == key.id
        rest = kind == "same_word" or v.continues(i)
        return rest and i != j and query.word is not None and query.word == key.word

    kinds = [
        *OFFSETS, "first", "separator", "special", "punctuation",
        "same_token", "same_word", "rest_of_word",
    ]  # fmt: skip
    found = {}
    for kind in kinds:
        masses = []
        for r in v.rows:
            members = [j for j in r.weights if is_kind(kind, r.query, j)]
            if members:
                masses.append(sum(r.weights[j] for j in members))
        found[kind] = Part(sum(masses), len(masses), len(masses))
    return found


def offset_profile(v: Viewed) -> dict[str, Part]:
    sums = dict.fromkeys(range(-REACH, REACH + 1), 0.0)
    for r in v.rows:
        for j, w in r.weights.items():
            sums[max(-REACH, min(REACH, j - r.query))] += w
    total = sum(r.mass for r in v.rows)
    return {str(offset): Part(n, total, len(v.rows)) for offset, n in sums.items()}


def _on_tag(v: Viewed, row: Row, tag: str) -> list[int]:
    return [j for j in v.tagged.get(tag, ()) if j in row.weights]


def _on_tag_mass(v: Viewed, tag: str) -> float:
    return v.per_word(lambda row: sum(row.weights[j] for j in _on_tag(v, row, tag)))


def _seeing_words(v: Viewed, tag: str) -> float:
    return v.per_word(lambda row: bool(_on_tag(v, row, tag)))


def pos_received(v: Viewed) -> dict[str, Part]:
    total = v.per_word(lambda row: row.mass) * v.keys.tagged
    return {tag: Part(_on_tag_mass(v, tag), total, _seeing_words(v, tag)) for tag in TAGS}


def pos_received_ratio(v: Viewed) -> dict[str, Part]:
    def chance(tag: str) -> float:
        return v.per_word(
            lambda row: row.mass * len(_on_tag(v, row, tag)) / max(len(row.weights), 1)
        )

    return {tag: Part(_on_tag_mass(v, tag), chance(tag), _seeing_words(v, tag)) for tag in TAGS}


def pos_given(v: Viewed) -> dict[str, Part]:
    def from_tag(row: Row, tag: str) -> bool:
        return v.queries.tokens[row.query].tag == tag

    def mass(tag: str) -> float:
        return v.per_word(lambda row: row.mass if from_tag(row, tag) else 0)

    def n_words(tag: str) -> float:
        return v.per_word(lambda row: from_tag(row, tag))

    total = v.per_word(lambda row: row.mass) * v.queries.tagged
    return {tag: Part(mass(tag), total, n_words(tag)) for tag in TAGS}


def dependency_alignment(v: Viewed) -> dict[str, Part]:
    def to_head(i: int, j: int) -> bool:
        head = v.queries.tokens[i].head
        return head is not None and head == v.keys.tokens[j].word

    def to_dependent(i: int, j: int) -> bool:
        head = v.keys.tokens[j].head
        return head is not None and head == v.queries.tokens[i].word

    kinds: dict[str, Callable[[int, int], bool]] = {
        "either": lambda i, j: to_head(i, j) or to_dependent(i, j),
        "to_head": to_head,
        "to_dependent": to_dependent,
    }
    total = v.per_word(lambda row: row.mass) * v.queries.parsed
    n_words = v.per_word(lambda _: 1) * v.queries.parsed

    def mass(kind: Callable[[int, int], bool]) -> float:
        return v.per_word(lambda row: sum(w for j, w in row.weights.items() if kind(row.query, j)))

    return {name: Part(mass(kind), total, n_words) for name, kind in kinds.items()}


def confidence(v: Viewed) -> dict[str, Part]:
    rows = [r for r in v.rows if r.trusted]
    return {"": Part(sum(max(r.weights.values()) for r in rows), len(rows), len(rows))}


def positional_argmax(v: Viewed) -> dict[str, Part]:
    found = []
    for r in v.rows:
        strongest = max(r.weights.values(), default=0)
        if strongest > 0 and not (v.causal and r.query < 2):
            found.append(min(j for j, w in r.weights.items() if w == strongest) - r.query)
    return {str(o): Part(found.count(o), len(found), len(found)) for o in range(-5, 6)}


def sink_rate(v: Viewed) -> dict[str, Part]:
    sinks: dict[str, list[bool]] = {}
    for j, key in enumerate(v.keys.tokens):
        given = [r.weights[j] for r in v.rows if j in r.weights]
        kinds = [k for k in ("separator", "special", "punctuation") if getattr(key, k)]
        kinds += ["first"] if j == 0 else []
        for kind in ["all", *(kinds or ["other"])]:
            sinks.setdefault(kind, []).extend([statistics.mean(given) > 0.3] if given else [])
    kinds = ["all", "first", "separator", "special", "punctuation", "other"]
    return {k: Part(sum(s), len(s), len(s)) for k in kinds for s in [sinks.get(k, [])]}


RELATIONS = (
    "acl", "acl:relcl", "advcl", "advmod", "amod", "appos", "aux", "aux:pass", "case", "cc",
    "ccomp", "clf", "compound", "compound:prt", "conj", "cop", "csubj", "dep", "det", "discourse",
    "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list", "mark", "nmod", "nmod:poss",
    "nsubj", "nsubj:pass", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum",
    "vocative", "xcomp",
)  # fmt: skip


def _known(relation: str) -> str:
    return relation if relation in RELATIONS else relation.split(":", maxsplit=1)[0]


def relation_accuracy(v: Viewed, nearest: int = 1) -> dict[str, Part]:
    attention = v.between_words()
    trees = {t.word: (t.head, _known(t.relation)) for t in v.queries.tokens if t.word is not None}
    found = {
        f"{r}:{direction}": [0, 0] for r in RELATIONS for direction in ("to_head", "to_dependent")
    }
    for word, (head, relation) in trees.items():
        if head is None or head == word or relation not in RELATIONS or abs(head - word) < nearest:
            continue
        for direction, query, key in (("to_head", word, head), ("to_dependent", head, word)):
            row = attention.get(query, {})
            if key not in row:
                continue
            others = {w: weight for w, weight in row.items() if w != query}
            best = max(others, key=lambda w: (others[w], -w))
            hit = best == key and others[best] > 0
            found[f"{relation}:{direction}"][0] += hit
            found[f"{relation}:{direction}"][1] += 1
    return {label: Part(n, d, d) for label, (n, d) in found.items()}


def relation_accuracy_far(v: Viewed) -> dict[str, Part]:
    return relation_accuracy(v, nearest=3)


CONTENT = {"ADJ", "ADV", "INTJ", "NOUN", "NUM", "PROPN", "VERB"}
RULE_CLASSES = {
    **{tag: {tag} for tag in TAGS},
    "content": CONTENT,
    "NOUN_PRON_PROPN": {"NOUN", "PRON", "PROPN"},
    "VERB_AUX": {"VERB", "AUX"},
    "VERB_ADJ_NOUN": {"VERB", "ADJ", "NOUN"},
}


def rule_word(rule: str, word: int, words: set[int], tags: Mapping[int, str]) -> int | None:
    """Return the word that a surface rule names for a word, among those that may be named."""
    kind, name = rule.split(":")
    if kind == "offset":
        return word + int(name) if word + int(name) in words else None
    if kind == "last":
        run = sorted(w for w in words if w > word and tags[w] in {"NOUN", "PROPN"})
        last = run[0] if run else None
        while last is not None and last + 1 in run:
            last += 1
        return last
    members = [w for w in words if w != word and tags[w] in RULE_CLASSES[name]]
    if kind != "nearest":
        members = [w for w in members if (w > word) == (kind == "next")]
    return min(members, key=lambda w: (abs(w - word), w < word), default=None)


RULES = [
    *(f"offset:{k}" for k in range(-5, 6) if k),
    *(f"{side}:{name}" for side in ("next", "previous", "nearest") for name in RULE_CLASSES),
    "last:nouns",
]


def surface_rule(v: Viewed) -> dict[str, Part]:
    attention = v.between_words()
    tags = {t.word: t.tag for t in v.queries.tokens if t.word is not None}
    keys = {w for row in attention.values() for w in row}
    looking = [word for word, row in attention.items() if set(row) - {word}]
    found = {}
    for rule in RULES:
        hits = 0
        for word in looking:
            others = {w: weight for w, weight in attention[word].items() if w != word}
            best = max(others, key=lambda w: (others[w], -w))
            may = {w for w in keys if not v.causal or w < word}
            hits += others[best] > 0 and rule_word(rule, word, may, tags) == best
        d = len(looking) * v.queries.tagged
        found[rule] = Part(hits, d, d)
    return found


def variability(sentences: list[Viewed]) -> list[dict[str, Part]]:
    first = range(10)
    pairs = [
        {(r.query, j): r.weights[j] for r in v.rows for j in r.weights if {r.query, j} <= {*first}}
        for v in sentences
    ]
    found = []
    for mine in pairs:
        deviation = 0.0
        for cell, weight in mine.items():
            others = [other[cell] for other in pairs if cell in other]
            deviation += abs(weight - sum(others) / len(others))
        queries = {i for i, _ in mine}
        found.append({"": Part(deviation, 2 * sum(mine.values()), len(queries))})
    return found


NaiveSampleMetric = Callable[[list[Viewed]], list[dict[str, Part]]]
NAIVE_SAMPLED: dict[str, NaiveSampleMetric] = {
    metric.__name__: metric
    for metric in (
        variability,
        dependency_excess,
        pattern,
        block_ratio,
        type_shares,
        attention_parts,
        output_anisotropy,
    )
}


def sink_norm_share(v: Viewed) -> dict[str, Part]:
    moved = [w * v.norms[j] for r in v.rows for j, w in r.weights.items()]
    parked = [w * v.norms[j] for r in v.rows for j, w in r.weights.items() if j in v.sink]
    return {"": Part(sum(parked), sum(moved), len(v.rows))}


def rare_word_focus(v: Viewed) -> dict[str, Part]:
    found = []
    for weights in v.between_words().values():
        if v.keys.rarest in weights and max(weights.values()) > 0:
            strongest = min(w for w in weights if weights[w] == max(weights.values()))
            found.append(strongest == v.keys.rarest)
    return {"": Part(sum(found), len(found), len(found))}


def output_norm_share(heads: list[Viewed]) -> list[dict[str, Part]]:
    def length(v: Viewed, weights: dict[int, float]) -> float:
        width = range(len(v.brought[0]))
        return math.hypot(*(sum(w * v.brought[j][d] for j, w in weights.items()) for d in width))

    shares: list[list[float]] = [[] for _ in heads]
    for rows in zip(*(v.rows for v in heads), strict=True):
        lengths = [length(v, row.weights) for v, row in zip(heads, rows, strict=True)]
        if sum(lengths):
            for found, each in zip(shares, lengths, strict=True):
                found.append(each / sum(lengths))
    return [{"": Part(sum(share), len(share), len(share))} for share in shares]


def separator_attention(v: Viewed) -> dict[str, Part]:
    found = {}
    tokens = [*enumerate(v.keys.tokens)]
    separators = [j for j, key in tokens if key.separator and j > 0]
    for label, places in (
        ("start", [j for j, key in tokens if key.special and (j == 0 or not key.separator)]),
        ("inner_separator", separators[:-1]),
        ("last_separator", separators[-1:]),
        ("sentence_end", [j for j, key in tokens if key.stop]),
    ):
        members = {*places}
        rows = [r for r in v.rows if members & set(r.weights)]
        mass = [w for r in rows for j, w in r.weights.items() if j in members]
        found[label] = Part(sum(mass), len(rows), len(rows))
        if not v.norms:
            found[f"{label}_by_norm"] = Part(0, 0, 0)
            continue
        moved = [w * v.norms[j] for r in rows for j, w in r.weights.items()]
        ends = [w * v.norms[j] for r in rows for j, w in r.weights.items() if j in members]
        found[f"{label}_by_norm"] = Part(sum(ends), sum(moved), len(rows))
    return found


NaiveLayerMetric = Callable[[list[Viewed]], list[dict[str, Part]]]
# Of all heads of a layer in one sentence, where heads have a number together.
NAIVE_LAYERS: dict[str, NaiveLayerMetric] = {
    metric.__name__: metric for metric in (phrase_trees, output_norm_share)
}


def piece_sensitivity(v: Viewed) -> dict[str, Part]:
    pieces: dict[int, list[int]] = {}
    for index, token in enumerate(v.keys.tokens):
        if token.word is not None:
            pieces.setdefault(token.word, []).append(index)
    whole = {w for w, places in pieces.items() if len(places) == 1}
    first: dict[int, dict[int, float]] = {}
    for row in v.rows:
        word = v.queries.tokens[row.query].word
        if word is not None and word not in first:
            seen = {w: row.weights.get(places[0]) for w, places in pieces.items()}
            first[word] = {w: weight for w, weight in seen.items() if weight is not None}
    alone = {
        w: {x: weight for x, weight in row.items() if x in whole}
        for w, row in first.items()
        if w in whole
    }
    tree = {t.word: t.head for t in v.queries.tokens if t.word is not None}
    found = {}
    for rule, words in (("sum", v.between_words()), ("first", first), ("unsplit", alone)):
        attention = words if v.queries.parsed else {}
        each = [(i, j, weight) for i, row in attention.items() for j, weight in row.items()]
        on_links = sum(x for i, j, x in each if i != j and (tree[i] == j or tree[j] == i))
        looking = sum(bool(row) for row in attention.values())
        found[f"alignment:{rule}"] = Part(on_links, sum(x for _, _, x in each), looking)
        hits = asked = 0
        for i, seen_words in attention.items():
            if tree[i] in seen_words and tree[i] != i:
                others = {j: weight for j, weight in seen_words.items() if j != i}
                best = max(others, key=lambda j: (others[j], -j))
                hits += best == tree[i] and others[best] > 0
                asked += 1
        found[f"head_found:{rule}"] = Part(hits, asked, asked)
    return found


NAIVE: dict[str, NaiveMetric] = {
    metric.__name__: metric
    for metric in (
        attention_distance, distance_ratio, attention_entropy, relative_entropy, sink_share,
        separator_attention,
        attention_to, offset_profile, pos_received, pos_received_ratio, pos_given,
        dependency_alignment,
        relation_accuracy, relation_accuracy_far, surface_rule, confidence, positional_argmax,
        sink_rate, sink_norm_share, rare_word_focus, piece_sensitivity, dependency_trees,
    )
}  # fmt: skip


def random_argmax(v: Viewed) -> dict[str, Part]:
    rows = [r for r in v.rows if r.weights and not (v.causal and r.query < 2)]

    def picked(offset: int) -> float:
        return sum(1 / len(r.weights) for r in rows if r.query + offset in r.weights)

    return {str(o): Part(picked(o), len(rows), len(rows)) for o in range(-5, 6)}


def random_word(v: Viewed) -> dict[str, Part]:
    seen = [weights for weights in v.between_words().values() if v.keys.rarest in weights]
    return {"": Part(sum(1 / len(weights) for weights in seen), len(seen), len(seen))}


def random_relation(v: Viewed, nearest: int = 1) -> dict[str, Part]:
    sizes = {i: len(set(row) - {i}) for i, row in v.between_words().items()}
    trees = {t.word: (t.head, _known(t.relation)) for t in v.queries.tokens if t.word is not None}
    found = {label: [0.0, 0] for label in relation_accuracy(v)}
    for word, (head, relation) in trees.items():
        if head is None or head == word or relation not in RELATIONS or abs(head - word) < nearest:
            continue
        for direction, query, key in (("to_head", word, head), ("to_dependent", head, word)):
            if key in v.between_words().get(query, {}):
                found[f"{relation}:{direction}"][0] += 1 / sizes[query]
                found[f"{relation}:{direction}"][1] += 1
    return {label: Part(n, d, d) for label, (n, d) in found.items()}


def random_far_relation(v: Viewed) -> dict[str, Part]:
    return random_relation(v, nearest=3)


def random_rule(v: Viewed) -> dict[str, Part]:
    attention = v.between_words()
    tags = {t.word: t.tag for t in v.queries.tokens if t.word is not None}
    keys = {w for row in attention.values() for w in row}
    looking = {word: set(row) - {word} for word, row in attention.items() if set(row) - {word}}
    d = len(looking) * v.queries.tagged
    found = {}
    for rule in RULES:
        hits = 0.0
        for word, others in looking.items():
            may = {w for w in keys if not v.causal or w < word}
            hits += (rule_word(rule, word, may, tags) in others) / len(others)
        found[rule] = Part(hits, d, d)
    return found


# What a head that picks a visible key at random would give, where the strongest key is asked for.
CHANCES: dict[str, NaiveMetric] = {
    "positional_argmax": random_argmax,
    "rare_word_focus": random_word,
    "relation_accuracy": random_relation,
    "relation_accuracy_far": random_far_relation,
    "surface_rule": random_rule,
}
