"""Facts about heads whose maps have vertical stripes: what is lost without all of them together."""

from headbook.report.ablation import main_target
from headbook.report.facts.groups import STRIPED
from headbook.report.facts.importance import change, measure_of, random_rank
from headbook.report.results import StackResults
from headbook.results.fact import Fact
from headbook.results.sentence import say
from headbook.schema import Replacement
from headbook.study.ablation.effect_tests import AblationVerdict

STARTS = {
    AblationVerdict.NO_CHANGE: "Together they can go, too",
    AblationVerdict.CHANGES: "Together they cannot go",
    AblationVerdict.HARMFUL: "Together they do harm",
}
NOT_CLEAR = " (not clear)"


def striped_together(results: StackResults) -> Fact:
    """Return what changes without all striped heads together, beside random sets of heads.

    The sets have as many heads in each layer, and about the same sum of effects of single heads.
    ``holds`` says whether the output changes; without text if the study did not replace them
    together, or has one such head.
    """
    ablation = results.study.corpus_sums.ablation
    groups = results.study.head_groups
    if ablation is None or groups.empty:
        return Fact("striped_together", holds=False)
    known = groups[
        (groups["stack"] == results.stack.name)
        & (groups["group"] == STRIPED)
        & (groups["replacement"] == str(Replacement.MEAN))
        & (groups["target"] == main_target(ablation))
        & (groups["heads"] > 1)
    ]
    if not len(known):
        return Fact("striped_together", holds=False)
    row = known.iloc[0].to_dict()
    (rank, is_clear), measure = random_rank(row), measure_of(ablation)
    beside = f", {rank} matched by layer and single effect" if rank else ""
    text = say(
        "{start}: without all {heads}, {subject} {verb} by {n:short}{beside}{note}.",
        start=STARTS.get(row["verdict"], "Together"), heads=int(row["heads"]),
        subject=measure.subject, verb=measure.verb, n=change(ablation, row, "head_groups"),
        beside=beside, note=NOT_CLEAR if rank and not is_clear else "",
    )  # fmt: skip
    changes = row["verdict"] in {AblationVerdict.CHANGES, AblationVerdict.HARMFUL}
    return Fact("striped_together", text, holds=changes)
