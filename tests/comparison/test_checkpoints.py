"""Checkpoints: frames keep what studies say, steps are found, and unlike studies refused."""

import gc
import math
import re
import shutil
import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import huggingface_hub
import numpy as np
import pandas as pd
import pytest

import tiny
import training
import treebank
from headbook.charts.checkpoints import FIRST_STEP_PLACE, sparkline, step_areas, step_axis
from headbook.charts.theme import FAMILY_COLOURS
from headbook.comparison.checkpoint_claims import changed_heads, checkpoint_claims
from headbook.comparison.checkpoints import Checkpoints, NamedStudy, checkpoints_of, steps_of
from headbook.config import Config
from headbook.errors import ConfigError, ModelError, StudyError
from headbook.model import checkpoint
from headbook.pages.checkpoints import checkpointmeasure
from headbook.pages.checkpoints.checkpointheads import checkpointheads_page
from headbook.pages.checkpoints.checkpoints import (
    MAX_CHANGED_HEADS,
    checkpoints_data,
    checkpoints_page,
)
from headbook.pages.checkpoints.parts import DrawnCheckpoints
from headbook.progress import NoProgress
from headbook.report.linked_rows import LinkedNumber
from headbook.results.formats import head_name, percent
from headbook.run import models
from headbook.run.arguments import list_checkpoints
from headbook.run.models import study_of_checkpoint
from headbook.schema import HeadName
from headbook.site.sites import render_checkpoints
from headbook.study.manifest import Check
from headbook.study.study import Study
from sites import Site
from trained_runs import OPTIONS, REVISIONS, command

pytestmark = pytest.mark.slow  # checkpoints are collected and drawn

SEEDS = {"step-0": 0, "step-20": 1, "step-100": 2}
TITLE = "Three"
KEYS = ["layer", "head", "metric", "view", "label"]


def stored_studies(folder: Path) -> list[NamedStudy]:
    """The studies inside a folder."""
    places = sorted(file.parent for file in folder.glob("*/manifest.json"))
    return [NamedStudy(place.name, partial(Study.load, place)) for place in places]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models of one shape as checkpoints, and their site."""
    place = tmp_path_factory.mktemp("checkpoints")
    for name, seed in SEEDS.items():
        tiny.write("gpt2", place / "run" / name, seed, head=True)
    treebank.write_trees(place / "trees.conllu", treebank.MANY)
    assert drawn_by(place, "--out", place / "site") == 0
    return place


def drawn_by(place: Path, *more: object) -> int:
    """Write the site of the three, studies kept."""
    given = (
        "checkpoints", place / "trees.conllu", "--model", place / "run",
        "--keep-studies", place / "studies",
    )  # fmt: skip
    return command(*given, *OPTIONS, "--title", TITLE, *more)


@pytest.fixture(scope="module")
def of_three(place: Path) -> Checkpoints:
    """The checkpoints of the three."""
    return checkpoints_of(stored_studies(place / "studies"))


def test_frames_are_in_the_order_of_steps_and_say_what_their_studies_say(
    place: Path, of_three: Checkpoints
) -> None:
    assert of_three.steps.tolist() == [0, 20, 100]  # not in the order of letters
    assert of_three.named
    table = of_three.curves
    for name, rows in table.groupby("checkpoint"):
        heads = Study.load(place / "studies" / str(name)).heads
        found = rows[KEYS].merge(heads, on=KEYS, validate="one_to_one")
        assert len(found) == len(rows)
        for end in ("value", "low", "high"):
            np.testing.assert_allclose(rows[end], found[end], rtol=1e-12)
    stacks = tiny.LAYERS * tiny.HEADS
    assert len(table) == len(SEEDS) * stacks * len(of_three.columns("self"))
    written = pd.read_parquet(place / "site" / "data" / "curves.parquet")
    pd.testing.assert_frame_equal(written, table)


def test_losses_are_those_of_the_studies(place: Path, of_three: Checkpoints) -> None:
    for each in of_three.frames:
        ablation = Study.load(place / "studies" / each.name).corpus_sums.ablation
        assert ablation is not None
        assert each.loss.value == pytest.approx(ablation.loss("loss"))
        assert math.isnan(each.loss.low)  # of ten sentences


def test_changes_and_half_rise_steps_are_the_naive_ones(place: Path, of_three: Checkpoints) -> None:
    values = of_three.curves.pivot(index=KEYS, columns="step", values="value").to_dict("index")
    table = of_three.half_rise
    table = table[table["head"].notna()].set_index(KEYS)  # the other rows are means of layers
    assert table["step"].notna().sum() > 10
    for key, row in table.to_dict("index").items():
        series = values[key]
        assert row["first"] == pytest.approx(series[0], rel=1e-5)
        assert row["last"] == pytest.approx(series[100], rel=1e-5)
        changed = row["q"] < 0.05 and (row["low"] > 0 or row["high"] < 0)
        assert not changed or math.isnan(row["step"]) == (not math.isnan(row["returns"]))
        if not changed:
            assert math.isnan(row["step"])
        else:
            middle, up = (series[0] + series[100]) / 2, series[100] > series[0]
            past = [
                s
                for s in of_three.steps.tolist()
                if (series[s] > middle) == up and series[s] != middle
            ]
            steps = of_three.steps.tolist()
            back = [s for s in steps if s > past[0] and s not in past]
            if back:
                assert (row["passes"], row["returns"]) == (past[0], back[0])
                continue
            assert row["step"] == past[0]
            if not math.isnan(row["step_low"]):
                assert row["step_low"] <= row["step"] <= row["step_high"]


def test_leaders_are_chosen_on_one_half_and_told_on_the_other(of_three: Checkpoints) -> None:
    column = next(c for c in of_three.columns("self") if c.label == "previous")
    for numbers, leader in zip(
        of_three.numbers("self", column), of_three.best_heads("self", column), strict=True
    ):
        assert leader.place is not None
        assert numbers.choice[leader.place] == np.nanmax(numbers.choice)
        assert leader.held_out.value == numbers.report.value[leader.place]
        assert leader.value.value == numbers.heads.value[leader.place]
        assert leader.uniform == numbers.uniform[leader.place[0]]


def test_functions_are_those_of_the_studies(place: Path, of_three: Checkpoints) -> None:
    """In the table, in shares of families, on the tiles of each step, and in the list of heads."""
    table = of_three.functions
    written = pd.read_parquet(place / "site" / "data" / "functions.parquet")
    pd.testing.assert_frame_equal(written, table)
    families = of_three.families("self")
    tiles = checkpoints_data(DrawnCheckpoints(of_three))["self"]
    for step, (name, rows) in enumerate(table.groupby("checkpoint", sort=False)):
        functions = Study.load(place / "studies" / str(name)).functions
        own = functions[["stack", "layer", "head", "function", "noun", "family"]]
        pd.testing.assert_frame_equal(rows[[*own]].reset_index(drop=True), own)
        counts = Counter(rows["family"])
        shares = [counts[family] / len(rows) for family in families]
        assert of_three.family_shares("self")[step].tolist() == pytest.approx(shares)
        assert tiles[step]["heads"] == [
            [f"f-{row.family}", f"L{row.layer}·H{row.head}, {row.noun}"] for row in own.itertuples()
        ]
    (section,) = checkpointheads_page(DrawnCheckpoints(of_three)).sections
    by_step = [rows["noun"].tolist() for _, rows in table.groupby("step")]
    assert [row.first for row in section.rows] == by_step[0]
    assert [row.last for row in section.rows] == by_step[-1]


@pytest.mark.soak
def test_checkpoints_are_continued(place: Path, tmp_path: Path) -> None:
    """What is there is not collected again, and a checkpoint that is new is."""
    mine = tmp_path / "mine"
    shutil.copytree(place, mine)
    before = {f: f.stat().st_mtime_ns for f in (mine / "studies").rglob("arrays.safetensors")}
    tiny.write("gpt2", mine / "run" / "step-500", 3, head=True)
    assert drawn_by(mine, "--out", mine / "site", "--force") == 0
    assert {f: f.stat().st_mtime_ns for f in before} == before
    rows = pd.read_csv(mine / "site" / "data" / "curves.csv")
    assert sorted({*rows["step"]}) == [0, 20, 100, 500]
    text = (mine / "site" / "index.html").read_text(encoding="utf-8")
    assert "step 500" in text


def test_kept_studies_of_other_weights_are_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(place, mine)
    tiny.write("gpt2", mine / "run" / "step-20", 7, head=True)
    assert drawn_by(mine, "--out", mine / "other") == 2
    assert "step-20: got a study of other weights than" in capsys.readouterr().err
    assert not (mine / "other").exists()


def test_stored_studies_give_the_same_bytes_as_collected_ones(place: Path, tmp_path: Path) -> None:
    given = "checkpoints", "--studies", place / "studies", "--title", TITLE, "--quiet"
    assert command(*given, "--out", tmp_path / "site") == 0
    files = sorted(
        file.relative_to(place) for file in (place / "site").rglob("*") if file.is_file()
    )
    assert files
    for file in files:
        assert (place / file).read_bytes() == (tmp_path / file).read_bytes(), file


def test_pages_say_what_is_missing(place: Path, tmp_path: Path) -> None:
    """Without importance there is no loss."""
    study = Study.load(place / "studies" / "step-0")
    without = replace(study, corpus_sums=replace(study.corpus_sums, ablation=None))
    found = checkpoints_of([NamedStudy("a", lambda: without), NamedStudy("b", lambda: without)])
    assert not found.named
    assert found.steps.tolist() == [0, 1]
    render_checkpoints(found, tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Not available: loss" in text
    assert "counted in the order given" in text


def test_charts_of_many_heads_have_those_that_changed_most(
    of_three: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointmeasure, "MOST_LINES", 3)
    page = next(
        p
        for p in checkpointmeasure.measure_pages(DrawnCheckpoints(of_three))
        if "previous" in p.path
    )
    (section,) = page.sections
    rows = section.figure.rows
    assert rows is not None
    column = next(c for c in of_three.columns("self") if c.label == "previous")
    values = of_three.values("self", column)
    change = np.abs(values[-1] - values[0])
    largest = np.argwhere(change >= np.sort(change, axis=None)[-3]).tolist()
    assert sorted({*rows["head"]}) == [f"L{layer}·H{head}" for layer, head in largest]
    assert "The 3 heads that changed most, of 8." in section.figure.caption


def test_other_sentences_are_refused_with_names(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    treebank.write_trees(tmp_path / "fewer.conllu", treebank.MANY[:-1])
    model, study = place / "run" / "step-20", tmp_path / "fewer-20"
    given = "collect", tmp_path / "fewer.conllu", "--model", model, "--out", study, *OPTIONS
    assert command(*given) == 0
    studies = place / "studies" / "step-0", study
    assert command("checkpoints", "--studies", *studies, "--out", tmp_path / "site") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "step-0 and fewer-20: got two studies of different sentences" in line
    assert not (tmp_path / "site").exists()


def test_another_shape_is_refused(place: Path) -> None:
    study = Study.load(place / "studies" / "step-20")
    (stack,) = study.manifest.stacks
    wider = replace(study.manifest, stacks=(replace(stack, causal=False),))
    other = NamedStudy("b", lambda: replace(study, manifest=wider))
    with pytest.raises(StudyError, match=r"^a has 2 × 4 heads .* of one model"):
        checkpoints_of([NamedStudy("a", lambda: study), other])


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["step-0", "step-10"], [0, 10]),
        (["stage1-step1000", "stage1-step143000"], [1000, 143000]),
        (["main", "step-1"], None),
        (["a1", "b1"], None),
    ],
)
def test_steps_come_from_names(names: list[str], steps: list[int] | None) -> None:
    assert steps_of(names) == steps


def test_checkpoints_are_folders_or_revisions(tmp_path: Path) -> None:
    for name in ("step-1", "step-2"):
        tiny.write("gpt2", tmp_path / name)
    (tmp_path / "other").mkdir()
    assert [each.name for each in list_checkpoints(str(tmp_path), [])] == ["step-1", "step-2"]
    with pytest.raises(ModelError, match="no checkpoint step-3; expected folders"):
        list_checkpoints(str(tmp_path), ["step-3"])
    (hub,) = list_checkpoints("some/model", ["step1"])
    assert (hub.model, hub.revision) == ("some/model", "step1")
    with pytest.raises(ConfigError, match="expected revisions of the hub model"):
        list_checkpoints("some/model", [])
    with pytest.raises(ConfigError, match="two names that give the same folder"):
        list_checkpoints("some/model", ["a/b", "a b"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("checkpoints", "x.txt", "--out", "x"), "--model: got 'demo', which has one checkpoint"),
        (
            ("checkpoints", "--studies", "a", "--delete-weights", "--out", "x"),
            "--delete-weights: has no effect with --studies",
        ),
        (("checkpoints", "--studies", "nowhere", "--out", "x"), "nowhere: no study is there"),
        (
            ("checkpoints", "x.txt", "--model", "run", "--keep-studies", "x/k", "--out", "x"),
            "which lies in --out",
        ),
        (("checkpoints", "x.txt", "-m", "gpt2", "--revisions", "a,a", "--out", "x"), "got a twice"),
    ],
)
def test_wrong_use_is_one_line(
    given: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*given) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_what_was_downloaded_alone_is_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cache as the hub's library lays it out; files that commits share stay."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert checkpoint.cached_commits("some/model") == frozenset()
    repo = tmp_path / "hub" / "models--some--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "blobs").mkdir()
    commits = ["a" * 40, "b" * 40]
    for commit in commits:
        (repo / "snapshots" / commit).mkdir(parents=True)
        for name, blob in (("model.safetensors", commit[:8]), ("tokenizer.json", "shared")):
            (repo / "blobs" / blob).write_text(blob)
            (repo / "snapshots" / commit / name).symlink_to(f"../../blobs/{blob}")
    monkeypatch.setattr(
        huggingface_hub,
        "scan_cache_dir",
        partial(huggingface_hub.scan_cache_dir, tmp_path / "hub"),
    )
    assert checkpoint.cached_commits("some/model") == {*commits}
    assert checkpoint.cached_commits("other/model") == frozenset()
    checkpoint.delete_cached("some/model", frozenset(commits[1:]))
    assert checkpoint.cached_commits("some/model") == {commits[0]}
    assert sorted(file.name for file in (repo / "blobs").iterdir()) == ["a" * 8, "shared"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_hub_model_is_discarded_after_each_checkpoint(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Also after one that cannot be read. A download stands in for the hub."""
    there, gone = {"old"}, list[frozenset[str]]()

    def downloading(inputs: object, config: Config, progress: object) -> Study:
        assert (config.model, config.revision) == ("some/model", "step20")
        there.add("new")
        if fails:
            raise ModelError("it cannot be read")
        return Study.load(place / "studies" / "step-20")

    monkeypatch.setattr(models, "collect_study", downloading)
    monkeypatch.setattr(checkpoint, "cached_commits", lambda name: frozenset(there))
    monkeypatch.setattr(checkpoint, "delete_cached", lambda name, commits: gone.append(commits))
    (at,) = list_checkpoints("some/model", ["step20"])
    given = at, ["some.txt"], Config()
    if fails:
        with pytest.raises(ModelError):
            study_of_checkpoint(*given, delete_weights=True, progress=NoProgress())
    else:
        study_of_checkpoint(*given, studies=tmp_path, delete_weights=True, progress=NoProgress())
        assert (tmp_path / "step20" / "manifest.json").is_file()
        monkeypatch.setattr(models, "collect_study", None)  # it is there: nothing is collected
        study_of_checkpoint(*given, studies=tmp_path, delete_weights=True, progress=NoProgress())
    assert gone == [frozenset({"new"})]


def test_self_checks_that_failed_are_named_with_their_checkpoint(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Study.load(place / "studies" / "step-20")
    wrong = Check("attention is the model's own", "self", error=1.0, tolerance=1e-6)
    replace(study, manifest=replace(study.manifest, checks=(wrong,))).save(tmp_path / "step-20")
    studies = place / "studies" / "step-0", tmp_path / "step-20"
    given = "checkpoints", "--studies", *studies, "--quiet", "--out", tmp_path / "site"
    assert command(*given) == 3
    assert "1 self-check failed: step-20: attention is" in capsys.readouterr().err
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Do not trust these numbers" in text


def test_step_0_stands_apart_on_a_logarithmic_axis() -> None:
    axis = step_axis(np.array([0, 1, 10, 100]), named=True)
    assert axis.apart
    assert axis.places == pytest.approx([0, FIRST_STEP_PLACE, (1 + FIRST_STEP_PLACE) / 2, 1])
    assert [text for _, text in axis.labels] == ["0", "1", "10", "100"]
    counted = step_axis(np.array([0, 1, 2]), named=False)
    assert not counted.apart
    assert counted.places == pytest.approx([0, 0.5, 1])


def test_no_line_leads_to_step_0_nor_to_a_missing_value() -> None:
    axis = step_axis(np.array([0, 1, 10, 100]), named=True)
    svg = sparkline(np.array([0.5, 0.5, np.nan, 1.0]), axis, (0.0, 1.0), turn=3)
    dot, line = re.findall(r'<path d="([^"]+)"', svg)
    assert dot == "M0,20.0h4"
    assert line.count("L") == 1
    assert 'class="turn"' in svg


def test_areas_fill_the_whole() -> None:
    axis = step_axis(np.array([0, 1, 10]), named=True)
    shares = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])
    drawn = step_areas(
        "a", "A", shares, parts=[("x", "even"), ("y", "repeats")], texts=["1", "3"], axis=axis
    )
    for name in ("even", "repeats"):  # an area and its square beside the name
        assert drawn.svg.count(f'class="f-{name}" fill="{FAMILY_COLOURS[name][0]}"') == 2
    assert drawn.svg.count("<path") == 3 + 2 + 1  # ticks, areas, rules
    assert ">x 1<" in drawn.svg
    assert 'width="420"' in drawn.svg


def test_a_legend_with_long_names_widens_the_areas() -> None:
    name = "Same words from everywhere"
    drawn = step_areas(
        "a", "A", np.ones((2, 1)), parts=[(name, "same_keys")], texts=["12.5 %"],
        axis=step_axis(np.array([1, 10]), named=True),
    )  # fmt: skip
    start = re.search(rf'<text x="([\d.]+)"[^>]*>{name}', drawn.svg)
    width = re.search(r'viewBox="0 0 (\d+)', drawn.svg)
    assert start is not None
    assert width is not None
    assert float(start[1]) + 5.5 * len(f"{name} 12.5 %") < float(width[1]) < 600


@pytest.mark.soak
def test_checkpoints_show_when_a_training_makes_an_induction_head(trained_run: Path) -> None:
    found = checkpoints_of(stored_studies(trained_run / "studies"))
    assert [each.name for each in found.frames] == [*REVISIONS]
    scores: dict[int, dict[tuple[int, int], float]] = {}  # by step, of each head
    for step, each in zip(found.steps.tolist(), found.frames, strict=True):
        heads = Study.load(trained_run / "studies" / each.name).heads
        rows = heads[heads["metric"] == "induction_score"]
        places = zip(rows["layer"], rows["head"], strict=True)
        scores[step] = dict(zip(places, rows["value"].tolist(), strict=True))
    last = scores[max(scores)]
    best = max(last, key=last.__getitem__)
    assert best[0] == training.LAYERS - 1  # it needs a head below
    series = {step: each[best] for step, each in scores.items()}
    first, end = series[0], series[max(series)]
    assert end > 10 * first
    step = min(step for step, value in series.items() if value > (first + end) / 2)
    table = found.half_rise.query("metric == 'induction_score'").set_index(["layer", "head"])
    assert table["step"].to_dict()[best] == step
    assert step >= 512
    text = (trained_run / "site" / "index.html").read_text(encoding="utf-8")
    assert f"step {step}" in text


def test_a_claim_on_a_head_is_made_only_where_the_table_below_has_a_clear_rise(
    trained_run: Path,
) -> None:
    """Once as measured, once with intervals that reach down to 0 at the last step."""
    found = checkpoints_of(stored_studies(trained_run / "studies"))
    *before, last = found.frames
    wide = {
        name: replace(stack, numbers={
            column: replace(each, report=each.report._replace(low=np.zeros_like(each.report.low)))
            for column, each in stack.numbers.items()
        })
        for name, stack in last.stacks.items()
    }  # fmt: skip
    clear = checkpoints_page(DrawnCheckpoints(found), "clear")
    unclear = checkpoints_page(
        DrawnCheckpoints(replace(found, frames=(*before, replace(last, stacks=wide)))), "unclear"
    )
    (claim,) = (item.claim for item in clear.claims if item.claim.kind == "head")
    text = claim.sentence.text
    rows = [row for row in clear.stacks[0].learnt if f"now {row.does.text}: " in text]
    assert [row.head.text for row in rows] == [text.split(" ")[0]]
    assert all(row.learnt for row in rows)
    assert text.endswith(f"since {rows[0].turn.text}.")
    assert not [item for item in unclear.claims if item.claim.kind == "head"]
    assert {row.when for row in unclear.stacks[0].learnt} <= {"no clear rise to a function"}


@pytest.mark.parametrize("known", [True, False])
def test_the_share_of_induction_heads_is_that_of_the_function(
    of_three: Checkpoints, *, known: bool
) -> None:
    """Without a line if functions could not be told."""
    *before, last = of_three.frames
    stack = last.stacks["self"]
    chosen = ["induction", "mixed", "induction", *["even"] * 5] if known else ["too_few"] * 8
    functions = {
        head: replace(function, id=each)
        for (head, function), each in zip(stack.functions.items(), chosen, strict=True)
    }
    last = replace(last, stacks={"self": replace(stack, functions=functions)})
    page = checkpoints_page(DrawnCheckpoints(replace(of_three, frames=(*before, last))), "three")
    (curve,) = (curve for curve in page.curves if curve.name == "all-heads")
    drawn = re.sub(r"<[^>]+>", "", curve.svg)
    assert (f"induction {percent(2 / 8)}" in drawn) == known
    assert ("Induction:" in curve.caption) == known


def test_heads_that_changed_most_stand_with_the_maps_of_both_ends(of_three: Checkpoints) -> None:
    page = checkpoints_page(DrawnCheckpoints(of_three), "three")
    (stack,) = page.stacks
    changes = changed_heads(of_three, of_three.stacks[0])
    assert [each.head.text for each in stack.changed] == [
        head_name(HeadName("self", *each.place)) for each in changes[:MAX_CHANGED_HEADS]
    ]
    for each in stack.changed:
        assert [picture.title for picture in each.pictures] == ["step 0", "step 100", "difference"]
        assert len({picture.image for picture in each.pictures}) == 3
    tiles = [tile for _, row in stack.wall.atlas.rows for tile in row]
    assert len(tiles) == tiny.LAYERS * tiny.HEADS
    assert sum("points" in tile.label for tile in tiles) == len(changes)


def test_numbers_of_claims_are_those_of_their_rows(place: Path, of_three: Checkpoints) -> None:
    claims = checkpoint_claims(of_three)
    assert claims
    for claim in claims:
        for number in (part for part in claim.sentence.parts if isinstance(part, LinkedNumber)):
            table = pd.read_parquet(place / "site" / "data" / f"{number.table}.parquet")
            for name, value in number.row:
                own = table[name].isna() if value == "" and name == "head" else table[name] == value
                table = table[own]
            assert len(table) == 1
            values = table.select_dtypes("number").to_numpy(float).ravel()
            amount = float(re.sub("[^0-9.]", "", number.text)) / 100
            assert np.isclose(np.abs(values), amount, atol=6e-4).any()


def peak(number: int, study: Path) -> int:
    """The most memory that so many checkpoints take, in bytes."""
    gc.collect()
    tracemalloc.start()
    checkpoints_of([NamedStudy(f"step-{n}", partial(Study.load, study)) for n in range(number)])
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.soak
def test_memory_does_not_grow_with_checkpoints(encoder_site: Site) -> None:
    peak(2, encoder_site.stored)  # modules are loaded
    two, six = (peak(number, encoder_site.stored) for number in (2, 6))
    assert six < 1.1 * two
