"""Heads' parts of the output projection, and how long they make values."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers.pytorch_utils import Conv1D

import treebank
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.load import load_model
from headbook.model.output_projection import OutputProjection, is_linear, multiples
from headbook.run.collect import collect

Folder = Callable[[str], Path]


def architecture_of(folder: Path) -> Architecture:
    return probe_architecture(load_model(str(folder), dtype="float64"))


@pytest.mark.parametrize("heads", [1, 2, 6])
@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("wide", [True, False])
def test_norms_are_the_lengths_of_projected_values(heads: int, width: int, wide: bool) -> None:
    """Also where the output is narrower than a head, and where heads share values."""
    torch.manual_seed(0)
    out = 40 if wide else 3
    module = torch.nn.Linear(6 * width, out, dtype=torch.float64)
    value = torch.randn(2, heads, 7, width, dtype=torch.float64)
    found = OutputProjection(module).value_norms(value)
    assert found.shape == (2, 6, 7)
    for head in range(6):
        part = module.weight[:, head * width : (head + 1) * width]
        own = value[:, head // (6 // heads)]
        direct = torch.einsum("snw,ow->sno", own, part).norm(dim=-1)
        torch.testing.assert_close(found[:, head], direct)


@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("gates", [(1,), (5,), (1, 5)])
def test_gated_values_are_as_long_as_what_arrives(heads: int, gates: tuple[int, ...]) -> None:
    """Gates of heads, of numbers, and of both: one query's are multiples of another's, or not."""
    torch.manual_seed(0)
    module = torch.nn.Linear(6 * 5, 40, dtype=torch.float64)
    value = torch.randn(2, heads, 7, 5, dtype=torch.float64)
    attention = torch.rand(2, 6, 3, 7, dtype=torch.float64)
    factor = torch.ones(2, 3, 6, 5, dtype=torch.float64)
    for width in gates:
        factor = factor * torch.randn(2, 3 if width == 1 else 1, 6, width, dtype=torch.float64)
    for some in (factor, factor * torch.rand_like(factor)):
        blocks = [
            block
            for _, block in OutputProjection(module, gated=True).carrying(attention, value, some)
        ]
        found = torch.cat(blocks, 2)
        for head in range(6):
            part = module.weight[:, head * 5 : (head + 1) * 5]
            own = some[:, :, head].unsqueeze(2) * value[:, head // (6 // heads)].unsqueeze(1)
            direct = attention[:, head] * (own @ part.T).norm(dim=-1)
            torch.testing.assert_close(found[:, head], direct)
    assert multiples(factor) is not None


def test_a_turned_weight_is_turned_back() -> None:
    turned = Conv1D(5, 12)
    straight = torch.nn.Linear(12, 5)
    straight.weight.data = turned.weight.data.T
    torch.testing.assert_close(
        OutputProjection(turned).slices(4), OutputProjection(straight).slices(4)
    )


def test_linear_maps_may_be_of_another_class(tiny_folder: Folder) -> None:
    """They give more than a tensor; what is looked up, or stored in another shape, is none."""
    found = architecture_of(tiny_folder("ibert")).ends
    assert found.projections.keys() == found.sites.keys() == {("self", 0), ("self", 1)}
    assert all(site.straight for site in found.sites.values())
    assert not any(isinstance(p.module, torch.nn.Linear) for p in found.projections.values())
    packed = torch.nn.Linear(4, 6)
    packed.weight = torch.nn.Parameter(torch.zeros(12, 1))
    for other in (torch.nn.Embedding(4, 6), torch.nn.Bilinear(4, 4, 6), packed, torch.nn.ReLU()):
        assert not is_linear(other)


def test_layers_that_share_a_module_share_its_projection(tiny_folder: Folder) -> None:
    shared = architecture_of(tiny_folder("albert")).ends.projections
    assert len(shared) == 2
    assert len(set(map(id, shared.values()))) == 1
    own = architecture_of(tiny_folder("bart")).ends.projections
    assert set(own) == {(s, n) for s in ("encoder", "decoder", "cross") for n in (0, 1)}
    assert len(set(map(id, own.values()))) == 6


@pytest.mark.parametrize("family", ["neomme", "xlnet"])
def test_without_values_their_share_is_missing_and_the_study_says_why(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Where outputs lose a part before the projection, and where the hook does not serve."""
    study = collect(
        treebank.write_trees(tmp_path / "trees.conllu"),
        model=str(tiny_folder(family)),
        annotator="none",
        metrics="sink_norm_share",
        sentence_pages="0",
    )
    assert study.heads["value"].isna().all()
    gaps = {gap.what: gap for gap in study.manifest.gaps}
    assert gaps["values and their output projection"].stack == "self"
    assert f"'{family}'" in gaps["values and their output projection"].why
