"""Checks of a study that is loaded: shapes by its manifest, finite numbers, indices in range.

A study may have been made or changed by other software. Pages index its arrays by layers, heads,
sentences and tokens, so that one wrong shape or index would cause an exception in unrelated code
or wrong numbers on a page.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from itertools import chain
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import N_SPLITS
from headbook.errors import StudyError
from headbook.inputs import NO_HEAD
from headbook.metrics import all_metrics
from headbook.schema import BaselineRun, HeadKey, Side, TokenKey
from headbook.study.ablation.results import AblationResults, MissedToken
from headbook.study.array_rules import (
    RULES,
    STACK_SIZES,
    Rule,
    Sizes,
    field_agreements,
    sizes_of,
)
from headbook.study.corpus_sums import PairColumn, SampleColumn
from headbook.study.manifest import Manifest
from headbook.study.sentence_data import Exemplar, MappedSentence, StoredSentence
from headbook.study.table_checks import table_faults


def check_arrays(
    manifest: Manifest, sentences: Mapping[int, StoredSentence], value: Any, place: str = ""
) -> None:
    """Compare all arrays, indices and tables of a study with its manifest and with `RULES`.

    Args:
        manifest: manifest of the study.
        sentences: stored sentences, by index.
        value: everything that is stored beside the manifest.
        place: the file, for messages.

    Raises:
        StudyError: a value breaks its rule; the message has the path of the value.
    """
    checker = _StudyChecker(manifest, sentences)
    try:
        checker.check(value, "", checker.bounds, None, None)
    except StudyError as error:
        raise StudyError(f"{place}{error}") from error


class _StudyChecker:
    """Checker of all values of a study, against sizes from its manifest and its sentences.

    Attributes:
        bounds: sizes and upper bounds that hold for the whole study, by name.
    """

    def __init__(self, manifest: Manifest, sentences: Mapping[int, StoredSentence]) -> None:
        self._stacks = {stack.name: stack for stack in manifest.stacks}
        self._is_metric = {*all_metrics(), *manifest.packages}.__contains__
        self._lengths = {
            index: {side: len(text.pieces) for side, text in sentence.texts.items()}
            for index, sentence in sentences.items()
        }
        tokens = sum(count for name, count in manifest.counts.items() if name.endswith(".tokens"))
        limit = manifest.model.limit
        self.bounds: Sizes = {
            "sentences": manifest.places,
            "place": manifest.places - 1,  # the last index of a sentence
            "tokens": tokens,
            "pairs": 2 * tokens * limit,  # ends of pairs of tokens
            "limit": limit,
        }

    def check(self, value: Any, path: str, sizes: Sizes, rule: Rule | None, hint: Any) -> None:
        """Check a value and all values in it.

        Args:
            value: a record, a mapping, a tuple, an array, a table or a number.
            path: path of the value in the study, for messages.
            sizes: sizes and upper bounds from the records that hold the value, by name; ``lengths``
                are numbers of tokens by side.
            rule: rule of the field that holds the value; None without one.
            hint: declared type of the field that holds the value; None without one.
        """
        if isinstance(value, np.ndarray):
            self._check_array(value, path, sizes, rule or Rule(), hint)
        elif isinstance(value, pd.DataFrame):
            self._check_table(value, path)
        elif isinstance(value, Mapping):
            for key, element in value.items():
                place = f"{path}/{'/'.join(map(str, key)) if isinstance(key, tuple) else key}"
                element_sizes = sizes | self._sizes_of_key(key, place, sizes)
                self.check(element, place, element_sizes, rule, hint)
        elif is_dataclass(value) or isinstance(value, MissedToken):
            self._check_record(value, path, sizes, rule)
        elif isinstance(value, tuple):
            for index, element in enumerate(value):
                self.check(element, f"{path}/{index}", sizes, rule, hint)
        elif isinstance(value, int) and rule is not None:
            self._check_bounds(value, value, path, sizes, rule)

    def _check_record(self, value: Any, path: str, sizes: Sizes, rule: Rule | None) -> None:
        """Check all fields of a record; a size that one field fixes holds for the next fields."""
        if isinstance(value, StoredSentence):
            _check_sentence(value, path)
            return
        sizes = sizes | sizes_of(value) | {"owner": rule or Rule()}
        if isinstance(value, MappedSentence):
            sizes["lengths"] = {side: len(text.pieces) for side, text in value.texts.items()}
        if isinstance(value, Exemplar):
            self._check_head(value.head, path)
            sizes |= self._sizes_of_place(value.head.stack, value.index, path)
        if isinstance(value, AblationResults):
            for head in value.heads:
                self._check_head(head, path)
        kind: Any = type(value)
        rules = RULES.get(kind, {})
        self._check_metrics(getattr(value, "columns", ()), path)
        for name, hint in _hints(kind).items():
            self.check(getattr(value, name), f"{path}/{name}", sizes, rules.get(name), hint)
        for agrees, expected in field_agreements(value, sizes):
            if not agrees:
                raise _error(path, "got inconsistent fields", expected)

    def _check_metrics(self, columns: Iterable[Any], path: str) -> None:
        """Check that numbers are those of metrics; columns of ablation are named otherwise."""
        for column in columns:
            is_number = isinstance(column, HeadKey | TokenKey | SampleColumn | PairColumn)
            if is_number and not self._is_metric(column.metric):
                expected = "metrics that Headbook or a package has"
                raise _error(f"{path}/columns", f"got {column.metric}", expected)

    def _check_array(
        self, array: NDArray[Any], path: str, sizes: Sizes, rule: Rule, hint: Any
    ) -> None:
        """Check the type, the shape, the bounds and the order of an array by its rule."""
        if rule.may_be_empty and not array.size:
            return
        kinds = _dtype_kinds(hint)
        if kinds and array.dtype.kind not in kinds:
            raise _error(path, f"got type {array.dtype}", f"type {' or '.join(kinds)}")
        if "*" in rule.shape:  # the cells have the shape and bounds of the rule of the owner
            owner: Rule = sizes["owner"]
            shape = rule.shape.replace("*", owner.shape)
            high = owner.high if rule.high == math.inf else rule.high
            rule = Rule(shape, max(rule.low, owner.low), high, rule.gaps or owner.gaps)
        gaps, words = rule.gaps, rule.shape.split()
        if len(words) != array.ndim or not all(
            _has_size(word, size, sizes) for word, size in zip(words, array.shape, strict=True)
        ):
            expected = (f"{word} {sizes[word]}" if word in sizes else word for word in words)
            raise _error(path, f"got shape {array.shape}", f"({', '.join(expected)})")
        unbounded = rule.low == -math.inf and rule.high == math.inf
        if not array.size or (unbounded and (gaps or array.dtype.kind not in "fc")):
            return
        smallest, largest = (np.fmin, np.fmax) if gaps else (np.minimum, np.maximum)
        low, high = smallest.reduce(array, axis=None), largest.reduce(array, axis=None)
        if not gaps and not (math.isfinite(low) and math.isfinite(high)):
            raise _error(path, "got NaN or an infinite number", "finite numbers")
        self._check_bounds(low, high, path, sizes, rule)
        if rule.ascending and not (np.diff(array) > 0).all():
            raise _error(path, "got numbers out of order", "ascending ones")

    def _check_bounds(self, low: Any, high: Any, path: str, sizes: Sizes, rule: Rule) -> None:
        highest = rule.high if isinstance(rule.high, float | int) else sizes[rule.high]
        if low < rule.low or high > highest:
            outlier = f"{high:g}" if high > highest else f"{low:g}"
            raise _error(path, f"got {outlier}", f"{rule.low:g} to {highest:g}")

    def _check_head(self, name: tuple[str, int, int], path: str) -> None:
        stack, layer, head = name
        known_stack = self._stacks.get(stack)
        if (
            known_stack is None
            or layer not in known_stack.attention_layers
            or not 0 <= head < known_stack.n_heads
        ):
            raise _error(path, f"got head {stack} {layer} {head}", "a head of the model")

    def _check_table(self, table: pd.DataFrame, path: str) -> None:
        faults = table_faults(
            table, self._stacks, self._is_metric,
            n_sentences=self.bounds["sentences"], n_tokens=self.bounds["limit"],
        )  # fmt: skip
        for column, got, expected in faults:
            raise _error(f"{path}/{column}".rstrip("/"), f"got {got}", expected)

    def _sizes_of_key(self, key: Any, path: str, sizes: Sizes) -> Sizes:
        """Return the sizes that the key of a mapping fixes: a stack, a side, a place."""
        if isinstance(key, BaselineRun):
            return {}
        if isinstance(key, tuple):
            stack, index, *_ = key
            return self._sizes_of_place(stack, index, path)
        if isinstance(key, Side):
            return {"own": sizes.get("lengths", {}).get(key, -1)}
        if key in self._stacks:
            return self._sizes_of_stack(key, path, sizes.get("lengths", {}))
        return {}

    def _sizes_of_place(self, stack: str, index: int, path: str) -> Sizes:
        if index not in self._lengths:
            raise _error(path, f"got sentence {index + 1}", "one of the stored sentences")
        return self._sizes_of_stack(stack, path, self._lengths[index])

    def _sizes_of_stack(self, name: str, path: str, lengths: Mapping[Side, int]) -> Sizes:
        if name not in self._stacks:
            raise _error(path, f"got stack {name}", " or ".join(self._stacks))
        stack = self._stacks[name]
        query, key = lengths.get(stack.queries, -1), lengths.get(stack.keys, -1)
        return {
            "layer": stack.n_layers,
            "head": stack.n_heads,
            "row": stack.n_heads + 2,
            "state": stack.n_layers + 1,
            "every_head": len(stack.attention_layers) * stack.n_heads,
            "query": query,
            "key": key,
            "last_query": query - 1,
            "last_key": key - 1,
        }


def _check_sentence(sentence: StoredSentence, path: str) -> None:
    """Check that a stored sentence has a value for each token, and offsets inside its text.

    Raises:
        StudyError: a value is missing, or an offset lies outside the text.
    """
    if int(path.rpartition("/")[2]) != sentence.index:
        raise _error(path, f"got index {sentence.index}", "the index that is its key")
    if sentence.half not in range(N_SPLITS):
        raise _error(path, f"got half {sentence.half}", "0 or 1")
    for side, text in sentence.texts.items():
        n_words = max(len(text.heads), 1 + max(text.words, default=-1))
        by_token = {len(text.spans), len(text.special), len(text.words), len(text.tags)}
        consistent = by_token <= {len(text.pieces)}
        consistent &= len(text.heads) == len(text.relations)
        consistent &= min(text.words, default=0) >= -1
        consistent &= all(head == NO_HEAD or 0 <= head < n_words for head in text.heads)
        ends = chain(text.spans, text.parts, ((r.start, r.end) for r in text.regions))
        consistent &= all(0 <= start <= end <= len(text.text) for start, end in ends)
        if not consistent:
            raise _error(
                f"{path}/texts/{side}",
                "got lists of other lengths or indices",
                "a value for each token",
            )


def _has_size(alternatives: str, size: int, sizes: Sizes) -> bool:
    """Whether a dimension has its size; a name without a known size is entered in ``sizes``."""
    for name in alternatives.split("|"):
        expected = int(name) if name.isdigit() else sizes.get(name)
        if expected is None and name not in STACK_SIZES:
            expected = sizes[name] = size
        if size == expected:
            return True
    return False


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _dtype_kinds(hint: Any) -> str:
    """Return the letters of the numpy kinds that a type hint allows; empty for all."""
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return "iu" if hint is np.integer else np.dtype(hint).kind
    return "".join({letter: 0 for part in get_args(hint) for letter in _dtype_kinds(part)})


def _error(path: str, got: str, expected: str) -> StudyError:
    return StudyError(f"{path.lstrip('/')}: {got}, expected {expected}")
