"""Checks of a study that is loaded: shapes by its manifest, finite numbers, indices in range.

A study may come from somebody else. Pages index its arrays by layers, heads, sentences and tokens,
so that one wrong shape or index would end in an exception far from its cause, or in a page of wrong
numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from itertools import chain
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.errors import StudyError
from headbook.inputs import NO_HEAD
from headbook.schema import BaselineRun, Side
from headbook.study.ablation import AblationResults, MissedToken
from headbook.study.array_rules import OF_A_STACK, RULES, Rule, Sizes, field_agreements, sizes_of
from headbook.study.manifest import Manifest
from headbook.study.sentence_data import NEAREST, TOKENS, Exemplar, MappedSentence, StoredSentence

TABLES = (TOKENS, NEAREST)  # columns of each


def check_arrays(
    manifest: Manifest, sentences: Mapping[int, StoredSentence], value: Any, place: str = ""
) -> None:
    """Compare all arrays, indices and tables of a study with its manifest and with `RULES`.

    Args:
        sentences: stored sentences, by index.
        value: everything that is stored beside the manifest.
        place: the file, for messages.

    Raises:
        StudyError: one of them is not as it must be; the message names it.
    """
    walk = _StudyChecker(manifest, sentences)
    try:
        walk.check(value, "", walk.bounds, None, None)
    except StudyError as error:
        raise StudyError(f"{place}{error}") from error


class _StudyChecker:
    """A walk over a study that knows the sizes which the manifest and the sentences fix."""

    def __init__(self, manifest: Manifest, sentences: Mapping[int, StoredSentence]) -> None:
        self._stacks = {stack.name: stack for stack in manifest.stacks}
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
            path: where the value stands in the study.
            sizes: sizes and upper bounds that owners of the value fix, by name; ``lengths`` are
                numbers of tokens by side.
            rule: what the owner says of the value.
            hint: the type that the owner declares.
        """
        if isinstance(value, np.ndarray):
            self._check_array(value, path, sizes, rule or Rule(), hint)
        elif isinstance(value, pd.DataFrame):
            self._check_table(value, path)
        elif isinstance(value, Mapping):
            for key, part in value.items():
                place = f"{path}/{'/'.join(map(str, key)) if isinstance(key, tuple) else key}"
                known = sizes | self._sizes_of_key(key, place, sizes)
                self.check(part, place, known, rule, hint)
        elif is_dataclass(value) or isinstance(value, MissedToken):
            self._check_record(value, path, sizes, rule)
        elif isinstance(value, tuple):
            for number, part in enumerate(value):
                self.check(part, f"{path}/{number}", sizes, rule, hint)
        elif isinstance(value, int) and rule is not None:
            self._check_bounds(value, value, path, sizes, rule)

    def _check_record(self, value: Any, path: str, sizes: Sizes, rule: Rule | None) -> None:
        """Check all fields; sizes found in one hold for the next ones."""
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
        for name, hint in _hints(kind).items():
            self.check(getattr(value, name), f"{path}/{name}", sizes, rules.get(name), hint)
        for fine, expected in field_agreements(value, sizes):
            if not fine:
                raise _wrong(path, "got something else", expected)

    def _check_array(
        self, array: NDArray[Any], path: str, sizes: Sizes, rule: Rule, hint: Any
    ) -> None:
        if rule.may_be_empty and not array.size:
            return
        kinds = _kinds(hint)
        if kinds and array.dtype.kind not in kinds:
            raise _wrong(path, f"got type {array.dtype}", f"type {' or '.join(kinds)}")
        if "*" in rule.shape:  # cells of the owner, which says what they hold
            owner: Rule = sizes["owner"]
            shape = rule.shape.replace("*", owner.shape)
            high = owner.high if rule.high == math.inf else rule.high
            rule = Rule(shape, max(rule.low, owner.low), high, rule.gaps or owner.gaps)
        gaps, words = rule.gaps, rule.shape.split()
        if len(words) != array.ndim or not all(
            _fits(word, size, sizes) for word, size in zip(words, array.shape, strict=True)
        ):
            known = (f"{word} {sizes[word]}" if word in sizes else word for word in words)
            raise _wrong(path, f"got shape {array.shape}", f"({', '.join(known)})")
        unbounded = rule.low == -math.inf and rule.high == math.inf
        if not array.size or (unbounded and (gaps or array.dtype.kind not in "fc")):
            return
        smallest, largest = (np.fmin, np.fmax) if gaps else (np.minimum, np.maximum)
        low, high = smallest.reduce(array, axis=None), largest.reduce(array, axis=None)
        if not gaps and not (math.isfinite(low) and math.isfinite(high)):
            raise _wrong(path, "got NaN or an infinite number", "finite numbers")
        self._check_bounds(low, high, path, sizes, rule)
        if rule.ascending and not (np.diff(array) > 0).all():
            raise _wrong(path, "got numbers out of order", "ascending ones")

    def _check_bounds(self, low: Any, high: Any, path: str, sizes: Sizes, rule: Rule) -> None:
        most = rule.high if isinstance(rule.high, float | int) else sizes[rule.high]
        if low < rule.low or high > most:
            found = f"{high:g}" if high > most else f"{low:g}"
            raise _wrong(path, f"got {found}", f"{rule.low:g} to {most:g}")

    def _check_head(self, name: tuple[str, int, int], path: str) -> None:
        stack, layer, head = name
        known = self._stacks.get(stack)
        if known is None or layer not in known.attention_layers or not 0 <= head < known.n_heads:
            raise _wrong(path, f"got head {stack} {layer} {head}", "a head of the model")

    def _check_table(self, table: pd.DataFrame, path: str) -> None:
        columns = tuple(table.columns)
        if columns not in TABLES:
            raise _wrong(path, f"got columns {', '.join(map(str, columns))}", "those of a study")
        bounds = {"sentence": (1, "sentences"), "position": (0, "limit"), "layer": (0, "layers")}
        layers = max((stack.n_layers for stack in self._stacks.values()), default=0)
        for name, (low, most) in bounds.items():
            values = table[name].dropna()
            if not len(values):
                continue
            if values.dtype.kind not in "iuf":
                raise _wrong(f"{path}/{name}", f"got {values.dtype}", "numbers")
            rule = Rule("", low, most)
            known = self.bounds | {"layers": layers - 1}
            self._check_bounds(values.min(), values.max(), f"{path}/{name}", known, rule)
        if not {*table["stack"].unique()} <= {*self._stacks}:
            raise _wrong(f"{path}/stack", "got another stack", " or ".join(self._stacks))

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
            raise _wrong(path, f"got sentence {index + 1}", "one of the stored sentences")
        return self._sizes_of_stack(stack, path, self._lengths[index])

    def _sizes_of_stack(self, name: str, path: str, lengths: Mapping[Side, int]) -> Sizes:
        if name not in self._stacks:
            raise _wrong(path, f"got stack {name}", " or ".join(self._stacks))
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
    """Check what is stored of a sentence: a value for each token, and places inside its text.

    Raises:
        StudyError: one is missing, or lies outside.
    """
    if int(path.rpartition("/")[2]) != sentence.index:
        raise _wrong(path, f"got index {sentence.index}", "that of its place")
    for side, text in sentence.texts.items():
        n_words = max(len(text.heads), 1 + max(text.words, default=-1))
        by_token = {len(each) for each in (text.spans, text.special, text.words, text.tags)}
        fine = by_token <= {len(text.pieces)}
        fine &= len(text.heads) == len(text.relations)
        fine &= min(text.words, default=0) >= -1
        fine &= all(head == NO_HEAD or 0 <= head < n_words for head in text.heads)
        ends = chain(text.spans, text.parts)
        fine &= all(0 <= start <= end <= len(text.text) for start, end in ends)
        if not fine:
            raise _wrong(f"{path}/texts/{side}", "got other lists", "a value for each token")


def _fits(word: str, size: int, sizes: Sizes) -> bool:
    """Whether a dimension has its size; a size that nothing has fixed is fixed here."""
    for name in word.split("|"):
        known = int(name) if name.isdigit() else sizes.get(name)
        if known is None and name not in OF_A_STACK:
            known = sizes[name] = size
        if size == known:
            return True
    return False


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _kinds(hint: Any) -> str:
    """Return the letters of the numpy kinds that a type hint allows; empty for all."""
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return "iu" if hint is np.integer else np.dtype(hint).kind
    return "".join({letter: 0 for part in get_args(hint) for letter in _kinds(part)})


def _wrong(path: str, found: str, expected: str) -> StudyError:
    return StudyError(f"{path.lstrip('/')}: {found}, expected {expected}")
