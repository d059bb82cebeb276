"""Surface rules that select a word for each word.

Rules use the order of words and their parts of speech, not syntax: a fixed offset, or the next, the
previous or the nearest word of a class. Relations are compared with rules as a baseline, and heads
that follow no relation are named after rules. In causal attention, rules select earlier words only.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Ints
from headbook.schema import CONTENT, UPOS

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention


OFFSETS = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)  # in words, of the rules that use no tags
SIDES = ("next", "previous", "nearest")  # of a word of a class
NOUNS = ("NOUN", "PROPN")
TAG_SETS = {
    "content": tuple(sorted(CONTENT)),
    "NOUN_PRON_PROPN": ("NOUN", "PRON", "PROPN"),
    "VERB_AUX": ("VERB", "AUX"),
    "VERB_ADJ_NOUN": ("VERB", "ADJ", "NOUN"),
}
LAST_NOUN = "last:nouns"  # the last word of the next run of nouns
NO_SELECTION = -1  # index if a rule selects no word

Flags = NDArray[np.bool_]


def rule_names(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the names of all rules: ``offset:-1``, ``next:NOUN``, ``nearest:VERB_AUX``.

    Args:
        tags: parts of speech of the corpus.
    """
    offsets = (f"offset:{offset}" for offset in OFFSETS)
    classes = (f"{side}:{name}" for side in SIDES for name in (*tags, *TAG_SETS))
    return (*offsets, *classes, LAST_NOUN)


RULES = rule_names(UPOS)


def rule_words(
    tag: NDArray[np.integer[Any]],
    selectable: Flags,
    lengths: Ints,
    tags: Sequence[str],
    *,
    causal: bool,
) -> NDArray[np.int32]:
    """Return the word that each rule selects for each word of some sentences.

    Of two words of a class at the same distance, the nearest is the one to the right.

    Args:
        tag: index of each word's part of speech in ``tags``, negative without one; sentences are
            concatenated. *Shape:* ``(word,)``.
        selectable: whether a word can be selected. *Shape:* ``(word,)``.
        lengths: number of words of each sentence. *Shape:* ``(sentence,)``.
        tags: parts of speech of the corpus.
        causal: whether only earlier words can be selected.

    Returns:
        Indices in the sentence, `NO_SELECTION` if no word is selected. *Shape:* ``(rule, word)``,
        rules in the order of `rule_names`.
    """
    starts = np.repeat(lengths.cumsum() - lengths, lengths)
    ends = starts + np.repeat(lengths, lengths)
    names = rule_names(tags)
    row_of_rule = {name: row for row, name in enumerate(names)}
    selected = np.full((len(names), len(tag)), NO_SELECTION, np.int32)
    for name, target in _rule_targets(tag, selectable, starts, ends, tags, causal=causal):
        selected[row_of_rule[name]] = np.where(target >= 0, target - starts, NO_SELECTION)
    return selected


def _rule_targets(
    tag: NDArray[np.integer[Any]],
    selectable: Flags,
    starts: Ints,
    ends: Ints,
    tags: Sequence[str],
    *,
    causal: bool,
) -> Iterator[tuple[str, Ints]]:
    """Yield rules with the word that they select for each word, as indices of all words.

    Rules that select no word at all may be left out.
    """
    words = np.arange(len(tag))
    for offset in OFFSETS:
        target = words + offset
        inside = (target >= starts) & (target < ends) & (offset < 0 or not causal)
        inside[inside] = selectable[target[inside]]
        yield f"offset:{offset}", np.where(inside, target, NO_SELECTION)
    for name, members in {**{tag_name: (tag_name,) for tag_name in tags}, **TAG_SETS}.items():
        of_class = _is_one_of(tag, members, tags) & selectable
        if of_class.any():
            targets = _words_of_class(of_class, starts, ends, causal=causal)
            for side, target in zip(SIDES, targets, strict=True):
                yield f"{side}:{name}", target
    nouns = _is_one_of(tag, NOUNS, tags) & selectable
    if nouns.any() and not causal:
        continued = np.append(nouns[1:], False) & (words + 1 < ends)
        yield LAST_NOUN, _next(nouns & ~continued, ends)


def _is_one_of(tag: NDArray[Any], members: Sequence[str], tags: Sequence[str]) -> Flags:
    is_member = np.array([*(name in members for name in tags), False])
    flags: Flags = is_member[np.where(tag < 0, len(tags), tag)]
    return flags


def _words_of_class(
    of_class: Flags, starts: Ints, ends: Ints, *, causal: bool
) -> tuple[Ints, Ints, Ints]:
    """Return the next, the previous and the nearest word of a class for each word."""
    words = np.arange(len(of_class))
    before, after = _previous(of_class, starts), _next(of_class, ends)
    if causal:
        after = np.full_like(after, NO_SELECTION)
    after_is_nearer = (after >= 0) & ((before < 0) | (after - words <= words - before))
    return after, before, np.where(after_is_nearer, after, before)


def _next(flags: Flags, ends: Ints) -> Ints:
    """Return the next flagged word behind each word, `NO_SELECTION` if its sentence has none."""
    words = np.where(flags, np.arange(len(flags)), len(flags))
    following = np.append(np.minimum.accumulate(words[::-1])[::-1][1:], len(flags))
    return np.where(following < ends, following, NO_SELECTION)


def _previous(flags: Flags, starts: Ints) -> Ints:
    """Return the last flagged word before each word, `NO_SELECTION` if its sentence has none."""
    words = np.where(flags, np.arange(len(flags)), NO_SELECTION)
    preceding = np.append([NO_SELECTION], np.maximum.accumulate(words)[:-1])
    return np.where(preceding >= starts, preceding, NO_SELECTION)


def neighbours(selectable: Flags, lengths: Ints, *, causal: bool) -> NDArray[np.int32]:
    """Return the next word that can be selected for each word, or the previous one at the end.

    This is the word of a rule that selects none, if the rule is a baseline: a head always has a
    strongest word, and a rule that counts as wrong without one is too weak.

    Args:
        selectable: whether a word can be selected; sentences are concatenated. *Shape:*
            ``(word,)``.
        lengths: number of words of each sentence. *Shape:* ``(sentence,)``.
        causal: whether only earlier words can be selected.

    Returns:
        Indices in the sentence, `NO_SELECTION` without any such word. *Shape:* ``(word,)``.
    """
    starts = np.repeat(lengths.cumsum() - lengths, lengths)
    ends = starts + np.repeat(lengths, lengths)
    before, after = _previous(selectable, starts), _next(selectable, ends)
    target = np.where((after == NO_SELECTION) | causal, before, after)
    return np.where(target == NO_SELECTION, NO_SELECTION, target - starts).astype(np.int32)


class NamedWords(NamedTuple):
    """Words that rules select in a batch.

    Attributes:
        given: indices of the rules that select a word of the batch.
        word: index of the selected word, or `NO_SELECTION`. *Shape:* ``(given, sentence, word)``.
        choices: number of other words that each word sees; 0 in sentences without tags. *Shape:*
            ``(sentence, word)``.
    """

    given: list[int]
    word: "torch.Tensor"
    choices: "torch.Tensor"


def words_named(scope: "ViewMask") -> NamedWords:
    """Return the words that rules select for each word of a batch."""
    texts, visible = scope.frame.queries, scope.word_visible
    words = visible.new_zeros(()).long().new_tensor(range(texts.n_words))
    others = visible & (words[:, None] != words)
    tag = texts.by_word(texts.tag, NO_SELECTION).cpu().numpy()
    selected = rule_words(
        tag.ravel(),
        visible.any(1).cpu().numpy().ravel(),
        np.full(len(tag), texts.n_words),
        texts.scheme.tags,
        causal=scope.frame.stack.causal,
    )
    selecting_rules = np.flatnonzero((selected >= 0).any(1))
    word = words.new_tensor(selected[selecting_rules].reshape(len(selecting_rules), *tag.shape))
    return NamedWords(selecting_rules.tolist(), word, others.sum(-1) * texts.tagged)


def strongest_words(layer: "LayerAttention") -> "torch.Tensor":
    """Return the strongest other word of each word, or `NO_SELECTION` without attention to others.

    *Shape:* ``(sentence, head, word)``.
    """
    _, strongest, word = layer.maps.words
    return word.masked_fill(strongest <= 0, NO_SELECTION)


def rule_agreements(layer: "LayerAttention") -> "torch.Tensor":
    """Count the words whose strongest other word is the one that the rule selects.

    *Shape:* ``(sentence, head, given)``; see `NamedWords`.
    """
    rules, strongest = layer.scope.cached(words_named), layer.cached(strongest_words)
    has_choice = rules.choices > 0
    counts = strongest.new_zeros((*strongest.shape[:2], len(rules.given)))
    for place, word in enumerate(rules.word):
        # NO_SELECTION - 1, since two words without selection and without attention must not agree.
        target = word.masked_fill(~has_choice | (word == NO_SELECTION), NO_SELECTION - 1)
        counts[..., place] = (strongest == target.unsqueeze(1)).sum(-1)
    return counts.to(layer.frame.dtype)


def rule_chance(scope: "ViewMask") -> "torch.Tensor":
    """Return the expected number of agreements with each rule for a random visible word.

    *Shape:* ``(sentence, 1, given)``.
    """
    rules = scope.cached(words_named)
    choices = rules.choices.clamp(min=1).to(scope.frame.dtype)
    sees = scope.word_visible.unsqueeze(0).expand(len(rules.given), -1, -1, -1)
    seen = sees.gather(-1, rules.word.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    counts = ((rules.word >= 0) & seen & (rules.choices > 0)) / choices
    return counts.sum(-1).T.unsqueeze(1)
