"""Tables of tasks: effects of heads by group of sentences."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headbook.schema import AblationTarget, Replacement
from headbook.study.ablation import HEAD_FIELDS, AblationResults, HeadSetKind
from headbook.study.ablation_tests import effect_interval
from headbook.study.corpus_sums import CorpusSums
from headbook.study.groups import rows_by_value
from headbook.study.tables import HEAD_COLUMNS, Table

if TYPE_CHECKING:
    from headbook.study.study import Study

TASK_FACETS: "Table[Study]" = Table(
    "task_facets",
    "What heads are for in a task, by group of texts: the change of the task's target without "
    "each head that was taken away.",
    HEAD_COLUMNS
    | {
        "target": "label, accuracy, preference or answer; a change above 0 is worse",
        "facet": "metadata column",
        "group": "value that the texts or pairs share",
        "value": "change of the target per text, pair or label, with the head's mean in its place",
        "low": "lower end of the 95 % confidence interval, clustered by text or pair",
        "high": "upper end",
        "n_sentences": "texts or pairs of the group",
    },
    lambda study: task_facets_table(study.corpus_sums),
    optional=True,
)


def task_facets_table(corpus_sums: CorpusSums) -> pd.DataFrame:
    """Return the table with a row for each head, target and group of texts; empty without tasks."""
    frames = [
        facet_effects(task, target)
        for name, task in corpus_sums.tasks.items()
        if name != AblationTarget.PATCHING
        for target in task.targets
    ]
    return pd.concat(frames, ignore_index=True) if frames else TASK_FACETS.empty


def facet_effects(task: AblationResults, target: str) -> pd.DataFrame:
    """Return the effects of heads replaced by their mean in each group of sentences.

    Columns are those of the table `TASK_FACETS`.
    """
    frames = [*_effects_by_group(task, target)]
    return pd.concat(frames, ignore_index=True) if frames else TASK_FACETS.empty


def _effects_by_group(task: AblationResults, target: str) -> Iterator[pd.DataFrame]:
    sets = task.select(HeadSetKind.HEAD, Replacement.MEAN)
    heads: list[Any] = [task.heads[index] for index in task.first_heads(sets)]
    names = pd.DataFrame(heads, columns=[*HEAD_FIELDS])
    for column, values in task.facets.items():
        groups = rows_by_value(values)
        for group in sorted(groups) if len(groups) > 1 else ():
            rows = np.array(groups[group])
            changes, counts = task.changes[target][rows][:, sets], task.counts[target][rows]
            if not counts.sum():
                continue
            low, high = effect_interval(changes, counts, target)
            frame = names.assign(
                target=target, facet=column, group=group, value=changes.sum(0) / counts.sum(),
                low=low, high=high, n_sentences=int((counts > 0).sum()),
            )  # fmt: skip
            yield frame[[*TASK_FACETS.columns]]
