"""Facts about kinds of words, by part of speech: which receive attention, and which give it."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics import ids
from headbook.report.leaders import Chosen, chosen_head
from headbook.report.relations import TAG_NAMES
from headbook.report.results import LEAST_PREFERENCE, TAG_VIEW, StackResults
from headbook.report.wording import FEW_WORDS, capital
from headbook.results.fact import Fact, Tested
from headbook.results.number import TIMES, Number
from headbook.results.sentence import say
from headbook.schema import HeadKey, Side, SinkView

# Renormalised, every word would give as much, so that attention given is of another view.
GIVEN_VIEW = SinkView.NOSINK
GIVEN_BY_TAG = "attention given by words of a part of speech"  # claim


def received_key(tag: str) -> HeadKey:
    """Return the key of attention to words of a tag, as a multiple of uniform attention."""
    return HeadKey(ids.POS_RECEIVED_RATIO, TAG_VIEW, tag)


def tag_name(tag: str) -> str:
    """Return the words of a tag as a plural; a tag outside Universal Dependencies by its code."""
    return TAG_NAMES.get(tag, f"words tagged {tag}")


def n_words(results: StackResults, side: Side, tag: str) -> int:
    """Return the number of words of the corpus with a tag."""
    return results.study.manifest.count(side, f"tag.{tag}")


def received_tags(results: StackResults) -> list[str]:
    """Return the tags whose words receive attention, the most frequent first."""
    share = HeadKey(ids.POS_RECEIVED, TAG_VIEW, "")
    tags = [
        tag
        for tag in results.labels(ids.POS_RECEIVED_RATIO)
        if n_words(results, results.stack.keys, tag)
        and results.has_value(*received_key(tag))
        and results.has_value(*share._replace(label=tag))
    ]
    return sorted(tags, key=lambda tag: -n_words(results, results.stack.keys, tag))


def frequent(results: StackResults) -> list[str]:
    """Return the tags of at least `FEW_WORDS` words that receive attention."""
    side = results.stack.keys
    return [tag for tag in received_tags(results) if n_words(results, side, tag) >= FEW_WORDS]


def received(results: StackResults, tag: str) -> list[Number]:
    """Return attention to words of a tag, by layer with attention."""
    layers = results.stack.attention_layers
    return [results.number(received_key(tag), layer, unit=TIMES) for layer in layers]


def given_by_words(results: StackResults) -> Fact:
    """Return attention that words of each part of speech give in each layer.

    The share is divided by that under uniform attention. The two vary together from sentence to
    sentence, so that the interval, which takes the latter as given, is rather too wide.
    """
    evidence = tuple(_given(results))
    return Fact("given_by_words", evidence=evidence, holds=bool(evidence))


def _given(results: StackResults) -> Iterator[Tested]:
    for tag in results.labels(ids.POS_GIVEN):
        key = HeadKey(ids.POS_GIVEN, GIVEN_VIEW, tag)
        if not results.has_value(*key):
            continue
        values, uniform = results.layers(*key), results.uniform(*key).value.tolist()
        for layer in results.stack.attention_layers:
            if uniform[layer] > 0:
                yield Tested(
                    GIVEN_BY_TAG, results.stack.name, key.metric, str(key.view), key.label,
                    values.at(layer), layer, baseline="uniform attention",
                    baseline_value=uniform[layer],
                )  # fmt: skip


def most_attending_head(results: StackResults, tag: str) -> Chosen | None:
    """Return the head that attends most to words of a tag; None with too few observations."""
    chosen = chosen_head(results, received_key(tag))
    return chosen if chosen and chosen.held_out.events >= FEW_WORDS else None


def most_received(results: StackResults) -> Fact:
    """Return which kind of words receives most attention in any layer.

    One half of the sentences chooses the kind and the layer; the other half tests this choice once.
    The number is that of all sentences.
    """
    if not received_tags(results):
        measured = ids.POS_RECEIVED_RATIO in results.by_id
        why = "the texts have no parts of speech" if measured else "metrics of parts of speech"
        return Fact("words", say("Not measured here: {why}.", why=why), holds=False)
    chosen = _chosen(results)
    if chosen is None:
        text = say(f"Not known: no part of speech has {FEW_WORDS} words.")
        return Fact("words", text, holds=False)
    tag, layer = chosen
    times = results.number(received_key(tag), layer, unit=TIMES)
    held_out = results.split(HELD_OUT, *received_key(tag), of="layers").at(layer)
    holds = held_out.low >= LEAST_PREFERENCE and held_out.effective >= MIN_EFFECTIVE
    clear = "{Words}{where}: they receive {times:times} what uniform attention would give them."
    unclear = (
        "Not clear: one half of the sentences chooses {words}{where}, {times:times} uniform "
        f"attention, and the other does not confirm {LEAST_PREFERENCE:g} times."
    )
    words, where = tag_name(tag), _place(results, layer)
    template = clear if holds else unclear
    text = say(template, Words=capital(words), words=words, where=where, times=times)
    return Fact("words", text, holds=bool(holds))


def _chosen(results: StackResults) -> tuple[str, int] | None:
    """Return the kind and the layer of the largest number on the selection split."""
    ranked = [
        (float(chosen[layer]), tag, layer)
        for tag in frequent(results)
        for chosen in (results.split(SELECTION, *received_key(tag), of="layers").value,)
        for layer in results.stack.attention_layers
        if not np.isnan(chosen[layer]) and results.number(received_key(tag), layer).known
    ]
    return max(ranked)[1:] if ranked else None


def _place(results: StackResults, layer: int) -> str:
    """Return a layer as a phrase: ``, in the last layer``; empty if the stack has one layer."""
    stack, layers = results.stack.name, results.stack.attention_layers
    of_stack = {"self": "", "cross": " of cross-attention"}.get(stack, f" of the {stack}")
    if len(layers) == 1:
        return ""
    name = {layers[0]: "the first layer", layers[-1]: "the last layer"}.get(layer, f"layer {layer}")
    return f", in {name}{of_stack}"
