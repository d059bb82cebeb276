"""Outlier dimensions of states: whether they decide a finding, and their names.

A finding on states is stated only if it holds with all dimensions and without the outlier
dimensions of each state (`headbook.study.sums.state_geometry.StateMeans`).
"""

from collections.abc import Sequence

from headbook.report.results import StackResults
from headbook.report.wording import count_text
from headbook.results.formats import word_list
from headbook.schema import ResidualPoint

MAX_NAMED = 3  # outlier dimensions that a sentence names


def outliers(
    results: StackResults, layers: Sequence[int] = (), state: ResidualPoint = ResidualPoint.POST
) -> tuple[int, ...]:
    """Return the outlier dimensions of any of some layers, ascending; empty if not measured.

    Args:
        results: results of the stack.
        layers: layers; all layers if empty.
        state: state of tokens in these layers.
    """
    means = results.study.corpus_sums.state_means.get(results.stack.name)
    if means is None:
        return ()
    of_layers = (means.outliers(layer, state) for layer in layers or range(results.stack.n_layers))
    return tuple(sorted({dimension for found in of_layers for dimension in found}))


def dimension_names(dimensions: Sequence[int]) -> str:
    """Return outlier dimensions in words: by number if they are few, else their count."""
    if not 0 < len(dimensions) <= MAX_NAMED:
        return count_text(len(dimensions), "outlier dimension")
    noun = "dimension" if len(dimensions) == 1 else "dimensions"
    return f"{noun} {word_list([str(dimension) for dimension in dimensions])}"
