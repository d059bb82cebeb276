r"""Path patching between two heads: the lower head taken out of one input of the upper head.

The lower head's output minus its mean over all positions is subtracted from the residual stream
that the query or key map of the upper head reads, on repeated random tokens. The norm before the
map divides the new stream by the new stream's own scale; everything else of the pass stays. The
model's own attention function computes the weights, with its positions and masks.

Attention does not depend on values: an intervention on the value input changes no attention, and
is not made.
"""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pandas as pd
import torch

from headbook.analysis.arrays import Floats
from headbook.analysis.intervals import critical_value
from headbook.circuits.composition import MIN_SCORE, PAIR_COLUMNS, induction_pairs
from headbook.circuits.unembedding import Norm
from headbook.circuits.weights import StackWeights
from headbook.metrics.ids import INDUCTION_SCORE
from headbook.model import attention_hook
from headbook.model.forward import model_inputs
from headbook.model.head_weights import WeightRows
from headbook.model.intervention import make_patchable, skip_layers
from headbook.model.probe import hidden_states_of
from headbook.text.batch import Batch

N_STRONGEST = 10  # pairs of each kind whose paths are patched
N_SEQUENCES = 10  # sequences of random tokens
MAX_ERROR = 1e-3  # of attention weights in a pass with an unchanged input
STRONGEST = "strongest weight"  # measure of heads without an induction score
NOT_RECOMPUTED = "passes with an unchanged input do not give this model's own attention"
NORM_BEHIND = "a norm follows the output projection of heads, so that their outputs do not add up"


class _Done(Exception):  # noqa: N818 - a signal, not a failure; hooks of modules still run
    """Ends a pass behind an attention call; no error, so that nothing explains it as one."""


def with_interventions(
    table: pd.DataFrame,
    weights: StackWeights,
    batch: Batch,
    induction: Floats,
    previous: Floats,
) -> tuple[pd.DataFrame, str]:
    """Return a table of compositions with the effects of patched paths.

    Args:
        table: compositions from `headbook.circuits.composition.composition_table`.
        weights: weights of the stack.
        batch: sequences of random tokens, each repeated once, of one length.
        induction, previous: induction and previous-token scores; NaN without one. *Shape:*
            ``(layer, head)`` each.

    Returns:
        The table, and the reason why no path was patched; empty if paths were.

    Raises:
        ModelError: heads of this model cannot be replaced.
    """
    if any(maps.output_norm is not None for maps in weights.layers.values()):
        return table, NORM_BEHIND
    # Induction works through keys: their pairs are of interest in the key input alone.
    of_circuit = induction_pairs(table[PAIR_COLUMNS].to_numpy(int), induction, previous)
    is_strongest = (table["kind"] != "v") & (table["rank"] <= N_STRONGEST)
    # Keys of an earlier layer are not recomputed for one layer alone.
    has_own_keys = table["layer"].map({n: maps.source == n for n, maps in weights.layers.items()})
    is_chosen = is_strongest | ((table["kind"] == "k") & of_circuit)
    is_chosen &= has_own_keys.astype(bool) | (table["kind"] == "q")
    chosen = table.loc[is_chosen, ["kind", *PAIR_COLUMNS]]
    if chosen.empty:
        return table, ""
    effects = _effects(PathPatcher(weights, batch, chosen), chosen, induction)
    if effects is None:
        return table, NOT_RECOMPUTED
    return table.assign(**effects.reindex(table.index)), ""


def _effects(
    patcher: "PathPatcher", chosen: pd.DataFrame, induction: Floats
) -> pd.DataFrame | None:
    """Return the effects of chosen pairs, or None if unpatched passes differ from the model's."""
    effects = {}
    inputs = chosen[["layer", "kind"]].drop_duplicates().itertuples(index=False)
    for layer, kind in inputs:
        whole = patcher.attention(layer, kind)
        if (whole - patcher.unpatched[layer]).abs().max() > MAX_ERROR:
            return None
        of_input = chosen[(chosen["layer"] == layer) & (chosen["kind"] == kind)]
        for _, pairs in of_input.groupby(PAIR_COLUMNS[2:]):
            lower_layer, lower_head = pairs[PAIR_COLUMNS[2:]].iloc[0]
            patched = patcher.attention(layer, kind, (lower_layer, lower_head))
            for index, head in pairs["head"].items():
                has_score = not patcher.weights.crosses and induction[layer, head] >= MIN_SCORE
                before, after = (
                    patcher.measure(maps[:, head], induction=has_score) for maps in (whole, patched)
                )
                change = *_mean_and_interval(after - before), len(before), before.mean()
                effects[index] = *change, INDUCTION_SCORE if has_score else STRONGEST
    columns = ["intervention", "low", "high", "n_sentences", "before", "measure"]
    return pd.DataFrame.from_dict(effects, "index", columns=columns)


def _mean_and_interval(values: Floats) -> tuple[float, float, float]:
    """Return the mean of independent numbers with its 95 % interval (Student's t)."""
    n, mean = len(values), float(values.mean())
    if n < 2:
        return mean, np.nan, np.nan
    half_width = float(critical_value(np.array(n))) * values.std(ddof=1) / np.sqrt(n)
    return mean, float(mean - half_width), float(mean + half_width)


class PathPatcher:
    """Attention of upper heads with lower heads taken out of one of their inputs.

    Args:
        weights: weights of the stack.
        batch: sequences of random tokens, each repeated once.
        pairs: pairs of heads, with the columns ``kind`` and `PAIR_COLUMNS`.

    Attributes:
        unpatched: attention weights of the model itself by upper layer. *Shape:*
            ``(sequence, head, query, key)``.
    """

    def __init__(self, weights: StackWeights, batch: Batch, pairs: pd.DataFrame) -> None:
        self.weights = weights
        items = batch.items[:N_SEQUENCES]
        self.batch = Batch.of(items, weights.model.device)
        probe = Batch.of(items[:1], weights.model.device)
        self.slots = make_patchable(weights.model, weights.architecture, probe).slots
        self.unpatched: dict[int, torch.Tensor] = {}
        self._modules: dict[int, Any] = {}
        self._streams: dict[tuple[int, str], torch.Tensor] = {}
        self._entering: dict[int, torch.Tensor] = {}
        self._written: dict[tuple[int, int], torch.Tensor] = {}
        self._record(pairs)

    def _record(self, pairs: pd.DataFrame) -> None:
        """Run the model once, and keep what the patched passes need."""
        lower = {(int(layer), int(head)) for layer, head in pairs[PAIR_COLUMNS[2:]].to_numpy()}
        upper = {*pairs["layer"]}
        places = iter(self.weights.architecture.calls)

        def see(call: attention_hook.AttentionCall) -> None:
            place = next(places)
            if place.stack != self.weights.stack:
                return
            if place.layer in upper:
                self.unpatched[place.layer] = call.weights
                self._modules[place.layer] = call.module
            assert call.output is not None
            for layer, head in lower:
                if layer == place.layer:
                    output = self.weights.factors(layer).output[head].to(call.output)
                    written = call.output[:, :, head] @ output
                    self._written[layer, head] = written - written.mean((0, 1))

        with ExitStack() as hooks, torch.inference_mode():
            for layer, kind in {*zip(pairs["layer"], pairs["kind"], strict=True)}:
                reader = self._reader(layer, kind)
                keep = _keeper(self._streams, (layer, kind))
                hooks.callback(reader.register_forward_pre_hook(keep, with_kwargs=True).remove)
            for layer in upper:
                keep = _keeper(self._entering, layer)
                module = self._layers[layer]
                hooks.callback(module.register_forward_pre_hook(keep, with_kwargs=True).remove)
            hooks.enter_context(attention_hook.observing(see))
            self.weights.model.base_model(**model_inputs(self.batch))

    @property
    def _layers(self) -> Sequence[torch.nn.Module]:
        stack = self.weights.stack
        return self.weights.architecture.layers["decoder" if stack == "cross" else stack]

    def _map(self, layer: int, kind: str) -> tuple[WeightRows, Norm | None]:
        """Return the map of an input with the norm that it reads."""
        maps = self.weights.layers[layer]
        return (maps.query, maps.query_norm) if kind == "q" else (maps.key, maps.value_norm)

    def _linear(self, layer: int, kind: str) -> Any:
        return self.weights.model.base_model.get_submodule(self._map(layer, kind)[0].name)

    def _reader(self, layer: int, kind: str) -> Any:
        """Return the module that reads the residual stream: the norm, or the map without one."""
        norm = self._map(layer, kind)[1]
        return self._linear(layer, kind) if norm is None else norm.module

    def attention(
        self, layer: int, kind: str, lower: tuple[int, int] | None = None
    ) -> torch.Tensor:
        """Return a layer's attention without a lower head in one input of all its heads.

        Args:
            lower: layer and number of the lower head; None to patch nothing.

        Returns:
            *Shape:* ``(sequence, head, query, key)``.
        """
        rows, norm = self._map(layer, kind)
        linear, stream = self._linear(layer, kind), self._streams[layer, kind]
        if lower is not None:
            stream = stream - self._written[lower].to(stream)
        own_rows = rows.rows.flatten().to(stream.device)  # of a fused map the other rows stay
        seen: list[torch.Tensor] = []

        def observer(call: attention_hook.AttentionCall) -> None:
            if call.module is self._modules[layer]:
                seen.append(call.weights)
                raise _Done

        with ExitStack() as hooks, torch.inference_mode():
            mapped = hidden_states_of(linear(stream if norm is None else norm.module(stream)))

            def replace_rows(_: Any, __: Any, output: Any) -> Any:
                states = hidden_states_of(output)
                if states.shape != mapped.shape:  # the map reads positions, too
                    return output
                replaced = states.index_copy(-1, own_rows, mapped[..., own_rows])
                return replaced if states is output else (replaced, *output[1:])

            self._skip(hooks, layer)
            hooks.callback(linear.register_forward_hook(replace_rows).remove)
            hooks.enter_context(attention_hook.observing(observer))
            hooks.enter_context(suppress(_Done))
            self.weights.model.base_model(**model_inputs(self.batch))
        return seen[0]

    def _skip(self, hooks: ExitStack, layer: int) -> None:
        """Replace what enters a layer by the recorded states, if passes can start there."""
        stack = "decoder" if self.weights.stack == "cross" else self.weights.stack
        if stack not in self.slots or not layer:
            return
        entering = self._entering[layer]

        def enter(_: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
            if args:
                return (entering, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": entering}

        # Between two layers a module may change the states.
        handle = self._layers[layer].register_forward_pre_hook(enter, with_kwargs=True)
        hooks.callback(handle.remove)
        hooks.enter_context(skip_layers(self.slots[stack][:layer], entering))

    def measure(self, attention: torch.Tensor, *, induction: bool) -> Floats:
        """Return the induction score, or the mean strongest weight, of each sequence.

        Args:
            attention: attention of one head. *Shape:* ``(sequence, query, key)``.
        """
        texts = self.batch.texts[self.weights.architecture.stacks[self.weights.stack].queries]
        queries = texts.ordinary
        if not induction:
            strongest = attention.amax(-1) * queries
            return (strongest.sum(1) / queries.sum(1)).double().cpu().numpy()
        ids = texts.ids
        before = torch.nn.functional.pad(ids[:, :-1], (1, 0), value=-1)  # token before each key
        follows = (ids[:, :, None] == before[:, None, :]).tril() & queries[:, :, None]
        scores = (attention * follows).sum((1, 2)) / follows.sum((1, 2))
        return scores.double().cpu().numpy()


def _keeper(kept: dict[Any, torch.Tensor], key: Any) -> Any:
    def keep(_: Any, args: Any, kwargs: Any) -> None:
        kept.setdefault(key, (args[0] if args else kwargs["hidden_states"]).clone())

    return keep
