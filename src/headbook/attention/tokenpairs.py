"""Every two tokens of a text: how far apart they are, and what they have in common."""

from functools import cached_property

import torch

from headbook.attention.frame import Frame
from headbook.attention.segments import Places


class TokenPairs:
    """The tokens that look, of every sentence of a batch.

    Attributes:
        frame: the sentences.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    @cached_property
    def counted(self) -> torch.Tensor:
        """Tokens that count. *Shape:* ``(sentence, 1, token)``, boolean."""
        return self.frame.counted.unsqueeze(1)

    def pairs_of(self, there: torch.Tensor) -> torch.Tensor:
        """1 for every two of some tokens, the earlier one first.

        Args:
            there: *Shape:* ``(sentence, head, token)``, boolean.

        Returns:
            *Shape:* ``(sentence, head, n, n)``.
        """
        return (there.unsqueeze(-1) & there.unsqueeze(-2)).to(self.frame.dtype).triu(1)

    @cached_property
    def distance(self) -> torch.Tensor:
        """How far tokens are apart. *Shape:* ``(n, n)``."""
        places = torch.arange(self.frame.queries.n_tokens, device=self.frame.seen.device)
        return (places[None, :] - places[:, None]).abs().to(self.frame.dtype)

    @cached_property
    def same_token(self) -> torch.Tensor:
        """1 where the same token stands twice. *Shape:* ``(sentence, 1, n, n)``."""
        ids = self.frame.queries.ids
        return (ids[:, :, None] == ids[:, None, :]).unsqueeze(1).to(self.frame.dtype)

    @cached_property
    def same_sentence(self) -> torch.Tensor:
        """1 where both tokens are of one sentence. *Shape:* ``(sentence, 1, n, n)``."""
        part = self.frame.queries.part
        return (part[:, :, None] == part[:, None, :]).unsqueeze(1).to(self.frame.dtype)

    @property
    def joined(self) -> torch.Tensor:
        """1 for passages of several sentences, else 0. *Shape:* ``(sentence, 1, 1)``."""
        return self.frame.queries.joined.unsqueeze(-1).to(self.frame.dtype)

    @cached_property
    def places(self) -> Places:
        """The tokens that count, in order."""
        return Places.of(self.frame.counted)
