"""Which head finds which dependency: the strongest word of each word, against the tree.

Two questions are asked of each word with a head. *To head*: is the head the word's strongest key?
*To dependent*: is the word its head's strongest key? Only words that may be looked at from there
are asked for: in a causal stack, those that come before.
"""

from typing import TYPE_CHECKING, NamedTuple

from headbook.attention.surfacerules import strongest_words
from headbook.inputs import NO_HEAD
from headbook.terms import Scheme

if TYPE_CHECKING:
    import torch

    from headbook.attention.frame import Scope
    from headbook.attention.layerattention import LayerAttention

LABELS = Scheme().labels
# What can be asked of a word, as bits.
LOOKS = 1  # it sees another word
SEEN = 2  # others see it
TO_HEAD = 4  # it has a head, which it sees
TO_DEPENDENT = 8  # it has a head, which sees it
FAR = 3  # words apart: what is no matter of neighbourhood


class Asked(NamedTuple):
    """The words that are asked for, and whom.

    Attributes:
        head: index of each word's head; 0 without one. *Shape:* ``(sentence, word)``.
        given: places among the scheme's labels of those that the sentences have at all; the
            first half of them to the head.
        labels: 1 where a word is asked for under one of these, all and far ones only.
            *Shape:* ``(sentence, word, given)``.
    """

    head: "torch.Tensor"
    given: list[int]
    labels: "torch.Tensor"
    far: "torch.Tensor"


def asked(scope: "Scope") -> Asked:
    """What can be asked of a batch's sentences."""
    texts, dtype = scope.frame.queries, scope.frame.dtype
    head = texts.by_word(texts.head, NO_HEAD)
    relation = texts.by_word(texts.relation, -1)
    numbers = relation.unique()
    numbers = numbers[numbers >= 0]
    of = (relation.unsqueeze(-1) == numbers) & (head != NO_HEAD).unsqueeze(-1)
    words = head.new_tensor(range(texts.n_words)).expand_as(head)
    # A head whose pieces were all cut off is no longer there.
    there = (head >= 0) & (head < texts.n_words) & (head != words)
    head = head.masked_fill(~there, 0)
    visible = scope.word_visible
    up = there & visible.gather(2, head.unsqueeze(-1)).squeeze(-1)
    down = there & visible.mT.gather(2, head.unsqueeze(-1)).squeeze(-1)
    half = len(numbers)
    labels = of.new_empty((*of.shape[:2], 2 * half))
    labels[..., :half] = of & up.unsqueeze(-1)
    labels[..., half:] = of & down.unsqueeze(-1)
    far = labels & ((head - words).abs() >= FAR).unsqueeze(-1)
    present = numbers.tolist()
    given = [*present, *(len(texts.scheme.relations) + number for number in present)]
    return Asked(head, given, labels.to(dtype), far.to(dtype))


def found(layer: "LayerAttention") -> "tuple[torch.Tensor, torch.Tensor]":
    """Whether each word finds its head, and whether its head finds it.

    *Shape:* ``(sentence, head, word)`` each, 0 or 1.
    """
    word = layer.once(strongest_words)
    head = layer.scope.once(asked).head.unsqueeze(1)
    up = word == head
    words = word.new_tensor(range(word.shape[-1]))
    down = word.gather(-1, head.expand_as(word)) == words
    return up.to(layer.frame.dtype), down.to(layer.frame.dtype)


def hits(layer: "LayerAttention") -> "torch.Tensor":
    """Words that are found, by label. *Shape:* ``(sentence, head, given)``; see `Asked`."""
    return _counted(layer, layer.scope.once(asked).labels)


def far_hits(layer: "LayerAttention") -> "torch.Tensor":
    """The same for words that stand at least `FAR` from their head."""
    return _counted(layer, layer.scope.once(asked).far)


def _counted(layer: "LayerAttention", labels: "torch.Tensor") -> "torch.Tensor":
    half = labels.shape[-1] // 2
    up, down = layer.once(found)
    counts = up.new_empty((*up.shape[:2], labels.shape[-1]))
    counts[..., :half] = up @ labels[..., :half]
    counts[..., half:] = down @ labels[..., half:]
    return counts


def chance(scope: "Scope", labels: "torch.Tensor") -> "torch.Tensor":
    """What a look at any other visible word alike would find. *Shape:* ``(sentence, 1, given)``.

    Args:
        labels: of `Asked`, all or far ones only.
    """
    questions, half = scope.once(asked), labels.shape[-1] // 2
    words = questions.head.new_tensor(range(questions.head.shape[1]))
    choices = (scope.word_visible & (words[:, None] != words)).sum(-1).clamp(min=1)
    up = 1 / choices.to(labels.dtype)
    down = up.gather(1, questions.head)
    counts = labels.new_empty((len(labels), 1, labels.shape[-1]))
    counts[:, 0, :half] = (labels[..., :half] * up.unsqueeze(-1)).sum(1)
    counts[:, 0, half:] = (labels[..., half:] * down.unsqueeze(-1)).sum(1)
    return counts


def asked_of_words(scope: "Scope") -> "torch.Tensor":
    """Return what can be asked of each word, as bits.

    *Shape:* ``(sentence, word)``.
    """
    visible = scope.word_visible
    words = visible.new_zeros(()).long().new_tensor(range(visible.shape[-1]))
    others = (visible & (words[:, None] != words)).any(-1)
    labels = scope.once(asked).labels
    half = labels.shape[-1] // 2
    up, down = (part.any(-1) for part in (labels[..., :half] > 0, labels[..., half:] > 0))
    return LOOKS * others + SEEN * visible.any(1) + TO_HEAD * up + TO_DEPENDENT * down
