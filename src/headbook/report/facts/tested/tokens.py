"""Rows of the table of tests on the states of tokens."""

from collections.abc import Iterator

from headbook.analysis.accumulators import without_interval
from headbook.metrics import ids
from headbook.report.answers.geometry import OBSERVATION, OWN_NEAREST, observations
from headbook.report.answers.tokens import DIFFERENT, SHARED
from headbook.report.facts.fact import Tested
from headbook.report.results import StackResults
from headbook.report.token_neighbours import own_tokens, shared_neighbours
from headbook.schema import ResidualPoint


def own_token_rows(results: StackResults) -> Iterator[Tested]:
    """Yield the share of each class of tokens nearest to its own vocabulary token, by layer."""
    shares_of_own = own_tokens(results)
    for kind, shares in shares_of_own.shares.items() if shares_of_own else ():
        for layer in range(len(shares.value)):
            yield Tested(OWN_NEAREST, results.stack.name, ids.VOCABULARY_RANK, "", kind,
                         shares.at(layer), layer)  # fmt: skip


def observation_rows(results: StackResults) -> Iterator[Tested]:
    """Yield both numbers of each published observation, in each kind of state."""
    for state in (ResidualPoint.POST, ResidualPoint.MID):
        for tested in observations(results, state):
            (measure, baseline), (value, other) = tested.measure, tested.numbers
            yield Tested(
                OBSERVATION, results.stack.name, tested.metric, measure, tested.label,
                without_interval(value, 0), tested.layer, baseline=baseline, baseline_value=other,
            )  # fmt: skip


def shared_neighbour_rows(results: StackResults) -> Iterator[Tested]:
    """Yield the mean number of nearest tokens that occurrences of a word share, by class."""
    neighbours = shared_neighbours(results)
    if neighbours is None:
        return
    for kind, means in neighbours.means.items():
        for layer in range(results.stack.n_layers):
            yield Tested(
                SHARED, results.stack.name, ids.NEAREST_TOKENS, "", kind, means.at(layer), layer,
                baseline=DIFFERENT, baseline_value=neighbours.different.item(layer),
            )  # fmt: skip
