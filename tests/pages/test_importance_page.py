"""The page of importance: sentences that the numbers do and do not support, and what it shows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from headbook.report.answers.ablation.importance import (
    effect_row,
    estimates_note,
    harmful_note,
    heads_answer,
    importance_answer,
    pruning_answer,
    random_rank,
    removable_answer,
    sink_answer,
    sink_rows,
    verdict_counter,
    verdicts_answer,
)

import hand_model
import headbook
from ablation_results import LOSS, SENTENCES, TOKENS, ablation_results, around
from headbook.analysis.accumulators import HELD_OUT
from headbook.charts.ablation import (
    GroupEffect,
    effect_ends,
    effect_step,
    effect_ticks,
    group_plot,
)
from headbook.charts.one_head import EffectScale
from headbook.pages.head_parts.effect import ablation_section
from headbook.pages.importance import (
    ImportancePage,
    has_importance,
    importance_page,
    plain_verdict,
)
from headbook.pages.parts.page import Sentence, plain_text
from headbook.pages.parts.table import NumberCell, words_cell
from headbook.report.ablation import (
    HEAVY_NAME,
    SHORT_VERDICTS,
    backed_up,
    head_changes,
    layer_ratio,
    verdict_text,
)
from headbook.report.findings.ablation import ablation_summary, answer
from headbook.report.findings.finding import Link
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import stack_results
from headbook.schema import AblationTarget, heads_of
from headbook.site.sites import StudySite
from headbook.site.writer import page_writer
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import AblationVerdict
from headbook.study.ablation.results import AblationReason, AblationResults, HeadSet, HeadSetKind
from headbook.study.ablation_tables import HEAD_GROUPS, PRUNING, head_groups_table, pruning_table
from headbook.study.study import Study
from html_pages import elements, html_of, text_of
from sites import Site


def plain(parts: Sentence) -> str:
    return plain_text(parts).replace("\u202f", " ")


def with_layers(given: AblationResults, effects: np.ndarray) -> AblationResults:
    """Add one group for each layer. *Shape* of the effects: ``(sentence, layer)``."""
    target = effect_tests.ranked_target(given)
    groups = tuple(
        HeadSet(HeadSetKind.GROUP, "self", f"layer {n}", 0, "mean") for n in range(effects.shape[1])
    )
    members = np.ones((len(groups), len(given.heads)), bool)
    return replace(
        given,
        sets=(*given.sets, *groups),
        members=np.concatenate([given.members, members]),
        changes={target: np.concatenate([given.changes[target], effects * TOKENS], 1)},
    )


STATE = AblationTarget.STATE


def test_a_layer_answers_if_its_effect_is_above_that_of_all_others() -> None:
    """The ratio is that of the numbers of the chart, which rest on all sentences."""
    heads = ablation_results(around(0.05, 0.0), STATE)
    effects = around(0.02, 0.3, 0.03, 0.01, spread=0.002)
    given = with_layers(heads, effects)
    assert plain(importance_answer(given)) == (
        "Without layer 1, the last states change 10 times as much as without any other layer."
    )
    assert plain(importance_answer(given, {"self": 1})) == (
        "Without layer 1, the last, the last states change 10 times as much as without any other "
        "layer."
    )
    ratio = layer_ratio(given, "self", STATE)
    assert ratio is not None
    expected = effects[:, 1].sum() / effects[:, 2].sum()
    assert (ratio.first, ratio.second) == (1, 2)
    assert ratio.value == pytest.approx(expected)
    assert ratio.low < expected < ratio.high
    alike = with_layers(heads, around(0.3, 0.3, 0.03, spread=0.2))
    assert "layer" not in plain(importance_answer(alike))
    assert "layer" not in plain(importance_answer(heads))
    one = with_layers(heads, around(0.3))
    assert layer_ratio(one, "self", STATE) is None


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.05, 0.0, 0.001), "Each alone, 2 of the 3 heads that were replaced can go; these are "
                             "L0·H1 and L0·H2."),
        ((0.05, 0.0), "One of 2 heads replaced can go alone: L0·H1."),
        ((0.0,) * 7, "Each alone, 7 of the 7 heads that were replaced can go; least changes "
                     "without "),
        ((0.05, 0.05), ""),
    ],
)  # fmt: skip
def test_heads_that_could_go_are_named(means: tuple[float, ...], expected: str) -> None:
    """Those of smallest change come first, and at most five have a name."""
    found = removable_answer(ablation_results(around(*means, spread=0.0005)))
    text = plain(found)
    assert text.startswith(expected)
    assert bool(text) == bool(expected)
    assert sum(isinstance(part, Link) for part in found) <= 6


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.05, 0.0, -0.05, 0.0, 0.0), "Replaced one at a time, 2 of 5 heads change the output; "
                                       "the others can go alone."),
        ((0.05, 0.05), "Each head counts: 2 of 2 heads change the output when replaced one at a "
                       "time."),
        ((0.0, 0.0), "Little without any one head: 2 of 2 heads can go alone."),
    ],
)  # fmt: skip
def test_verdicts_answer_without_a_layer(means: tuple[float, ...], expected: str) -> None:
    given = ablation_results(around(*means, spread=0.003))
    assert plain(importance_answer(given)) == expected
    assert plain(verdicts_answer(given)) == expected


def test_rarer_and_commoner_verdicts_are_told_apart() -> None:
    """A fifth of the sentences change: the bounds hold it."""
    changes = np.zeros((SENTENCES, 4))
    changes[::5] = 0.05
    text = plain(verdicts_answer(ablation_results(changes)))
    assert text == "Not known: 60 sentences decide for none of the heads that were replaced."
    changes[:, 0] = 0.05
    assert plain(verdicts_answer(ablation_results(changes))) == (
        "Replaced one at a time, 1 of 4 heads changes the output; the others are undecided."
    )
    changes[:, 1] = 0.0
    assert plain(verdicts_answer(ablation_results(changes))).endswith("most others are undecided.")
    none = replace(ablation_results(changes), sets=(), members=np.zeros((0, 4), bool),
                   changes={AblationTarget.LOSS: np.zeros((SENTENCES, 0))})  # fmt: skip
    assert plain(importance_answer(none)) == (
        "Not known: on these 60 sentences, no head has a verdict."
    )


def test_the_largest_head_is_reported_on_the_other_half() -> None:
    given = ablation_results(around(0.05, 0.0, 0.01, spread=0.003))
    reported = given.changes[AblationTarget.LOSS][given.half == HELD_OUT, 0].mean() / TOKENS
    text = plain(heads_answer(given))
    assert text.startswith("L0·H0 most: without it its loss changes by ")
    assert f"{100 * reported / LOSS:.1f} % of the loss." in text
    small = ablation_results(around(0.0, 0.001, spread=0.003))
    assert heads_answer(small) == verdicts_answer(small)
    layers = with_layers(ablation_results(around(0.05, 0.0), STATE), around(0.3, 0.01))
    assert heads_answer(layers) == verdicts_answer(layers)


def test_harmful_heads_are_named_with_their_test() -> None:
    given = ablation_results(around(0.05, 0.0, -0.05, 0.01, spread=0.003))
    assert plain(harmful_note(given)) == "The loss is lower without L0·H2 (p < 0.05 family-wise)."
    assert harmful_note(ablation_results(around(0.05, 0.0))) == ()


def some_replaced(
    given: AblationResults, replaced: list[int], chosen: list[int]
) -> AblationResults:
    """Leave only some heads with exact changes."""
    changes = given.changes[AblationTarget.LOSS][:, replaced]
    return replace(
        given, chosen=np.array(chosen), sets=tuple(given.sets[n] for n in replaced),
        members=given.members[replaced], changes={AblationTarget.LOSS: changes},
    )  # fmt: skip


def test_exact_effects_are_told_from_estimates() -> None:
    given = some_replaced(ablation_results(around(0.05, 0.0, 0.01)), [0, 2], [1, 0, 2])
    changes = head_changes(given)
    assert [*changes["method"]] == ["exact", "estimated", "exact"]
    texts = [
        effect_row(given, row, exact=row["method"] == "exact") for row in changes.to_dict("records")
    ]
    assert [text.text.startswith("≈") for text in texts] == [False, True, False]
    assert [dict(text.row)["metric"] for text in texts] == [
        "ablation_effect", "attribution_estimate", "ablation_effect",
    ]  # fmt: skip


def test_the_audit_is_said_where_heads_have_estimates_alone() -> None:
    effects = np.tile(np.array([0.05, 0.0, 0.03, 0.001, 0.0, 0.0]), (SENTENCES, 1))
    given = ablation_results(effects + around(*[0.0] * 6, spread=1e-3))
    some = some_replaced(given, [0, 1, 2, 3, 4], [1, 2, 2, 2, 2, 0])
    assert plain(estimates_note(some)) == (
        "On 4 heads picked at random, estimates and exact changes have a rank correlation of 1.00. "
        "None of these changes more than the margin although the estimate does not; of the heads "
        "with estimates alone at most 52.7 % do, with 95\u00a0% confidence."
    )
    assert estimates_note(given) == ()


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ((0.3, 40.0), (0.2, 50.0)),
        ((0.5, 2.0), (0.5, 2.0)),
        ((1e-9, 40.0), (0.05, 50.0)),
        ((7.0,), (5.0, 10.0)),
        ((1.0,), (0.1, 1.0)),
        ((0.0, -1.0, np.nan), (0.1, 1.0)),
    ],
)
def test_logarithmic_scales_have_round_ends(
    values: tuple[float, ...], ends: tuple[float, float]
) -> None:
    found = effect_ends(values)
    assert found == pytest.approx(ends)
    ticks = [value for value, _ in effect_ticks(found)]
    assert ticks == sorted(ticks)
    assert found[0] * 0.99 <= ticks[0]
    assert ticks[-1] <= found[1] * 1.01
    assert len(ticks) <= 9


def test_fills_tell_apart_layers_that_differ_by_orders_of_magnitude() -> None:
    ends = (0.2, 50.0)
    fills = [effect_step(value, ends) for value in (np.nan, -1, 0.1, 0.25, 0.6, 2, 5, 12, 30, 90)]
    assert fills == ["q0", "q0", "q0", "q0", "q1", "q2", "q4", "q5", "q6", "q6"]


def steps(high: list[float]) -> pd.DataFrame:
    rows = []
    for order in ("ablation_effect", "random-00", "random-01"):
        bounds = high if order == "ablation_effect" else [0, 0.015, 0.5, 1]
        for share, bound in zip((0, 0.05, 0.1, 0.15), bounds, strict=True):
            rows.append(("self", order, "mean", AblationTarget.LOSS, share, 0.0, 0.0, bound))
    return pd.DataFrame(rows, columns=[*PRUNING.columns])


def test_how_many_heads_can_go_stands_beside_the_random_order() -> None:
    """At 1 % of the loss, which is 2 nats."""
    given = ablation_results(around(0.05, 0.0))
    assert plain(pruning_answer(given, steps([0, 0.01, 0.019, 0.03]))) == (
        "10.0 % of all heads, before the change may exceed a margin of 1.00 % of the loss; in "
        "random order 5.0 %."
    )
    assert plain(pruning_answer(given, steps([0, 0.03, 0.01, 0.03]))) == (
        "Hardly any: even without the 5.0 % of smallest effect, the change may exceed a margin of "
        "1.00 % of the loss."
    )


def heavy(mean: str, without: str, zero: float, band: float) -> pd.DataFrame:
    """Three lines of a group, whose verdicts and change by zero are given."""
    rows = []
    for name, verdict, value in (
        ("mean", mean, 0.05), ("without_sink", without, 0.001), ("zero", "changes", zero)
    ):  # fmt: skip
        rows.append({
            "stack": "self", "group": HEAVY_NAME, "heads": 3, "metric": "group_effect",
            "replacement": name, "target": AblationTarget.LOSS, "value": value,
            "low": value - 0.001,
            "high": value + 0.001, "n_sentences": SENTENCES,
            "sum_of_single_effects": value, "random_low": 0.0,
            "random_high": band, "random_sets": 20, "rank": 1 + 20 * (value < band),
            "margin": 0.01, "share_changed": 0.9, "share_low": 0.8, "share_high": 1.0,
            "verdict": verdict,
        })  # fmt: skip
    return pd.DataFrame(rows, columns=[*HEAD_GROUPS.columns])


CHANGES, NONE_CHANGE, UNSURE = "changes", "no_change", "undecided"


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((NONE_CHANGE, NONE_CHANGE, 0.1, 0.2), "Yes: even with zero in place of their outputs its "
                                               "loss changes by 5.0 % of the loss."),
        ((NONE_CHANGE, NONE_CHANGE, 0.5, 0.2), "All that is lost is a constant: with zero its loss "
                                               "changes by 25 % of the loss, with their mean few "
                                               "sentences change."),
        ((CHANGES, NONE_CHANGE, 0.5, 0.2), "No: without all of them its loss changes by 2.5 % of "
                                           "the loss, but hardly without what they take from "
                                           "[CLS]."),
        ((CHANGES, UNSURE, 0.5, 0.2), "No: without all of them its loss changes by 2.5 % of the "
                                      "loss."),
        ((UNSURE, NONE_CHANGE, 0.1, 0.2), "Not known: these sentences do not decide it."),
        ((NONE_CHANGE, UNSURE, 0.1, 0.2), "Not known: these sentences do not decide it."),
        ((NONE_CHANGE, CHANGES, 0.1, 0.2), "Not known: these sentences do not decide it."),
    ],
)  # fmt: skip
def test_heads_on_the_sink_are_dead_only_by_all_three(
    numbers: tuple[str, str, float, float], expected: str
) -> None:
    given = ablation_results(around(0.0, 0.001))
    assert plain(sink_answer(given, heavy(*numbers), "[CLS]")) == expected


def test_a_group_that_fills_its_layers_is_its_own_random_set() -> None:
    """The band is then no comparison: a large change by zero is inside it whatever it is."""
    rows = heavy(NONE_CHANGE, NONE_CHANGE, 0.5, 0.5)
    rows["random_low"] = rows["random_high"] = rows["value"]
    given = ablation_results(around(0.0, 0.001))
    assert "All that is lost is a constant" in plain(sink_answer(given, rows, "[CLS]"))
    rows["verdict"] = NONE_CHANGE
    assert plain(sink_answer(given, rows, "[CLS]")).startswith("Yes:")
    rows.loc[rows["replacement"] == "zero", "verdict"] = UNSURE
    assert plain(sink_answer(given, rows, "[CLS]")).startswith("Not known")
    assert random_rank(rows.iloc[0].to_dict()) == ("", False)


@pytest.mark.parametrize(
    ("rank", "sets", "expected"),
    [
        (1, 100, ("above all 100 random sets", True)),
        (101, 100, ("below all 100 random sets", True)),
        (2, 100, ("above 99 of 100 random sets", True)),
        (4, 100, ("above 97 of 100 random sets", False)),
        (21, 20, ("below all 20 random sets", False)),
        (11, 20, ("above 10 of 20 random sets", False)),
    ],
)
def test_a_rank_among_random_sets_is_clear_only_if_few_sets_lie_beyond(
    rank: int, sets: int, expected: tuple[str, bool]
) -> None:
    row = {"random_sets": sets, "random_low": 0.1, "random_high": 0.2, "rank": rank}
    assert random_rank(row) == expected


def test_all_sink_heads_answer_as_on_the_page_of_patterns() -> None:
    """The strictest group answers only where the group of all was not measured."""
    strict = heavy(CHANGES, NONE_CHANGE, 0.5, 0.2)
    both = pd.concat([strict.assign(group="sink"), strict])
    assert {*sink_rows(both, "self", AblationTarget.LOSS)["group"]} == {"sink"}
    assert {*sink_rows(strict, "self", AblationTarget.LOSS)["group"]} == {HEAVY_NAME}
    only = strict.assign(group="sink")
    assert sink_rows(only, "cross", AblationTarget.LOSS).empty


def overview(of: Study, given: AblationResults | None, **tables: pd.DataFrame) -> str:
    """What the first page says of a study with other numbers of importance."""
    changed = replace(of, corpus_sums=replace(of.corpus_sums, ablation=given))
    for name, table in tables.items():
        changed.__dict__[name] = table
    return " | ".join(finding.text for finding in ablation_summary(changed))


def test_the_overview_says_what_can_go_and_whether_sinks_are_dead(study: Study) -> None:
    """And nothing of it where the numbers do not show it."""
    given = ablation_results(around(0.05, 0.0, spread=0.003))
    text = overview(
        study,
        given,
        pruning=steps([0, 0.01, 0.019, 0.03]),
        head_groups=heavy(CHANGES, NONE_CHANGE, 0.5, 0.2),
    )
    parts = text.split(" | ")
    assert parts[0].startswith("Of 2 heads replaced one at a time, one changes the output and one")
    assert parts[1].startswith("Not dead: without three heads")
    assert parts[2].startswith("Of all heads, 10.0")
    assert parts[3].startswith("Largest change of the loss of the next token: 2.")
    unsure = ablation_results(np.tile(np.resize([0.05, 0, 0, 0, 0], SENTENCES)[:, None], (1, 2)))
    unknown = steps([np.nan] * 4).assign(high=np.nan)
    none = overview(
        study, unsure, pruning=unknown, head_groups=heavy(UNSURE, NONE_CHANGE, 0.1, 0.2)
    )
    assert none.count(" | ") == 0
    assert "two are undecided" in none
    assert overview(study, None) == ""


def test_the_overview_leads_to_the_page(encoder_site: Site) -> None:
    html = html_of(encoder_site.folder / "index.html")
    assert 'href="importance.html#heads">replaced one at a time' in html
    assert "Importance of heads" in text_of(html)
    assert "none was made here" not in html


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    path = tmp_path_factory.mktemp("wired")
    (path / "texts.txt").write_text(hand_model.texts())
    return headbook.collect(
        [path / "texts.txt"], model=str(hand_model.write(path / "model")), importance="full",
        annotator="none", language="none", sentence_pages="0",
        metrics="type_shares,sink_share,relative_entropy",
    )  # fmt: skip


def page_of(study: Study) -> ImportancePage:
    page = importance_page(stack_results(study))
    assert page is not None
    return page


def test_the_full_level_shows_curves_groups_and_direct_effects(
    study: Study, tmp_path: Path
) -> None:
    page = page_of(study)
    assert len(page.title) <= 60
    assert len(plain(page.answer).split()) <= 30
    verdicts = [row.cells[-1] for row in page.heads.rows]
    assert verdicts == [words_cell("changes the output"), words_cell("can go alone")]
    assert [question.id for question in page.questions] == ["heads", "removable", "pruning"]
    assert page.pruned is not None
    assert "random order" in {*page.pruned.rows["order"]}
    assert page.groups is not None
    assert {"Previous-token", "Layer 0"} <= {*page.groups.rows["group"]}
    assert page.types is not None
    replacements = {row.cells[1] for row in page.types.rows}
    assert replacements == {words_cell("mean"), words_cell("without sink"), words_cell("zero")}
    assert page.absent == ()
    page_writer(StudySite(study), tmp_path, "").write_page(page)
    text = text_of(html_of(tmp_path / "importance.html"))
    for wanted in ("go together", "Groups in numbers", "Random sets", "head_groups"):
        assert wanted in text


def test_heads_of_a_type_are_answered_by_three_replacements(study: Study) -> None:
    verdicts = study.head_groups.query("group == 'previous-token' and target == 'kl'")
    assert {*verdicts["replacement"]} == {"mean", "without_sink", "zero"}
    assert [*verdicts["verdict"]] == ["changes"] * 3
    ablation = study.corpus_sums.ablation
    assert ablation is not None
    found = answer(ablation, study.head_groups, "self", "previous-token")
    text = " ".join(finding.text for finding in found)
    assert "Not dead: without one previous-token head, the KL divergence of predictions is" in text
    assert "; 100 random sets with as many heads in each layer: " in text


def test_a_site_shows_all_heads_and_those_that_were_replaced(any_site: Site) -> None:
    page = any_site.folder / "importance.html"
    if any_site.study.corpus_sums.ablation is None:
        assert not page.exists()
        return
    html = html_of(page)
    heads = any_site.study.importance[["stack", "layer", "head"]].drop_duplicates()
    table = html.partition('id="list"')[2].partition("</details>")[0]
    assert table.count('scope="row"') == len(heads)
    cells = [e for e in elements(html, "td") if "h" in e.attributes.get("class", "").split()]
    assert len(cells) == len(heads)
    ablation = any_site.study.corpus_sums.ablation
    estimated = int((ablation.chosen == AblationReason.NOT_ABLATED).sum())
    styles = [e.attributes["class"].split() for e in cells]
    assert sum("estimated" in style for style in styles) == estimated
    assert ("--importance full" in html) == (ablation.level == "fast")
    assert "style=" not in html
    for name in ("importance-groups", "importance-layers"):
        assert (any_site.folder / f"figures/{name}.pdf").exists()


def test_each_verdict_has_a_ring_where_others_are_only_estimated(encoder_site: Site) -> None:
    """No ring then means an estimate; without estimates the commonest verdict has none."""
    html = html_of(encoder_site.folder / "importance.html")
    given = encoder_site.study.corpus_sums.ablation
    assert given is not None
    plain_one, counts = plain_verdict(given), verdict_counter(given)
    estimated = int((given.chosen == AblationReason.NOT_ABLATED).sum())
    assert bool(plain_one) == (not estimated)
    styles = [e.attributes.get("class", "").split() for e in elements(html, "td")]
    text = text_of(html)
    for verdict, amount in counts.items():
        ringed = sum({"ring", verdict} <= {*style} for style in styles)
        assert ringed == (0 if verdict == plain_one else amount)
        assert f"{SHORT_VERDICTS[AblationVerdict(verdict)]}: {amount}" in text
    assert not any({"ring", "estimated"} <= {*style} for style in styles)
    assert "no ring: " in text
    assert (f"only estimated (≈): {estimated}" in text) == bool(estimated)


def test_groups_of_heads_are_drawn_with_their_random_sets() -> None:
    group = GroupEffect(
        "Sink heads", "f-sink", 3, 20.0, 10.0, 30.0, np.nan, 5.0, 15.0,
        LinkedNumber("20", "head_groups", (("group", "sink"),)), "larger than 99 of 100", True,
    )  # fmt: skip
    unknown = group._replace(name="None", value=np.nan, low=np.nan, high=np.nan, style="")
    plot = group_plot("groups", "Groups.", [group, unknown], unit="thousandths")
    assert plot.ends == (5.0, 50.0)
    assert plot.svg.count('class="bx"') == 1
    assert "<b>larger than 99 of 100</b>" in plot.svg
    assert 'href="data.html?row=head_groups:group=sink#head_groups"' in plot.svg
    assert [*plot.rows.columns][:3] == ["group", "heads", "value"]
    files = plot.paper(columns=True)
    assert {*files} == {".svg", ".pdf", "-column.svg", "-column.pdf"}
    assert "Sink heads" in files["-column.svg"].decode()


def test_without_removals_there_is_no_page(study: Study) -> None:
    none = replace(study, corpus_sums=replace(study.corpus_sums, ablation=None))
    assert not has_importance(stack_results(none))
    assert head_groups_table(None).empty
    assert pruning_table(None).empty


def test_each_head_says_what_is_lost_without_it(study: Study) -> None:
    """The exact change with its verdict, and the tokens as the table ranks them."""
    stack = stack_results(study)["self"]
    assert study.corpus_sums.ablation is not None
    table = study.effect_tokens
    for head in heads_of(stack.stack):
        without = ablation_section(stack, head)
        assert without is not None
        exact = study.importance.query(
            "metric == 'ablation_effect' and target == 'kl' and replacement == 'mean'"
            f" and head == {head.head}"
        ).iloc[0]
        verdict_words = verdict_text(exact.to_dict())
        assert verdict_words.startswith(
            ("changes 56 of 56 sentences", "leaves 56 of 56 sentences as they")
        )
        change, verdict = without.instead.rows[0].cells
        assert isinstance(change, NumberCell)
        assert verdict == words_cell(verdict_words)
        assert without.value is not None
        assert without.value.text == f"{change.text} % of the loss"
        what = f"{change.interval}: change of the predictions (KL divergence); "
        assert without.what.startswith(what)
        assert without.what.endswith(f"largest of {len(heads_of(stack.stack))} heads")
        assert without.verdict == f"Verdict: {verdict_words}."
        effects = head_changes(study.corpus_sums.ablation)["value"].to_numpy(np.float64)
        assert (without.picture is None) == (EffectScale.of(effects) is None)
        mine = table[table["head"] == head.head]
        assert mine["change"].is_monotonic_decreasing
        listed = mine[(mine["rank"] <= 5) | (mine["rank"] > 10)]
        assert [token.token for token in without.tokens] == [*listed["token"]]
        assert [token.sentence for token in without.tokens] == [*listed["sentence"]]
        assert listed["before"].between(0, 1).all()
        assert "the median" in without.tokens[-1].rank


def test_heads_that_back_each_other_up_are_named(study: Study) -> None:
    ablation = study.corpus_sums.ablation
    assert ablation is not None
    one, other = ablation.heads
    pairs = study.head_groups.query("metric == 'interaction' and target == 'kl'")
    for sign in (1, -1):
        known = pairs.assign(value=sign * 0.1, low=sign * 0.1 - 0.05, high=sign * 0.1 + 0.05)
        remarks = backed_up(known, ablation)
        assert {*remarks} == ({one, other} if sign > 0 else set())
        assert all(
            f"L{other.layer}·H{other.head}" in remarks[head] for head in remarks if head == one
        )


def test_studies_put_together_keep_what_one_knows_of_tokens(study: Study) -> None:
    shifted = study.corpus_sums.shifted(100).ablation
    ablation = study.corpus_sums.ablation
    assert ablation is not None
    assert shifted is not None
    assert [m.sentence - 100 for m in shifted.missed] == [m.sentence for m in ablation.missed]
