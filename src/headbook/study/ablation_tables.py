"""Tables of ablation: each entry with its columns, and below the entry its builder."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headbook.schema import AblationTarget, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.results import AblationResults, HeadSetKind, limits_of
from headbook.study.ablation.tasks import TASK_TARGETS, patching_effects
from headbook.study.corpus_sums import CorpusSums
from headbook.study.groups import rows_by_value
from headbook.study.tables import HEAD_COLUMNS, TableSpec

if TYPE_CHECKING:
    from headbook.study.study import Study

# Descriptions of columns that several tables have.
STACK_TEXT = "self; or encoder, decoder, cross"
REPLACEMENT_TEXT = (
    "what stands in place of the heads' outputs: mean (over query tokens of the same class in the "
    "other half of the sentences), zero, uniform (mean of all visible values) or without_sink"
)
TARGET_TEXT = (
    "what of the answer changes: loss or masked_loss (nats per scored token), kl (divergence from "
    "the whole model, nats), logit (of the true token above the mean of all; less is worse), state "
    "or embedding (1 minus the cosine); of tasks label (cross-entropy), accuracy, preference (log "
    "probability of the acceptable sentence minus that of the other), answer (logit minus that of "
    "the wrong answer) or patching, for which a change above 0 is worse"
)

VERDICT_COLUMNS = {
    "margin": "mean change from which on a sentence counts as changed: 1 % of the mean distance "
    "between two sentences (embedding) or tokens of different sentences (state), 0.5 % of the "
    "whole model's loss (losses, kl), or --margin; at least 10 times the change by rounding all "
    "weights to bfloat16. Empty for logits",
    "share_changed": "share of sentences whose own mean change exceeds the margin",
    "share_low": "exact lower bound of this share (Clopper and Pearson), at 95 % over all heads "
    "(or groups) with this replacement together",
    "share_high": "exact upper bound",
    "verdict": "changes: the lower bound is above 20 %; no_change: the upper bound is below 20 %; "
    "harmful: changes, and the loss is surely lower without, tested over all at once; else "
    "undecided. Empty without a margin, and for what was not replaced",
}

EXACT, ESTIMATED = "exact", "estimated"
EFFECT, GRADIENT, GROUP, INTERACTION, DIRECT, REPAIR, PATCHING = (
    "ablation_effect", "gradient_importance", "group_effect", "interaction", "direct_effect",
    "self_repair", "patching_effect",
)  # fmt: skip
ROUNDING = 1e-6  # relative difference up to which effects of two sets of heads count as equal
SHARE_COLUMNS = ("margin", "share_changed", "share_low", "share_high")
NO_VERDICT: dict[str, Any] = dict.fromkeys(SHARE_COLUMNS, np.nan) | {"verdict": ""}


def measured(corpus_sums: CorpusSums) -> tuple[AblationResults, ...]:
    """Return the results of ablation: those of the model's own targets, then those of tasks."""
    own = (corpus_sums.ablation,) if corpus_sums.ablation else ()
    return (*own, *corpus_sums.tasks.values())


HEAD_IMPORTANCE: "TableSpec[Study]" = TableSpec(
    "importance",
    "What the model loses without each head, on a sample: exact where the head was taken away, "
    "else estimated from slopes.",
    {
        "stack": STACK_TEXT,
        "layer": "counted from 0",
        "head": "counted from 0",
        "metric": "ablation_effect, attribution_estimate (the same from slopes), "
        "gradient_importance (output times slope of the loss), direct_effect (by the residual "
        "path alone), self_repair (the part of the direct effect that the rest makes up for) or "
        "patching_effect (the share of a difference of logits that the head carries)",
        "replacement": f"{REPLACEMENT_TEXT}; empty for gradients; of patching denoising (the "
        "clean run's output in the corrupt run) or noising (the other way round)",
        "target": TARGET_TEXT,
        "label": "of gradients: per_token, signed, or layer_normalised; empty for the sum of "
        "absolute values by sentence. Of self_repair: top_2_percent, on the tokens for which "
        "the head says most (threshold from the other half); empty for all tokens. Of "
        "patching_effect: all positions, or the last one",
        "value": "change of the target per scored token",
        "low": "lower end of the 95 % confidence interval, clustered by sentence (bootstrap-t "
        "of up to 500 sentences); empty for estimates",
        "high": "upper end",
        "n_sentences": "sentences that contribute",
        "n_observations": "scored tokens",
        "method": "exact or estimated",
        **VERDICT_COLUMNS,
    },
    lambda study: importance_table(*measured(study.corpus_sums)),
    optional=True,
)


def importance_table(*results: AblationResults | None) -> pd.DataFrame:
    """Return the table with a row for each number of a head; empty without ablation."""
    builders = (_exact, _estimates, _direct, _repaired, _patched)
    rows = [
        row for ablation in filter(None, results) for build in builders for row in build(ablation)
    ]
    order = ["stack", "layer", "head", "metric", "replacement", "target", "label"]
    return pd.DataFrame(rows, columns=[*HEAD_IMPORTANCE.columns]).sort_values(
        order, ignore_index=True
    )


def _exact(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the exact effect of each head that was replaced alone."""
    for replacement in Replacement:
        for target in ablation.targets:
            effects = effect_tests.head_effects(ablation, target, replacement)
            description = _describe_exact(EFFECT, replacement, target)
            yield from effects.assign(**description).to_dict("records")  # type: ignore[misc]


def _describe_exact(metric: str, replacement: str, target: str) -> dict[str, str]:
    """Return the columns of the table that describe an exact number."""
    return {
        "metric": metric, "replacement": str(replacement), "target": str(target), "label": "",
        "method": EXACT,
    }  # fmt: skip


def _direct(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the direct effects of heads on logits, if measured."""
    if AblationTarget.LOGIT not in ablation.counts or np.isnan(ablation.direct).all():
        return
    changes = ablation.ratios_of(AblationTarget.LOGIT, ablation.direct)
    low, high = changes.interval()
    effects = pd.DataFrame(ablation.heads).assign(
        value=changes.value,
        low=low,
        high=high,
        n_sentences=changes.n_sentences,
        n_observations=changes.n_observations,
        **_describe_exact(DIRECT, Replacement.MEAN, AblationTarget.LOGIT),
        **NO_VERDICT,
    )
    yield from effects[np.abs(ablation.direct).sum(0) > 0].to_dict("records")


def _repaired(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the self-repair of each head, on all tokens and on those of largest direct effect."""
    description = _describe_exact(REPAIR, Replacement.MEAN, AblationTarget.LOGIT) | NO_VERDICT
    for row in effect_tests.self_repair(ablation).to_dict("records"):
        yield description | {str(name): value for name, value in row.items()}


def _estimates(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the numbers from gradients; intervals of estimates would not hold and are left out."""
    heads, ratios = pd.DataFrame(ablation.heads), ablation.estimates
    low, high = ratios.interval()
    for k, column in enumerate(ablation.columns):
        exact = column.metric == GRADIENT
        rows = heads.assign(
            **column._asdict(),
            value=ratios.value[:, k],
            low=low[:, k] if exact else np.nan,
            high=high[:, k] if exact else np.nan,
            n_sentences=ratios.n_sentences[:, k],
            n_observations=ratios.n_observations[:, k],
            method=EXACT if exact else ESTIMATED,
            **NO_VERDICT,
        )
        yield from rows.to_dict("records")  # type: ignore[misc]
        if exact and not column.label:
            squares = (rows["value"] ** 2).groupby([rows["stack"], rows["layer"]]).transform("sum")
            value = rows["value"] / np.sqrt(squares)  # 0 over 0 is NaN
            by_layer = rows.assign(label="layer_normalised", value=value, low=np.nan, high=np.nan)
            yield from by_layer.to_dict("records")  # type: ignore[misc]


def _patched(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the patching effects of heads, if results are those of patching."""
    if ablation.targets[0] != AblationTarget.PATCHING:
        return
    for row in patching_effects(ablation).to_dict("records"):
        description = _describe_exact(PATCHING, row.pop("direction"), AblationTarget.PATCHING)
        sample = {"n_observations": row["n_sentences"]}
        yield description | sample | NO_VERDICT | {str(name): value for name, value in row.items()}


HEAD_GROUPS: "TableSpec[Study]" = TableSpec(
    "head_groups",
    "What the model loses without several heads at once.",
    {
        "stack": STACK_TEXT,
        "group": "a family of heads, a layer, heads that share keys; or a pair, for interaction",
        "heads": "how many",
        "metric": "group_effect; or interaction: of two heads, the loss beyond that of each",
        "replacement": REPLACEMENT_TEXT,
        "target": TARGET_TEXT,
        "value": "change of the target per scored token; pairs on the second half of the "
        "sentences, for they were chosen on the first",
        "low": "lower end of the 95 % confidence interval, clustered by sentence (bootstrap-t "
        "of up to 500 sentences, of pairs linearised)",
        "high": "upper end",
        "n_sentences": "sentences that contribute",
        "sum_of_single_effects": "sum over its heads of what each alone loses",
        "random_low": "least of the random sets with as many heads in each layer; of the family "
        "same_keys, of those with the nearest sum of single effects as well",
        "random_high": "largest of them",
        "random_sets": "how many there are: 100 with --importance full, 20 with auto, and for "
        "sink heads and the family same_keys alone",
        "rank": "place of the group among itself and its random sets, 1 for the largest change",
        **VERDICT_COLUMNS,
    },
    lambda study: head_groups_table(*measured(study.corpus_sums)),
    optional=True,
)


def head_groups_table(*results: AblationResults | None) -> pd.DataFrame:
    """Return the table with a row for each group and each pair of heads; empty without ablation."""
    rows = [
        row for ablation in filter(None, results) for row in (*_groups(ablation), *_pairs(ablation))
    ]
    return pd.DataFrame(rows, columns=[*HEAD_GROUPS.columns])


def _groups(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the effect of each group beside its random sets and the effects of single heads."""
    for target in ablation.targets:
        sets = ablation.select(HeadSetKind.RANDOM)
        random: dict[tuple[str, str, str], list[float]] = {}
        for index, value in zip(sets, ablation.ratios(target, sets).value, strict=True):
            _, stack, name, _, replacement_of_set = ablation.sets[index]
            random.setdefault((stack, name, replacement_of_set), []).append(value)
        for replacement in Replacement:
            effects_of_heads = effect_tests.head_effects(ablation, target, replacement)["value"]
            single_effects = effects_of_heads.reindex(range(len(ablation.heads))).to_numpy()
            groups = ablation.select(HeadSetKind.GROUP, replacement)
            effects = effect_tests.set_effects(ablation, target, groups)
            for effect in effects.to_dict("records"):
                group, members = ablation.sets[effect["set"]], ablation.members[effect["set"]]
                random_values = random.get((group.stack, group.name, group.replacement), [])
                limit = effect["value"] + ROUNDING * abs(effect["value"])
                larger = sum(value > limit for value in random_values)
                yield {str(name): value for name, value in effect.items()} | {
                    "stack": group.stack,
                    "group": group.name,
                    "heads": int(members.sum()),
                    "metric": GROUP,
                    "replacement": group.replacement,
                    "target": target,
                    "sum_of_single_effects": single_effects[members].sum(),
                    "random_low": min(random_values, default=np.nan),
                    "random_high": max(random_values, default=np.nan),
                    "random_sets": len(random_values),
                    "rank": larger + 1 if random_values else np.nan,
                }


def _pairs(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the interaction of each pair of heads."""
    for target in ablation.targets:
        for index in ablation.select(HeadSetKind.PAIR):
            pair = ablation.sets[index]
            ratios = effect_tests.interaction(ablation, target, int(index))
            if ratios is not None:
                low, high = ratios.interval()
                joint_effect = ablation.ratios(target, np.array([index])).value[0]
                yield {
                    "stack": pair.stack,
                    "group": pair.name,
                    "heads": 2,
                    "metric": INTERACTION,
                    "replacement": pair.replacement,
                    "target": target,
                    "value": float(ratios.value),
                    "low": float(low),
                    "high": float(high),
                    "n_sentences": int(ratios.n_sentences),
                    "sum_of_single_effects": joint_effect - float(ratios.value),
                    "random_low": np.nan,
                    "random_high": np.nan,
                    "random_sets": 0,
                    "rank": np.nan,
                    **NO_VERDICT,
                }


PRUNING: "TableSpec[Study]" = TableSpec(
    "pruning",
    "What the model loses as ever more heads are taken away, in several orders; the order is "
    "from one half of the sentences, the loss from the other.",
    {
        "stack": f"{STACK_TEXT}; all where heads of all are taken together",
        "order": "ablation_effect (least first; heads that were not replaced by their estimates), "
        "reversed, gradient_importance or attribution_estimate, family (family by family), "
        "random-00 to random-19; to random-04 with --importance auto",
        "replacement": REPLACEMENT_TEXT,
        "target": TARGET_TEXT,
        "share": "of all heads, 0 to 1",
        "value": "change of the target per scored token",
        "low": "lower end of the 95 % confidence interval, clustered by sentence",
        "high": "upper end",
    },
    lambda study: pruning_table(*measured(study.corpus_sums)),
    optional=True,
)


def pruning_table(*results: AblationResults | None) -> pd.DataFrame:
    """Return the table with a row for each pruning step of each order; empty without ablation."""
    rows = [row for ablation in filter(None, results) for row in _steps(ablation)]
    return pd.DataFrame(rows, columns=[*PRUNING.columns])


def _steps(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the pruning steps of each order, each order with a first step without pruned heads."""
    sets = ablation.select(HeadSetKind.ORDER)
    for target in ablation.targets:
        ratios = ablation.ratios(target, sets)
        low, high = ratios.interval(limits_of(target))
        previous_name = ""
        for index, set_index in enumerate(sets):
            order = ablation.sets[set_index]
            row = {
                "stack": order.stack,
                "order": order.name,
                "replacement": order.replacement,
                "target": target,
            }
            if order.name != previous_name:
                yield row | {"share": 0.0, "value": 0.0, "low": 0.0, "high": 0.0}
            previous_name = order.name
            yield row | {
                "share": order.number / len(ablation.heads),
                "value": ratios.value[index],
                "low": low[index],
                "high": high[index],
            }


EFFECT_TOKENS: "TableSpec[Study]" = TableSpec(
    "effect_tokens",
    "The ten tokens at which each head that was taken away is missed most, and the one in the "
    "middle of all, strictly by rank.",
    {
        "stack": STACK_TEXT,
        "layer": "counted from 0",
        "head": "counted from 0",
        "replacement": "what stands in place of the head's outputs",
        "target": TARGET_TEXT,
        "rank": "from 1: largest change first",
        "tokens": "how many were ranked",
        "sentence": "counted from 1",
        "position": "of the token that the target is about, from 0",
        "token": "as in the text",
        "change": "of the target at this token",
        "before": "probability of the true token, or label, in the whole model; for preference "
        "and answer the difference itself; empty for states",
        "after": "the same without the head; for states the cosine with the state in the whole "
        "model",
    },
    lambda study: effect_tokens_table(*measured(study.corpus_sums)),
    optional=True,
)


def effect_tokens_table(*results: AblationResults | None) -> pd.DataFrame:
    """Return the table with a row for each token at which a head is missed."""
    rows = [row for ablation in filter(None, results) for row in _missed(ablation)]
    return pd.DataFrame(rows, columns=[*EFFECT_TOKENS.columns])


def _missed(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield tokens at which heads are missed, with probabilities of true tokens or cosines."""
    target = effect_tests.token_target(ablation)
    for missed in ablation.missed:
        before, after = np.nan, 1 - missed.change
        if target in TASK_TARGETS and target != AblationTarget.LABEL:
            before, after = missed.before, missed.before - missed.change
        elif target in ablation.unablated:
            before, after = np.exp(-missed.before), np.exp(-missed.before - missed.change)
        yield ablation.heads[missed.head]._asdict() | {
            "replacement": str(Replacement.MEAN),
            "target": target,
            "rank": missed.rank,
            "tokens": missed.tokens,
            "sentence": missed.sentence + 1,
            "position": missed.position,
            "token": missed.token,
            "change": missed.change,
            "before": before,
            "after": after,
        }


TASK_FACETS: "TableSpec[Study]" = TableSpec(
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
    lambda study: task_facets_table(study.corpus_sums.tasks.values()),
    optional=True,
)


def task_facets_table(tasks: Iterable[AblationResults]) -> pd.DataFrame:
    """Return the table with a row for each head, target and group of texts; empty without tasks."""
    targets = [(task, target) for task in tasks for target in task.targets]
    frames = [facet_effects(*pair) for pair in targets if pair[1] != AblationTarget.PATCHING]
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
    names = pd.DataFrame(heads, columns=["stack", "layer", "head"])
    for column, values in task.facets.items():
        groups = rows_by_value(values)
        for group in sorted(groups) if len(groups) > 1 else ():
            rows = np.array(groups[group])
            changes, counts = task.changes[target][rows][:, sets], task.counts[target][rows]
            if not counts.sum():
                continue
            low, high = effect_tests.effect_interval(changes, counts, target)
            frame = names.assign(
                target=target, facet=column, group=group, value=changes.sum(0) / counts.sum(),
                low=low, high=high, n_sentences=int((counts > 0).sum()),
            )  # fmt: skip
            yield frame[[*TASK_FACETS.columns]]
