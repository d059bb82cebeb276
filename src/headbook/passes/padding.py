"""Check of metrics before a run: a text has the same value alone and in a padded batch.

A few texts go through the model in one padded batch. Every metric measures the batch, and then each
text alone: the same attention and states with the padding cut off. So a difference comes from the
metric, and not from rounding in the model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, divide
from headbook.attention.flow import LayerFlow, half_step
from headbook.attention.head_outputs import HeadOutputs
from headbook.attention.pair_cells import PairLimits
from headbook.attention.token_states import TokenStates
from headbook.attention.views import LayerAttention, ViewMasks
from headbook.errors import ModelError
from headbook.inputs import NO_HEAD, Word
from headbook.metrics.base import (
    AnchorMetric,
    AttentionMetric,
    ContextMetric,
    FlowMetric,
    Metric,
    SampledMetric,
    TokenMetric,
)
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.attention_hook import AttentionCall
from headbook.model.forward import observe_states, run_forward
from headbook.model.load import Model
from headbook.passes.batch_sums import BatchRatios, head_columns
from headbook.schema import AnnotationScheme, ResidualPoint, RolloutKind, SinkView
from headbook.text.batch import Batch, PaddedTexts
from headbook.text.tokens import NO_WORD, TokenizedSentence, TokenizedText

N_TEXTS = 3  # texts of a batch
RELATIVE_TOLERANCE = 1e-4  # of a number, in single precision
ABSOLUTE_TOLERANCE = 1e-6  # of a number near 0, relative to the largest of its table
RATIO_KINDS = ("value", "numerator", "denominator", "number of observations")
NUMERATOR, DENOMINATOR, EVENTS = 0, 1, 6  # fields of `RatioSums`


def check_padding(
    model: Model,
    architecture: Architecture,
    metrics: Sequence[Metric],
    items: Sequence[TokenizedSentence],
    *,
    dtype: torch.dtype,
    scheme: AnnotationScheme,
) -> None:
    """Refuse metrics whose value for a text depends on the padding of its batch.

    Metrics of the vocabulary and of the language-model head are not checked, nor are those that
    read no padded texts. Numbers that differ are computed again in double precision, since a number
    near a threshold may fall on either side of it by rounding.

    Args:
        model: the model.
        architecture: attention of the model; one that reads no padded batches needs no check.
        metrics: metrics of the run.
        items: short texts of several lengths.
        dtype: number format of the run's tables.
        scheme: names of tags and relations.

    Raises:
        ModelError: a metric measures other numbers in a padded batch; with both numbers.
    """
    items = [each for each in items if each.length <= architecture.shared_length]
    if not architecture.padded or not items:
        return
    with torch.inference_mode():
        probe = PaddingProbe.of(model, architecture, items, dtype=dtype, scheme=scheme)
        found = _differences(probe, metrics)
        if found and dtype != torch.float64 and model.device.type != "mps":  # which lacks float64
            suspects = [metric for metric in metrics if metric.id in found]
            precise = Batch.of(probe.batch.items, model.device, torch.float64, scheme)
            found = _differences(replace(probe, batch=precise), suspects)
    for metric in metrics:
        if metric.id in found:
            raise _refusal(metric, found[metric.id])


def _refusal(metric: Metric, difference: str) -> ModelError:
    """Return the error that names a metric and how its numbers differ."""
    owner = f" of package {metric.package}" if metric.package else ""
    return ModelError(
        f"metric '{metric.id}'{owner}: {difference}; expected the same, since shorter texts of a "
        "batch are padded at their end: leave padding out by the masks of docs/extending.md, or "
        "name other metrics with --metrics"
    )


class MeasuredTexts(NamedTuple):
    """Numbers that metrics measure of the texts of a batch in one stack.

    Attributes:
        place: layer of the numbers.
        metrics: id of the metric of each column, or one for all columns.
        kinds: names of the numbers of a column.
        of: noun of a row, ``head``, or empty for numbers of texts and tokens.
        numbers: *Shape:* ``(text, kind, head, column)``.
    """

    place: AttentionPlace
    metrics: Sequence[str]
    kinds: Sequence[str]
    of: str
    numbers: Floats


@dataclass(frozen=True)
class PaddingProbe:
    """Attention and states of the first attention layer of each stack over a batch.

    Attributes:
        architecture: attention of the model.
        batch: the texts.
        calls: the attention call of each stack, by its place.
        states: the first state of each kind, by stack.
        limits: similarities above which head outputs count as similar, as a run has them.
        fits: fits of sampled metrics to the batch, by metric, stack and view, filled when measured.
    """

    architecture: Architecture
    batch: Batch
    calls: dict[AttentionPlace, AttentionCall]
    states: dict[tuple[str, ResidualPoint], torch.Tensor]
    limits: dict[tuple[str, SinkView], PairLimits]
    fits: dict[tuple[str, str, SinkView], Floats | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: Model,
        architecture: Architecture,
        items: Sequence[TokenizedSentence],
        *,
        dtype: torch.dtype,
        scheme: AnnotationScheme,
    ) -> "PaddingProbe":
        """Run the model over a batch of the longest texts, one of each length, with words."""
        by_length = {item.length: item for item in sorted(items, key=lambda item: item.length)}
        texts = [_marked_sentence(item, scheme) for item in [*by_length.values()][-N_TEXTS:]]
        batch = Batch.of(texts, model.device, dtype, scheme)
        calls: dict[str, tuple[AttentionPlace, AttentionCall]] = {}
        states: dict[tuple[str, ResidualPoint], torch.Tensor] = {}

        def on_attention(place: AttentionPlace, attention: AttentionCall) -> None:
            calls.setdefault(place.stack, (place, attention))

        def on_state(stack: str, _: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
            if (stack, state) not in states:
                states[stack, state] = vectors.clone()  # some models change states in place

        with observe_states(model, architecture, on_state):
            run_forward(model, architecture, batch, on_attention)
        # What is not one vector for each token is left out, alone and in the batch.
        cut = {place: _cut(call, slice(None), call.weights.shape) for place, call in calls.values()}
        probe = cls(architecture, batch, cut, states, {})
        for (stack, view), heads in probe.outputs.items():
            if heads.outputs is not None:
                probe.limits[stack, view] = heads.own_limits
        return replace(probe)  # without what was computed before the limits were known

    def alone(self, row: int) -> "PaddingProbe":
        """Return one text without padding."""
        item, stacks = self.batch.items[row], self.architecture.stacks
        texts = self.batch.texts
        any_text = next(iter(texts.values()))
        batch = Batch.of([item], any_text.ids.device, any_text.share.dtype, any_text.scheme)
        rows = slice(row, row + 1)
        calls = {}
        for place, call in self.calls.items():
            stack = stacks[place.stack]
            sizes = (len(item.tokens[side]) for side in (stack.queries, stack.keys))
            calls[place] = _cut(call, rows, (*call.weights.shape[:2], *sizes))
        states = {
            (stack, state): vectors[rows, : len(item.tokens[stacks[stack].queries])]
            for (stack, state), vectors in self.states.items()
        }
        return replace(self, batch=batch, calls=calls, states=states)

    def padded(self, row: int) -> bool:
        """Whether a text has padding on any side."""
        return any(not bool(texts.valid[row].all()) for texts in self.batch.texts.values())

    @cached_property
    def views(self) -> dict[str, dict[SinkView, LayerAttention]]:
        """Attention of each stack in every view."""
        stacks = self.architecture.stacks
        return {
            place.stack: ViewMasks(self.batch, stacks).views(place.stack, call)
            for place, call in self.calls.items()
        }

    @cached_property
    def outputs(self) -> dict[tuple[str, SinkView], HeadOutputs]:
        """Head outputs of each stack in every view."""
        return {
            (stack, view): HeadOutputs(layer, self.limits.get((stack, view)))
            for stack, views in self.views.items()
            for view, layer in views.items()
        }

    def token_states(self, stack: str, kind: ResidualPoint) -> TokenStates | None:
        """Return the first state of a kind as token metrics take it; None without one."""
        texts = self.texts(stack)
        entered, state = (self.states.get((stack, each)) for each in (ResidualPoint.PRE, kind))
        if entered is None or state is None:
            return None
        return TokenStates(state.to(texts.share)[None], entered.to(texts.share), texts)

    def flow(self, place: AttentionPlace) -> LayerFlow:
        """Return input of flow metrics, with norms of two states in place of those of two parts."""
        texts = self.texts(place.stack)
        of_stack = [state for (stack, _), state in self.states.items() if stack == place.stack]
        norms = [state.to(texts.share).norm(dim=-1) for state in (of_stack[0], of_stack[-1])]
        step = half_step(self.calls[place].weights.mean(1).to(texts.share))
        return LayerFlow(torch.stack(norms), dict.fromkeys(RolloutKind, step), texts)

    def texts(self, stack: str) -> PaddedTexts:
        """Return the texts of the queries of a stack."""
        return self.batch.texts[self.architecture.stacks[stack].queries]


def _cut(call: AttentionCall, rows: slice, shape: Sequence[int]) -> AttentionCall:
    """Return the part of an attention call that belongs to some texts, without their padding.

    Args:
        call: the call of a padded batch.
        rows: rows of the texts.
        shape: shape of the weights of the batch, with numbers of queries and keys without padding.
    """
    n_texts, _, n_queries, n_keys = call.weights.shape
    queries, keys = slice(shape[2]), slice(shape[3])

    def part(tensor: torch.Tensor | None, axis: int, where: slice) -> torch.Tensor | None:
        """Return a part of a tensor with one vector for each token on an axis."""
        n_tokens = n_queries if where is queries else n_keys
        if tensor is None or tensor.ndim != 4:
            return None
        if (len(tensor), tensor.shape[axis]) != (n_texts, n_tokens):
            return None
        return tensor[rows].narrow(axis, 0, where.stop)

    mask = call.mask
    if mask is not None:
        mask = (mask if len(mask) == 1 else mask[rows])[:, :, queries, keys]
    return replace(
        call,
        query=part(call.query, 2, queries),
        key=part(call.key, 2, keys),
        value=part(call.value, 2, keys),
        mask=mask,
        weights=call.weights[rows, :, queries, keys],
        output=part(call.output, 1, queries),
        factor=part(call.factor, 1, queries),
        positions=tuple(each[rows, :, queries, keys] for each in call.positions),
    )


def _differences(probe: PaddingProbe, metrics: Sequence[Metric]) -> dict[str, str]:
    """Return in words how each metric differs that has another number for a text alone."""
    found: dict[str, str] = {}
    together = [*measured(probe, metrics)]
    longest = max(item.length for item in probe.batch.items)
    for row, item in enumerate(probe.batch.items):
        if not probe.padded(row):
            continue
        pairs = zip(together, measured(probe.alone(row), metrics), strict=True)
        for in_batch, alone in pairs:
            both = _as_wide(alone.numbers[0], in_batch.numbers[row])
            for kind, head, column in np.argwhere(_apart(*both)):
                numbers = [each[kind, head, column] for each in both]
                stack, layer = in_batch.place.stack, in_batch.place.layer
                of = f" of head {stack}-L{layer}-H{head}" if in_batch.of else f" in stack {stack}"
                metric = in_batch.metrics[min(column, len(in_batch.metrics) - 1)]
                found.setdefault(
                    metric,
                    f"{in_batch.kinds[kind]}{of} is {numbers[0]:.6g} for a text of {item.length} "
                    f"tokens alone and {numbers[1]:.6g} in a batch with one of {longest}",
                )
    return found


def _as_wide(alone: Floats, in_batch: Floats) -> tuple[Floats, Floats]:
    """Return both tables with as many columns, by zeros at the end, as runs store them."""
    if alone.shape == in_batch.shape:
        return alone, in_batch
    both = np.zeros((2, *alone.shape[:-1], max(alone.shape[-1], in_batch.shape[-1])))
    for table, numbers in zip(both, (alone, in_batch), strict=True):
        table[..., : numbers.shape[-1]] = numbers
    return both[0], both[1]


def _apart(alone: Floats, in_batch: Floats) -> NDArray[np.bool_]:
    """Return which numbers differ by more than rounding explains."""
    sizes = np.maximum(np.abs(alone), np.abs(in_batch))
    largest = np.max(sizes, initial=0, where=np.isfinite(sizes))
    close = np.abs(alone - in_batch) <= RELATIVE_TOLERANCE * sizes + ABSOLUTE_TOLERANCE * largest
    same: NDArray[np.bool_] = close | (alone == in_batch) | (np.isnan(alone) & np.isnan(in_batch))
    return ~same


def measured(probe: PaddingProbe, metrics: Sequence[Metric]) -> Iterator[MeasuredTexts]:
    """Yield what metrics measure of the texts of a probe, in the same order for every probe."""
    for place, call in probe.calls.items():
        stack, views = probe.architecture.stacks[place.stack], probe.views[place.stack]
        n_heads = call.weights.shape[1]
        outputs = {view: probe.outputs[place.stack, view] for view in views}
        chosen = [m for m in metrics if isinstance(m, AttentionMetric) and m.applies(stack)]
        context = [m for m in metrics if isinstance(m, ContextMetric) and m.applies(stack)]
        for kind, ratios in (
            (chosen, [m.measure(views[view]) for m in chosen for view in m.views]),
            (context, [m.measure(outputs[view]) for m in context for view in m.views]),
        ):
            if kind:
                n_labels = [len(metric.labels) for metric in kind for _ in metric.views]
                names = [column.metric for column in head_columns(kind)]
                numbers = _sums(BatchRatios.of(ratios, n_labels, n_heads))
                yield MeasuredTexts(place, names, RATIO_KINDS, "head", numbers)
        for metric in metrics:
            if isinstance(metric, SampledMetric) and metric.applies(stack):
                yield from _statistics(place, metric, views, probe)
            elif isinstance(metric, AnchorMetric):
                yield from _ends(place, metric, outputs, probe.texts(place.stack))
        if not stack.crosses:
            yield from _of_tokens(place, probe, metrics)


def _sums(parts: BatchRatios) -> Floats:
    """Return value, numerator, denominator and events of each text, as sums over a corpus add them.

    *Shape:* ``(text, 4, head, label)``.
    """
    tables = []
    for row in range(len(parts.n)):
        sums = parts.of_some([row]).sums(np.zeros(1, np.int64))[0][:, 0]
        numerator, denominator = sums[NUMERATOR], sums[DENOMINATOR]
        value = divide(numerator, denominator)
        tables.append(np.stack([value, numerator, denominator, sums[EVENTS]]))
    return np.stack(tables)


def _statistics(
    place: AttentionPlace,
    metric: SampledMetric,
    views: dict[SinkView, LayerAttention],
    probe: PaddingProbe,
) -> Iterator[MeasuredTexts]:
    """Yield the statistics of heads and of texts of a sampled metric."""
    for view in metric.views:
        key = metric.id, place.stack, view
        if metric.sample_fit and key not in probe.fits:
            probe.fits[key] = metric.sample_fit.fit(metric.sample_fit.gather(views[view]))
        heads = _array(metric.statistics(views[view], probe.fits.get(key)))[:, None]
        yield MeasuredTexts(place, [metric.id], ["a statistic"], "head", heads)
        if metric.sentence_statistics is not None:
            of_texts = _array(metric.sentence_statistics(views[view].scope))[:, None, None]
            yield MeasuredTexts(place, [metric.id], ["a statistic of the text"], "", of_texts)


def _ends(
    place: AttentionPlace,
    metric: AnchorMetric,
    outputs: dict[SinkView, HeadOutputs],
    texts: PaddedTexts,
) -> Iterator[MeasuredTexts]:
    """Yield the number of ends of pairs at each token."""
    for view in metric.views:
        ends = metric.measure(outputs[view])
        if ends is not None:
            valid = texts.valid[:, None, :, None]
            numbers = np.moveaxis(_array(ends.masked_fill(~valid, 0)), 3, 1)
            kinds = [f"number of ends ({label})" for label in metric.labels]
            yield MeasuredTexts(place, [metric.id], kinds, "head", numbers)


def _of_tokens(
    place: AttentionPlace, probe: PaddingProbe, metrics: Sequence[Metric]
) -> Iterator[MeasuredTexts]:
    """Yield the values of the tokens of all texts, 0 in the padding."""
    padding = ~probe.texts(place.stack).valid
    for metric in metrics:
        values = None
        if isinstance(metric, TokenMetric) and not metric.sampled:
            states = probe.token_states(place.stack, metric.states[-1])
            values = None if states is None else metric.measure(states, None)[0]
        elif isinstance(metric, FlowMetric) and place.stack in {name for name, _ in probe.states}:
            values = metric.measure(probe.flow(place))
        if values is not None:
            numbers = _array(values.masked_fill(padding, 0))[:, None, None]
            yield MeasuredTexts(place, [metric.id], ["value of a token"], "", numbers)


def _array(tensor: torch.Tensor) -> Floats:
    array: Floats = tensor.double().cpu().numpy()
    return array


def _marked_sentence(item: TokenizedSentence, scheme: AnnotationScheme) -> TokenizedSentence:
    """Return a sentence of random tokens with words, so that metrics of words have numbers, too."""
    tokens = {side: _marked(text, scheme) for side, text in item.tokens.items()}
    return TokenizedSentence(item.sentence, tokens)


def _marked(text: TokenizedText, scheme: AnnotationScheme) -> TokenizedText:
    """Return random tokens as a passage of two sentences with words, tags and trees.

    A full stop and a separator end the first sentence. Every other word has two tokens, and the
    second half of the ordinary tokens repeats the first.
    """
    places, special, separator = np.flatnonzero(~text.special), text.special, text.separator
    half = len(places) // 2
    stop = middle = 0  # no place, as position 0 ends no sentence
    if half > 1:
        stop, middle = (int(place) for place in places[half - 1 : half + 1])
        special, separator = (flags | (np.arange(len(text)) == middle)
                              for flags in (special, separator))  # fmt: skip
        places = np.delete(places, half)
    ids, word = text.ids.copy(), np.full(len(text), NO_WORD)
    ids[places[-half:]] = ids[places[:half]] if half else ids[places]
    word[places] = np.arange(len(places)) * 2 // 3
    n_words = int(word.max(initial=NO_WORD)) + 1
    starts = np.arange(len(text))
    return replace(
        text,
        ids=ids,
        pieces=tuple("." if n == stop and stop else each for n, each in enumerate(text.pieces)),
        spans=np.stack([starts, starts + 1], 1),
        special=special,
        separator=separator,
        word=word,
        words=tuple(_word(number, scheme) for number in range(n_words)),
        rarest=n_words // 2 if n_words else NO_WORD,
        parts=((0, middle + 1), (middle + 1, len(text))) if middle else (),
    )


def _word(number: int, scheme: AnnotationScheme) -> Word:
    """Return a word of a random text; the head of each word but the first is an earlier one."""
    tag = scheme.tags[number % len(scheme.tags)]
    if number == 0:
        return Word(0, 1, tag, NO_HEAD, "root")
    relation = scheme.relations[number % len(scheme.relations)]
    return Word(number, number + 1, tag, number // 2, relation)
