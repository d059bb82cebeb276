"""Two merged halves of a corpus are the whole, but for what the merged study says it lacks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headbook
import tiny
import treebank
from headbook.cli.main import main
from headbook.pages.methods_parts.rules import rules
from headbook.report.tables import STUDY_TABLES
from headbook.run.collect import collect
from headbook.schema import TOP_PAIR_SHARES, Side
from headbook.study.corpus_sums import HellingerSums
from headbook.study.merging import merge_gaps
from headbook.study.study import Study, merge
from same_tables import difference
from sites import FAMILIES, Once

KINDS = ("encoder", "decoder", "pair")
# Tables that hold nothing in merged studies.
EMPTY = {"geometry", "uses", "effect_tokens", "composition", "promoted_tokens", "exemplar_tokens"}
CIRCUITS = {"attended_rank", "copying_score", "copy_rate", "copy_rate_negative"}
# Metrics that compare sentences with each other, which baselines keep no statistics for.
ACROSS = {"pattern", "variability"}
# Effects of replaced heads, by metric in tables of effects and of claims.
POOLED = {
    "ablation_effect", "attribution_estimate", "direct_effect", "self_repair", "group_effect",
    "interaction", "pruning", "share_changed", "group_effect_ratio", "share that can go",
    "margin of several heads",
}  # fmt: skip
FITTED = {"attention_parts", "dependency_excess", "output_anisotropy"}  # a fit for each part
OF_EFFECTS = {"importance", "head_groups", "pruning"}
COUNTS = ["n_sentences", "n_observations"]
QUICK: dict[str, Any] = {
    "metrics": "attention_distance,sink_share,attention_to,cosine_to_input,vocabulary_rank,"
    "head_distance",
    "importance": "off", "control": "none", "sentence_pages": "2",
}  # fmt: skip
PARTS = ("first", "second")


def write_studies(
    place: Path, kind: str, names: tuple[str, ...] = ("all", *PARTS), **options: Any
) -> None:
    """Store studies of a corpus collected at once, and of its halves, which share some texts."""
    tiny.write(FAMILIES[kind], place / "model")
    if kind == "pair":
        whole, between = treebank.write_pairs(place / "all.jsonl", treebank.MANY_PAIRS), "\n"
    else:
        whole, between = treebank.write_trees(place / "all.conllu", treebank.MANY), "\n\n"
    blocks = whole.read_text(encoding="utf-8").strip().split(between)
    half = len(blocks) // 2 + 3
    for name, part in zip(PARTS, (blocks[:half], blocks[half:]), strict=True):
        file = whole.with_stem(name)
        file.write_text(between.join(part) + between, encoding="utf-8")
    given: dict[str, Any] = {
        "annotator": "none", "dtype": "float64", "control": "shuffled", **options,
    }  # fmt: skip
    for name in names:
        study = collect(whole.with_stem(name), model=str(place / "model"), **given)
        study.save(place / "studies" / name)


def load_studies(place: Path, names: tuple[str, ...]) -> tuple[Study, ...]:
    return tuple(Study.load(place / "studies" / name) for name in names)


@pytest.fixture(scope="module", params=KINDS)
def whole_and_merged(request: pytest.FixtureRequest, once: Once) -> tuple[Study, Study]:
    """All tables, with pruning in one kind: replacing every head takes long in pairs."""
    kind = request.param
    importance = "full" if kind == "encoder" else "auto"
    place = once(f"merging-{kind}", lambda p: write_studies(p, kind, importance=importance))
    whole, first, second = load_studies(place, ("all", *PARTS))
    return whole, merge([first, second])


@pytest.fixture(scope="module")
def halves_folder(once: Once) -> Path:
    """A folder of the studies of two halves, with a few metrics."""
    return once("merging-halves", lambda p: write_studies(p, "encoder", PARTS, **QUICK)) / "studies"


@pytest.fixture
def halves(halves_folder: Path) -> tuple[Study, ...]:
    return load_studies(halves_folder.parent, PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDY_TABLES)
def test_every_table_of_two_halves_is_that_of_the_whole_or_lacks_what_is_listed(
    whole_and_merged: tuple[Study, Study], name: str
) -> None:
    whole, merged = (STUDY_TABLES[name].build(study) for study in whole_and_merged)
    if name in EMPTY:
        assert merged.empty
        return
    lost = lacking(name, merged)
    if "value" in merged:
        assert merged.loc[lost, "value"].isna().all()
        assert not merged.loc[lost].filter(COUNTS).to_numpy().any()
    pooled, pooled_whole = of_own_means(name, merged), of_own_means(name, whole)
    found = difference(name, whole[~lacking(name, whole) & ~pooled_whole], merged[~lost & ~pooled])
    assert found.where == ()
    assert len(merged[pooled]) or name not in OF_EFFECTS
    if name in OF_EFFECTS and "n_sentences" in whole:
        texts = [c for c in whole if c not in {"rank", "verdict"} and not is_float(whole[c])]
        keys = [key for key in texts if key not in COUNTS]
        both = merged[pooled].merge(whole, on=keys, how="left", suffixes=("", "_whole"))
        kept = both["label"].ne("top_2_percent") if "label" in both else slice(None)
        assert (both["n_sentences"] == both["n_sentences_whole"])[kept].all()


def is_float(column: "pd.Series[Any]") -> bool:
    return pd.api.types.is_float_dtype(column)


def lacking(name: str, table: pd.DataFrame) -> "pd.Series[bool]":
    """Rows that merged studies lack: of pairs above own thresholds, of circuits, of baselines."""
    metric = table.get("metric", pd.Series("", table.index))
    across = metric.isin(ACROSS) & (name == "compared")
    chosen = table.get("label", metric).isin([*TOP_PAIR_SHARES, "top_2_percent"])
    own_mean = metric.eq("high_pair_distance")
    return chosen | own_mean | metric.isin(CIRCUITS) | across


def of_own_means(name: str, table: pd.DataFrame) -> "pd.Series[bool]":
    """Rows for which each part took its own means, or its own weights per distance."""
    metric = table.get("metric", pd.Series("pruning", table.index))
    return (metric.isin(POOLED) & (name in OF_EFFECTS | {"tests"})) | metric.isin(FITTED)


@pytest.mark.slow
def test_a_merged_study_says_what_it_lacks_and_what_is_pooled(
    whole_and_merged: tuple[Study, Study],
) -> None:
    whole, merged = whole_and_merged
    assert whole.manifest.parts == 1
    assert merge_gaps(whole.manifest) == []
    assert merged.manifest.parts == 2
    texts = [gap.what for gap in merge_gaps(merged.manifest)]
    for part in ("geometry of states", "repetition lift", "tokens that replacing heads changes"):
        assert any(part in text for text in texts), part
    assert any("variability" in text and "baselines" in text for text in texts)
    assert any("own means" in text for text in merged.manifest.pooled)
    methods = dict(rules(merged))["Merged"]
    for text in (*texts, *merged.manifest.pooled):
        assert text in repr(merged)
        assert text in methods
    assert merged.corpus_sums.ablation is not None
    assert any("own means" in note for note in merged.corpus_sums.ablation.notes)
    assert "Merged" not in dict(rules(whole))
    assert len(repr(whole).splitlines()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("whole_and_merged", ["encoder"], indirect=True)
def test_the_site_of_a_merged_study_is_drawn(
    whole_and_merged: tuple[Study, Study], tmp_path: Path
) -> None:
    _, merged = whole_and_merged
    merged.save(tmp_path / "study")
    loaded = Study.load(tmp_path / "study")
    assert loaded.manifest.pooled == merged.manifest.pooled
    headbook.render(loaded, tmp_path / "site")
    assert "own means" in (tmp_path / "site" / "importance.html").read_text(encoding="utf-8")
    assert "geometry of states" in (tmp_path / "site" / "methods.html").read_text(encoding="utf-8")


def test_samples_and_pages_of_many_sentences_are_those_of_both_parts(tmp_path: Path) -> None:
    sizes = QUICK | {"sample_sentences": 8, "vocabulary_sentences": 5, "sentence_pages": "3"}
    write_studies(tmp_path, "encoder", **sizes)
    whole, first, second = load_studies(tmp_path, ("all", *PARTS))
    merged = merge([first, second])
    samples, pages = (
        [text for text in merged.manifest.pooled if word in text] for word in ("samples", "page")
    )
    assert len(samples) == len(pages) == 1
    assert "8 or 5" in samples[0]
    assert merged.pairs["n_sentences"].eq(16).all()
    assert whole.pairs["n_sentences"].eq(8).all()
    assert merge([first, second, first]).manifest.pooled == merged.manifest.pooled


def test_texts_that_stand_in_both_parts_are_counted(
    halves_folder: Path,
    halves: tuple[Study, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = halves
    shared = set[str]()
    for study in (first, second):
        texts = {s.texts[Side.SOURCE].text for s in study.sentence_data.sentences.values()}
        shared = shared & texts if shared else texts
    merged = merge([first, second])
    assert merged.manifest.repeated == len(shared) > 1
    places = [str(halves_folder / name) for name in PARTS]
    monkeypatch.setattr(
        "sys.argv", ["headbook", "merge", *places, "--out", str(tmp_path / "merged")]
    )
    main()
    printed = capsys.readouterr().out
    assert f"{len(shared)} texts stand in several" in printed
    assert all(gap.what in printed for gap in merge_gaps(merged.manifest))


def test_what_only_one_part_has_is_missing_and_never_the_number_of_that_part(
    tmp_path: Path,
) -> None:
    write_studies(tmp_path, "encoder", PARTS, **(QUICK | {"importance": "auto"}))
    first, second = load_studies(tmp_path, PARTS)
    stripped = replace(second.corpus_sums, ablation=None, distances={}, vocabulary={})
    second = replace(second, corpus_sums=stripped)
    for merged in (merge([first, second]), merge([second, first])):
        assert merged.importance.empty
        assert merged.pairs.empty
        assert "vocabulary_rank" not in {*merged.words["metric"]}
        texts = " ".join(gap.what for gap in merge_gaps(merged.manifest))
        assert all(word in texts for word in ("importance", "distances", "vocabulary"))


def test_pairs_of_heads_that_one_part_alone_compared_are_missing(
    halves: tuple[Study, ...],
) -> None:
    """In large models each part compares the pairs that it finds similar."""
    first, second = halves
    changed = []
    for study, left_out in ((first, (0, 1)), (second, (2, 3))):
        sums = study.corpus_sums.distances["self"]
        rows, total = sums.rows.copy(), sums.total.copy()
        for a, b in (left_out, left_out[::-1]):
            rows[:, a, b] = total[:, a, b] = 0
        chosen = replace(sums, rows=rows, total=total, alike=HellingerSums(total, sums.rows))
        changed.append(
            replace(study, corpus_sums=replace(study.corpus_sums, distances={"self": chosen}))
        )
    full, merged = (
        one.corpus_sums.distances["self"]
        for one in (merge([first, second]), merge([changed[0], changed[1]]))
    )
    lost = np.zeros(full.rows.shape[1:], bool)
    lost[[0, 1, 2, 3], [1, 0, 3, 2]] = True
    assert not merged.rows[:, lost].any()
    np.testing.assert_allclose(merged.total[:, ~lost], full.total[:, ~lost])


def test_tokens_that_a_part_may_have_left_out_are_missing(
    halves: tuple[Study, ...],
) -> None:
    """A part with a floor does not say how often an item occurs that it did not keep."""
    first, second = halves
    one, other = (study.corpus_sums.affinities["self"] for study in (first, second))
    items = [{*zip(a.query.tolist(), a.key.tolist(), strict=True)} for a in (one, other)]
    assert items[0] - items[1]
    assert items[1] - items[0]
    for floors, wanted in (
        ((1, 1), items[0] | items[1]), ((1, 2), items[1]), ((2, 1), items[0]),
        ((2, 2), items[0] & items[1]),
    ):  # fmt: skip
        parts = [replace(a, floor=floor) for a, floor in zip((one, other), floors, strict=True)]
        merged = parts[0] + parts[1]
        assert {*zip(merged.query.tolist(), merged.key.tolist(), strict=True)} == wanted


def test_options_that_parts_differ_in_are_not_those_of_the_first(
    halves: tuple[Study, ...],
) -> None:
    first, second = halves
    options = {**second.manifest.options, "limit": 7, "batch_tokens": 99}
    other = replace(second, manifest=replace(second.manifest, options=options))
    for merged in (merge([first, other]), merge([other, first])):
        assert not {"limit", "batch_tokens"} & merged.manifest.options.keys()
        assert merged.manifest.options["seed"] == first.manifest.options["seed"]
