"""The page of importance: its scales, its plots, and what it shows of a study."""

from dataclasses import replace

import numpy as np
import pytest

import hand_model
import headbook
from block_parts import every, group_of
from headbook.charts import Plot
from headbook.charts.ablation import (
    GroupEffect,
    effect_ends,
    effect_step,
    effect_ticks,
    group_plot,
)
from headbook.charts.one_head import EffectScale
from headbook.pages.head_parts.effect import ablation_section
from headbook.pages.importance import has_importance, importance_page
from headbook.pages.parts.blocks import Heat, Table
from headbook.pages.parts.table import NumberCell, words_cell
from headbook.report.ablation import SINK, backed_up, head_changes, verdict_text
from headbook.report.facts.functions import FunctionFamily, functions_of
from headbook.report.facts.groups import head_groups
from headbook.report.facts.importance import verdict_counter
from headbook.report.facts.sinks import sink_heads
from headbook.report.results import stack_results
from headbook.results.number import Number, RowAddress, Unit
from headbook.schema import heads_of
from headbook.study.ablation.results import AblationReason
from headbook.study.ablation_tables import head_groups_table, pruning_table
from headbook.study.study import Study
from html_pages import html_of, text_of
from sites import Site


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


def test_the_overview_leads_to_the_page(encoder_site: Site) -> None:
    html = html_of(encoder_site.folder / "index.html")
    assert 'href="importance.html#heads"' in html
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


def test_the_full_level_shows_curves_groups_and_direct_effects(study: Study) -> None:
    page = importance_page(stack_results(study))
    assert [question.id for question in page.questions] == ["heads", "removable", "pruning"]
    plots = {plot.name: plot for plot in every(Plot, page)}
    assert "random order" in {*plots["importance-pruning"].rows["order"]}
    assert {"One fixed distance", "Layer 0"} <= {*plots["importance-groups"].rows["group"]}
    (heads,) = every(Table, group_of(page, "list"))
    assert [row[-1] for row in heads.rows] == ["changes the output", "can go alone"]
    (types,) = every(Table, group_of(page, "types"))
    assert {row[2] for row in types.rows} == {"mean", "without sink", "zero"}
    assert page.absent == ()


def test_heads_of_a_family_have_verdicts_by_three_replacements(study: Study) -> None:
    verdicts = study.head_groups.query("group == 'position' and target == 'kl'")
    assert {*verdicts["replacement"]} == {"mean", "without_sink", "zero"}
    assert [*verdicts["verdict"]] == ["changes"] * 3


def test_groups_before_ablation_are_families_of_functions_and_the_sink_heads(
    any_site: Site,
) -> None:
    """Every head with a function is in the group of its family, or in that of the sink heads."""
    for results in any_site.results.values():
        groups = {group.name: group for group in head_groups({results.stack.name: results})}
        functions = functions_of(results)
        for family in {function.family for function in functions.values()} - {None}:
            members = {head for head, each in functions.items() if each.family is family}
            if family is not FunctionFamily.SINK:
                assert {*groups[str(family)].heads} == members
        sinks = {(head.layer, head.head) for head in groups[SINK].heads} if SINK in groups else {}
        assert sinks == ({*sink_heads(results)} or {})
        assert {name for name, group in groups.items() if group.is_family} <= {
            *map(str, FunctionFamily)
        }


def test_a_site_shows_all_heads_and_those_that_were_replaced(encoder_site: Site) -> None:
    """Each verdict has a ring where others are only estimated: no ring then means an estimate.

    Without estimates the commonest verdict has none.
    """
    given = encoder_site.study.corpus_sums.ablation
    assert given is not None
    page = importance_page(encoder_site.results)
    n_heads = len(encoder_site.study.importance[["stack", "layer", "head"]].drop_duplicates())
    (table,) = every(Table, group_of(page, "list"))
    styles = [heat.fill.split() for heat in every(Heat, page)]
    assert len(table.rows) == len(styles) == n_heads
    estimated = int((given.chosen == AblationReason.NOT_ABLATED).sum())
    assert sum("estimated" in style for style in styles) == estimated
    assert any("--importance full" in text for text in page.absent) == (given.level == "auto")
    counts = verdict_counter(given).most_common()
    for verdict, amount in counts:
        ringed = sum({"ring", verdict} <= {*style} for style in styles)
        assert ringed == (amount if estimated or verdict != counts[0][0] else 0)
    assert not any({"ring", "estimated"} <= {*style} for style in styles)


def test_the_auto_level_shows_how_many_heads_can_go_together(encoder_site: Site) -> None:
    page = importance_page(encoder_site.results)
    assert "pruning" in {question.id for question in page.questions}
    (plot,) = (plot for plot in every(Plot, page) if plot.name == "importance-pruning")
    ablation = encoder_site.study.corpus_sums.ablation
    assert ablation is not None
    n_heads = len(ablation.heads)
    steps = [0, *(2**power for power in range(10) if 2**power < n_heads), n_heads]
    orders = plot.rows.groupby("order")["share"]
    assert {name: [*(shares * n_heads).round()] for name, shares in orders} == {
        "smallest effect first": steps, "random order": steps,
    }  # fmt: skip


def test_groups_of_heads_are_drawn_with_their_random_sets() -> None:
    row = RowAddress("head_groups", (("group", "sink"),))
    change = Number(0.02, Unit("", factor=1000), row, 0.01, 0.03)
    group = GroupEffect(
        "Sink heads", "f-sink", 3, change, np.nan, 5.0, 15.0, "larger than 99 of 100", True
    )
    unknown = group._replace(
        name="None", change=replace(change, value=np.nan, low=np.nan, high=np.nan), style=""
    )
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
