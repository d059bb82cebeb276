"""What a token metric sees: states of a batch's tokens, beside where they came from."""

from dataclasses import dataclass, field

import torch

from headbook.terms import CLASSES, CONTENT, FUNCTION, UPOS, Space
from headbook.texts import Texts
from headbook.vocabulary import Comparison, Vocabulary

NEIGHBOURS = 10  # nearest entries that are kept of each state


@dataclass(frozen=True, eq=False)
class TokenView:
    """States of one stack over a batch.

    Attributes:
        states: *Shape:* ``(state, sentence, token, width)``.
        input: what enters layer 0. *Shape:* ``(sentence, token, width)``.
        texts: the tokens.
        vocabulary: original encodings to compare with; None where there are none.
    """

    states: torch.Tensor
    input: torch.Tensor
    texts: Texts
    vocabulary: Vocabulary | None = None
    _compared: dict[Space, Comparison] = field(default_factory=dict)

    def compared(self, space: Space) -> Comparison:
        """The states beside every original encoding; made once for each space."""
        assert self.vocabulary is not None
        if space not in self._compared:
            found = self.vocabulary.compare(self.states, self.texts, space, NEIGHBOURS)
            self._compared[space] = found
        return self._compared[space]


def classes(texts: Texts) -> torch.Tensor:
    """Which token belongs to which of `CLASSES`. *Shape:* ``(sentence, token, class)``.

    ``all`` are the tokens that stand for text; special tokens are a class of their own.
    """
    ordinary = texts.valid & ~texts.special
    in_word = ordinary & (texts.share > 0)
    tags = texts.tags.bool()
    found = {
        "all": ordinary,
        "content": tags[..., [UPOS.index(tag) for tag in sorted(CONTENT)]].any(-1),
        "function": tags[..., [UPOS.index(tag) for tag in sorted(FUNCTION)]].any(-1),
        "initial": in_word & texts.initial,
        "continuation": in_word & ~texts.initial,
        "special": texts.valid & texts.special,
    } | {tag: tags[..., number] for number, tag in enumerate(UPOS)}
    return torch.stack([found[name] for name in CLASSES], -1).to(texts.share.dtype)
