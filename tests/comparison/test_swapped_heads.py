"""A comparison names two heads of different functions that changed places within a layer."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headbook
from headbook.comparison.comparison import Comparison, compare
from headbook.comparison.difference_claims import difference_claims
from headbook.comparison.drift import drift_summary
from headbook.report.facts.functions import functions_of
from headbook.report.results import heads_by_value, stack_results
from headbook.run.collect import collect
from headbook.schema import HeadName
from headbook.study.study import Study

pytestmark = pytest.mark.slow  # two studies of the demo model
SENTENCES = Path(__file__).parents[2] / "sample_inputs" / "sentences.conllu"
METRICS = (
    "type_shares,attention_to,sink_share,variability,relative_entropy,attention_parts,"
    "pos_received,induction_score,duplicate_score,attention_distance"
)
LAYER = 3
ROUNDING = 1e-6  # floor of every number: the order of sums is another one


def swap_heads(network: Any, layer: int, heads: tuple[int, int]) -> None:
    """Let two heads of an encoder change places: queries, keys, values and output columns."""
    attention = network.encoder.layer[layer].attention
    size = attention.self.attention_head_size
    order = torch.arange(attention.self.all_head_size)
    first, second = (slice(head * size, (head + 1) * size) for head in heads)
    order[first], order[second] = order[second].clone(), order[first].clone()
    with torch.no_grad():
        for part in (attention.self.query, attention.self.key, attention.self.value):
            part.weight.copy_(part.weight[order].clone())
            part.bias.copy_(part.bias[order].clone())
        dense = attention.output.dense
        dense.weight.copy_(dense.weight[:, order].clone())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Study]:
    """Return a study of the demo model, with heads that change places if they are given."""

    def of(heads: tuple[int, int] | None = None) -> Study:
        network, tokenizer = headbook.demo_model()
        if heads:
            swap_heads(network, LAYER, heads)
        folder = tmp_path_factory.mktemp("swapped")
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return collect(
            SENTENCES, model=str(folder), dtype="float64", importance="off", metrics=METRICS
        )

    return of


@pytest.fixture(scope="module")
def swapped(study: Callable[..., Study]) -> tuple[Comparison, tuple[int, int], list[str]]:
    """A comparison, the two heads that changed places, and the names of their functions."""
    first = study()
    (results,) = stack_results(first).values()
    functions = functions_of(results)
    nouns = [functions[HeadName("self", LAYER, n)].noun for n in range(results.stack.n_heads)]
    other = next(n for n, noun in enumerate(nouns) if noun != nouns[0])
    heads = (0, other)
    comparison = compare(first, study(heads))
    numbers = comparison.heads["self"]
    numbers = numbers.above(dict.fromkeys(numbers.columns, ROUNDING))
    return replace(comparison, heads={"self": numbers}), heads, [nouns[0], nouns[other]]


def test_a_comparison_names_the_swapped_heads_first_with_their_functions(
    swapped: tuple[Comparison, tuple[int, int], list[str]],
) -> None:
    comparison, heads, nouns = swapped
    differences = comparison.heads["self"]
    changed = {(LAYER, head) for head in heads}
    supported = np.argwhere(differences.supported.any(-1))
    assert {(int(layer), int(head)) for layer, head in supported} == changed
    sides = [stack_results(each)["self"] for each in (comparison.sides.a, comparison.sides.b)]
    functions = functions_of(sides[0]), functions_of(sides[1])
    claim, *_ = difference_claims(comparison, {"self": functions})
    assert claim.kind == "numbers"
    assert {(head.layer, head.head) for head in claim.heads} == changed
    evidence = claim.evidence.text
    for noun, other in (nouns, nouns[::-1]):
        assert f"(function: {noun} → {other})" in evidence
    summary = drift_summary(differences)
    assert summary is not None
    assert {*heads_by_value(summary.value)[:2]} == changed
