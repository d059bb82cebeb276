"""Success of a model at its tasks, with all of its heads and without some of them. No torch.

Results of tasks are `headbook.study.ablation.AblationResults` with targets of their own. A change
above 0 means that the task gets worse.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, RatioSums
from headbook.analysis.arrays import Floats, divide
from headbook.analysis.intervals import share_bounds, signed_ratio_interval
from headbook.schema import AblationTarget, Replacement
from headbook.study.ablation.results import HEAD_FIELDS, REVERSED, AblationResults, HeadSetKind

TASK_TARGETS = (
    AblationTarget.LABEL, AblationTarget.PREFERENCE, AblationTarget.ANSWER, AblationTarget.PATCHING,
)  # fmt: skip
LABEL_MARGIN = 0.005  # margin of labels, as a share of the whole model's cross-entropy
DIFFERENCE_MARGIN = 0.05  # margin of differences, as a share of their mean absolute value
SUCCESS = "share right"  # metric of the table of tests for the success at a task
LOST_SHARE = 0.5  # share of the advantage over chance without which a task rests on the heads
EVEN_CHANCE = 0.5  # success by guessing which of two sentences or answers is right
TAIL = 0.975  # confidence of each end of a 95 % interval

# Patches of a head's output: direction, and the positions at which it is replaced.
DENOISING, NOISING = "denoising", "noising"
PATCHING_ALL, PATCHING_LAST = "all", "last"
PATCHES = tuple(
    f"{way}/{at}" for way in (DENOISING, NOISING) for at in (PATCHING_ALL, PATCHING_LAST)
)
CLEAN, CORRUPT = "clean", "corrupt"  # keys of `AblationResults.unablated` of patching


class Success(NamedTuple):
    """Share of the observations that a model gets right.

    Attributes:
        value: the share: labels, pairs with a preference above 0, or answers before wrong ones.
        low, high: ends of its 95 % interval, clustered by sentence.
        chance: share of the most frequent label, or one half.
        n_sentences: number of texts or pairs.
        n_observations: number of labels, pairs or answers.
    """

    value: float
    low: float
    high: float
    chance: float
    n_sentences: int
    n_observations: int

    @property
    def beats_chance(self) -> bool:
        """Whether the interval lies above chance."""
        return self.low > self.chance


def is_task(ablation: AblationResults) -> bool:
    """Whether results are those of a task, not of the model's own targets."""
    return ablation.targets[0] in TASK_TARGETS


def success(task: AblationResults) -> Success:
    """Return how often the whole model is right."""
    rows = np.ones(len(task.content_hash), bool)
    right, counts = _right(task), task.counts[task.targets[0]]
    value, low, high = _share(right, counts, rows)
    return Success(
        value, low, high, chance(task), int((counts > 0).sum()), round(float(counts.sum()))
    )


def chance(task: AblationResults) -> float:
    """Return the success by guessing: the share of the most frequent label, or one half."""
    if not task.truth:
        return EVEN_CHANCE
    totals = [float(counts.sum()) for counts in task.truth.values()]
    return max(totals) / sum(totals)


def task_margin(task: AblationResults, target: str, *, reported: bool = False) -> float:
    """Return the change of a task's target from which on a sentence counts as changed.

    The margin is 0.5 % of the whole model's cross-entropy, or 5 % of the mean absolute difference
    of the whole model. There is no margin (NaN), and so no verdict, for accuracy and patching, and
    if the model is no better than chance.

    Args:
        task: results of the task.
        target: target of the margin.
        reported: whether to take the held-out half of the sentences.
    """
    if target in {AblationTarget.ACCURACY, AblationTarget.PATCHING}:
        return float("nan")
    if not success(task).beats_chance:
        return float("nan")
    if target == AblationTarget.LABEL:
        return LABEL_MARGIN * task.loss(target, reported=reported)
    rows = task.half == HELD_OUT if reported else np.ones(len(task.content_hash), bool)
    differences = np.abs(task.unablated[target][rows])
    return DIFFERENCE_MARGIN * float(differences.mean()) if rows.any() else float("nan")


def success_without(task: AblationResults) -> pd.DataFrame:
    """Return the success without growing sets of the heads of largest effect, on the held-out half.

    Columns ``number, heads`` (a tuple of head names), ``share`` of all heads, ``before`` (of the
    whole model), ``after, low, high``. Empty without such sets.
    """
    rows = [*_growing(task)] if task.targets[0] != AblationTarget.PATCHING else []
    return pd.DataFrame(
        rows, columns=["number", "heads", "share", "before", "after", "low", "high"]
    )


def rests_on(task: AblationResults) -> Mapping[str, Any] | None:
    """Return the smallest row of `success_without` that costs half of the advantage over chance.

    None if the model is no better than chance, or no set of heads costs so much.
    """
    found = success(task)
    if not found.beats_chance:
        return None
    for row in success_without(task).to_dict("records"):
        advantage = row["before"] - found.chance
        if advantage > 0 and row["before"] - row["after"] >= LOST_SHARE * advantage:
            return {str(name): value for name, value in row.items()}
    return None


def patching_effects(task: AblationResults) -> pd.DataFrame:
    """Return the share of the difference of logits that each patched head restores or destroys.

    Columns ``stack, layer, head, direction, label, value, low, high, n_sentences``; values are
    ratios of sums over prompts.
    """
    frames = []
    for patch in PATCHES:
        sets = task.select(HeadSetKind.HEAD, patch)
        changes = task.changes[AblationTarget.PATCHING][:, sets]
        whole = task.unablated[CLEAN] - task.unablated[CORRUPT]
        value, low, high = signed_ratio_interval(
            changes, np.broadcast_to(whole[:, None], changes.shape)
        )
        heads = [task.heads[index] for index in task.first_heads(sets)]
        direction, _, label = patch.partition("/")
        frames.append(
            pd.DataFrame(heads, columns=[*HEAD_FIELDS]).assign(
                direction=direction, label=label, value=value, low=low, high=high,
                n_sentences=len(whole),
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def _right(task: AblationResults, index: int | None = None) -> Floats:
    """Return the number of right observations of each sentence, perhaps without a set of heads.

    Args:
        task: results of the task.
        index: index of the set in `AblationResults.sets`; None for the whole model.
    """
    target = task.targets[0]
    if target == AblationTarget.LABEL:
        accuracy = AblationTarget.ACCURACY
        right = task.unablated[accuracy]
        return right if index is None else right - task.changes[accuracy][:, index]
    unablated = task.unablated[CLEAN if target == AblationTarget.PATCHING else target]
    after = unablated if index is None else unablated - task.changes[target][:, index]
    return np.where(np.isnan(after), np.nan, after > 0)


def _growing(task: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the rows of `success_without`."""
    held_out = task.half == HELD_OUT
    counts, right = task.counts[task.targets[0]], _right(task)
    for index in task.select(HeadSetKind.ORDER, Replacement.MEAN):
        if task.sets[index].name != REVERSED or not counts[held_out].sum():
            continue
        after, low, high = _share(_right(task, int(index)), counts, held_out)
        heads = tuple(task.heads[head] for head in np.flatnonzero(task.members[index]))
        yield {
            "number": len(heads),
            "heads": heads,
            "share": len(heads) / len(task.heads),
            "before": _share(right, counts, held_out)[0],
            "after": after,
            "low": low,
            "high": high,
        }


def _share(right: Floats, counts: Floats, rows: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Return the share of right observations of some sentences, with its 95 % interval.

    The interval is exact (Clopper & Pearson 1934) if no sentence has several observations.
    """
    right, counts = right[rows], counts[rows]
    value = float(divide(right.sum(), counts.sum()))
    if (counts <= 1).all():
        low, high = share_bounds(np.round(right.sum()), counts.sum(), TAIL)
    else:
        ratios = RatioSums.of(right, counts, counts, np.zeros(len(right), np.int64))
        low, high = ratios.interval((0.0, 1.0))
    return value, float(low), float(high)
