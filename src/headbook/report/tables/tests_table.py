"""The table `tests`, which holds what pages claim: its columns and its builder.

Numbers of all sentences are in the tables of heads and layers, too. Numbers of the held-out split,
on which a selected head or layer is reported, are in this table alone.

To add a row, give a fact evidence and enter the fact in `FACTS`. Numbers that pages print as
tables or charts have functions that yield `Tested` in `OF_STACK` or `OF_STUDY`.
"""

from collections.abc import Callable, Iterator

import pandas as pd

from headbook.report.answers.overview.attention_claims import overview_tests
from headbook.report.answers.overview.stripes import striped_outputs
from headbook.report.facts.alike import mean_distances_fact
from headbook.report.facts.depth import (
    correlations,
    depth_rows,
    given_by_depth,
    received_by_depth,
)
from headbook.report.facts.function_tests import function_tests
from headbook.report.facts.language.alignment import aligned_heads
from headbook.report.facts.states.geometry import hub_tokens, most_replaced, own_nearest
from headbook.report.facts.states.tokens import shared_tokens
from headbook.report.facts.states.travel import function_shift, published_observations, walk_back
from headbook.report.facts.tested.ablation import ablation_tests, tasks_of_model, whole_model
from headbook.report.facts.tested.extremes import (
    extreme_heads,
    extreme_layers,
    median_rows,
    quantiles,
    trees_of_layers,
)
from headbook.report.facts.tested.relations import relation_rows
from headbook.report.facts.texts.regions import between_regions
from headbook.report.facts.words import given_by_words
from headbook.report.results import StackResults, stack_results
from headbook.results.fact import Fact, Tested
from headbook.study.study import Study
from headbook.study.tables import ESTIMATE_COLUMNS, LAYER_COLUMNS, MAX_PLAIN_CSV_BYTES, TableSpec

FACTS: tuple[Callable[[StackResults], Fact], ...] = (
    mean_distances_fact,
    given_by_words,
    depth_rows,
    received_by_depth,
    given_by_depth,
    correlations,
    aligned_heads,
    own_nearest,
    most_replaced,
    hub_tokens,
    published_observations,
    walk_back,
    function_shift,
    shared_tokens,
    between_regions,
    striped_outputs,
)
OF_STACK: tuple[Callable[[StackResults], Iterator[Tested]], ...] = (
    relation_rows,
    function_tests,
    extreme_layers,
    trees_of_layers,
    extreme_heads,
    median_rows,
    quantiles,
    overview_tests,
)
OF_STUDY: tuple[Callable[[Study], Iterator[Tested]], ...] = (
    whole_model,
    tasks_of_model,
    ablation_tests,
)
INTEGER_COLUMNS = ("layer", "head", "n_sentences")


def tests_table(study: Study) -> pd.DataFrame:
    """Return the table of tests of a study; columns as in ``tests.csv``."""
    rows = [tested.columns for tested in _tested(study)]
    table = pd.DataFrame(rows, columns=[*TESTS.columns])
    return table.astype(dict.fromkeys(INTEGER_COLUMNS, "Int64"))


def _tested(study: Study) -> Iterator[Tested]:
    """Yield all rows: of each stack, the evidence of facts last, then of the study."""
    for results in stack_results(study).values():
        for make_rows in OF_STACK:
            yield from make_rows(results)
        for fact in FACTS:
            yield from results.cached(fact).evidence
    for make_rows_of_study in OF_STUDY:
        yield from make_rows_of_study(study)


TESTS: TableSpec[Study] = TableSpec(
    "tests",
    "What pages claim, with baseline, difference and p: relations, effects of heads, the "
    "number of each head's function beside its threshold, and heads and layers that were chosen "
    "on one half of the sentences, with their numbers on the other.",
    {
        "claim": "what is claimed; p of the highest head of many is that of its difference to the "
        "baseline, the best head that a paired test tells from it",
        "stack": f"{LAYER_COLUMNS['stack']}; all where heads of all are taken together",
        "layer": "counted from 0; empty for several layers",
        "head": "counted from 0; empty for several heads",
        "metric": "as in the addresses of the metrics' pages, or in the tables on importance",
        "view": "keys: raw (all), nosink (sink masked) or renorm (sink masked and "
        "renormalised); of effects of heads what stands in place of their outputs",
        "label": "what the value is about where a metric has several; of "
        "effects of heads the target",
        "split": "choice: the half of the sentences on which heads, layers and baselines are "
        "chosen; held_out: the other half; all: all sentences",
        "value": "in the metric's unit; shares from 0 to 1",
        "low": f"{ESTIMATE_COLUMNS['low']}; empty without one",
        "high": "upper end",
        "baseline": "the rule's name, for example uniform attention or fixed offset +1",
        "baseline_value": "what the baseline reaches on the same sentences",
        "difference": "value minus baseline",
        "difference_low": "lower end of its 95 % confidence interval, paired by sentence, or, for "
        "outputs of key-driven heads, from both half-widths; empty where it was not tested",
        "difference_high": "upper end",
        "p": "family-wise over all heads, relations and directions, or over all heads; empty "
        "where it was not tested",
        "n_sentences": "sentences that contribute",
        "n_observations": "observations behind the value, for example words or query tokens",
    },
    tests_table,
    optional=True,
    plain_csv_limit=MAX_PLAIN_CSV_BYTES,
)
