"""What heads give in other sentences: what stands in their place where they are resampled.

A sentence borrows from others of similar length, position by position; which ones is told by hashes
of the content of both, so that it is the same in every run.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Ints
from headbook.errors import ConfigError
from headbook.model import hook
from headbook.model.architecture import Call
from headbook.model.capture import forward
from headbook.model.intervention import Intervened
from headbook.model.vocabulary.targets import Judge
from headbook.text.batch import Batch

DRAWS = 3  # sentences that each borrows from, one after the other
NEAR = 10  # of most similar length, among which hashes choose


@dataclass(frozen=True, eq=False)
class Others:
    """The outputs of some layers in all sentences.

    Attributes:
        content_hash: hashes of the sentences. *Shape:* ``(sentence,)``.
        length: query tokens of each sentence, by place; likewise.
        output: by place. *Shape:* ``(sentence, query, head, width)``, 0 in the padding.
    """

    content_hash: NDArray[np.uint64]
    length: Mapping[Call, Ints]
    output: Mapping[Call, torch.Tensor]

    @classmethod
    def of(
        cls, heads: Intervened, judge: Judge, batches: Sequence[Batch], places: Collection[Call]
    ) -> "Others":
        """Look at all sentences.

        Raises:
            ConfigError: there are no two different ones.
        """
        key = np.concatenate([batch.content_hash for batch in batches])
        if len({*key}) < 2:
            raise ConfigError("replacement: 'resample' came; expected two different sentences")
        found: dict[Call, list[torch.Tensor]] = {call: [] for call in places}

        def add(place: Call, attention: hook.Attention) -> None:
            if place in found:
                assert attention.output is not None
                found[place].append(attention.output.detach())

        for batch in batches:
            forward(heads.model, heads.architecture, judge.prepared(batch), add)
        sides = {call: heads.architecture.stacks[call.stack].queries for call in places}
        length = {
            call: np.concatenate([b.texts[side].valid.sum(1).cpu().numpy() for b in batches])
            for call, side in sides.items()
        }
        return cls(key, length, {call: _padded(each) for call, each in found.items()})

    def borrowed(
        self, place: Call, key: NDArray[np.uint64], queries: int, draw: int
    ) -> torch.Tensor:
        """What other sentences give, their last token where they are shorter.

        Args:
            key: of the sentences that borrow.
            queries: tokens that their batch is padded to.
            draw: 0 to `DRAWS` - 1.

        Returns:
            *Shape:* ``(sentence, query, head, width)``.
        """
        donors = np.array([self._donor(place, int(each), draw) for each in key])
        last = self.length[place][donors] - 1
        positions = np.minimum(np.arange(queries), last[:, None])
        output = self.output[place]
        rows, columns = (torch.from_numpy(each).to(output.device) for each in (donors, positions))
        return output[rows[:, None], columns]

    def _donor(self, place: Call, key: int, draw: int) -> int:
        """The place of the sentence that one borrows from; longer ones come first."""
        length = self.length[place]
        own = int(length[np.flatnonzero(self.content_hash == np.uint64(key))[0]])
        others = [int(k) for k in np.flatnonzero(self.content_hash != np.uint64(key))]
        others.sort(
            key=lambda k: (
                max(own - length[k], 0),
                abs(own - length[k]),
                _hash(key, int(self.content_hash[k])),
            )
        )
        near = sorted(others[:NEAR], key=lambda k: _hash(key, int(self.content_hash[k])))
        return near[draw % len(near)]


def _hash(one: int, other: int) -> bytes:
    both = one.to_bytes(8, "big") + other.to_bytes(8, "big")
    return hashlib.blake2b(both, digest_size=8).digest()


def _padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tables of several batches as one."""
    longest = max(part.shape[1] for part in parts)
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, (0, 0, 0, 0, 0, longest - part.shape[1])) for part in parts])
