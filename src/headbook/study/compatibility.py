"""Check whether two studies were made in the same way, so that they can be merged."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from headbook.config import Config
from headbook.errors import StudyError
from headbook.metrics import all_metrics
from headbook.option_values import flag
from headbook.schema import DIRECTIONS
from headbook.study.corpus_sums import CorpusSums, HeadTable
from headbook.study.manifest import Manifest

if TYPE_CHECKING:
    from headbook.study.study import Study

FREE_OPTIONS = {  # options that may differ between two studies, with the reason
    "title": "it is text for people",
    "model": "hash, sizes and tokenizer are compared instead",
    "revision": "the resolved commit is compared instead",
    "adapter": "the hash of the adapter is compared instead",
    "merge_adapter": "the use of the adapter is compared instead",
    "quantization": "the number format of the stored weights is compared instead",
    "trust_remote_code": "the classes from the model's repository are compared instead",
    "device": "the resolved device is compared instead",
    "dtype": "the number format of the loaded model is compared instead",
    "max_length": "the resolved limit is compared instead",
    "annotator": "the resolved annotators are compared instead",
    "target_annotator": "the resolved annotators are compared instead",
    "batch_tokens": "how sentences are batched changes nothing but rounding",
    "sentence_pages": "each part keeps the pages of its own sentences",
    "limit": "each part may be a part of another file",
    "sample": "each part may be a part of another file",
    "text_column": "the name of a column does not change its texts",
    "pair_column": "the name of a column does not change its texts",
    "subset": "each part may be a part of another dataset",
    "split": "each part may be a part of another dataset",
    "circuits": "merged studies have no circuits, whose tokens are chosen on one study's sentences",
    "query_key_sentences": "each part keeps the queries and keys of its own sentences",
}
# A new option counts as one that changes numbers until it is entered in `FREE_OPTIONS`.
DECISIVE_OPTIONS = tuple(name for name in Config().recorded() if name not in FREE_OPTIONS)
UNORDERED_OPTIONS = (
    "metrics",
    "facet",
    "control",
    "task",
)  # options whose order does not change numbers
# Fields of `CorpusSums` whose columns must agree.
SUM_FIELDS = ("tokens", "vocabulary", "flows", "sampled", "random", "distances", "geometry",
        "head_outputs",
        "anchors")  # fmt: skip
MAX_DIFFERENCES = 4  # differences that a message names
SUM_TOLERANCE = 1e-3  # relative and absolute difference of equal sums between two machines


def check_compatible(first: "Study", second: "Study") -> None:
    """Check that two studies can be merged.

    Raises:
        StudyError: the studies differ in something that changes numbers; the message names each
            difference with both values.
    """
    manifests = first.manifest, second.manifest
    differences = [*chain(_descriptions(*manifests), _options(*manifests))]
    differences = differences or [
        *chain(_measured(first.corpus_sums, second.corpus_sums), _grouped(first, second))
    ]
    if differences:
        listed = differences[:MAX_DIFFERENCES]
        if len(differences) > MAX_DIFFERENCES:
            listed.append(f"{len(differences) - MAX_DIFFERENCES} more")
        raise StudyError(
            f"two studies that differ in {', '.join(listed)}; expected the same model, "
            "run with the same options: collect one of them again"
        )


def _descriptions(first: Manifest, second: Manifest) -> Iterator[str]:
    """Yield differences of model, stacks and annotators between two manifests."""
    yield from _different(
        "model's ",
        *(dataclasses.asdict(replace(manifest.model, license="")) for manifest in (first, second)),
    )
    stacks = [
        {f"{s.name}'s {name}": value for s in m.stacks for name, value in vars(s).items()}
        for m in (first, second)
    ]
    yield from _different("stack ", *stacks)
    yield from _different("annotator of the ", first.annotators, second.annotators)
    both = first.packages.keys() & second.packages.keys()
    packages = [{name: m.packages[name] for name in sorted(both)} for m in (first, second)]
    yield from _different("package of ", *packages)


def _options(first: Manifest, second: Manifest) -> Iterator[str]:
    """Yield differences of options that change numbers, of those that both manifests record."""
    options_by_flag = [
        {
            flag(name): _comparable(name, manifest.options[name])
            for name in DECISIVE_OPTIONS
            if name in manifest.options
        }
        for manifest in (first, second)
    ]
    shared_flags = options_by_flag[0].keys() & options_by_flag[1].keys()
    shared = [
        {name: options[name] for name in options if name in shared_flags}
        for options in options_by_flag
    ]
    yield from _different("", *shared)


def _comparable(name: str, value: Any) -> Any:
    """Return the value of an option, with lists of names in alphabetical order."""
    is_list = name in UNORDERED_OPTIONS and isinstance(value, str)
    return ",".join(sorted({part.strip() for part in value.split(",")})) if is_list else value


def _different(prefix: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names whose values differ between two mappings, each with both values."""
    for name in dict.fromkeys([*first, *second]):
        first_value, second_value = first.get(name, "nothing"), second.get(name, "nothing")
        if first_value != second_value:
            yield f"{prefix}{name} ({_short(first_value)} and {_short(second_value)})"


def _short(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _measured(first: CorpusSums, second: CorpusSums) -> Iterator[str]:
    """Yield differences of columns between sums that both studies have."""
    first_heads, second_heads = (
        {name: sums.table for name, sums in corpus_sums.heads.items()}
        for corpus_sums in (first, second)
    )
    compared: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("heads", first_heads, second_heads),
        *((name, getattr(first, name), getattr(second, name)) for name in SUM_FIELDS),
    ]
    for name, first_sums, second_sums in compared:
        for stack in (stack for stack in first_sums if stack in second_sums):
            if name == "heads" and _named(first_sums[stack]) != _named(second_sums[stack]):
                yield from _different(
                    f"stack {stack}'s ", *map(_named, (first_sums[stack], second_sums[stack]))
                )
            elif first_sums[stack].columns != second_sums[stack].columns:
                yield f"what was measured ({name} of stack {stack}; made by different versions)"
    for stack in (stack for stack in first.random if stack in second.random):
        if not _same_sums(first.random[stack], second.random[stack]):
            yield f"random sequences (their sums in stack {stack}, which only the seed decides)"


def _named(table: HeadTable) -> dict[str, str]:
    """Return the labels outside Universal Dependencies, which are fixed for a whole corpus."""
    standard_labels = {
        name: metric.labels for name, metric in all_metrics().items() if metric.named
    }
    own_labels = [
        column.label.removesuffix(f":{DIRECTIONS[0]}")
        for column in table.columns
        if column.label not in standard_labels.get(column.metric, (column.label,))
        and not column.label.endswith(DIRECTIONS[1])
    ]
    return {"own tags and relations": ", ".join(dict.fromkeys(own_labels)) or "none"}


def _grouped(first: "Study", second: "Study") -> Iterator[str]:
    """Yield metadata columns that both studies have and that group sentences in one alone."""
    for study, other_study in ((first, second), (second, first)):
        sentences = study.sentence_data.sentences.values()
        filled_columns = {
            name for sentence in sentences for name, value in sentence.metadata.items() if value
        }
        for name in sorted((_columns(other_study) - _columns(study)) & filled_columns):
            yield f"groups by '{name}' (in one only; see --facet)"


def _columns(study: "Study") -> set[str]:
    return {group.column for sums in study.corpus_sums.heads.values() for group in sums.groups}


def _same_sums(first: HeadTable, second: HeadTable) -> bool:
    """Whether two tables have nearly the same sums, or columns that differ."""
    ratio_pairs = zip((first.heads, first.layers), (second.heads, second.layers), strict=True)
    return first.columns != second.columns or all(
        np.allclose(sums.sums, other_sums.sums, rtol=SUM_TOLERANCE, atol=SUM_TOLERANCE)
        for sums, other_sums in ratio_pairs
    )
