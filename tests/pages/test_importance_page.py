"""The page of importance: sentences that the numbers do and do not support, and what it shows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hand_model
import headbook
from ablation_results import SENTENCES, ablation_results, around
from headbook.charts.ablation import effect_map
from headbook.pages.head_parts.effect import ablation_section
from headbook.pages.importance import ImportancePage, has_importance, importance_page
from headbook.pages.parts.table import NumberCell, words_cell
from headbook.pages.patterns import without_them
from headbook.report.ablation import HEAVY_NAME, backed_up, head_changes, verdict_text
from headbook.report.findings.ablation import ablation_findings, ablation_summary
from headbook.report.head_types import head_types
from headbook.report.results import StackResults, stack_results
from headbook.schema import AblationTarget
from headbook.site.sites import StudySite
from headbook.site.writer import page_writer
from headbook.study.ablation import AblationResults
from headbook.study.ablation_tables import HEAD_GROUPS, PRUNING, head_groups_table, pruning_table
from headbook.study.sentence_data import heads_of
from headbook.study.study import Study
from html_pages import elements, html_of, text_of
from sites import Site

NONE = pd.DataFrame(columns=[*HEAD_GROUPS.columns]), pd.DataFrame(columns=[*PRUNING.columns])


def sentences(
    given: AblationResults, groups: pd.DataFrame = NONE[0], steps: pd.DataFrame = NONE[1]
) -> str:
    return " | ".join(finding.text for finding in ablation_findings(given, groups, steps))


def test_verdicts_are_counted_and_the_largest_is_reported_on_the_other_half() -> None:
    text = sentences(ablation_results(around(0.05, 0.0, -0.05, 0.01, spread=0.003)))
    assert (
        "Of 4 heads replaced one at a time, two change the output, one can go alone and one is "
        "harmful: a sentence counts as changed from 0.50\u00a0% of the loss on, measured by loss "
        "of the next token." in text
    )
    assert "Largest change: 2." in text
    assert "without L0·H0, which was chosen on the other half of the sentences." in text
    assert "The loss is lower without L0·H2 (p < 0.05 family-wise)." in text


def test_nothing_is_said_of_what_is_not_shown() -> None:
    """A fifth of the sentences change: the bounds hold it."""
    changes = np.zeros((SENTENCES, 2))
    changes[::5] = 0.05
    text = sentences(ablation_results(changes))
    assert text.startswith("Of 2 heads replaced one at a time, two are undecided: a sentence")
    assert "needed" not in text


def test_how_heads_were_chosen_is_said_beside_their_number() -> None:
    given = replace(ablation_results(around(0.05, 0.0, 0.0)), chosen=np.array([1, 2, 2]))
    assert (
        "Of 3 heads replaced one at a time (1 with the largest estimates, 2 picked at random), one "
        "changes" in sentences(given)
    )


def test_the_map_tells_exact_effects_from_estimates() -> None:
    given = ablation_results(around(0.05, 0.0, 0.01))
    some = replace(
        given, chosen=np.array([1, 0, 2]), sets=(given.sets[0], given.sets[2]),
        members=given.members[[0, 2]],
        changes={AblationTarget.LOSS: given.changes[AblationTarget.LOSS][:, [0, 2]]},
    )  # fmt: skip
    assert [*head_changes(some)["method"]] == ["exact", "estimated", "exact"]
    figure = effect_map("map", "", head_changes(some), title="change", domain=(0.0, 1.0))
    assert figure.rows is not None
    assert [*figure.rows["method"]] == ["exact", "estimated", "exact"]
    assert "kind" not in figure.rows


def test_the_audit_is_said_where_heads_have_estimates_alone() -> None:
    effects = np.tile(np.array([0.05, 0.0, 0.03, 0.001, 0.0, 0.0]), (SENTENCES, 1))
    given = ablation_results(effects + around(*[0.0] * 6, spread=1e-3))
    some = replace(
        given, chosen=np.array([1, 2, 2, 2, 2, 0]), sets=given.sets[:5], members=given.members[:5],
        changes={AblationTarget.LOSS: given.changes[AblationTarget.LOSS][:, :5]},
    )  # fmt: skip
    text = sentences(some)
    assert (
        "On 4 heads picked at random, estimates and exact changes correlate with r = 1.00" in text
    )
    assert (
        "Of these, none exceed the margin although the estimate does not; with 95\u00a0% "
        "confidence, at most 52.7\u202f% of the 1 other head does." in text
    )
    assert "picked at random" not in sentences(given)


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
    text = sentences(given, steps=steps([0, 0.01, 0.019, 0.03]))
    assert "10.0\u202f% can be removed together" in text
    assert "1.00\u00a0% of the loss (random order: 5.0\u202f%)" in text
    none = sentences(given, steps=steps([0, 0.03, 0.01, 0.03]))
    assert "Even the 5.0\u202f% of heads of smallest effect cannot be removed together" in none
    assert "removed" not in sentences(given, steps=steps([np.nan] * 4).assign(high=np.nan))


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
        ((NONE_CHANGE, NONE_CHANGE, 0.1, 0.2), "Dead by all three replacements: three heads with"),
        ((NONE_CHANGE, NONE_CHANGE, 0.5, 0.2), "a bias and not a computation"),
        ((CHANGES, NONE_CHANGE, 0.5, 0.2), "Not dead: without three heads"),
        ((UNSURE, NONE_CHANGE, 0.1, 0.2), ""),
        ((NONE_CHANGE, UNSURE, 0.1, 0.2), ""),
        ((NONE_CHANGE, CHANGES, 0.1, 0.2), ""),
    ],
)
def test_heads_on_the_sink_are_dead_only_by_all_three(
    numbers: tuple[str, str, float, float], expected: str
) -> None:
    text = sentences(ablation_results(around(0.0, 0.001)), heavy(*numbers))
    assert (expected in text) if expected else ("ead" not in text.replace("heads", ""))
    if expected.startswith(("Dead", "a bias")):
        band = "0.00\u00a0% of the loss to 10.0\u00a0% of the loss"
        assert f"by zero, 20 random sets with as many heads in each layer: {band}" in text


def test_a_group_that_fills_its_layers_is_its_own_random_set() -> None:
    """The band is then no comparison: a large change by zero is inside it whatever it is."""
    rows = heavy(NONE_CHANGE, NONE_CHANGE, 0.5, 0.5)
    rows["random_low"] = rows["random_high"] = rows["value"]
    given = ablation_results(around(0.0, 0.001))
    assert "A constant is all that is lost" in sentences(given, rows)
    rows["verdict"] = NONE_CHANGE
    assert "Dead by all three replacements" in sentences(given, rows)
    rows.loc[rows["replacement"] == "zero", "verdict"] = UNSURE
    assert "ead by" not in sentences(given, rows)


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
    assert parts[3].startswith("Largest change: 2.")
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


def test_types_stand_in_where_no_head_rests_on_the_sink_wholly() -> None:
    rows = heavy(CHANGES, NONE_CHANGE, 0.5, 0.2).assign(group="sink")
    text = sentences(ablation_results(around(0.0, 0.001)), rows)
    assert (
        "Not dead: without three sink heads, the change is 2.50\u00a0% of the loss [2.45, 2.55]"
        in text
    )
    assert "(changes 54 of 60 sentences); 20 random sets with as many heads in each layer" in text
    assert "to 10.0\u00a0% of the loss (rank of the group among them: 21 of 21)." in text


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
    verdicts = [row.cells[-1] for row in page.heads.rows]
    assert verdicts == [words_cell("changes the output"), words_cell("can go alone")]
    assert any("removed together" in finding.text for finding in page.findings)
    (curves,) = page.pruned
    assert curves.rows is not None
    assert "random order" in {*curves.rows["order"]}
    assert page.groups is not None
    replacements = {row.cells[1] for row in page.groups.rows}
    assert replacements == {words_cell("mean"), words_cell("without sink"), words_cell("zero")}
    page_writer(StudySite(study), tmp_path, "").write_page(page)
    text = text_of(html_of(tmp_path / "importance.html"))
    for wanted in ("Pruning", "Heads of one type together", "Random sets", "head_groups"):
        assert wanted in text


def test_vertical_heads_are_answered_by_three_lines_for_each_type(study: Study) -> None:
    (own,) = stack_results(study).values()
    found = without_them(own, head_types(own))
    assert found.measured
    assert found.table is not None
    lines = [(row.name, *row.cells[1:2], row.cells[3]) for row in found.table.rows]
    previous = [line[1:] for line in lines if line[0] == "previous-token"]
    assert [replaced for replaced, _ in previous] == [
        words_cell("mean"), words_cell("without sink"), words_cell("zero"),
    ]  # fmt: skip
    verdicts = study.head_groups.query("group == 'previous-token' and target == 'kl'")
    assert [*verdicts["verdict"]] == ["changes"] * 3
    for (_, verdict_words), each in zip(previous, verdicts.to_dict("records"), strict=True):
        assert verdict_words == words_cell(verdict_text(each, "layers and groups"))
    text = " ".join(finding.text for finding in found.findings)
    assert "Not dead: without one previous-token head, the KL divergence of predictions is" in text
    assert "; 100 random sets with as many heads in each layer: " in text
    fast = replace(study.corpus_sums, ablation=ablation_results(around(0.0, 0.05)))
    single = StackResults(replace(study, corpus_sums=fast), own.stack)
    assert without_them(single, head_types(own)).table is None


def test_a_site_shows_all_heads_and_those_that_were_replaced(encoder_site: Site) -> None:
    html = html_of(encoder_site.folder / "importance.html")
    ids = {e.attributes.get("id") for e in elements(html, "h2")}
    assert {"heads", "list"} <= ids
    assert "estimates" in ids
    exact = encoder_site.study.importance.query("metric == 'ablation_effect'")
    body = html.partition('id="list"')[2].partition("<p>Files")[0]
    assert body.count('scope="row"') == len(exact[["layer", "head"]].drop_duplicates())
    assert (encoder_site.folder / "figures/importance-self.svg").exists()
    assert "importance.html" in html_of(encoder_site.folder / "index.html")


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
        assert without.value.text == change.text
        what = f"% of the loss {change.interval}: change of the loss of the next token; "
        assert without.what.startswith(what)
        assert without.what.endswith(f"largest of {len(heads_of(stack.stack))} heads")
        assert without.verdict == verdict_words
        assert without.picture is not None
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
    pairs = study.head_groups.query("metric == 'interaction' and target == 'loss'")
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
