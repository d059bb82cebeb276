"""What a token metric sees: states of a batch's tokens, beside where they came from."""

from dataclasses import dataclass, field

import torch

from headbook.terms import CLASSES, CONTENT, FUNCTION, UPOS, Space
from headbook.texts import Texts
from headbook.vocabulary import Neighbours, Vocabulary


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
    _nearest: dict[Space, Neighbours] = field(default_factory=dict)

    def ranks(self, space: Space) -> torch.Tensor:
        """Rank of each token's own encoding; see `Vocabulary.ranks`.

        *Shape:* ``(state, sentence, token)``; NaN in the padding.
        """
        assert self.vocabulary is not None
        return self.vocabulary.ranks(self.states, self.texts, space)

    def nearest(self, space: Space, k: int) -> Neighbours:
        """The k nearest original encodings; made once for each space."""
        assert self.vocabulary is not None
        if space not in self._nearest:
            self._nearest[space] = self.vocabulary.nearest(self.states, self.texts, space, k)
        return self._nearest[space]


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
