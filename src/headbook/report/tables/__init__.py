"""All tables of a study (`STUDY_TABLES`); importing this package completes `Study.tests`.

The package `headbook.study` is a layer below the report and cannot import its rules. So the tables
of claims and of functions are entered in `headbook.study.tables.TABLES_OF_REPORT` here;
`headbook.Study`, `headbook.collect` and `headbook.render` import this package.
"""

from headbook.report.alignment import ALIGNMENTS
from headbook.report.facts.functions import FUNCTION_COLUMNS, functions_table
from headbook.report.results import stack_results
from headbook.report.tables.few_table import FEW_SENTENCES
from headbook.report.tables.tests_table import TESTS
from headbook.study.ablation_tables import (
    EFFECT_TOKENS,
    HEAD_GROUPS,
    HEAD_IMPORTANCE,
    PRUNING,
    TASK_FACETS,
)
from headbook.study.circuits import COMPOSITION, EXEMPLAR_TOKENS, PROMOTED_TOKENS
from headbook.study.study import Study, merge
from headbook.study.tables import (
    COMPARED,
    CONTROLS,
    GROUPS,
    HEADS,
    LAYERS,
    MINIMAL_PAIRS,
    PAIRS,
    TABLES_OF_REPORT,
    TableSpec,
)
from headbook.study.token_tables import (
    CLASS_FLOWS,
    GEOMETRY,
    NEAREST,
    OUTLIER_TABLE,
    PUBLIC_DEMO,
    TOKENS,
    TOP_TOKENS,
    TYPES,
    USES,
    WORDS,
)

__all__ = ["STUDY_TABLES", "Study", "merge"]

FUNCTIONS: TableSpec[Study] = TableSpec(
    "functions",
    "The function of every head, with the number that decided.",
    FUNCTION_COLUMNS,
    lambda study: functions_table(stack_results(study)),
)
TABLES_OF_REPORT.update({table.name: table for table in (TESTS, FUNCTIONS)})
# All tables of a study by name, in the order of the Data page.
STUDY_TABLES: dict[str, TableSpec[Study]] = {
    table.name: table
    for table in (
        HEADS, FUNCTIONS, LAYERS, CONTROLS, PAIRS, ALIGNMENTS, GROUPS, MINIMAL_PAIRS, GEOMETRY,
        OUTLIER_TABLE, COMPARED, TOP_TOKENS, CLASS_FLOWS, TOKENS, TYPES, NEAREST, USES,
        PUBLIC_DEMO, HEAD_IMPORTANCE, HEAD_GROUPS, PRUNING, EFFECT_TOKENS, TASK_FACETS, COMPOSITION,
        PROMOTED_TOKENS, EXEMPLAR_TOKENS, TESTS, WORDS, FEW_SENTENCES,
    )
}  # fmt: skip
