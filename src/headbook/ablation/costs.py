"""Costs of ablation in forward passes, from which a run plans what it can measure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.ablation.ablator import HeadAblator
from headbook.ablation.attribution import has_direct_path
from headbook.schema import AblationTarget, HeadName


@dataclass(frozen=True, eq=False)
class AblationCosts:
    """Costs of ablation, in forward passes over the sample.

    Attributes:
        layers: number of layers of each stack with hidden states, by stack.
        skips_layers: whether a pass can begin at the first ablated layer.
        lm_head_share: share of a forward pass in the language-model head, 0 without one.
        backward_passes: number of backward passes, each as expensive as a forward pass.
        direct: whether direct effects on logits are measured.
    """

    layers: dict[str, int]
    skips_layers: bool
    lm_head_share: float
    backward_passes: int
    direct: bool

    @property
    def fixed(self) -> float:
        """Cost of mean outputs, gradients, and direct effects."""
        return 2.0 + self.backward_passes + 2.0 * self.direct

    def of(self, heads: Iterable[HeadName]) -> float:
        """Return the cost of ablating one set of heads."""
        total = sum(self.layers.values())
        skipped = min((self._before(head) for head in heads), default=0) if self.skips_layers else 0
        return self.lm_head_share + (1 - self.lm_head_share) * (total - skipped) / total

    def n_single(self, heads: Sequence[HeadName], max_passes: float) -> int:
        """Return the largest number of heads that can be ablated one at a time.

        Args:
            heads: all heads.
            max_passes: largest number of forward passes.
        """
        costs = np.sort([self.of([head]) for head in heads])
        return int((costs.cumsum() <= max_passes).sum())

    def _before(self, head: HeadName) -> int:
        """Return the number of layers before the layer of a head."""
        return head.layer + (0 if head.stack in {"self", "encoder"} else self.layers["encoder"])


def costs_of(ablator: HeadAblator, parameters: int, vocabulary: tuple[int, int]) -> AblationCosts:
    """Return the costs of ablating heads of a model.

    Args:
        ablator: ablates heads of the model.
        parameters: number of parameters without the vocabulary.
        vocabulary: entries and width of the vocabulary.
    """
    lm_head = ablator.functions.needs_lm_head
    product = vocabulary[0] * vocabulary[1] * lm_head
    layers = {name: len(layer) for name, layer in ablator.heads.architecture.layers.items()}
    share = product / (product + parameters)
    direct = AblationTarget.LOGIT in ablator.functions.targets and has_direct_path(ablator.heads)
    backward = ablator.functions.backward_passes
    return AblationCosts(layers, bool(ablator.heads.slots), share, backward, direct)
