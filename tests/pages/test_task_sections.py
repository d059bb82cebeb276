"""Tasks on pages: sentences that the numbers do and do not support, tables, and their rows."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import classifier
import hand_model
import headbook
from block_parts import every, parts_of
from headbook.analysis.accumulators import HELD_OUT
from headbook.pages.importance import importance_page
from headbook.pages.overview_parts.answers import words_text
from headbook.pages.parts.blocks import Page, Question, Table, Words
from headbook.pages.parts.page import SentenceParts
from headbook.report.answers.ablation.tasks import (
    of_layers,
    patching_answer,
    rests_answer,
    success_answer,
)
from headbook.report.answers.overview.ablation_claims import task_claim
from headbook.report.results import stack_results
from headbook.results.number import Number
from headbook.schema import AblationTarget, HeadName
from headbook.study.ablation import tasks
from headbook.study.ablation.results import AblationResults, HeadSetKind
from headbook.study.study import Study
from html_pages import html_of, text_of
from linked_numbers import holds, in_line, numbers_of

FEW: dict[str, Any] = {
    "annotator": "none", "language": "none", "sentence_pages": "0", "metrics": "type_shares",
    "importance": "auto", "circuits": "off",
}  # fmt: skip
MARKER_HEAD = HeadName("self", classifier.LAYER, classifier.HEAD)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks")
    classifier.write(path / "classifier")
    hand_model.write(path / "copies")
    return path


@pytest.fixture(scope="module")
def classified(path: Path) -> Callable[..., Study]:
    """Collect texts on a classifier that rests on one head, with true labels or other ones."""

    @cache
    def of(number: int = 80, *, unrelated: bool = False) -> Study:
        rows = classifier.rows(number, 0)
        if unrelated:
            labels = [*classifier.MARKERS.values()]  # each half the time for each marker
            rows = [row | {"label": labels[k // 2 % 2]} for k, row in enumerate(rows)]
        file = path / f"{number}-{unrelated}.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return headbook.collect([file], model=str(path / "classifier"), facet="where", **FEW)

    return of


@pytest.fixture(scope="module")
def prompted(path: Path) -> Study:
    """Collect prompts on a model of which one head copies the answer, the other is idle."""
    rows = [
        {
            "text": f"{one} {two} sleeps", "answer": two,
            "wrong": one, "corrupt": f"{two} {one} sleeps",
        }
        for one, two in permutations(hand_model.WORDS[:6], 2)
    ]  # fmt: skip
    file = path / "prompts.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return headbook.collect([file], model=str(path / "copies"), **FEW)


def plain(words: Words | SentenceParts) -> str:
    return words_text(words).replace("\u202f", " ").replace("\xa0", " ")


def page_of(study: Study) -> Page:
    return importance_page(stack_results(study))


def tables_of(study: Study) -> dict[str, list[Table]]:
    """Return the tables of each task, by its id."""
    asked = every(Question, page_of(study))
    return {q.id: every(Table, q) for q in asked if q.id.startswith("task-")}


def label_task(study: Study) -> AblationResults:
    return study.corpus_sums.tasks[AblationTarget.LABEL]


def with_task(study: Study, task: AblationResults) -> Study:
    sums = replace(study.corpus_sums, tasks={task.targets[0]: task})
    return replace(study, corpus_sums=sums)


def claims(study: Study) -> list[str]:
    return [plain(claim.sentence) for claim in task_claim(stack_results(study)["self"])]


def right_without(task: AblationResults, right: float) -> AblationResults:
    """Set the share of the held-out texts that stay right without each set of heads."""
    changes = task.changes[AblationTarget.ACCURACY].copy()
    held_out = np.flatnonzero(task.half == HELD_OUT)
    wrong = held_out[: len(held_out) - round(right * len(held_out))]
    for index in task.select(HeadSetKind.ORDER, "mean"):
        changes[:, index] = 0
        changes[wrong, index] = task.unablated[AblationTarget.ACCURACY][wrong]
    return replace(task, changes={**task.changes, AblationTarget.ACCURACY: changes})


def test_a_task_that_rests_on_one_head(classified: Callable[..., Study]) -> None:
    study = classified()
    task = label_task(study)
    row = tasks.rests_on(task)
    assert row is not None
    after = round(100 * row["after"])
    rests = "The label rests on one head of layer 0: accuracy falls from 100 % to "
    sentence = f"{rests}{after} % without it."
    assert plain(rests_answer(task)) == sentence
    assert claims(study) == [sentence]
    assert len(sentence.split()) <= 20
    (claim,) = task_claim(stack_results(study)["self"])
    assert claim.heads == {MARKER_HEAD}
    evidence = plain(claim.evidence)
    assert "L0·H2" in evidence
    assert "chance 50.0 % (the most frequent label)" in evidence
    assert "smallest set of heads" in evidence
    assert plain(success_answer(task)).startswith("The model gives the right label in 100.0 %")


def test_a_model_at_chance_has_no_heads_of_a_task(classified: Callable[..., Study]) -> None:
    study = classified(unrelated=True)
    task = label_task(study)
    assert plain(success_answer(task)).startswith(
        "The model is at chance, so no head has a verdict: it gives the right label in "
    )
    assert not rests_answer(task)
    assert claims(study) == []
    ((heads, *_),) = tables_of(study).values()
    assert "Verdict" not in heads.columns


def test_a_task_that_surely_rests_on_more_heads(classified: Callable[..., Study]) -> None:
    study = classified()
    task = right_without(label_task(study), 0.95)
    last = tasks.success_without(task).iloc[-1]
    number = {8: "eight", 9: "nine", 10: "ten"}.get(last["number"], str(last["number"]))
    assert claims(with_task(study, task)) == [
        f"The label does not rest on few heads: without {number}, accuracy is "
        f"{round(100 * last['after'])} %, with them 100 %."
    ]
    assert plain(rests_answer(task)).startswith(
        "The label does not rest on few heads: without the "
    )
    (claim,) = task_claim(stack_results(with_task(study, task))["self"])
    assert claim.heads == {*last["heads"]}
    assert "more than half of the advantage over chance remains" in plain(claim.evidence)


def test_between_both_it_is_not_known(classified: Callable[..., Study]) -> None:
    """Accuracy keeps a little more than half of the advantage, with half of it in the interval."""
    study = classified()
    task = right_without(label_task(study), 0.8)
    assert tasks.rests_on(task) is None
    assert claims(with_task(study, task)) == []
    assert plain(rests_answer(task)).startswith("Whether the label rests on few heads is not known")


def test_up_to_three_layers_are_named() -> None:
    def of(*layers: int) -> str:
        return of_layers([HeadName("self", layer, 1) for layer in layers])

    assert of(3, 3) == " of layer 3"
    assert of(5, 0) == " of layers 0 and 5"
    assert of(3, 4, 5) == " of layers 3, 4 and 5"
    assert of(0, 2, 3, 29) == " of layers 0–29"
    assert of_layers([HeadName("decoder", 0, 1), HeadName("cross", 0, 1)]) == ""


def test_without_growing_sets_nothing_is_said(classified: Callable[..., Study]) -> None:
    task = label_task(classified())
    keep = [index for index, each in enumerate(task.sets) if each.kind is not HeadSetKind.ORDER]
    fewer = replace(
        task,
        sets=tuple(task.sets[index] for index in keep),
        members=task.members[keep],
        changes={target: changes[:, keep] for target, changes in task.changes.items()},
    )
    study = with_task(classified(), fewer)
    assert not rests_answer(fewer)
    assert claims(study) == []
    (tables,) = tables_of(study).values()
    assert "Without several heads" not in [table.caption for table in tables]


def test_patching_names_the_head_that_restores_the_answer(prompted: Study) -> None:
    by_name = prompted.corpus_sums.tasks
    head = f"L0·H{hand_model.COPIES}"
    assert plain(patching_answer(by_name["patching"])).startswith(
        "Of 2 heads patched alone, one has an interval above 0 (not corrected for the number of "
        f"heads). Of these, {head} restores most: 100.0 % [100.0, 100.0] of the difference of "
        "logits "
    )
    (claim,) = claims(prompted)
    assert claim.startswith("The answer rests on one head of layer 0: accuracy falls from 100 % ")


def test_patching_that_restores_nothing_names_no_head(prompted: Study) -> None:
    task = prompted.corpus_sums.tasks["patching"]
    changes = np.zeros_like(task.changes[AblationTarget.PATCHING])
    none = replace(task, changes={AblationTarget.PATCHING: changes})
    assert plain(patching_answer(none)) == (
        "Of 2 heads patched alone, none surely restores any of the difference of logits."
    )


def test_sections_hold_tables_notes_and_gaps(
    classified: Callable[..., Study], prompted: Study
) -> None:
    (tables,) = tables_of(classified()).values()
    _, first, *_ = tables[0].rows[0]
    assert isinstance(first, Number)
    assert first.value > 0.5  # nats
    captions = [table.caption for table in tables]
    assert captions == ["Without one head", "Without several heads", "By where"]
    assert len(tables[0].rows) == 8
    by_task = tables_of(prompted)
    assert [*by_task] == ["task-answer", "task-patching"]
    (patched,) = by_task["task-patching"]
    assert [group for group, _ in patched.groups] == ["Restored", "Destroyed"]
    noted = replace(prompted.corpus_sums.tasks["answer"], notes=("Two texts were left out.",))
    assert "Two texts were left out." in [*parts_of(page_of(with_task(prompted, noted)))]
    gap = headbook.study.manifest.NotAvailable("task preference", "", "no pair is complete")
    lacking = replace(prompted, manifest=replace(prompted.manifest, gaps=(gap,)))
    assert any("no pair is complete" in text for text in page_of(lacking).absent)


@pytest.mark.parametrize("name", ["classified", "prompted"])
def test_numbers_of_tasks_are_those_of_their_rows(
    name: str, classified: Callable[..., Study], prompted: Study, tmp_path: Path
) -> None:
    study = classified() if name == "classified" else prompted
    study.save(tmp_path / "study")
    site = tmp_path / "site"
    headbook.render(tmp_path / "study", out=site)
    head = "L00-H02" if name == "classified" else f"L00-H0{hand_model.COPIES}"
    for page in ("importance.html", "index.html", f"heads/{head}.html"):
        numbers = numbers_of(site, site / page)
        for number in numbers:
            row = in_line(site / "data", number.table, number.line)
            if row.get("target") in study.corpus_sums.tasks or "right" in row.get("metric", ""):
                assert holds(row, number.text, 1), (number, row)
        assert any("right" in in_line(site / "data", n.table, n.line).get("metric", "")
                   for n in numbers) or "heads/" in page  # fmt: skip
    assert "rest on" in text_of(html_of(site / "importance.html"))
