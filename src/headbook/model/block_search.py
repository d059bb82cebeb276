r"""Search for the ends of attention blocks and their output projections, in one short pass.

No architecture is known by name; `headbook.model.block_match` tests which recorded tensors add up.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from headbook.errors import ModelError
from headbook.model import attention_hook
from headbook.model.block_match import (
    LayerRun,
    ModuleCall,
    RecordedAttention,
    ResidualAddition,
    find_residual_addition,
    flat,
)
from headbook.model.load import Model
from headbook.model.output_projection import OutputProjection, is_gated, linear_maps, perturbed
from headbook.model.probe import hidden_states_of, model_errors, varied_texts

Place = tuple[str, int]  # stack and layer
Layers = Mapping[str, Sequence[torch.nn.Module]]
WEIGHTS_NDIM = 4  # dimensions of attention weights


@dataclass
class AttentionBlocks:
    """Ends of attention blocks, by stack and layer.

    Attributes:
        sites: sums with the residual, for places at which one was found.
        projections: output projections of the heads, for places at which one was found.
        failed: reason why the search was aborted; empty if it was not.
    """

    sites: dict[Place, ResidualAddition] = field(default_factory=dict)
    projections: dict[Place, OutputProjection] = field(default_factory=dict)
    failed: str = ""


def find_blocks(
    model: Model, layers: Layers, places: Sequence[Place], *, hooked: bool, gates: bool = False
) -> AttentionBlocks:
    """Find all attention blocks; if the search fails, the result is empty with ``failed`` set.

    Args:
        layers: by stack, the modules called as its layers; cross-attention is in those of the
            decoder.
        places: stack and layer of every attention call of a pass, in order.
        hooked: whether attention calls are seen by the hook; else by the weights they return.
        gates: whether to search for gates if no module takes the head outputs unchanged.
    """
    try:
        blocks = _find(model, layers, places, {}, hooked=hooked)
    except ModelError as error:
        return AttentionBlocks(failed=str(error))
    missing = [place for place in places if place not in blocks.projections]
    with suppress(ModelError):  # perturbed head outputs may make a model fail
        if gated := _find_gated(model, places, missing) if gates and missing else {}:
            return _find(model, layers, places, gated, hooked=hooked)
    return blocks


def _find(
    model: Model,
    layers: Layers,
    places: Sequence[Place],
    known_projections: Mapping[Place, OutputProjection],
    *,
    hooked: bool,
) -> AttentionBlocks:
    """Run one pass of the search, and return the attention blocks that it finds.

    Args:
        known_projections: projections found in an earlier pass.
    """
    observer = _BlockObserver(model, layers, places, hooked=hooked)
    observer.ends.projections.update(known_projections)
    with ExitStack() as hooks:
        for handle in observer.handles():
            hooks.callback(handle.remove)
        if hooked:
            hooks.enter_context(attention_hook.observing(observer.attention))
        hooks.enter_context(model_errors(model))
        hooks.enter_context(torch.inference_mode())
        model.base_model(**varied_texts(model), **({} if hooked else {"output_attentions": True}))
    return observer.ends


def _find_gated(
    model: Model, places: Sequence[Place], missing: Sequence[Place]
) -> dict[Place, OutputProjection]:
    """Return output projections whose input is the head outputs times independent factors.

    One pass over copies of a text: each copy perturbs the heads of another missing place, so that
    both outputs can be compared after equal states.
    """
    inputs = {
        name: ids[:1].repeat(1 + len(missing), 1) for name, ids in varied_texts(model).items()
    }
    calls = iter(places)
    gated: dict[Place, OutputProjection] = {}
    projection_of: dict[torch.nn.Module, OutputProjection] = {}
    pending: list[tuple[Place, torch.Tensor]] = []

    def attention(call: attention_hook.AttentionCall) -> torch.Tensor | None:
        place = next(calls, None)
        pending.clear()
        if place is None or place not in missing or call.output is None:
            return None
        row = 1 + missing.index(place)
        perturbed_output = call.output.clone()
        perturbed_output[row] = perturbed(perturbed_output[row])
        pending.append((place, perturbed_output.clone()))
        return perturbed_output

    def linear(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not pending or not args or args[0].numel() != pending[0][1].numel():
            return
        place, heads = pending[0]
        projection_input, row = args[0].reshape(heads.shape), 1 + missing.index(place)
        projection = projection_of.setdefault(module, OutputProjection(module, gated=True))
        if is_gated(heads[[0, row]], projection_input[[0, row]]) and projection.adds_up(
            projection_input, hidden_states_of(output)
        ):
            gated[place] = projection
            pending.clear()

    with ExitStack() as hooks:
        for _, module in linear_maps(model.base_model):
            hooks.callback(module.register_forward_hook(linear).remove)
        hooks.enter_context(attention_hook.observing(attention))
        hooks.enter_context(model_errors(model))
        hooks.enter_context(torch.inference_mode())
        model.base_model(**inputs)
    return gated


class _BlockObserver:
    """Hooks of a search pass; each layer is searched, and its tensors freed, when it has run."""

    def __init__(
        self, model: Model, layers: Layers, places: Sequence[Place], *, hooked: bool
    ) -> None:
        self.ends, self._hooked = AttentionBlocks(), hooked
        self._model = model
        self._paths = {  # path of each module in each layer
            layer: {module: path for path, module in layer.named_modules()}
            for modules in layers.values()
            for layer in modules
        }
        self._names = {module: name for name, module in model.base_model.named_modules()}
        # By module, because several layers may share one.
        self._projection_of: dict[torch.nn.Module, OutputProjection] = {}
        self._calls = iter(places)
        self._order = {
            layer: iter(
                [(name, number) for number, module in enumerate(modules) if module is layer]
            )
            for name, modules in layers.items()
            for layer in modules
        }
        self._open: list[tuple[torch.nn.Module, ModuleCall]] = []
        self._run: LayerRun | None = None
        self._layer: torch.nn.Module | None = None
        self._tick = 0
        self._places: list[Place] = []
        self._waiting: tuple[Place, torch.Tensor] | None = None
        self._weights: list[torch.Tensor] = []  # returned in this layer

    def handles(self) -> list[Any]:
        """Register all hooks, and return their handles."""
        inside = {module for paths in self._paths.values() for module in paths}
        maps = {module for _, module in linear_maps(self._model.base_model)}
        handles: list[Any] = []
        for module in self._model.base_model.modules():
            if module in inside:
                handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            if module in maps:
                handles.append(module.register_forward_hook(self._linear))
            if module in inside:
                handles.append(module.register_forward_hook(self._leave))
        return handles

    def attention(self, call: attention_hook.AttentionCall) -> None:
        """Record an attention call that the hook sees."""
        assert call.output is not None
        assert call.module is not None
        place = self._expected(self._calls)
        self._waiting = place, call.output.detach().clone()
        if self._run is not None and self._layer is not None:
            path = self._paths[self._layer].get(call.module, "")
            self._run.attended.append(RecordedAttention(path, self._next_tick(), flat(call.output)))
            self._places.append(place)

    def _expected(self, places: Iterator[Place]) -> Place:
        """Return the place of the next call.

        Raises:
            ModelError: this pass makes more calls than the probe.
        """
        place = next(places, None)
        if place is None:
            kind = self._model.config.model_type
            raise ModelError(
                f"model '{self._model.name}': '{kind}' calls a layer or its attention more often "
                "for some texts than for others; expected the same calls in every pass"
            )
        return place

    def _next_tick(self) -> int:
        self._tick += 1
        return self._tick

    def _enter(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self._layer is None and module in self._order:
            states = args[0] if args else kwargs["hidden_states"]
            eps = float(torch.finfo(states.dtype).eps)
            self._layer, self._run = module, LayerRun(eps, states.shape[-1])
        if self._run is None or self._layer is None or module not in self._paths[self._layer]:
            return
        leaf = next(module.children(), None) is None
        path = self._paths[self._layer][module]
        ran = ModuleCall(path, leaf, self._next_tick(), flat((args, kwargs)))
        self._run.ran.append(ran)
        self._open.append((module, ran))

    def _leave(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        if not self._open or self._open[-1][0] is not module:
            return
        _, ran = self._open.pop()
        ran.output, ran.end = flat(output), self._next_tick()
        assert self._run is not None
        if not self._hooked and self._gives_weights(output):
            self._run.attended.append(RecordedAttention(ran.path, ran.end, ran.output, whole=True))
        if module is not self._layer:
            return
        self._search(self._run, self._expected(self._order[module]))
        self._layer = self._run = None
        self._places, self._weights = [], []

    def _gives_weights(self, output: Any) -> bool:
        """Whether a module returns attention weights that no submodule returned."""
        elements = output if isinstance(output, tuple | list) else ()
        maps = [
            element
            for element in elements
            if isinstance(element, torch.Tensor) and element.ndim == WEIGHTS_NDIM
        ]
        new_maps = [
            element for element in maps if all(element is not known for known in self._weights)
        ]
        self._weights += new_maps
        return bool(new_maps)

    def _linear(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Record a map as the output projection if it reads the head outputs and adds up."""
        if self._waiting is None or not args:
            return
        place, heads = self._waiting
        projection_input = args[0]
        if projection_input.numel() != heads.numel() or not torch.equal(
            projection_input.flatten(), heads.flatten()
        ):
            return
        self._waiting = None
        projection = self._projection_of.setdefault(module, OutputProjection(module))
        if projection.adds_up(heads, hidden_states_of(output)):
            self.ends.projections[place] = projection

    def _search(self, run: LayerRun, own_place: Place) -> None:
        """Search one recorded layer for the sums of its attention blocks.

        Args:
            own_place: place of the layer, used if no attention call was seen by the hook.
        """
        layer = own_place[1]
        places = self._places or [own_place, ("cross", layer)]
        for index, place in enumerate(places[: len(run.attended)]):
            if place[1] != layer:
                continue
            projection = self.ends.projections.get(place)
            assert self._layer is not None
            path = None if projection is None else self._paths[self._layer].get(projection.module)
            site = find_residual_addition(run, index, path)
            if site is not None:
                self.ends.sites[place] = site
