"""The table `tests`, which holds the claims of pages: its columns and its builder.

Numbers of all sentences are in the tables of heads and layers, too. Numbers of the held-out split,
on which a selected head or layer is reported, are in this table alone.

To add claims, write a function that yields rows (`headbook.report.claims.heads.row`) and enter it
in `OF_STACK` or `OF_STUDY`.
"""

from collections.abc import Callable, Iterator

import pandas as pd

from headbook.report.claims.ablation import NO_HEAD, ablation_tests, tasks_of_model, whole_model
from headbook.report.claims.heads import (
    Row,
    extreme_heads,
    extreme_layers,
    functions,
    median_rows,
    quantiles,
    trees_of_layers,
)
from headbook.report.claims.overview import overview_rows
from headbook.report.claims.relations import relation_rows, relations_by_layer, rules_of_relations
from headbook.report.claims.tokens import observation_rows, own_token_rows, shared_neighbour_rows
from headbook.report.facts import FACTS
from headbook.report.results import StackResults, stack_results
from headbook.study.study import Study
from headbook.study.tables import ESTIMATE_COLUMNS, LAYER_COLUMNS, MAX_PLAIN_CSV_BYTES, TableSpec

OF_STACK: tuple[Callable[[StackResults], Iterator[Row]], ...] = (
    relation_rows,
    relations_by_layer,
    rules_of_relations,
    functions,
    extreme_layers,
    trees_of_layers,
    extreme_heads,
    median_rows,
    quantiles,
    own_token_rows,
    observation_rows,
    overview_rows,
    shared_neighbour_rows,
)
OF_STUDY: tuple[Callable[[Study], Iterator[Row]], ...] = (
    whole_model,
    tasks_of_model,
    ablation_tests,
)
INTEGER_COLUMNS = ("layer", "head", "n_sentences")


def tests_table(study: Study) -> pd.DataFrame:
    """Return the table of tests of a study; columns as in ``tests.csv``."""
    rows = [
        row
        for results in stack_results(study).values()
        for make_rows in (*OF_STACK, _evidence)
        for row in make_rows(results)
    ]
    rows += [row for make_rows in OF_STUDY for row in make_rows(study)]
    table = pd.DataFrame(rows, columns=[*TESTS.columns]).astype(
        dict.fromkeys(INTEGER_COLUMNS, "Int64")
    )
    places = table[["layer", "head"]]
    return table.assign(**places.mask(places == NO_HEAD))


def _evidence(results: StackResults) -> Iterator[Row]:
    """Yield the evidence of all facts."""
    for fact in FACTS:
        yield from (tested.columns for tested in results.cached(fact).evidence)


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
        "difference_low": "lower end of its 95 % confidence interval, paired by sentence; "
        "empty where it was not tested",
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
