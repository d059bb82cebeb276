"""Pairs of studies: checks that two studies can be compared, and how their heads correspond.

Both studies must be of the same sentences. Heads correspond by their numbers if both models have
one shape and read the same tokens; otherwise heads have to be matched.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from headbook.errors import StudyError
from headbook.schema import AttentionStack, HeadCorrespondence, Side
from headbook.study.buckets import NAMED, SentenceSet
from headbook.study.manifest import ModelFacts
from headbook.study.sentence_data import MappedSentence
from headbook.study.study import Study

FEW = 5  # most differing sentences that an error names


@dataclass(frozen=True, eq=False)
class StackPair:
    """One attention stack of each of two models."""

    a: AttentionStack
    b: AttentionStack

    @property
    def same_shape(self) -> bool:
        """Whether every head has a counterpart with the same number."""
        sizes = [(s.n_layers, s.n_heads, s.attention_layers, s.causal) for s in (self.a, self.b)]
        return self.a.name == self.b.name and sizes[0] == sizes[1]

    @property
    def name(self) -> str:
        """Name of the stack in files, or both names if they differ."""
        return self.a.name if self.a.name == self.b.name else f"{self.a.name}-{self.b.name}"


@dataclass(frozen=True, eq=False)
class StudyPair:
    """Two studies of the same sentences.

    Attributes:
        a, b: the studies; differences are ``b`` minus ``a``.
        names: names of the models on pages.
        stacks: pairs of stacks that are compared.
        mismatch: reason why heads do not correspond by their numbers; empty if they do.
    """

    a: Study
    b: Study
    names: tuple[str, str]
    stacks: tuple[StackPair, ...]
    mismatch: str = ""

    @property
    def same_heads(self) -> bool:
        """Whether heads correspond by their numbers."""
        return not self.mismatch

    @property
    def sentences(self) -> int:
        """Number of sentences, equal in both studies."""
        return self.a.manifest.counts["sentences"]

    def mapped(self) -> Iterator[tuple[MappedSentence, MappedSentence]]:
        """Yield the sentences whose maps both studies store, in a fixed order."""
        mine, theirs = self.a.map_sample.sentences, self.b.map_sample.sentences
        yield from ((mine[key], theirs[key]) for key in sorted(mine.keys() & theirs.keys()))


def pair_studies(
    a: Study,
    b: Study,
    heads: HeadCorrespondence = HeadCorrespondence.AUTO,
    names: tuple[str, str] = ("", ""),
) -> StudyPair:
    """Return two studies ready to be compared.

    Args:
        names: names of the models on pages; by default their own names, with a suffix if they are
            equal.

    Raises:
        StudyError: the studies are of different sentences, or heads do not correspond although
            ``heads`` is ``same``.
    """
    check_same_sentences(a, b)
    apart = (
        ""
        if heads is not HeadCorrespondence.MATCHED
        else "matching was asked for (--heads matched)"
    )
    reason = _apart(a, b)
    if heads is HeadCorrespondence.SAME and reason:
        raise StudyError(f"--heads same: {reason}; --heads matched finds those that attend alike")
    return StudyPair(a, b, _names(a, b, names), tuple(_stacks(a, b)), apart or reason)


def check_same_sentences(a: Study, b: Study) -> None:
    """Check that two studies are of the same sentences.

    Raises:
        StudyError: the sentences differ; the message names the first that do.
    """
    mine, theirs = a.corpus_sums.texts, b.corpus_sums.texts
    if mine is None or theirs is None:
        raise StudyError(
            "got a study without hashes of its sentences; expected one of this version: collect it "
            "again"
        )
    if np.array_equal(mine.prints, theirs.prints) and np.array_equal(
        mine.sentences, theirs.sentences
    ):
        return
    counts = [study.manifest.counts["sentences"] for study in (a, b)]
    differing = "; ".join(
        text
        for text in (
            _only(mine, theirs, a, "the first"),
            _only(theirs, mine, b, "the second"),
        )
        if text
    )
    raise StudyError(
        f"got two studies of different sentences ({counts[0]:,} and {counts[1]:,}); {differing}; "
        "expected both to be collected from the same input"
    )


def _only(mine: SentenceSet, theirs: SentenceSet, study: Study, which: str) -> str:
    """Return the sentences that only one study has, as far as they are stored, in words."""
    known, other = mine.smallest, theirs.smallest
    full = len(other.content_hash) == NAMED
    bound = other.content_hash.max() if full else np.iinfo(np.uint64).max
    alone = ~np.isin(known.content_hash, other.content_hash) & (known.content_hash <= bound)
    numbers = np.sort(known.index[alone]) + 1
    if not len(numbers):
        return ""
    named = ", ".join(_named(study, int(number)) for number in numbers[:FEW])
    more = f" and {len(numbers) - FEW:,} more" if len(numbers) > FEW else ""
    return f"only {which} has {'sentences' if len(numbers) > 1 else 'sentence'} {named}{more}"


def _named(study: Study, number: int) -> str:
    """Return a sentence's number in the input, with the beginning of its text if that is stored."""
    stored = study.sentence_data.sentences.get(number - 1)
    if stored is None:
        return str(number)
    text = next(iter(stored.texts.values())).text
    return f"{number} ({text[:30].strip()}{'…' if len(text) > 30 else ''})"


def _apart(a: Study, b: Study) -> str:
    """Return why heads do not correspond by their numbers; empty if they do."""
    stacks = [{s.name: s for s in study.manifest.stacks} for study in (a, b)]
    if stacks[0].keys() != stacks[1].keys():
        return f"one has {_list(stacks[0])} attention, the other {_list(stacks[1])}"
    for name, mine in stacks[0].items():
        theirs = stacks[1][name]
        if not StackPair(mine, theirs).same_shape:
            return f"sizes differ ({_size(mine)} and {_size(theirs)})"
    if not same_vocabulary(a.manifest.model, b.manifest.model) and not _same_tokens(a, b):
        return "vocabularies differ"
    return ""


def same_vocabulary(a: ModelFacts, b: ModelFacts) -> bool:
    """Check whether two models have the same tokenizer."""
    return a.tokenizer_sha256 == b.tokenizer_sha256


def _same_tokens(a: Study, b: Study) -> bool:
    """Check whether the sentences whose maps are stored have the same tokens in both studies."""
    mine, theirs = a.map_sample.sentences, b.map_sample.sentences
    return bool(mine) and all(
        key in theirs and same_ids(each, theirs[key]) for key, each in mine.items()
    )


def same_ids(a: MappedSentence, b: MappedSentence, asked: Iterable[Side] = tuple(Side)) -> bool:
    """Check whether two models read a sentence as the same tokens.

    Args:
        asked: sides that matter, if the sentence has them.
    """
    there = a.ids.keys() & set(asked)
    return there == b.ids.keys() & set(asked) and all(
        np.array_equal(a.ids[side], b.ids[side]) for side in there
    )


def _stacks(a: Study, b: Study) -> Iterator[StackPair]:
    """Yield the pairs of stacks to compare: of one name or, without any, two within one text."""
    mine, theirs = a.manifest.stacks, b.manifest.stacks
    by_name = {stack.name: stack for stack in theirs}
    for stack in mine:
        if stack.name in by_name:
            yield StackPair(stack, by_name[stack.name])
    if not {stack.name for stack in mine} & by_name.keys():
        one = next(stack for stack in mine if not stack.crosses)
        yield StackPair(one, next(stack for stack in theirs if not stack.crosses))


def _list(names: dict[str, AttentionStack]) -> str:
    return " and ".join(names)


def _size(stack: AttentionStack) -> str:
    return f"{stack.n_layers} layers of {stack.n_heads} heads{' (causal)' * stack.causal}"


def _names(a: Study, b: Study, given: tuple[str, str]) -> tuple[str, str]:
    """Return names that tell two models apart."""
    models = a.manifest.model, b.manifest.model
    names = [name or model.name for name, model in zip(given, models, strict=True)]
    for differing in ("dtype", "revision"):
        if names[0] != names[1]:
            break
        parts = [str(getattr(m, differing)).removeprefix("sha256:")[:12] for m in models]
        if parts[0] != parts[1]:
            names = [f"{name} ({part})" for name, part in zip(names, parts, strict=True)]
    if names[0] == names[1]:
        names = [f"{name} ({which})" for name, which in zip(names, "AB", strict=True)]
    return names[0], names[1]
