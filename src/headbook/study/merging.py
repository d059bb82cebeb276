"""Merging of two studies of one model: what adds up, what is pooled, and what is then missing.

Sums over sentences add up to those of a study of all sentences. Three kinds of numbers do not:

- Numbers of tokens or sentences that are compared with each other, and numbers that rest on a
  threshold or a choice that each part made for itself, are missing in the merged study.
- Effects of replacing heads are those of both parts, each of which took its own means; metrics
  with a fit to the sample likewise, each part with its own.
- Samples that are kept as sums are those of both parts together.

The manifest of the merged study names all of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headbook.analysis.accumulators import RatioSums
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import Metric, SampledMetric, Source
from headbook.schema import NO_OUTLIERS, TOP_PAIR_SHARES, BaselineRun, HeadKey
from headbook.study.ablation.results import OWN_MEANS, AblationResults, HeadSetKind
from headbook.study.compatibility import FREE_OPTIONS
from headbook.study.corpus_sums import CorpusSums, HeadDistances, HeadTable
from headbook.study.manifest import (
    NOT_GIVEN,
    Check,
    Manifest,
    MissingPart,
    NotAvailable,
    Rounding,
)
from headbook.study.sums.buckets import MAX_STORED_HASHES, HeadBuckets

MERGED = "this study was merged, and "  # with which the reasons of its gaps begin
BETWEEN = "; "  # between sources of the texts of several studies
REMEDY = "; collect all sentences in one study"
Tables = Mapping[BaselineRun, Mapping[str, HeadTable]]  # of baselines, by stack
Gaps = Iterator[NotAvailable]

# Parts of the sums that are missing if one of two studies lacks them, in words.
SUMS_IN_WORDS = {
    "vocabulary": "comparisons with the vocabulary",
    "flows": "attention flow",
    "sampled": "head metrics of the sample",
    "random": "head metrics of random sequences",
    "distances": "distances of heads",
    "head_outputs": "metrics of head outputs",
    "affinities": "attention by token",
    "class_flows": "attention between classes of words",
    "types": "paths of vocabulary tokens",
    "state_means": "means of states",
    "tasks": "tasks",
}
SETS_IN_WORDS = {
    HeadSetKind.HEAD: "single heads",
    HeadSetKind.GROUP: "groups of heads",
    HeadSetKind.RANDOM: "random sets",
    HeadSetKind.ORDER: "steps of pruning",
    HeadSetKind.PAIR: "pairs of heads",
}


def missing(what: str, cause: str, key: str = "") -> NotAvailable:
    """Return a gap of a merged study.

    Args:
        what: name of the missing part, in words.
        cause: why two parts do not give it, as the rest of a sentence.
        key: as that of `NotAvailable`.
    """
    return NotAvailable(what, "", f"{MERGED}{cause}{REMEDY}", key)


CIRCUITS = missing("what heads read and write", "each part chose its own tokens and exemplars")
USES = missing("cosines of two uses of a word", "each part compared the uses in its own sentences")


def merge_gaps(manifest: Manifest) -> list[NotAvailable]:
    """Return the gaps of a study that merging has left."""
    return [gap for gap in manifest.gaps if gap.why.startswith(MERGED)]


def repeated_text(manifest: Manifest) -> str:
    """Return how many texts stand in several of the merged studies, in words; empty if none."""
    n_texts = manifest.repeated
    least = "at least " if manifest.counts["sentences"] > MAX_STORED_HASHES else ""
    texts = "1 text stands" if n_texts == 1 else f"{n_texts:,} texts stand"
    return f"{least}{texts} in several of them and count each time" if n_texts else ""


def merge_report(manifest: Manifest) -> Iterator[str]:
    """Yield what a merged study says about its merging, one line each."""
    if repeated := repeated_text(manifest):
        yield f"repeated: {repeated}"
    for gap in merge_gaps(manifest):
        yield f"missing: {gap.what} ({gap.why.removeprefix(MERGED).removesuffix(REMEDY)})"
    yield from (f"pooled: {text}" for text in manifest.pooled)


def merge_sums(first: CorpusSums, second: CorpusSums) -> tuple[CorpusSums, list[NotAvailable]]:
    """Return the sums of two studies, and what the merged study lacks.

    Args:
        first: sums of one study.
        second: sums of the other one, whose indices of sentences begin after those of the first.
    """
    one, other = _shared(first, second), _shared(second, first)
    gaps = [*_not_in_both(first, second), *_unjoinable(one, other)]
    sums = one + other
    distances = {
        stack: _compared_in_both(one.distances[stack], other.distances[stack], both)
        for stack, both in sums.distances.items()
    }
    merged = replace(
        sums,
        distances=distances,
        head_outputs={stack: _without_own_pairs(t) for stack, t in sums.head_outputs.items()},
        buckets={
            stack: tuple(map(_without_own_bucket_pairs, buckets))
            for stack, buckets in sums.buckets.items()
        },
    )
    return merged, gaps


def _shared(sums: CorpusSums, others: CorpusSums) -> CorpusSums:
    """Return the sums whose counterparts another study has as well."""
    shared: dict[str, Any] = {
        name: {key: value for key, value in getattr(sums, name).items() if key in of_other}
        for name in SUMS_IN_WORDS
        for of_other in [getattr(others, name)]
    }
    for name in ("buckets", "token_buckets"):
        of_other = getattr(others, name)
        columns = {stack: {each.columns for each in buckets} for stack, buckets in of_other.items()}
        shared[name] = {
            stack: tuple(each for each in buckets if each.columns in columns[stack])
            for stack, buckets in getattr(sums, name).items()
            if stack in columns
        }
    ablation = sums.ablation if others.ablation else None
    return replace(sums, ablation=ablation, geometry={}, anchors={}, **shared)


def _not_in_both(first: CorpusSums, second: CorpusSums) -> Gaps:
    """Yield what was measured in only one of two studies, and what cannot be taken from both."""
    if first.geometry or second.geometry:
        cause = "the states of different parts were not compared with each other"
        yield missing("geometry of states", cause, MissingPart.GEOMETRY)
    if first.anchors or second.anchors:
        yield missing("anchors of heads", "each part chose its own pairs")
    measured = [sums for part in (first, second) for sums in part.head_outputs.values()]
    if any(key.metric == ids.HIGH_PAIR_DISTANCE for sums in measured for key in sums.columns):
        yield missing("distance of similar tokens", "each part has its own mean distance")
    cause = "only one part has it"
    for name, what in SUMS_IN_WORDS.items():
        if getattr(first, name).keys() != getattr(second, name).keys():
            yield missing(what, cause)
    if (first.ablation is None) != (second.ablation is None):
        yield missing("importance of heads", cause)


def _unjoinable(one: CorpusSums, other: CorpusSums) -> Gaps:
    """Yield what two studies have measured and their sum lacks."""
    if titles := _titles([*_metrics_of_own_pairs(one), *_metrics_of_own_pairs(other)]):
        shares = " and ".join(TOP_PAIR_SHARES)
        yield missing(f"{titles} of the {shares} of pairs", "each part chose its own pairs")
    if any(sums.alike and other.distances[stack].alike for stack, sums in one.distances.items()):
        yield missing("some distances of similar heads", "each part chose its own pairs of heads")
    if any(sums.floor > 1 for part in (one, other) for sums in part.affinities.values()):
        yield missing("attention by rare tokens", "each part kept its own tokens")
    pairs = [(one.ablation, other.ablation), *((one.tasks[n], other.tasks[n]) for n in one.tasks)]
    yield from (
        gap
        for results, others in pairs
        if results is not None and others is not None
        for gap in _unjoinable_effects(results, others)
    )


def _metrics_of_own_pairs(sums: CorpusSums) -> Iterator[str]:
    """Yield the metrics of pairs that a study chose by a threshold of its own."""
    for table in sums.head_outputs.values():
        has_value = np.asarray(table.heads.n_observations.any((0, 1)))
        for index in _own_pairs(table.columns):
            if has_value[index]:
                yield table.columns[index].metric


def _unjoinable_effects(one: AblationResults, other: AblationResults) -> Gaps:
    """Yield what two studies know of ablation and their sum lacks."""
    name = one.targets[0]
    if one.missed or other.missed:
        cause = "each part ranked its own tokens"
        yield missing(f"tokens that replacing heads changes most ({name})", cause)
    if one.top.size or other.top.size:
        yield missing("self-repair on tokens of largest effect", "each part chose its own tokens")
    sets, other_sets = (_sets(results) for results in (one, other))
    kinds = {head_set.kind for head_set, _ in sets ^ other_sets}
    if kinds:
        what = ", ".join(text for kind, text in SETS_IN_WORDS.items() if kind in kinds)
        yield missing(f"some effects ({name}) of {what}", "parts chose different heads")


def _sets(results: AblationResults) -> set[tuple[Any, bytes]]:
    """Return the ablated sets with their heads."""
    return {
        (head_set, members.tobytes())
        for head_set, members in zip(results.sets, results.members, strict=True)
    }


def _titles(metrics: Iterable[str]) -> str:
    """Return the titles of metrics, each once, as a list in words."""
    known = all_metrics()
    return ", ".join(
        dict.fromkeys(known[name].title.lower() if name in known else name for name in metrics)
    )


def _own_pairs(columns: Sequence[HeadKey]) -> list[int]:
    """Return the columns that need a threshold or a mean distance of each part's own."""
    return [
        index
        for index, column in enumerate(columns)
        if column.label in TOP_PAIR_SHARES or column.metric == ids.HIGH_PAIR_DISTANCE
    ]


def _without_own_pairs(table: HeadTable) -> HeadTable:
    """Return a table without numbers of pairs that each part chose."""
    return _emptied(table, _own_pairs(table.columns))


def _emptied(table: HeadTable, columns: Sequence[int]) -> HeadTable:
    """Return a table without the numbers of some columns, which remain."""
    parts = []
    for ratios in (table.heads, table.layers, table.uniform):
        sums = ratios.sums.copy()
        sums[..., columns] = 0
        parts.append(RatioSums(sums))
    return HeadTable(table.columns, *parts)


def _without_own_bucket_pairs(buckets: HeadBuckets) -> HeadBuckets:
    """Return the sums of buckets without those of pairs that each part chose."""
    columns = _own_pairs(buckets.columns)
    if not columns:
        return buckets
    n, d = buckets.n.copy(), buckets.d.copy()
    n[..., columns], d[..., columns] = 0, 0
    return replace(buckets, n=n, d=d)


def _compared_in_both(
    one: HeadDistances, other: HeadDistances, both: HeadDistances
) -> HeadDistances:
    """Return the distances of pairs of heads that both studies compared, if each chose its pairs.

    Args:
        one, other: distances of the studies.
        both: their sum.
    """
    if both.alike is None:
        return both
    compared = (one.rows > 0) & (other.rows > 0)
    return replace(
        both, total=np.where(compared, both.total, 0), rows=np.where(compared, both.rows, 0)
    )


def merge_baselines(first: Tables, second: Tables) -> tuple[Tables, list[NotAvailable]]:
    """Return the numbers of heads of baselines, and what the merged study lacks.

    Baselines hold no statistics of single sentences, so that numbers that compare sentences cannot
    be computed again.
    """
    merged: dict[BaselineRun, dict[str, HeadTable]] = {}
    compared: dict[str, None] = {}
    for run, by_stack in first.items():
        for stack, table in by_stack.items():
            if stack in second.get(run, {}):
                columns = table.columns
                across = [i for i, each in enumerate(columns) if _compares_sentences(each.metric)]
                compared |= dict.fromkeys(columns[index].metric for index in across)
                both = _once(table + second[run][stack])
                both = _emptied(both, [*across, *_own_pairs(columns)])
                merged.setdefault(run, {})[stack] = both
    gaps = []
    if compared:
        cause = "the sentences of different parts were not compared with each other"
        gaps.append(missing(f"{_titles(compared)} of baselines", cause))
    return merged, gaps


def _has_fit(name: str) -> bool:
    metric = all_metrics().get(name)
    return isinstance(metric, SampledMetric) and metric.sample_fit is not None


def _compares_sentences(name: str) -> bool:
    metric = all_metrics().get(name)
    return isinstance(metric, SampledMetric) and metric.compares_sentences


def _once(table: HeadTable) -> HeadTable:
    """Return a sum of two tables in which random sequences, equal in both, count once."""
    metrics: list[Metric | None] = [all_metrics().get(key.metric) for key in table.columns]
    share = [0.5 if getattr(m, "source", None) is Source.RANDOM else 1.0 for m in metrics]
    parts = (table.heads, table.layers, table.uniform)
    return HeadTable(table.columns, *(RatioSums(part.sums * share) for part in parts))


def merge_manifests(first: Manifest, second: Manifest) -> Manifest:
    """Return the manifest of a merged study: what both have in common, with sums of both.

    Options in which studies may differ, and do, are left out.
    """
    options = {
        name: value
        for name, value in first.options.items()
        if name == "title" or name not in FREE_OPTIONS or second.options.get(name) == value
    }
    versions = first.versions, second.versions
    return replace(
        first,
        options=options,
        inputs=first.inputs + second.inputs,
        counts=dict(Counter(first.counts) + Counter(second.counts)),
        versions={
            name: " and ".join(dict.fromkeys(each[name] for each in versions if name in each))
            for name in {**first.versions, **second.versions}
        },
        checks=_merge_checks(first, second),
        checked_sentences=first.checked_sentences + second.checked_sentences,
        gaps=tuple(dict.fromkeys(first.gaps + second.gaps)),
        roundings=merge_roundings(first.roundings + second.roundings),
        not_measured=first.not_measured + second.not_measured,
        fallbacks=first.fallbacks + second.fallbacks,
        packages={**first.packages, **second.packages},
        parts=first.parts + second.parts,
        repeated=first.repeated + second.repeated,
        text_source=_of_both("text_source", first, second),
        text_license=_of_both("text_license", first, second),
    )


def _of_both(field: str, *manifests: Manifest) -> str:
    """Return the source or the licence of texts of two studies, each once.

    A study of samples alone, whose source is known, has none of its own.
    """
    texts = [
        getattr(manifest, field) or NOT_GIVEN
        for manifest in manifests
        if not all(file.sample for file in manifest.inputs)
    ]
    joined = BETWEEN.join(dict.fromkeys(BETWEEN.join(texts).split(BETWEEN)))
    return "" if joined == NOT_GIVEN else joined


def pooled(first: Manifest, second: Manifest, sums: CorpusSums, *, pages: int) -> tuple[str, ...]:
    """Return the numbers that both studies made in their own way, of what a merged study has.

    Args:
        first, second: manifests of both studies.
        sums: sums of the merged study.
        pages: number of sentences that have a page in it.
    """
    n_sentences = first.counts["sentences"] + second.counts["sentences"]
    found = [*first.pooled, *second.pooled]
    if sums.ablation or sums.tasks:
        found.append(f"effects of replacing heads ({OWN_MEANS})")
    sampled = {column.metric for of_stack in sums.sampled.values() for column in of_stack.columns}
    if fitted := [name for name in sorted(sampled) if _has_fit(name)]:
        found.append(f"{_titles(fitted)} (each part with a fit to its own sample)")
    if any(NO_OUTLIERS in str(c.label) for of in sums.vocabulary.values() for c in of.columns):
        found.append("states without outlier dimensions (each part without its own dimensions)")
    sizes = [first.options.get(name) for name in ("sample_sentences", "vocabulary_sentences")]
    limits = [size for size in sizes if size is not None and size < n_sentences]
    if limits:
        most = " or ".join(f"{size:,}" for size in dict.fromkeys(limits))
        found.append(f"numbers from samples (at most {most} sentences of each part together)")
    if 0 < pages < n_sentences:
        found.append("numbers of sentences with a page (the pages of each part)")
    return tuple(dict.fromkeys(found))


def repeated(first: CorpusSums, second: CorpusSums) -> int:
    """Return how many texts stand in both of two studies, of those whose hashes are stored."""
    if first.texts is None or second.texts is None:
        return 0
    hashes = first.texts.smallest.content_hash, second.texts.smallest.content_hash
    return len(np.intersect1d(hashes[0], hashes[1]))


def _merge_checks(first: Manifest, second: Manifest) -> tuple[Check, ...]:
    """Return the checks of both manifests, each with the larger error; NaN counts as larger."""
    checks: dict[tuple[str, str], Check] = {}
    for check in first.checks + second.checks:
        known = checks.setdefault((check.name, check.stack), check)
        checks[check.name, check.stack] = replace(
            known,
            error=float(np.maximum(known.error, check.error)),
            tolerance=min(known.tolerance, check.tolerance),
        )
    return tuple(checks.values())


def merge_roundings(roundings: Iterable[Rounding]) -> tuple[Rounding, ...]:
    """Add roundings of the same side and space."""
    merged: dict[tuple[str, str], Rounding] = {}
    for rounding in roundings:
        key = rounding.side, rounding.space
        known = merged.get(key, replace(rounding, states=0, changed=0, largest=0))
        merged[key] = replace(
            known,
            states=known.states + rounding.states,
            changed=known.changed + rounding.changed,
            largest=max(known.largest, rounding.largest),
        )
    return tuple(merged.values())
