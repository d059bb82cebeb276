"""Compiled loops give what tensor operations give, whatever the maps and however shared out."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from headbook.attention import map_sums
from headbook.attention.masks import BatchMask, QueryKeyPairs, ViewMask
from headbook.inputs import Word
from headbook.schema import AttentionStack, Side, SinkView
from headbook.text.batch import PaddedTexts
from headbook.text.tokens import TokenizedText
from layers import SELF, Marks

HEADS = 3
TIGHT = {torch.float32: 1e-5, torch.float64: 1e-12}


def text(n: int, random: np.random.Generator) -> TokenizedText:
    """Special tokens at both ends; words of one to three pieces, and pieces of none, between."""
    word, number = [-1], 0
    while len(word) < n - 1:
        pieces = min(int(random.integers(1, 4)), n - 1 - len(word))
        word += [number] * pieces if random.random() < 0.8 else [-1] * pieces
        number += word[-1] == number
    marks = Marks(n, special=(0, n - 1)).tokens()
    words = tuple(Word(position, position + 1) for position in range(number))
    return replace(marks, word=np.array([*word, -1][:n]), words=words)


def scopes(stack: AttentionStack, dtype: torch.dtype) -> dict[SinkView, ViewMask]:
    """Four sentences of different length."""
    random = np.random.default_rng(0)
    lengths = {Side.SOURCE: (9, 2, 6, 4), Side.TARGET: (3, 8, 5, 2)}
    texts = {
        side: PaddedTexts.of([text(n, random) for n in length], torch.device("cpu"), dtype)
        for side, length in lengths.items()
    }
    queries, keys = texts[stack.queries], texts[stack.keys]
    seen = queries.valid[:, :, None] & keys.valid[:, None, :]
    frame = BatchMask(stack, queries, keys, seen.tril() if stack.causal else seen)
    return {view: ViewMask(frame, view) for view in SinkView}


def maps(frame: BatchMask) -> torch.Tensor:
    """Random weights; one head on the sink alone, one with equal weights."""
    generator = torch.Generator().manual_seed(1)
    seen = frame.attention_mask.to(frame.dtype).unsqueeze(1)
    weights = torch.rand(
        len(seen), HEADS, *seen.shape[2:], generator=generator, dtype=torch.float64
    ).to(frame.dtype)
    weights[:, 1] = frame.sink.unsqueeze(1).to(frame.dtype)
    weights[:, 2] = 1
    weights *= seen
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-30)


STACKS = {
    "both ways": SELF,
    "causal": replace(SELF, causal=True),
    "two texts": replace(SELF, keys=Side.TARGET),
}


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(map_sums, "MIN_THREADED_NUMBERS", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", TIGHT, ids=str)
@pytest.mark.parametrize("name", STACKS)
def test_compiled_sums_are_those_of_tensor_operations(name: str, dtype: torch.dtype) -> None:
    scope = scopes(STACKS[name], dtype)[SinkView.NOSINK]
    weights = maps(scope.frame)
    rows = [take(weights, scope) for take in (map_sums.numba_row_sums, map_sums.torch_row_sums)]
    words = [take(weights, scope) for take in (map_sums.numba_word_sums, map_sums.torch_word_sums)]
    for one, other in (*zip(*rows, strict=True), *zip(*words, strict=True)):
        torch.testing.assert_close(one, other, rtol=TIGHT[dtype], atol=TIGHT[dtype])
    assert float(rows[0].mass.std()) > 0
    assert float(words[0].best.std()) > 0


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", TIGHT, ids=str)
def test_compiled_sums_of_pairs_are_those_of_tensor_operations(dtype: torch.dtype) -> None:
    scope = scopes(SELF, dtype)[SinkView.NOSINK]
    frame, weights = scope.frame, maps(scope.frame)
    pairs: QueryKeyPairs = frame.pairs(
        [frame.attention_mask & (frame.offset == -1), frame.attention_mask & (frame.offset > 1)]
    )
    mass = map_sums.torch_row_sums(weights, scope).mass
    one, other = (
        take(weights, mass, pairs) for take in (map_sums.numba_pair_sums, map_sums.torch_pair_sums)
    )
    torch.testing.assert_close(one, other, rtol=TIGHT[dtype], atol=TIGHT[dtype])
    assert len(one.unique()) > len(weights)


def test_a_range_is_shared_out_whole(threads: int) -> None:
    for size in (0, 1, 2, 5, 64):
        done: list[int] = []
        map_sums._run_in_threads(lambda first, last: done.extend(range(first, last)), size, work=1)  # noqa: B023 - called here
        assert sorted(done) == [*range(size)]
    numbers: set[int] = set()
    meeting = threading.Barrier(threads, timeout=20)

    def meet(*_: int) -> None:
        """Wait for the other threads, which alone would be in vain."""
        numbers.add(threading.get_ident())
        meeting.wait()

    map_sums._run_in_threads(meet, threads, work=1)
    assert len(numbers) == threads


@pytest.mark.usefixtures("threads")
def test_an_error_in_any_part_of_a_range_is_raised() -> None:
    def fail(_: int, last: int) -> None:
        if last == 4:
            raise ValueError("in the last part")

    with pytest.raises(ValueError, match="in the last part"):
        map_sums._run_in_threads(fail, 4, work=1)
