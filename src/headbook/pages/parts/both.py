"""Two models side by side, one kind of attention at a time, as pages of comparisons take them."""

from collections.abc import Iterator
from dataclasses import dataclass

from headbook.comparison.comparison import Comparison
from headbook.comparison.depthmedians import DepthMedians
from headbook.comparison.headdifferences import HeadDifferences
from headbook.comparison.layerdifferences import LayerDifferences
from headbook.comparison.matched import MatchedHeads
from headbook.comparison.sides import StackPair
from headbook.report.numbers.results import StackResults, results
from headbook.report.wording import STACKS


@dataclass(frozen=True, eq=False)
class BothStacks:
    """One kind of attention in both models.

    Attributes:
        pair: the two stacks.
        names: of the models.
        a, b: all numbers of each.
        found: differences of corresponding heads; None where heads do not correspond.
        matched: which heads attend alike; None of cross-attention.
        layers: differences of the tokens of corresponding layers; None likewise, and where a study
            has no sums for them.
        medians: over all heads or layers of each model, where they do not correspond.
    """

    pair: StackPair
    names: tuple[str, str]
    a: StackResults
    b: StackResults
    found: HeadDifferences | None
    matched: MatchedHeads | None
    layers: LayerDifferences | None
    medians: DepthMedians

    @property
    def stack(self) -> str:
        """The pair's name in files."""
        return self.pair.name

    @property
    def title(self) -> str:
        """The kind of attention as pages call it."""
        names = dict.fromkeys(STACKS[stack.name] for stack in (self.pair.a, self.pair.b))
        return " and ".join(names)

    @property
    def heads(self) -> int:
        """How many heads the first model has of it."""
        return len(self.pair.a.attention_layers) * self.pair.a.n_heads


def both_stacks(comparison: Comparison) -> tuple[BothStacks, ...]:
    """All kinds of attention that are compared."""
    return tuple(_both(comparison))


def _both(comparison: Comparison) -> Iterator[BothStacks]:
    sides = comparison.sides
    mine, theirs = results(sides.a), results(sides.b)
    for pair in sides.stacks:
        yield BothStacks(
            pair,
            sides.names,
            mine[pair.a.name],
            theirs[pair.b.name],
            comparison.heads.get(pair.name),
            comparison.matched.get(pair.name),
            comparison.layers.get(pair.name),
            comparison.depths.get(pair.name, {}),
        )
