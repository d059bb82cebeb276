"""A few annotated sentences, and pairs, that every tiny tokenizer cuts into several pieces."""

import json
from itertools import product
from pathlib import Path
from typing import NamedTuple


class Gold(NamedTuple):
    """One annotated word; ``head`` counts from 1, 0 is the root, -1 is unknown."""

    form: str
    tag: str
    head: int
    relation: str


def _sentence(*rows: str) -> tuple[Gold, ...]:
    """Words from rows ``form TAG head relation``."""
    return tuple(Gold(f, t, int(h), r) for f, t, h, r in map(str.split, rows))


def _long(n: int) -> tuple[Gold, ...]:
    """Return a chain of adjectives, longer than offset profiles reach."""
    adjectives = [Gold("old" if i % 3 else "small", "ADJ", n, "amod") for i in range(n - 1)]
    return (*adjectives, Gold("house", "NOUN", 0, "root"))


TREES = (
    _sentence(
        "Fisherman NOUN 2 nsubj", "sees VERB 0 root", "the DET 5 det", "small ADJ 5 amod",
        "bird NOUN 2 obj", ". PUNCT 2 punct",
    ),
    _sentence(
        "The DET 3 det", "old ADJ 3 amod", "gardener NOUN 4 nsubj", "runs VERB 0 root",
        "and CCONJ 6 cc", "sings VERB 4 conj", "near ADP 9 case", "the DET 9 det",
        "house NOUN 6 obl", "! PUNCT 4 punct",
    ),
    _sentence("Water NOUN 0 root"),
    _long(36),
    _sentence("the _ -1 _", "dog _ -1 _", "sees _ -1 _", "the _ -1 _", "dogs _ -1 _"),
    _sentence(
        "Unhappiness NOUN 0 root", ", PUNCT 3 punct", "sleeping VERB 1 acl", "in ADP 5 case",
        "water NOUN 3 obl",
    ),
)  # fmt: skip


def _small(number: int) -> tuple[Gold, ...]:
    """One of many little sentences."""
    who, does = ("dog", "bird", "gardener")[number % 3], ("sees", "follows")[number % 2]
    what = ("house", "garden", "water", "dog")[number // 3 % 4]
    seen = _sentence("the DET 5 det", *(["old ADJ 5 amod"] if number % 5 else ["a DET 5 det"]))
    rows = ["The DET 2 det", f"{who} NOUN 3 nsubj", f"{does} VERB 0 root"]
    end = [Gold(what, "NOUN", 3, "obj"), *([Gold("!", "PUNCT", 3, "punct")] if number % 2 else [])]
    return (*_sentence(*rows), *(g._replace(head=6) for g in seen), *end)


# So many that each half of them gives intervals; the few above come first.
MANY = (*TREES, *map(_small, range(30)))

PAIRS = (
    ("The fisherman sees the bird.", "Un oiseau, the red bird!"),
    ("Old dogs sleep near the house and the garden.", "The dogs sleep."),
    ("Unhappiness!", "The old gardener sees unhappiness in the red water, and the bird sings."),
    ("the dog sees the dog", "water"),
)


MANY_PAIRS = (
    *PAIRS,
    *(
        (f"The {who} sees the {what}.", f"Un {what}, the {who}{end}")
        for number, (who, what) in enumerate(
            product(("old dog", "bird", "gardener", "fisherman"), ("house", "red water", "garden"))
        )
        for end in ("!", f" and {number} birds.")
    ),
)


def text_of(words: tuple[Gold, ...]) -> str:
    """Return the words with single spaces between them."""
    return " ".join(word.form for word in words)


def spans_of(words: tuple[Gold, ...]) -> list[tuple[int, int]]:
    """Where each word stands in that text."""
    spans, at = [], 0
    for word in words:
        spans.append((at, at + len(word.form)))
        at += len(word.form) + 1
    return spans


def write_trees(file: Path, trees: tuple[tuple[Gold, ...], ...] = TREES) -> Path:
    """Return the sentences as CoNLL-U."""
    blocks = []
    for words in trees:
        lines = [f"# text = {text_of(words)}"]
        for number, (form, tag, head, relation) in enumerate(words, start=1):
            displayed = "_" if head < 0 else head
            lines.append(f"{number}\t{form}\t_\t{tag}\t_\t_\t{displayed}\t{relation}\t_\t_")
        blocks.append("\n".join(lines) + "\n")
    file.write_text("\n".join(blocks), encoding="utf-8")
    return file


def write_pairs(file: Path, pairs: tuple[tuple[str, str], ...] = PAIRS) -> Path:
    """Return the pairs as JSON lines."""
    rows = [json.dumps({"source": source, "target": target}) for source, target in pairs]
    file.write_text("\n".join(rows), encoding="utf-8")
    return file


def write_input(folder: Path, *, pairs: bool) -> Path:
    """Return the inputs of a model: the pairs, or the sentences."""
    return write_pairs(folder / "pairs.jsonl") if pairs else write_trees(folder / "trees.conllu")
