"""Attention of one sentence as data of scripts: maps, tokens and words, queries and keys."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.charts import images
from headbook.charts.theme import coarse, ink_steps, rgba_ramp
from headbook.report.results import StackResults
from headbook.report.word_attention import word_names
from headbook.report.wording import sentence_file, size_text
from headbook.schema import AttentionStack
from headbook.study.manifest import MissingPart
from headbook.study.sentence_data import (
    MAX_QUERY_KEY_BYTES,
    UINT8_STEPS,
    QueriesAndKeys,
    SentenceData,
    StoredSentence,
    StoredText,
    bytes_needed,
)
from headbook.study.study import Study
from headbook.study.token_outputs import NO_OUTPUT, by_axis, padded_outputs

DIGITS = 4  # significant digits of norms of values
MOST_BYTES = 2_000_000  # bytes of a stack's maps in a sentence's data file
WIDEST = 1344  # pixels of the grid of maps on the widest page
LARGEST = 112  # pixels from one map to the next
GAPS = 28  # a gap between two texts is one part in so many of a small map
SMALLEST = 24  # pixels from one map to the next, the least for a click target


def has_exact_maps(maps: NDArray[np.uint8] | None) -> bool:
    """Whether a sentence's page has the numbers of its maps."""
    return maps is not None and maps.size <= MOST_BYTES


def weight_picture(steps: NDArray[np.uint8]) -> str:
    """Return a map as an image address; colours follow the square root of the weight.

    Args:
        steps: weights in steps of 1/255. *Shape:* ``(query, key)``.
    """
    small = images.shrunk(steps, images.MAX_PREVIEW_PIXELS)
    return images.inline_map(coarse(ink_steps(small / UINT8_STEPS)), rgba_ramp())


def pitch(stack: AttentionStack) -> int:
    """Return the pixels from one map to the next on the widest page."""
    return max(SMALLEST, min(LARGEST, WIDEST // stack.n_heads))


def few_shades(stack: AttentionStack, maps: NDArray[np.uint8] | None) -> bool:
    """Whether scripts draw all maps anew: their weights are known, and no map is shrunk."""
    return maps is not None and has_exact_maps(maps) and max(maps.shape[2:]) <= 2 * pitch(stack)


def sheet_picture(
    stack: AttentionStack, sentence: StoredSentence, maps: NDArray[np.uint8]
) -> bytes:
    """Return one picture of the maps of all heads in a sentence, as a PNG.

    Before tokens that begin a sentence of a passage, or the second text of a pair, is a gap.

    Args:
        maps: maps of the layers with attention, in steps of 1/255.
            *Shape:* ``(layer, head, query, key)``.
    """
    steps = ink_steps(maps / UINT8_STEPS)
    steps = coarse(steps) if few_shades(stack, maps) else steps
    gap = max(1, round(max(maps.shape[2:]) / GAPS))
    for axis, side in ((2, stack.queries), (3, stack.keys)):
        starts = np.array(sentence_starts(sentence.texts[side]), np.int64)
        steps = np.insert(steps, np.repeat(starts, gap), 0, axis)
    return images.map_sheet(steps, rgba_ramp(), side=pitch(stack))


def attention_data(
    stack: AttentionStack,
    sentence: StoredSentence,
    maps: NDArray[np.uint8],
    norms: NDArray[np.float32] | None,
) -> dict[str, Any]:
    """Return the maps of one sentence, with the data for views and for words.

    Args:
        maps: weights before any view, in steps of 1/255. *Shape:* ``(..., query, key)``.
        norms: norm of each key's value after the head's part of W_O; None or empty if unknown.
            *Shape:* ``(..., key)``.

    Returns:
        ``queries`` and ``keys`` (see `text_data`; ``queries`` only if they are another text),
        ``causal``, ``weights`` (bytes, row by row), ``norms`` (in the order of the maps).
    """
    data: dict[str, Any] = {
        "keys": text_data(sentence.texts[stack.keys]),
        "causal": stack.causal,
        "weights": maps.tobytes(),
        "norms": [] if norms is None else [float(f"{n:.{DIGITS}g}") for n in norms.ravel()],
    }
    if stack.crosses:
        data["queries"] = text_data(sentence.texts[stack.queries])
    return data


def text_data(text: StoredText) -> dict[str, Sequence[Any]]:
    """Return the tokens of a text, and its words: runs of tokens that pages can add up.

    Returns:
        ``pieces``; ``special`` (0 or 1); ``units``: the number of each token's word; ``names`` of
        the words, in the text's own letters; in passages ``starts``: the first token of every
        sentence but the first. A token without a word is a word of its own.
    """
    names = word_names(text)
    numbers: dict[int, int] = {}
    units: list[int] = []
    spelled: list[str] = []
    for index, (piece, word) in enumerate(zip(text.pieces, text.words, strict=True)):
        own = word if word >= 0 else -1 - index
        if own not in numbers:
            numbers[own] = len(numbers)
            spelled.append((names[word] if word >= 0 else "") or piece)
        units.append(numbers[own])
    data: dict[str, Sequence[Any]] = {
        "pieces": text.pieces,
        "special": [int(special) for special in text.special],
        "units": units,
        "names": spelled,
    }
    if starts := sentence_starts(text):
        data["starts"] = starts
    return data


def sentence_starts(text: StoredText) -> list[int]:
    """Return the first token of each sentence of a passage, or text of a pair, but the first."""
    places = (
        next(
            (
                place
                for place, (start, end) in enumerate(text.spans)
                if start >= part_start and end > start and not text.special[place]
            ),
            0,
        )
        for part_start, _ in text.parts[1:] or text.of_pair[1:]
    )
    return [place for place in places if place]


def has_outputs(data: SentenceData, stack: AttentionStack, sentence: StoredSentence) -> bool:
    """Whether the page of a sentence shows similarities of head outputs beside its maps."""
    name = stack.name, sentence.index
    stored = (*name, stack.attention_layers[0]) in data.outputs
    return stored and has_exact_maps(data.maps.get(name))


def similarity_data(
    data: SentenceData, stack: AttentionStack, sentence: StoredSentence
) -> dict[str, Any] | None:
    """Return the head outputs of a sentence, or None if pages do not show its similarities.

    Returns:
        ``tokens``: positions of the tokens with an output; ``axes``; ``mean``: means of all heads,
        in float32, lowest byte first; ``low`` and ``high``: bytes of the deviations in the order of
        `by_axis`. A deviation of n is written as 2n, one of -n as 2n - 1, so that most high bytes
        are 0, which compress well.
    """
    if not has_outputs(data, stack, sentence):
        return None
    name = stack.name, sentence.index
    by_layer = {layer: data.outputs[(*name, layer)] for layer in stack.attention_layers}
    mean, deviations = padded_outputs(stack, by_layer)
    tokens = np.flatnonzero((deviations[..., 0] != NO_OUTPUT).any((0, 1)))
    numbers = by_axis(deviations[:, :, tokens]).astype(np.int32)
    codes = np.where(numbers < 0, -2 * numbers - 1, 2 * numbers).astype("<u2")
    return {
        "tokens": tokens.tolist(),
        "axes": deviations.shape[3],
        "mean": mean.astype("<f4").tobytes(),
        "low": (codes & 0xFF).astype(np.uint8).tobytes(),
        "high": (codes >> 8).astype(np.uint8).tobytes(),
    }


FOLDER = "data/neurons"


def has_queries_keys(study: Study, stack: AttentionStack, sentence: StoredSentence) -> bool:
    """Whether pages have the queries and keys of a sentence beside its weights."""
    place = stack.name, sentence.index
    kept = any(name[:2] == place for name in study.sentence_data.queries_and_keys)
    return kept and has_exact_maps(study.sentence_data.maps.get(place))


def neuron_files(stack: AttentionStack, sentence: StoredSentence) -> str:
    """Return the address of the files of a sentence's layers, up to the layer's number."""
    return f"{FOLDER}/{sentence_file(sentence.number)}-{stack.name}-L"


def reason(results: StackResults, sentence: StoredSentence) -> str:
    """Return why a page has no queries and keys of a sentence; empty if it has them.

    The reason is a sentence without its capital and its full stop.
    """
    study, stack = results.study, results.stack
    if has_queries_keys(study, stack, sentence):
        return ""
    if not has_exact_maps(study.sentence_data.maps.get((stack.name, sentence.index))):
        return "its weights are not shown one by one"
    for gap in study.manifest.gaps:
        if gap.key in {MissingPart.QUERIES, MissingPart.WEIGHTS} and gap.stack in {"", stack.name}:
            return gap.why
    queries, keys = (len(sentence.texts[side].pieces) for side in (stack.queries, stack.keys))
    needed = bytes_needed(stack, queries, keys)
    if needed > MAX_QUERY_KEY_BYTES:
        return (
            f"its queries and keys take {size_text(needed)}; expected at most "
            f"{size_text(MAX_QUERY_KEY_BYTES)}"
        )
    kept = len({index for name, index, _ in study.sentence_data.queries_and_keys
                if name == stack.name})  # fmt: skip
    first = {0: "no sentence", 1: "the first sentence"}.get(kept, f"the first {kept:,} sentences")
    return (
        f"queries and keys were kept of {first}; --query-key-sentences {sentence.number} keeps more"
    )


def neurons_data(
    study: Study, stack: AttentionStack, sentence: StoredSentence
) -> Iterator[tuple[int, Any]]:
    """Yield each layer with the content of its file; nothing if pages have no queries and keys."""
    if not has_queries_keys(study, stack, sentence):
        return
    for (name, index, layer), queries_and_keys in study.sentence_data.queries_and_keys.items():
        if (name, index) == (stack.name, sentence.index):
            yield layer, _data(queries_and_keys)


def _data(queries_and_keys: QueriesAndKeys) -> dict[str, Any]:
    """Return the numbers of one layer; arrays as bytes, row by row, lowest byte first.

    ``bits``: of each number of queries and keys, which count steps of the scale of their head, or
    of their dimension in the head;
    ``error``: largest difference of a weight made of them.
    """
    rounded = queries_and_keys.rounded()
    return {
        "heads": len(rounded.queries),
        "keyHeads": len(rounded.keys),
        "width": rounded.queries.shape[2],
        "scaling": float(queries_and_keys.scaling),
        "bits": 8 * rounded.queries.itemsize,
        "error": rounded.error,
        "queries": rounded.queries.tobytes(),
        "keys": rounded.keys.tobytes(),
        "queryScales": rounded.query_scales.astype("<f4").tobytes(),
        "keyScales": rounded.key_scales.astype("<f4").tobytes(),
        "added": queries_and_keys.added.astype("<f4").tobytes(),
        "seen": queries_and_keys.seen.tobytes(),
    }
