"""How weights come about: the queries and keys of a sentence as scripts of its page read them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from headbook.pages.widgets.instance import exact
from headbook.report.numbers.results import StackResults
from headbook.report.wording import sentence_file, written
from headbook.study.gaps import Lack
from headbook.study.querykeys import MOST_BYTES, QueriesAndKeys, size
from headbook.study.sentencedata import StoredSentence
from headbook.study.study import Study
from headbook.terms import Stack

FOLDER = "data/neurons"


def traced(study: Study, stack: Stack, sentence: StoredSentence) -> bool:
    """Whether pages have the queries and keys of a sentence, beside the weights themselves."""
    place = stack.name, sentence.index
    kept = any(name[:2] == place for name in study.sentence_data.queries_and_keys)
    return kept and exact(study.sentence_data.maps.get(place))


def neuron_files(stack: Stack, sentence: StoredSentence) -> str:
    """Where the files of a sentence's layers are, up to the layer's number."""
    return f"{FOLDER}/{sentence_file(sentence.number)}-{stack.name}-L"


def reason(results: StackResults, sentence: StoredSentence) -> str:
    """Why pages cannot show how the weights of a sentence come about; empty where they can.

    A whole sentence without its full stop.
    """
    study, stack = results.study, results.stack
    if traced(study, stack, sentence):
        return ""
    if not exact(study.sentence_data.maps.get((stack.name, sentence.index))):
        return "its weights are not shown one by one"
    for gap in study.manifest.gaps:
        if gap.key in {Lack.QUERIES, Lack.WEIGHTS} and gap.stack in {"", stack.name}:
            return gap.why
    queries, keys = (len(sentence.texts[side].pieces) for side in (stack.queries, stack.keys))
    needed = size(stack, queries, keys)
    if needed > MOST_BYTES:
        return (
            f"its queries and keys take {written(needed)}; expected at most {written(MOST_BYTES)}"
        )
    kept = int(study.manifest.options.get("neuron_sentences", 0))
    first = {0: "no sentence", 1: "the first sentence"}.get(kept, f"the first {kept:,} sentences")
    return f"queries and keys were kept of {first}; --neuron-sentences {sentence.number} keeps more"


def neurons_data(study: Study, stack: Stack, sentence: StoredSentence) -> Iterator[tuple[int, Any]]:
    """What each layer's file holds, by layer; nothing where pages do not have it."""
    if not traced(study, stack, sentence):
        return
    for (name, index, layer), queries_and_keys in study.sentence_data.queries_and_keys.items():
        if (name, index) == (stack.name, sentence.index):
            yield layer, _data(queries_and_keys)


def _data(queries_and_keys: QueriesAndKeys) -> dict[str, Any]:
    """Numbers of one layer; arrays as bytes, row by row, lowest byte first."""
    single = np.dtype("<f4")
    return {
        "heads": queries_and_keys.queries.shape[0],
        "keyHeads": queries_and_keys.keys.shape[0],
        "width": queries_and_keys.queries.shape[2],
        "scaling": float(queries_and_keys.scaling),
        "queries": queries_and_keys.queries.astype(single).tobytes(),
        "keys": queries_and_keys.keys.astype(single).tobytes(),
        "added": queries_and_keys.added.astype(single).tobytes(),
        "seen": queries_and_keys.seen.tobytes(),
    }
