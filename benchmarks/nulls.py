"""How often Headbook claims what cannot be true, and how often it finds what is.

Usage: python benchmarks/nulls.py STUDY [--only stored power models random] [--corpus FILE]

A *world* is a corpus in which a claim of some kind cannot be true. `stored`: the strongest words of
a study, with trees, tags or both moved to other words of the same sentence. `power`: a relation is
planted in 70 % of its words, in one head. `models`: a model reads a corpus with trees and tags
(CoNLL-U) whose trees and tags, or words, are moved. `random`: networks of the model's shape with
random weights read the corpus as it is; *sharp*: weights of queries and keys times 6.

Prints a line of JSON for each kind of world and claim: worlds with a claim, worlds, and the 95 %
interval of their share (Clopper & Pearson 1934).
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from headbook.analysis.arrays import Ints
from headbook.analysis.multiple_testing import ALPHA
from headbook.attention.word_pairs import HAS_OTHERS, SEEN, TO_DEPENDENT, TO_HEAD
from headbook.inputs import TextRecord, open_corpus
from headbook.metrics import ids
from headbook.model.load import load_model
from headbook.report.facts.language.relations import aligned_head
from headbook.report.facts.word_rules import tested_rules, word_rules
from headbook.report.facts.words import most_received
from headbook.report.relation_counts import count_relation
from headbook.report.relation_tests import RelationTests, relation_tests, tests_of_stack
from headbook.report.results import StackResults, stack_results
from headbook.report.trees import heads_with_better_trees
from headbook.run.collect import collect
from headbook.study.study import Study
from headbook.study.sums.word_samples import StrongestWords

SIZES = (64, 200, 800)  # sentences of a world
SHORT = (2, 6)  # words of the shortest and longest sentence of a world of short ones
SHORT_SENTENCES = 200
SHARE = 0.7  # of the words of a planted relation
MIN_PLANTED = 30  # words of a planted relation
MAX_BY_RULE = 0.5  # share of a planted relation's words that any rule takes
SHARP = 6.0  # factor of the weights of queries and keys
SEEDS = 5  # random networks of each kind
RELATION_P, RELATION = "relations, p below 0.05", "relations, claimed"
NEXT_WORD = "next word of a class"
SPEECH = "parts of speech"
DEPENDENCIES, TREES = "dependencies", "trees"
TREE_KINDS = (RELATION_P, RELATION, DEPENDENCIES, TREES)
TAG_KINDS = (NEXT_WORD, SPEECH)
# Kinds of claims that cannot be true in a world.
KINDS = {
    "trees": TREE_KINDS,
    "tags": TAG_KINDS,
    "both": (*TREE_KINDS, *TAG_KINDS),
    "words": (RELATION_P, RELATION, NEXT_WORD),
    "random": (RELATION_P, RELATION, NEXT_WORD, DEPENDENCIES),
}
METRICS = (
    ids.RELATION_ACCURACY, ids.SURFACE_RULE, ids.POS_RECEIVED, ids.POS_RECEIVED_RATIO,
    ids.DEPENDENCY_EXCESS, ids.DEPENDENCY_TREES, ids.PHRASE_TREES, ids.SINK_SHARE,
)  # fmt: skip

Random = np.random.Generator
Claims = Mapping[str, bool]


class Draw(NamedTuple):
    """Which sentences a world has: how many, and of how many words at least and at most."""

    sentences: int
    shortest: int = 1
    longest: int = 10**6

    @property
    def name(self) -> str:
        """Number of sentences, with the number of words of short ones."""
        lengths = f" of {self.shortest} to {self.longest} words" if self.longest < 10**6 else ""
        return f"{self.sentences} sentences{lengths}"

    def of(self, lengths: Ints, rng: Random) -> Ints:
        """Return random places of sentences, without repetition; at most as many as there are."""
        fitting = np.flatnonzero((lengths >= self.shortest) & (lengths <= self.longest))
        return rng.permutation(fitting)[: self.sentences]


DRAWS = (*map(Draw, SIZES), Draw(SHORT_SENTENCES, *SHORT))


def drawn(words: StrongestWords, draw: Draw, rng: Random) -> StrongestWords:
    """Return random sentences, in random halves."""
    chosen = words.select(draw.of(words.lengths, rng))
    hashes = rng.integers(0, 2**64, len(chosen.lengths), dtype=np.uint64)
    return replace(chosen, content_hash=hashes, size=int(chosen.lengths.sum()) + 1).smallest()


def moved(words: StrongestWords, world: str, rng: Random) -> StrongestWords:
    """Move trees, tags or both to other words of the same sentence.

    Both move together, so that a determiner's relation stays with a determiner.
    """
    source = np.lexsort((rng.random(len(words.tag)), words.sentence))
    tag = words.tag[source] if world in {"tags", "both"} else words.tag
    if world == "tags":
        return replace(words, tag=tag)
    target = np.empty_like(source)
    target[source] = np.arange(len(source))
    first, head = words.first, words.head[source].astype(np.int64)
    head[head >= 0] = (target[np.minimum(first + head, len(first) - 1)] - first)[head >= 0]
    relation = words.relation[source]
    return with_trees(replace(words, tag=tag), head.astype(np.int16), relation)


def with_trees(
    words: StrongestWords, head: NDArray[np.int16], relation: NDArray[np.int16]
) -> StrongestWords:
    """Return the words with other trees, each pair tested if the query sees the key."""
    place = np.arange(len(head)) - words.first
    has_head = (head >= 0) & (head != place)
    above = np.where(has_head, words.first + head, 0)
    looks, seen = words.has_others, (words.asked & SEEN) > 0
    up, down = looks & seen[above], looks[above] & seen
    if words.causal:
        up, down = up & (head < place), down & (head > place)
    asked = HAS_OTHERS * looks + SEEN * seen + has_head * (TO_HEAD * up + TO_DEPENDENT * down)
    return replace(words, head=head, relation=relation, asked=asked.astype(np.uint8))


def relation_claims(tests: RelationTests | None) -> dict[str, bool]:
    """Return whether any head has a small p for any relation, and whether a relation is claimed."""
    if tests is None or not tests.labels:
        return {RELATION_P: False, RELATION: False}
    return {
        RELATION_P: bool((tests.p_of_all_heads < ALPHA).any()),
        RELATION: bool(tests.claimed.any()),
    }


def claims_of_words(words: StrongestWords, world: str) -> dict[str, bool]:
    """Return the claims that follow from strongest words alone, of kinds that cannot be true."""
    present, claims = np.ones(words.strongest.shape[1:], bool), dict[str, bool]()
    if RELATION in KINDS[world]:
        claims |= relation_claims(relation_tests(words, present))
    if NEXT_WORD in KINDS[world]:
        claims[NEXT_WORD] = any(rule.supported for rule in tested_rules(words, present).values())
    return claims


def claims_of_model(results: StackResults) -> dict[str, bool]:
    """Return the kinds of claims that pages make of a stack."""
    return {
        **relation_claims(results.cached(tests_of_stack)),
        NEXT_WORD: any(rule.supported for rule in word_rules(results).values()),
        SPEECH: most_received(results).holds,
        DEPENDENCIES: aligned_head(results).holds,
        TREES: any(
            heads_with_better_trees(results, metric)
            for metric in (ids.PHRASE_TREES, ids.DEPENDENCY_TREES)
        ),
    }


def planted(words: StrongestWords, rng: Random) -> tuple[StrongestWords, str, tuple[int, int]]:
    """Return words in which one head finds most words of a relation, with relation and head.

    The relation is drawn among those with enough words that no surface rule takes more than half.
    """
    taken = words.taken()
    counts = [count_relation(words, taken, label) for label in sorted({*words.labels_asked()})]
    labels = [
        count.label
        for count in counts
        if count.words.sum() >= MIN_PLANTED
        and count.rules.sum(0).max() <= MAX_BY_RULE * count.words.sum()
    ]
    label = int(rng.choice(labels))
    layer, head = (int(rng.integers(size)) for size in words.strongest.shape[1:])
    cases, strongest = words.cases(label), words.strongest.copy()
    found = rng.random(len(cases.query)) < SHARE
    strongest[cases.query[found], layer, head] = cases.right[found]
    return replace(words, strongest=strongest), words.labels[label], (layer, head)


def finds_planted(words: StrongestWords, rng: Random) -> Claims:
    """Return whether a planted relation is claimed, and whether it is supported by its p."""
    with_relation, label, place = planted(words, rng)
    tests = relation_tests(with_relation, np.ones(words.strongest.shape[1:], bool))
    best = label in tests.labels and tuple(tests.head[tests.labels.index(label)]) == place
    above = best and bool(tests.above_rule[tests.labels.index(label)])
    return {RELATION_P: above, RELATION: tests.claims(label, place)}


def count(worlds: Iterable[Claims], kinds: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the number of worlds with a claim of each kind, and the number of worlds."""
    claimed, total = Counter[str](), 0
    for claims in worlds:
        total += 1
        claimed.update(kind for kind in kinds if claims.get(kind))
    return {kind: (claimed[kind], total) for kind in kinds}


def interval(claimed: int, worlds: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of worlds."""
    ends = stats.binomtest(claimed, worlds).proportion_ci(0.95, "exact")
    return float(ends.low), float(ends.high)


def tell(world: str, draw: Draw, counts: Mapping[str, tuple[int, int]]) -> None:
    """Print a line for each kind of claim."""
    for kind, (claimed, worlds) in counts.items():
        low, high = interval(claimed, worlds)
        line: dict[str, Any] = {"world": world, "size": draw.name, "kind": kind}
        line |= {"claimed": claimed, "worlds": worlds, "interval": [round(low, 3), round(high, 3)]}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def shuffled_worlds(
    words: StrongestWords, world: str, draw: Draw, worlds: int
) -> Iterator[dict[str, bool]]:
    """Yield the claims of worlds without a model."""
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        yield claims_of_words(moved(drawn(words, draw, rng), world, rng), world)


def planted_worlds(
    words: StrongestWords, draw: Draw, worlds: int, *, trees: bool
) -> Iterator[Claims]:
    """Yield whether planted relations are found; ``trees``: whether trees are moved before."""
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        sentences = drawn(words, draw, rng)
        yield finds_planted(moved(sentences, "trees", rng) if trees else sentences, rng)


def stored(words: StrongestWords, given: argparse.Namespace) -> None:
    """Count claims in worlds of moved trees and tags."""
    of_words = (RELATION_P, RELATION, NEXT_WORD)
    for world in given.shuffles:
        kinds = [kind for kind in KINDS[world] if kind in of_words]
        for draw in chosen_draws(given):
            tell(world, draw, count(shuffled_worlds(words, world, draw, given.worlds), kinds))


def power(words: StrongestWords, given: argparse.Namespace) -> None:
    """Count planted relations that are found."""
    for trees in (True, False):
        draw = Draw(SIZES[1])
        worlds = planted_worlds(words, draw, given.planted_worlds, trees=trees)
        name = f"planted in {'moved' if trees else 'real'} trees"
        tell(name, draw, count(worlds, (RELATION_P, RELATION)))


def rows_of(record: TextRecord, world: str, rng: Random) -> str:
    """Return a sentence as CoNLL-U with tags and trees, or forms, moved to other words."""
    words = record.words or ()
    source = rng.permutation(len(words))
    target = np.argsort(source)
    rows = []
    for place, own in enumerate(words):
        other = words[source[place]]
        form = other if world == "words" else own
        tag = other.upos if world in {"tags", "both"} else own.upos
        tree, head = own, own.head
        if world in {"trees", "both"}:
            tree, head = other, int(target[other.head]) if other.head >= 0 else other.head
        text = record.text[form.start : form.end].replace(" ", "")
        columns = (place + 1, text, "_", tag, "_", "_", head + 1, tree.relation or "_", "_", "_")
        rows.append("\t".join(map(str, columns)))
    return "\n".join([*rows, "", ""])


def measured(
    records: Sequence[TextRecord], world: str, rng: Random, model: Any, tokenizer: Any = None
) -> dict[str, bool]:
    """Return the claims of a model that reads sentences in a world."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "world.conllu"
        file.write_text("".join(rows_of(record, world, rng) for record in records))
        study = collect(
            [str(file)], model, tokenizer, progress=False, metrics=",".join(METRICS),
            annotator="none", importance="off", circuits="off", sentence_pages=0,
            sample_sentences=len(records),
        )  # fmt: skip
    claims: dict[str, bool] = {}
    for results in stack_results(study).values():
        for kind, claimed in claims_of_model(results).items():
            claims[kind] = claims.get(kind, False) or claimed
    return claims


def networks(given: argparse.Namespace, *, sharp: bool) -> Iterator[tuple[Any, Any]]:
    """Yield networks of the model's shape with random weights, each with the tokenizer."""
    model = load_model(given.model)
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        configuration = copy(model.base_model.config)
        network = type(model.base_model)(configuration).eval()
        if sharp:
            with torch.no_grad():
                for name, weights in network.named_parameters():
                    if any(part in name for part in ("query", "key", "q_proj", "k_proj")):
                        weights.mul_(SHARP)
        yield network, model.tokenizer


def records_of(given: argparse.Namespace) -> list[TextRecord]:
    """Return the sentences of the corpus that have trees."""
    with open_corpus([given.corpus]) as corpus:
        return [record for record in corpus if record.words]


def some(records: Sequence[TextRecord], draw: Draw, rng: Random) -> list[TextRecord]:
    """Return random sentences."""
    lengths = np.array([len(record.words or ()) for record in records])
    return [records[place] for place in draw.of(lengths, rng).tolist()]


def models(_: StrongestWords, given: argparse.Namespace) -> None:
    """Count claims of a model that reads sentences with moved words, trees or tags."""
    records = records_of(given)
    for world in given.model_shuffles:
        for draw in chosen_draws(given):
            claims = []
            for seed in range(given.model_worlds):
                rng = np.random.default_rng(seed)
                claims.append(measured(some(records, draw, rng), world, rng, given.model))
            tell(f"{world}, read by the model", draw, count(claims, KINDS[world]))


def random_networks(_: StrongestWords, given: argparse.Namespace) -> None:
    """Count claims of networks with random weights."""
    records = records_of(given)
    for sharp in (False, True):
        for draw in chosen_draws(given):
            claims = []
            for seed, (network, tokenizer) in enumerate(networks(given, sharp=sharp)):
                rng = np.random.default_rng(seed)
                claims.append(measured(some(records, draw, rng), "", rng, network, tokenizer))
            name = "random weights, sharp" if sharp else "random weights"
            tell(name, draw, count(claims, KINDS["random"]))


def chosen_draws(given: argparse.Namespace) -> list[Draw]:
    """Return the sizes of worlds that are asked for."""
    return [draw for draw in DRAWS if not given.sizes or draw.name.split()[0] in given.sizes]


PARTS: dict[str, Callable[[StrongestWords, argparse.Namespace], None]] = {
    "stored": stored,
    "power": power,
    "models": models,
    "random": random_networks,
}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--corpus", help="treebank that models read, CoNLL-U")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=["stored", "power"])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--planted-worlds", type=int, default=60)
    parser.add_argument("--model-worlds", type=int, default=20)
    parser.add_argument(
        "--sizes", nargs="+", default=[], help="numbers of sentences; all by default"
    )
    parser.add_argument("--shuffles", nargs="+", default=["trees", "tags", "both"])
    parser.add_argument("--model-shuffles", nargs="+", default=["both", "words"])
    parser.add_argument(
        "--abstain", action="store_true", help="rules that name no word are wrong, as before"
    )
    given = parser.parse_args()
    if given.abstain:
        StrongestWords.taken = StrongestWords.named  # type: ignore[method-assign]
    heads = Study.load(given.study).corpus_sums.heads.values()
    words = next(part.strongest_words for part in heads if part.strongest_words)
    for part in given.only:
        PARTS[part](words, given)


if __name__ == "__main__":
    main()
