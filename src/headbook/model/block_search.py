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
from headbook.model.output_projection import OutputProjection, is_gated, is_linear, perturbed
from headbook.model.probe import hidden_states_of, model_errors, varied_texts

Place = tuple[str, int]  # stack and layer
Layers = Mapping[str, Sequence[torch.nn.Module]]
MAP = 4  # dimensions of attention weights


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
        ends = _find(model, layers, places, {}, hooked=hooked)
    except ModelError as error:
        return AttentionBlocks(failed=str(error))
    missing = [place for place in places if place not in ends.projections]
    with suppress(ModelError):  # perturbed head outputs may make a model fail
        if gated := _find_gated(model, places, missing) if gates and missing else {}:
            return _find(model, layers, places, gated, hooked=hooked)
    return ends


def _find(
    model: Model,
    layers: Layers,
    places: Sequence[Place],
    known: Mapping[Place, OutputProjection],
    *,
    hooked: bool,
) -> AttentionBlocks:
    """Run one pass of the search.

    Args:
        known: projections found in an earlier pass.
    """
    watch = _BlockObserver(model, layers, places, hooked=hooked)
    watch.ends.projections.update(known)
    with ExitStack() as around:
        for handle in watch.handles():
            around.callback(handle.remove)
        if hooked:
            around.enter_context(attention_hook.observing(watch.attention))
        around.enter_context(model_errors(model))
        around.enter_context(torch.inference_mode())
        model.base_model(**varied_texts(model), **({} if hooked else {"output_attentions": True}))
    return watch.ends


def _find_gated(
    model: Model, places: Sequence[Place], missing: Sequence[Place]
) -> dict[Place, OutputProjection]:
    """Return output projections whose input is the head outputs times independent factors.

    One pass over copies of a text: each copy perturbs the heads of another missing place, so that
    both outputs can be compared after equal states.
    """
    copies = {
        name: ids[:1].repeat(1 + len(missing), 1) for name, ids in varied_texts(model).items()
    }
    calls = iter(places)
    found: dict[Place, OutputProjection] = {}
    known: dict[torch.nn.Module, OutputProjection] = {}
    waiting: list[tuple[Place, torch.Tensor]] = []

    def attention(call: attention_hook.AttentionCall) -> torch.Tensor | None:
        place = next(calls, None)
        waiting.clear()
        if place is None or place not in missing or call.output is None:
            return None
        row = 1 + missing.index(place)
        instead = call.output.clone()
        instead[row] = perturbed(instead[row])
        waiting.append((place, instead.clone()))
        return instead

    def linear(module: torch.nn.Module, args: tuple[Any, ...], given: Any) -> None:
        if not waiting or not args or args[0].numel() != waiting[0][1].numel():
            return
        place, heads = waiting[0]
        taken, row = args[0].reshape(heads.shape), 1 + missing.index(place)
        projection = known.setdefault(module, OutputProjection(module, gated=True))
        if is_gated(heads[[0, row]], taken[[0, row]]) and projection.adds_up(
            taken, hidden_states_of(given)
        ):
            found[place] = projection
            waiting.clear()

    with ExitStack() as around:
        for module in model.base_model.modules():
            if is_linear(module):
                around.callback(module.register_forward_hook(linear).remove)
        around.enter_context(attention_hook.observing(attention))
        around.enter_context(model_errors(model))
        around.enter_context(torch.inference_mode())
        model.base_model(**copies)
    return found


class _BlockObserver:
    """Hooks of a search pass; each layer is searched, and its tensors freed, when it has run."""

    def __init__(
        self, model: Model, layers: Layers, places: Sequence[Place], *, hooked: bool
    ) -> None:
        self.ends, self._hooked = AttentionBlocks(), hooked
        self._model = model
        self._paths = {  # path of each module in each layer
            layer: {module: path for path, module in layer.named_modules()}
            for each in layers.values()
            for layer in each
        }
        self._names = {module: name for name, module in model.base_model.named_modules()}
        self._known: dict[
            torch.nn.Module, OutputProjection
        ] = {}  # several layers may share a module
        self._calls = iter(places)
        self._order = {
            layer: iter([(name, number) for number, m in enumerate(each) if m is layer])
            for name, each in layers.items()
            for layer in each
        }
        self._open: list[tuple[torch.nn.Module, ModuleCall]] = []
        self._run: LayerRun | None = None
        self._layer: torch.nn.Module | None = None
        self._tick = 0
        self._places: list[Place] = []
        self._waiting: tuple[Place, torch.Tensor] | None = None
        self._weights: list[torch.Tensor] = []  # returned in this layer

    def handles(self) -> "list[Any]":
        """Register all hooks, and return their handles."""
        inside = {module for paths in self._paths.values() for module in paths}
        found: list[Any] = []
        for module in self._model.base_model.modules():
            if module in inside:
                found.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            if is_linear(module):
                found.append(module.register_forward_hook(self._linear))
            if module in inside:
                found.append(module.register_forward_hook(self._leave))
        return found

    def attention(self, call: attention_hook.AttentionCall) -> None:
        """Record an attention call that the hook sees."""
        assert call.output is not None
        assert call.module is not None
        place = self._expected(self._calls)
        self._waiting = place, call.output.detach().clone()
        if self._run is not None and self._layer is not None:
            path = self._paths[self._layer].get(call.module, "")
            self._run.attended.append(RecordedAttention(path, self._next(), flat(call.output)))
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

    def _next(self) -> int:
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
        ran = ModuleCall(path, leaf, self._next(), flat((args, kwargs)))
        self._run.ran.append(ran)
        self._open.append((module, ran))

    def _leave(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        if not self._open or self._open[-1][0] is not module:
            return
        _, ran = self._open.pop()
        ran.given, ran.end = flat(output), self._next()
        assert self._run is not None
        if not self._hooked and self._gives_weights(output):
            self._run.attended.append(RecordedAttention(ran.path, ran.end, ran.given, whole=True))
        if module is not self._layer:
            return
        self._search(self._run, self._expected(self._order[module]))
        self._layer = self._run = None
        self._places, self._weights = [], []

    def _gives_weights(self, output: Any) -> bool:
        """Whether a module returns attention weights that no submodule returned."""
        parts = output if isinstance(output, tuple | list) else ()
        found = [p for p in parts if isinstance(p, torch.Tensor) and p.ndim == MAP]
        new = [p for p in found if all(p is not other for other in self._weights)]
        self._weights += new
        return bool(new)

    def _linear(self, module: torch.nn.Module, args: tuple[Any, ...], given: Any) -> None:
        """Record a map as the output projection if it reads the head outputs and adds up."""
        if self._waiting is None or not args:
            return
        place, heads = self._waiting
        taken = args[0]
        if taken.numel() != heads.numel() or not torch.equal(taken.flatten(), heads.flatten()):
            return
        self._waiting = None
        projection = self._known.setdefault(module, OutputProjection(module))
        if projection.adds_up(heads, hidden_states_of(given)):
            self.ends.projections[place] = projection

    def _search(self, run: LayerRun, own: Place) -> None:
        layer = own[1]
        places = self._places or [own, ("cross", layer)]
        for number, place in enumerate(places[: len(run.attended)]):
            if place[1] != layer:
                continue
            known = self.ends.projections.get(place)
            assert self._layer is not None
            path = None if known is None else self._paths[self._layer].get(known.module)
            site = find_residual_addition(run, number, path)
            if site is not None:
                self.ends.sites[place] = site
