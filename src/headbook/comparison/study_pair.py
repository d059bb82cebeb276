"""Pairs of studies: checks that two studies can be compared, and how their heads correspond.

Both studies must be of the same sentences. Heads correspond by their numbers if both models have
one shape and read the same tokens; otherwise heads have to be matched.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from headbook.errors import StudyError
from headbook.schema import AttentionStack, HeadCorrespondence, Side
from headbook.study.manifest import ModelFacts
from headbook.study.sentence_data import MappedSentence
from headbook.study.study import Study
from headbook.study.sums.buckets import MAX_STORED_HASHES, SentenceSet

MAX_LISTED_SENTENCES = 5  # differing sentences that an error names


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
        maps_a, maps_b = self.a.map_sample.sentences, self.b.map_sample.sentences
        yield from ((maps_a[key], maps_b[key]) for key in sorted(maps_a.keys() & maps_b.keys()))


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
    requested = (
        ""
        if heads is not HeadCorrespondence.MATCHED
        else "matching was asked for (--heads matched)"
    )
    reason = _mismatch(a, b)
    if heads is HeadCorrespondence.SAME and reason:
        raise StudyError(
            f"--heads same: {reason}; use --heads matched to compare heads that attend alike"
        )
    return StudyPair(
        a, b, _distinct_names(a, b, names), tuple(_stack_pairs(a, b)), requested or reason
    )


def check_same_sentences(a: Study, b: Study) -> None:
    """Check that two studies are of the same sentences.

    Raises:
        StudyError: the sentences differ; the message names the first that do.
    """
    set_a, set_b = a.corpus_sums.texts, b.corpus_sums.texts
    if set_a is None or set_b is None:
        raise StudyError(
            "got a study without hashes of its sentences; expected one of this version: collect it "
            "again"
        )
    if np.array_equal(set_a.prints, set_b.prints) and np.array_equal(
        set_a.sentences, set_b.sentences
    ):
        return
    counts = [study.manifest.counts["sentences"] for study in (a, b)]
    differing = "; ".join(
        text
        for text in (
            _only_in(set_a, set_b, a, "the first"),
            _only_in(set_b, set_a, b, "the second"),
        )
        if text
    )
    raise StudyError(
        f"got two studies of different sentences ({counts[0]:,} and {counts[1]:,}); {differing}; "
        "expected both to be collected from the same input"
    )


def _only_in(own_set: SentenceSet, other_set: SentenceSet, study: Study, model_name: str) -> str:
    """Return the sentences that only one study has, as far as they are stored, in words."""
    own_hashes, other_hashes = own_set.smallest, other_set.smallest
    full = len(other_hashes.content_hash) == MAX_STORED_HASHES
    bound = other_hashes.content_hash.max() if full else np.iinfo(np.uint64).max
    only_here = ~np.isin(own_hashes.content_hash, other_hashes.content_hash) & (
        own_hashes.content_hash <= bound
    )
    numbers = np.sort(own_hashes.index[only_here]) + 1
    if not len(numbers):
        return ""
    sentences = ", ".join(
        _describe_sentence(study, int(number)) for number in numbers[:MAX_LISTED_SENTENCES]
    )
    n_more = len(numbers) - MAX_LISTED_SENTENCES
    more = f" and {n_more:,} more" if n_more > 0 else ""
    noun = "sentences" if len(numbers) > 1 else "sentence"
    return f"only {model_name} has {noun} {sentences}{more}"


def _describe_sentence(study: Study, number: int) -> str:
    """Return a sentence's number in the input, with the beginning of its text if that is stored."""
    stored = study.sentence_data.sentences.get(number - 1)
    if stored is None:
        return str(number)
    text = next(iter(stored.texts.values())).text
    return f"{number} ({text[:30].strip()}{'…' if len(text) > 30 else ''})"


def _mismatch(a: Study, b: Study) -> str:
    """Return why heads do not correspond by their numbers; empty if they do."""
    stacks = [{s.name: s for s in study.manifest.stacks} for study in (a, b)]
    if stacks[0].keys() != stacks[1].keys():
        return f"one has {_join_names(stacks[0])} attention, the other {_join_names(stacks[1])}"
    for name, stack_a in stacks[0].items():
        stack_b = stacks[1][name]
        if not StackPair(stack_a, stack_b).same_shape:
            return f"sizes differ ({_describe_size(stack_a)} and {_describe_size(stack_b)})"
    if not same_vocabulary(a.manifest.model, b.manifest.model) and not _same_tokens(a, b):
        return "vocabularies differ"
    return ""


def same_vocabulary(a: ModelFacts, b: ModelFacts) -> bool:
    """Check whether two models have the same tokenizer."""
    return a.tokenizer_sha256 == b.tokenizer_sha256


def _same_tokens(a: Study, b: Study) -> bool:
    """Check whether the sentences whose maps are stored have the same tokens in both studies."""
    maps_a, maps_b = a.map_sample.sentences, b.map_sample.sentences
    return bool(maps_a) and all(
        key in maps_b and same_ids(sentence, maps_b[key]) for key, sentence in maps_a.items()
    )


def same_ids(a: MappedSentence, b: MappedSentence, sides: Iterable[Side] = tuple(Side)) -> bool:
    """Check whether two models read a sentence as the same tokens.

    Args:
        sides: sides that matter, if the sentence has them.
    """
    common_sides = a.ids.keys() & set(sides)
    return common_sides == b.ids.keys() & set(sides) and all(
        np.array_equal(a.ids[side], b.ids[side]) for side in common_sides
    )


def _stack_pairs(a: Study, b: Study) -> Iterator[StackPair]:
    """Yield the pairs of stacks to compare: of one name or, without any, two within one text."""
    stacks_a, stacks_b = a.manifest.stacks, b.manifest.stacks
    by_name = {stack.name: stack for stack in stacks_b}
    for stack in stacks_a:
        if stack.name in by_name:
            yield StackPair(stack, by_name[stack.name])
    if not {stack.name for stack in stacks_a} & by_name.keys():
        first = next(stack for stack in stacks_a if not stack.crosses)
        yield StackPair(first, next(stack for stack in stacks_b if not stack.crosses))


def _join_names(names: dict[str, AttentionStack]) -> str:
    return " and ".join(names)


def _describe_size(stack: AttentionStack) -> str:
    return f"{stack.n_layers} layers of {stack.n_heads} heads{' (causal)' * stack.causal}"


def _distinct_names(a: Study, b: Study, requested: tuple[str, str]) -> tuple[str, str]:
    """Return names that tell two models apart."""
    models = a.manifest.model, b.manifest.model
    names = [name or model.name for name, model in zip(requested, models, strict=True)]
    for differing in ("dtype", "revision"):
        if names[0] != names[1]:
            break
        values = [str(getattr(m, differing)).removeprefix("sha256:")[:12] for m in models]
        if values[0] != values[1]:
            names = [f"{name} ({value})" for name, value in zip(names, values, strict=True)]
    if names[0] == names[1]:
        names = [f"{name} ({letter})" for name, letter in zip(names, "AB", strict=True)]
    return names[0], names[1]
