"""What of a model's answer is compared when heads are taken away: the interface of judges.

A judge prepares a batch, says which tokens it scores, and turns last states into the targets of
`headbook.terms.Target`: sums over the scored tokens of each sentence, in double precision.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.terms import Side, Target
from headbook.text.batch import Batch

DRAWS = 4  # for targets that have no slope

Sums = Mapping[Target, torch.Tensor]
Weights = Callable[[], AbstractContextManager[None]]


class Changes(NamedTuple):
    """How targets change from the whole pass to others.

    Attributes:
        sums: over the scored tokens of each sentence. *Shape:* ``(pass, sentence)`` each.
        tokens: of loss or state at each scored token. *Shape:* ``(pass, scored token)``.
        before: the loss there in the whole pass, 0 for states. *Shape:* ``(scored token,)``.
        logits: of the true token's logit, above the mean of all; NaN without a language-model head.
            The same shape as ``tokens``.
    """

    sums: Sums
    tokens: torch.Tensor
    before: torch.Tensor
    logits: torch.Tensor


class Slope(NamedTuple):
    """A number of a batch whose slopes tell how a target changes.

    Attributes:
        value: a sum over the scored tokens of all sentences, with its graph.
        squared: whether a target's change is half the square of what the slopes say, on average
            over draws (targets that are smallest for the whole model have no slope of their own);
            else it is what they say.
    """

    target: Target
    value: torch.Tensor
    squared: bool


class Vectors(NamedTuple):
    """Vectors of the tokens or texts of a batch.

    Attributes:
        vectors: *Shape:* ``(vector, width)``.
        sentence: row of the batch that each belongs to. *Shape:* ``(vector,)``.
    """

    vectors: torch.Tensor
    sentence: torch.Tensor


class Judge(Protocol):
    """Compares last states of passes with heads taken away with those of a whole pass."""

    @property
    def side(self) -> Side:
        """Whose tokens or states it compares."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """What it compares."""

    @property
    def speaks(self) -> bool:
        """Whether it needs the language-model head."""

    def prepared(self, batch: Batch) -> Batch:
        """The batch that the model is to read."""

    def counts(self, batch: Batch) -> torch.Tensor:
        """Tokens of each sentence that are scored. *Shape:* ``(target, sentence)``."""

    def full(self, batch: Batch, states: torch.Tensor) -> Sums:
        """The targets of the whole pass that are sums of their own: losses.

        Args:
            states: *Shape:* ``(sentence, token, width)``.

        Returns:
            *Shape:* ``(sentence,)`` each.
        """

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> Changes:
        """How the targets change.

        Args:
            batch: as it was before `prepared`.
            states: of the whole pass. *Shape:* ``(sentence, token, width)``.
            others: *Shape:* ``(pass, sentence, token, width)``.
        """

    def scored(self, batch: Batch) -> torch.Tensor:
        """Sentence and position of each token that scores are about.

        *Shape:* ``(scored token, 2)``, in the order of `Changes.tokens`.
        """

    def with_other_weights(
        self, batch: Batch, states: torch.Tensor, others: torch.Tensor, weights: Weights
    ) -> Sums:
        """How the targets change from one network to the same with other weights.

        Args:
            states: of the whole pass. *Shape:* ``(sentence, token, width)``.
            others: with the other weights. *Shape:* ``(sentence, token, width)``.
            weights: a block inside which the network has the other weights.

        Returns:
            Sums over the scored tokens of each sentence, *shape* ``(sentence,)`` each.
        """

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[Target, Vectors]:
        """The vectors whose cosines are targets.

        Args:
            states: of the whole pass. *Shape:* ``(sentence, token, width)``.
        """

    def slopes(self, batch: Batch, model_output: Any, states: torch.Tensor) -> Iterator[Slope]:
        """What to differentiate in one pass; random draws come from the sentences' hashes.

        Args:
            model_output: what the model returned.
            states: what left its last layer.
        """


def drawn(
    batch: Batch, draw: int, take: Callable[[np.random.Generator], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Random numbers of each sentence, whatever batch it stands in and however it is padded."""
    return np.stack([take(np.random.default_rng([int(key), draw])) for key in batch.content_hash])
