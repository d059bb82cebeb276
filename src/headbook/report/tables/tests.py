"""The table of tests: every claim of pages with its value, baseline, difference and p.

Numbers of all sentences stand in the tables of heads and layers, too. Those of the held-out half,
on which a chosen head or layer is reported, stand here alone.

To add claims, write a function that yields rows (`headbook.report.tables.heads.row`) and enter it
in `OF_STACK` or `OF_STUDY`.
"""

from collections.abc import Callable, Iterator

import pandas as pd

from headbook.report.results import StackResults, stack_results
from headbook.report.tables.ablation import NO_HEAD, ablation_tests, whole_model
from headbook.report.tables.heads import (
    COLUMNS,
    Row,
    evidence,
    extreme_heads,
    heads_beyond,
    layer_run_rows,
    median_rows,
    pieces_of_words,
    quantiles,
    trees_of_layers,
    types,
)
from headbook.report.tables.relations import beside_relations, relation_rows, relations_by_layer
from headbook.study.study import Study

OF_STACK: tuple[Callable[[StackResults], Iterator[Row]], ...] = (
    relation_rows,
    relations_by_layer,
    beside_relations,
    types,
    evidence,
    layer_run_rows,
    trees_of_layers,
    heads_beyond,
    pieces_of_words,
    extreme_heads,
    median_rows,
    quantiles,
)
OF_STUDY: tuple[Callable[[Study], Iterator[Row]], ...] = (
    whole_model,
    ablation_tests,
)
WHOLE = ("layer", "head", "n_sentences")


def tests_table(study: Study) -> pd.DataFrame:
    """Return the table of a study; columns as in ``tests.csv``."""
    rows = [
        row for each in stack_results(study).values() for make in OF_STACK for row in make(each)
    ]
    rows += [row for make in OF_STUDY for row in make(study)]
    table = pd.DataFrame(rows, columns=[*COLUMNS]).astype(dict.fromkeys(WHOLE, "Int64"))
    places = table[["layer", "head"]]
    return table.assign(**places.mask(places == NO_HEAD))
