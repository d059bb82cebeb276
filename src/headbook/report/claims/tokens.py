"""Rows of the table of tests on the states of tokens."""

from collections.abc import Iterator

from headbook.analysis.accumulators import without_interval
from headbook.metrics import ids
from headbook.report.answers.geometry import OBSERVATION, OWN_NEAREST, observations
from headbook.report.answers.tokens import DIFFERENT, SHARED
from headbook.report.claims.heads import Row, row
from headbook.report.results import StackResults
from headbook.report.token_neighbours import own_tokens, shared_neighbours
from headbook.schema import ResidualPoint


def own_token_rows(results: StackResults) -> Iterator[Row]:
    """Yield the share of each class of tokens nearest to its own vocabulary token, by layer."""
    own = own_tokens(results)
    for kind, shares in own.shares.items() if own else ():
        for layer in range(len(shares.value)):
            yield row(OWN_NEAREST, results.stack.name, (ids.VOCABULARY_RANK, "", kind),
                      layer=layer, value=shares.at(layer))  # fmt: skip


def observation_rows(results: StackResults) -> Iterator[Row]:
    """Yield both numbers of each published observation, in each kind of state."""
    for state in (ResidualPoint.POST, ResidualPoint.MID):
        for tested in observations(results, state):
            (measure, baseline), (value, other) = tested.measure, tested.numbers
            yield row(OBSERVATION, results.stack.name, (tested.metric, measure, tested.label),
                      layer=tested.layer, value=without_interval(value, 0), baseline=baseline,
                      baseline_value=other)  # fmt: skip


def shared_neighbour_rows(results: StackResults) -> Iterator[Row]:
    """Yield the mean number of nearest tokens that occurrences of a word share, by class."""
    found = shared_neighbours(results)
    if found is None:
        return
    for kind, means in found.means.items():
        for layer in range(results.stack.n_layers):
            yield row(SHARED, results.stack.name, (ids.NEAREST_TOKENS, "", kind), layer=layer,
                      value=means.at(layer), baseline=DIFFERENT,
                      baseline_value=found.different.item(layer))  # fmt: skip
