"""A metric that somebody adds: the one in CONTRIBUTING, and what asks for whole maps."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import headbook.metrics
import tiny
import treebank
from headbook.attention.maps import AttentionMaps, ConcatenatedMaps
from headbook.attention.masks import ViewMask
from headbook.attention.views import layer_views
from headbook.metrics import all_metrics, head_metrics
from headbook.metrics.base import AttentionMetric
from headbook.metrics.examples import Example
from headbook.model.attention_hook import AttentionCall
from headbook.run.collect import collect
from headbook.schema import SinkView
from headbook.study.study import Study
from layers import Marks, example_layer, views_of

ROOT = Path(__file__).parents[2]
NAME, FAMILY = "distance_by_weights", "mine"


def documented() -> str:
    """The metric that CONTRIBUTING shows whole."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    codes = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (code,) = [code for code in codes if "METRIC = " in code]
    return str(code)


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttentionMetric]:
    """It, as a file of the registry, in a family of its own."""
    folder = tmp_path_factory.mktemp("more_metrics")
    (folder / FAMILY).mkdir()
    (folder / FAMILY / "__init__.py").touch()
    (folder / FAMILY / f"{NAME}.py").write_text(documented(), encoding="utf-8")
    places = headbook.metrics.__path__
    places.append(str(folder))
    all_metrics.cache_clear()
    importlib.invalidate_caches()
    metric = all_metrics()[NAME]
    assert isinstance(metric, AttentionMetric)
    yield metric
    places.remove(str(folder))
    for module in (FAMILY, f"{FAMILY}.{NAME}"):
        del sys.modules[f"headbook.metrics.{module}"]
    all_metrics.cache_clear()


@pytest.fixture(scope="module", params=tiny.by_level(["bert", "modernbert", "gpt2"]))
def study(
    request: pytest.FixtureRequest,
    added: AttentionMetric,
    tiny_folder: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Study:
    """A collection with it."""
    file = treebank.write_trees(tmp_path_factory.mktemp("trees") / "trees.conllu", treebank.TREES)
    names = f"attention_distance,{added.id}"
    model = str(tiny_folder(request.param))
    return collect(
        file, model=model, dtype="float64", annotator="none", metrics=names, importance="off",
        circuits="off",
    )  # fmt: skip


@pytest.mark.parametrize("table", ["heads", "layers", "controls"])
def test_the_metric_of_contributing_gives_its_numbers_in_every_view(
    study: Study, added: AttentionMetric, table: str
) -> None:
    rows = getattr(study, table)
    mine, known = (rows[rows["metric"] == name] for name in (added.id, "attention_distance"))
    assert set(mine["view"]) == set(SinkView)
    numbers = [c for c in ("value", "low", "high", "n_observations", "n_sentences") if c in rows]
    assert mine["value"].notna().all()
    for column in numbers:
        within = 1e-6 if column in {"low", "high"} else 1e-9
        np.testing.assert_allclose(mine[column], known[column], rtol=within, err_msg=column)


def test_its_worked_examples_hold(added: AttentionMetric) -> None:
    for example, expected in added.examples.values():
        assert isinstance(example, Example)
        ratio = added.measure(example_layer(example, SinkView.RAW))
        assert float(ratio.numerator / ratio.denominator) == pytest.approx(expected)


def several() -> tuple[ConcatenatedMaps, list[AttentionMaps]]:
    """Three layers of two heads over one sentence, alone and together."""
    draw = torch.Generator().manual_seed(7)
    layers = []
    for _ in range(3):
        weights = torch.rand(2, 5, 5, generator=draw, dtype=torch.float64)
        weights /= weights.sum(-1, keepdim=True)
        layers.append(views_of(weights, Marks(5, special=(0, 4), separator=(4,)))[SinkView.NOSINK])
    scope = layers[0].scope
    tables = {m.pairs for m in head_metrics(all_metrics().values()) if m.pairs is not None}
    pairs = [scope.frame.cached(table) for table in tables]
    maps = [
        AttentionMaps(scope, AttentionCall(None, None, None, None, None, layer.attention, None))
        for layer in layers
    ]
    return ConcatenatedMaps(scope, maps, pairs), maps


@pytest.mark.parametrize("view", SinkView)
def test_whole_maps_of_several_layers_are_those_of_each_side_by_side(view: SinkView) -> None:
    together, alone = several()
    frame = together._frame
    scopes = {v: ViewMask(frame, v) for v in SinkView}
    layer_attention = layer_views(scopes, together)[view]
    parts = [layer_views(scopes, maps)[view] for maps in alone]
    for name in ("attention", "weights"):
        torch.testing.assert_close(
            getattr(layer_attention, name), torch.cat([getattr(part, name) for part in parts], 1)
        )
    torch.testing.assert_close(
        layer_attention.maps.by_word, torch.cat([part.maps.by_word for part in parts], 1)
    )


@pytest.mark.parametrize(
    "metric",
    [m for m in all_metrics().values() if isinstance(m, AttentionMetric)],
    ids=lambda metric: metric.id,
)
def test_metrics_of_all_sentences_are_taken_from_sums(metric: AttentionMetric) -> None:
    """Whole maps are for whoever needs them: a copy of each would cost a pass its speed."""
    together, _ = several()
    scopes = {v: ViewMask(together._frame, v) for v in SinkView}
    for view in metric.views:
        metric.measure(layer_views(scopes, together)[view])
    assert "_together" not in vars(together)
