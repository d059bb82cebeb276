"""Metrics that read padding are refused before a run, and no metric of Headbook does."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import tiny
from headbook.errors import ModelError
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import (
    AttentionMetric,
    FlowMetric,
    HeadMetric,
    Metric,
    Ratio,
    TokenMetric,
    needs_regions,
)
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer, probe_texts
from headbook.passes.model_checks import verify_attention
from headbook.passes.padding import PaddingProbe, check_padding, measured
from headbook.schema import AnnotationScheme
from headbook.text.annotate import Annotator
from headbook.text.tokens import TokenizedSentence

# Probe texts have no regions.
METRICS = {
    name: metric
    for name, metric in all_metrics().items()
    if not (isinstance(metric, HeadMetric) and needs_regions(metric))
}
CHECKED = {
    name: metric
    for name, metric in METRICS.items()
    if isinstance(metric, HeadMetric | FlowMetric | TokenMetric)
    and not (isinstance(metric, TokenMetric) and metric.sampled)
    and metric.section != "What heads read and write"
}
SCHEME = AnnotationScheme()


class Begun(NamedTuple):
    """A tiny model as a run begins with it, and its probe texts."""

    model: Model
    architecture: Architecture
    items: list[TokenizedSentence]

    def check(self, *metrics: Metric, dtype: torch.dtype = torch.float32) -> None:
        """Check metrics as a run does."""
        check_padding(*self[:2], metrics, self.items, dtype=dtype, scheme=SCHEME)

    def numbers(self, metric: Metric) -> list[Any]:
        """Return the numbers of a metric that the check compares."""
        probe = PaddingProbe.of(*self, dtype=torch.float32, scheme=SCHEME)
        return [texts.numbers for texts in measured(probe, [metric])]


@pytest.fixture(scope="module")
def begun(tiny_folder: Callable[[str], Path]) -> Callable[[str], Begun]:
    @cache
    def of(family: str) -> Begun:
        model = load_model(str(tiny_folder(family)), device="cpu")
        encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
        items = probe_texts(encoder)
        return Begun(model, verify_attention(model, probe_architecture(model), items), items)

    return of


@pytest.mark.parametrize("family", tiny.by_level(["bert", "gpt2", "bart", "modernbert"]))
def test_no_metric_of_headbook_is_refused(family: str, begun: Callable[[str], Begun]) -> None:
    for dtype in (torch.float32, torch.float64):
        begun(family).check(*METRICS.values(), dtype=dtype)


@pytest.mark.parametrize("name", CHECKED)
def test_the_check_has_numbers_of_each_metric(name: str, begun: Callable[[str], Begun]) -> None:
    """On an encoder or a decoder: numbers that are neither missing nor all 0."""
    metric = CHECKED[name]
    tables = [table for family in ("bert", "gpt2") for table in begun(family).numbers(metric)]
    assert any((np.nan_to_num(table) != 0).any() for table in tables)


def broken(metric: Any) -> Any:
    """The metric with numbers that depend on the length of the longest text of the batch."""

    def measure(given: Any, *more: Any) -> Any:
        number = metric.measure(given, *more)
        if isinstance(metric, TokenMetric | FlowMetric):
            return number + number.shape[-1]
        n_keys = getattr(given, "layer", given).attention.shape[-1]
        if isinstance(number, Ratio):
            return number._replace(numerator=number.numerator * n_keys)
        return number * n_keys

    return replace(metric, measure=measure, name=metric.id)


@pytest.mark.parametrize(
    "name",
    [ids.ATTENTION_DISTANCE, ids.OFFSET_PROFILE, "variability", "row_similarity", "anchor_token",
     "cosine_to_input", "rollout_self"],
)  # fmt: skip
def test_metrics_of_every_kind_are_refused(name: str, begun: Callable[[str], Begun]) -> None:
    with pytest.raises(ModelError, match=f"metric '{name}': ") as error:
        begun("bert").check(*(broken(m) if m.id == name else m for m in METRICS.values()))
    assert "\n" not in str(error.value)


def weights_at_the_end(layer: Any) -> Ratio:
    weights = layer.weights
    return Ratio(weights[..., -1].sum(-1), weights.sum((2, 3)), layer.frame.n_queries)


def weights_of_the_last_token(layer: Any) -> Ratio:
    weights, last = layer.weights, layer.frame.keys.lengths - 1
    column = last[:, None, None, None].expand(*weights.shape[:3], 1)
    return Ratio(weights.gather(-1, column).sum((2, 3)), weights.sum((2, 3)), layer.frame.n_queries)


def of_attention(measure: Callable[[Any], Ratio]) -> AttentionMetric:
    known: Any = METRICS[ids.ATTENTION_DISTANCE]
    return replace(known, measure=measure, name="last", package="far-heads 1.2")  # type: ignore[no-any-return]


LINE = re.compile(
    r"metric 'last' of package far-heads 1\.2: value of head (\w+)-L0-H(\d+) is (\S+) for a text "
    r"of (\d+) tokens alone and (\S+) in a batch with one of (\d+); expected the same"
)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_line_has_both_values(family: str, begun: Callable[[str], Begun]) -> None:
    """The value alone is that of the model on the same tokens without a batch."""
    one = begun(family)
    with pytest.raises(ModelError) as error:
        one.check(of_attention(weights_at_the_end))
    found = LINE.match(str(error.value))
    assert found is not None
    stack, head, alone, length, in_batch, longest = found.groups()
    assert (stack, float(in_batch)) == ("self", 0)
    assert int(length) < int(longest) == max(len(item.tokens["source"]) for item in one.items)  # type: ignore[index]
    expected = naive_share(one, int(length))[int(head)]
    assert float(alone) == pytest.approx(expected, rel=1e-4)


def naive_share(one: Begun, length: int) -> Any:
    """Attention to the last token over all attention, of each head of layer 0."""
    items = PaddingProbe.of(*one, dtype=torch.float32, scheme=SCHEME).batch.items
    (text,) = next(item for item in items if item.length == length).tokens.values()
    one.model.network.set_attn_implementation("eager")
    with torch.no_grad():
        output = one.model.base_model(input_ids=torch.tensor([text.ids]), output_attentions=True)
    one.model.network.set_attn_implementation("headbook")
    first = int(
        one.architecture.stacks["self"].causal
    )  # a token that sees itself alone is left out
    queries = [n for n in np.flatnonzero(~text.special) if n >= first]
    rows = output.attentions[0][0].double()[:, queries]
    return (rows[..., -1].sum(-1) / rows.sum((1, 2))).numpy()


def test_what_asks_for_the_last_token_passes(begun: Callable[[str], Begun]) -> None:
    for family in ("bert", "gpt2", "bart"):
        begun(family).check(of_attention(weights_of_the_last_token))


def test_a_model_without_padding_needs_no_check(begun: Callable[[str], Begun]) -> None:
    one = begun("bert")
    unpadded = one._replace(architecture=replace(one.architecture, padded=False))
    unpadded.check(of_attention(weights_at_the_end))


def test_a_number_at_a_threshold_is_computed_again(begun: Callable[[str], Begun]) -> None:
    """Rounding to single precision puts it on the other side of the threshold."""

    def measure(layer: Any) -> Ratio:
        mass, n = layer.weights.sum((2, 3)), layer.frame.n_queries
        noise = 0.0 if layer.frame.dtype == torch.float64 else layer.attention.shape[-1]
        return Ratio(mass + noise, n.expand_as(mass), n)

    begun("bert").check(of_attention(measure))
