"""Studies add up in either order, and only where the same was measured in the same way."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from grouped_studies import ROWS, write_rows
from headbook.analysis.accumulators import RatioSums
from headbook.config import Config
from headbook.errors import StudyError
from headbook.run.collect import collect
from headbook.study.compatibility import FREE_OPTIONS
from headbook.study.manifest import Check
from headbook.study.study import Study, merge
from sealed_studies import edit_manifest

TABLES = ("heads", "layers", "controls", "compared", "pairs", "groups", "types", "minimal_pairs")
RECORDED = [field.name for field in dataclasses.fields(Config) if not field.metadata["place"]]
# Another value of every option that decides numbers: whoever adds an option adds one here, or says
# in `headbook.study.compatibility.FREE_OPTIONS` why studies may differ in it.
OTHER: dict[str, object] = {
    "language": "none",
    "target_language": "de",
    "pack": 40,
    "exemplars": 3,
    "vocabulary_sentences": 7,
    "vocabulary_precision": "bfloat16",
    "sample_sentences": 7,
    "tokenizer": "other",
    "source_lang": "eng_Latn",
    "target_lang": "fra_Latn",
    "importance": "full",
    "importance_sentences": 9,
    "margin": 0.5,
    "task": "none",
    "label_column": "kind",
    "acceptable": "good",
    "metrics": "attention_to",
    "facet": "kind",
    "pair_member": "kind",
    "control": "untrained",
    "control_seeds": 1,
    "seed": 1,
}
Made = Callable[..., Study]


@pytest.fixture(scope="module")
def made(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A study of some of the grouped sentences."""

    def of(first: int, last: int, **options: Any) -> Study:
        file = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", ROWS[first:last])
        given = {"model": str(tiny_folder("gpt2")), "annotator": "none", "dtype": "float64"}
        return collect(file, config=Config.of(**(given | {"facet": "kind,label"} | options)))

    return of


@pytest.fixture(scope="module")
def halves(made: Made) -> tuple[Study, Study]:
    """Every metric, and shuffled words beside the model."""
    return made(0, 5, control="shuffled"), made(5, len(ROWS), control="shuffled")


@pytest.mark.parametrize("table", TABLES)
def test_two_studies_give_the_same_numbers_in_either_order(
    halves: tuple[Study, Study], table: str
) -> None:
    one, other = halves
    there, back = (getattr(study, table) for study in (merge([one, other]), merge([other, one])))
    assert len(there)
    pd.testing.assert_frame_equal(there, back, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("table", ["tokens", "nearest"])
def test_tables_of_sentences_differ_in_their_order_alone(
    halves: tuple[Study, Study], table: str
) -> None:
    one, other = halves
    sizes = [study.manifest.counts["sentences"] for study in halves]
    there, back = (getattr(study, table) for study in (merge([one, other]), merge([other, one])))
    number = there["sentence"]
    there = there.assign(sentence=number.where(number > sizes[0], number + sum(sizes)) - sizes[0])
    order = [column for column in there if column not in {"value", "cosine", "similarity"}]
    frames = [each.sort_values(order, ignore_index=True) for each in (there, back)]
    pd.testing.assert_frame_equal(*frames)


@pytest.mark.parametrize("name", [name for name in RECORDED if name not in FREE_OPTIONS])
def test_studies_that_differ_in_an_option_do_not_add(
    halves: tuple[Study, Study], name: str
) -> None:
    one, other = halves
    assert name in OTHER, f"is --{name} one that studies may differ in? see OTHER"
    options = {**other.manifest.options, name: OTHER[name]}
    changed = replace(other, manifest=replace(other.manifest, options=options))
    values = one.manifest.options[name], OTHER[name]
    reported = " and ".join("not given" if value is None else str(value) for value in values)
    for pair in ((one, changed), (changed, one)):
        with pytest.raises(StudyError) as error:
            _ = merge([pair[0], pair[1]])
        assert "\n" not in str(error.value)
        if pair[0] is one:
            assert f"differ in {name} ({reported}); expected" in str(error.value)


def test_every_option_that_studies_may_differ_in_exists_and_has_its_reason() -> None:
    assert FREE_OPTIONS.keys() <= set(RECORDED)
    assert all(FREE_OPTIONS.values())
    assert FREE_OPTIONS.keys() | OTHER.keys() == set(RECORDED)


@pytest.mark.parametrize("name", FREE_OPTIONS)
def test_studies_may_differ_in_what_decides_no_number(
    halves: tuple[Study, Study], name: str
) -> None:
    one, other = halves
    options = {**other.manifest.options, name: "something else"}
    changed = replace(other, manifest=replace(other.manifest, options=options))
    pd.testing.assert_frame_equal(merge([one, changed]).heads, merge([one, other]).heads)


def test_studies_with_different_seeds_do_not_add(halves: tuple[Study, Study], made: Made) -> None:
    """Collected, not only said to be so: random sequences differ, and nothing else."""
    other = made(5, len(ROWS), control="shuffled", seed=1)
    with pytest.raises(StudyError, match=r"differ in seed \(0 and 1\); expected"):
        _ = merge([halves[0], other])
    unknown = {k: v for k, v in other.manifest.options.items() if k != "seed"}
    unsaid = replace(other, manifest=replace(other.manifest, options=unknown))
    with pytest.raises(StudyError, match="differ in random sequences"):
        _ = merge([halves[0], unsaid])


def test_an_older_study_that_does_not_record_an_option_still_adds(
    halves: tuple[Study, Study], tmp_path: Path
) -> None:
    one, other = halves
    other.save(tmp_path / "old")

    def without(table: dict[str, Any]) -> None:
        del table["options"]["seed"], table["options"]["control_seeds"]

    edit_manifest(tmp_path / "old", without)
    old = Study.load(tmp_path / "old")
    pd.testing.assert_frame_equal(merge([one, old]).heads, merge([one, other]).heads)


def test_the_order_of_names_in_a_list_decides_nothing(halves: tuple[Study, Study]) -> None:
    one, other = halves
    options = {**other.manifest.options, "facet": "label, kind"}
    changed = replace(other, manifest=replace(other.manifest, options=options))
    pd.testing.assert_frame_equal(merge([one, changed]).groups, merge([one, other]).groups)


def test_studies_of_different_models_texts_or_versions_do_not_add(
    halves: tuple[Study, Study],
) -> None:
    one, other = halves
    manifest, heads = other.manifest, other.corpus_sums.heads["self"]
    model = replace(manifest.model, revision="sha256:0")
    both = replace(model, dtype="float16", limit=9)
    turned = replace(heads.table, columns=heads.table.columns[::-1])
    corpus_sums = replace(other.corpus_sums, heads={"self": replace(heads, table=turned)})
    longer = replace(manifest.stacks[0], n_heads=9)
    others = {
        "model's revision (sha256:": replace(other, manifest=replace(manifest, model=model)),
        "model's dtype (float64 and float16), model's limit (64 and 9); ": replace(
            other, manifest=replace(manifest, model=both)
        ),
        "annotator of the source (none": replace(
            other, manifest=replace(manifest, annotators={"source": "none"})
        ),
        "stack self's n_heads (": replace(other, manifest=replace(manifest, stacks=(longer,))),
        "what was measured (heads of stack self; ": replace(other, corpus_sums=corpus_sums),
    }
    for different, changed in others.items():
        with pytest.raises(StudyError) as error:
            _ = merge([one, changed])
        assert different in str(error.value)


def test_studies_that_group_by_different_columns_do_not_add(made: Made) -> None:
    """Unasked, a column with a single value does not group: the sum would lack its sentences."""
    several, single = made(0, 5, facet="auto"), made(5, 6, facet="auto")
    assert several.corpus_sums.heads["self"].groups
    assert not single.corpus_sums.heads["self"].groups
    for one, other in ((several, single), (single, several)):
        with pytest.raises(StudyError, match="differ in groups by 'label' "):
            _ = merge([one, other])


def test_a_check_that_only_one_study_has_is_kept(halves: tuple[Study, Study]) -> None:
    one, other = halves
    extra = Check("something else", "", 0.5, 0.1)
    more = replace(other.manifest, checks=(*other.manifest.checks, extra))
    changed = replace(other, manifest=replace(other.manifest, checks=more.checks))
    for merged in (merge([one, changed]), merge([changed, one])):
        assert extra in merged.manifest.checks
        assert len(merged.manifest.checks) == len(more.checks)


def test_random_sequences_count_once(halves: tuple[Study, Study]) -> None:
    one, other = halves
    for stack, table in merge([one, other]).corpus_sums.random.items():
        assert isinstance(table.heads, RatioSums)
        pd.testing.assert_frame_equal(
            pd.DataFrame(table.heads.value.reshape(-1, len(table.columns))),
            pd.DataFrame(one.corpus_sums.random[stack].heads.value.reshape(-1, len(table.columns))),
        )
