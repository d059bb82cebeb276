"""Products of linear layers by oneDNN against float64, and where torch makes them itself."""

from collections.abc import Callable

import pytest
import torch
from torch._C import _len_torch_function_stack
from transformers.pytorch_utils import Conv1D

from headbook.model.weights import onednn
from headbook.model.weights.onednn import LinearLayers

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here"
)
WIDE, WIDER = 96, 160
LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "linear": lambda: torch.nn.Linear(WIDE, WIDER),
    "without bias": lambda: torch.nn.Linear(WIDE, WIDER, bias=False),
    "of GPT-2": lambda: Conv1D(WIDER, WIDE),
}
STATES: dict[str, Callable[[], torch.Tensor]] = {
    "rows": lambda: torch.randn(300, WIDE),
    "sentences": lambda: torch.randn(4, 75, WIDE),
    "turned": lambda: torch.randn(WIDE, 300).T,
}


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What oneDNN gives in a test."""
    made: list[torch.Tensor] = []
    product = onednn.product

    def kept(*args: torch.Tensor) -> torch.Tensor:
        made.append(product(*args))
        return made[-1]

    monkeypatch.setattr(onednn, "product", kept)
    return made


def test_rows_come_in_blocks_of_few_sizes() -> None:
    """Of each size that it sees, oneDNN keeps megabytes."""
    sizes = set()
    for n in range(1, 700):
        rows = torch.arange(2.0 * n).view(n, 2)
        found = [*onednn.blocks(rows)]
        whole = torch.cat(found)
        assert torch.equal(whole[:n], rows)
        assert not whole[n:].any()
        sizes |= {len(block) for block in found}
    assert sizes == {*range(16, 257, 16)}


@pytest.mark.parametrize("states", STATES)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_gives_what_it_gives_in_float64(
    kind: str, states: str, products: list[torch.Tensor]
) -> None:
    torch.manual_seed(2)
    made, x = LAYERS[kind](), STATES[states]()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    with torch.inference_mode():
        with LinearLayers(made):
            found = made(x)
        wanted = made.double()(x.double())
    assert len(products) == 1
    error = (found.double() - wanted).abs().max() / wanted.abs().max()
    assert error < 1e-6


def test_a_weight_is_copied_once_and_again_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[torch.Tensor] = []
    packed = onednn.packed

    def kept(weight: torch.Tensor) -> torch.Tensor | None:
        copied.append(weight)
        return packed(weight)

    monkeypatch.setattr(onednn, "packed", kept)
    made, x = torch.nn.Linear(WIDE, WIDER), torch.randn(300, WIDE)
    both = torch.nn.Sequential(made, torch.nn.Linear(WIDER, WIDE), made)
    with torch.no_grad(), LinearLayers(both):
        both(x)
        assert len(copied) == 2  # for three layers
        before = made(x)
        made.weight.mul_(2)
        torch.testing.assert_close(made(x) - made.bias, 2 * (before - made.bias))
    assert len(copied) == 3


def test_torch_makes_what_asks_for_gradients(products: list[torch.Tensor]) -> None:
    made, x = torch.nn.Linear(WIDE, WIDER), torch.randn(300, WIDE)
    with LinearLayers(made):
        made(x).sum().backward()
    assert products == []
    assert made.weight.grad is not None
    torch.testing.assert_close(made.weight.grad, x.sum(0).expand(WIDER, -1))


@pytest.mark.parametrize(
    ("limit", "x"),
    [
        pytest.param(2 * 4 * WIDE * WIDER - 1, torch.randn(300, WIDE), id="large copies"),
        pytest.param(1 << 30, torch.randn(3, WIDE), id="small product"),
        pytest.param(1 << 30, torch.randn(300, WIDE).double(), id="float64"),
        pytest.param(1 << 30, torch.randn(300, WIDE).bfloat16(), id="bfloat16"),
    ],
)
def test_torch_makes_other_products(
    limit: int, x: torch.Tensor, products: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "COPIED", limit)
    both = torch.nn.Sequential(torch.nn.Linear(WIDE, WIDER), torch.nn.Linear(WIDER, WIDE))
    both.to(x.dtype)
    with torch.inference_mode():
        wanted = both(x)
        with LinearLayers(both):
            found = both(x)
    assert torch.equal(found, wanted)
    assert products == []


def test_calls_are_looked_at_only_for_weights_that_it_takes() -> None:
    """Looking takes a sixth of the time of a tiny network."""
    for made, looks in (
        (torch.nn.Linear(64, 64), True),
        (torch.nn.Linear(64, 63), False),
        (torch.nn.Linear(64, 64).double(), False),
        (torch.nn.Linear(64, 64, device="meta"), False),
    ):
        with LinearLayers(made):
            assert (_len_torch_function_stack() == 1) == looks
        assert _len_torch_function_stack() == 0


def test_weights_of_other_networks_are_left_alone(products: list[torch.Tensor]) -> None:
    made, x = torch.nn.Linear(WIDE, WIDER), torch.randn(300, WIDE)
    with torch.inference_mode(), LinearLayers(torch.nn.Linear(WIDE, WIDER)):
        assert torch.equal(made(x), torch.nn.functional.linear(x, made.weight, made.bias))
    assert products == []
