"""Outputs of all heads at the queries of the sample, with what heads attend to there.

Of each query only the head outputs z are kept, and the state of the last layer. Queries are
ordinary tokens after the first position; in masked language models, the masked ones.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch

from headbook.ablation.targets import TargetFunctions
from headbook.analysis.arrays import Floats, Ints
from headbook.attention.views import ViewMasks
from headbook.circuits.token_directions import (
    MAX_ERROR,
    TokenDirections,
    residual_sum_error,
    sum_tolerance,
    token_directions,
)
from headbook.circuits.unembedding import POST_NORM
from headbook.errors import ModelError
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.attention_hook import AttentionCall
from headbook.model.forward import observe_states, run_forward
from headbook.model.load import Model
from headbook.model.logit_lens import LogitLens
from headbook.schema import ResidualPoint, Side, SinkView
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence

NO_SUM = (
    "direct contributions of embedding, heads and feed-forward blocks do not add up to the logits"
)
UNKNOWN_STEP = (
    "what layer {} does between its heads' output projection and the residual stream is unknown"
)
MAX_BYTES = 1 << 29  # of the outputs of all heads that are kept; later sentences are left out


Points = Mapping[tuple[str, int, ResidualPoint], torch.Tensor]


class SampleOutputs:
    """Outputs of all heads at the queries of the sample.

    Args:
        model: the model.
        architecture: the model's architecture.
        lens: language-model head; None without one.
        functions: targets of ablation, which choose the masked tokens of masked language models.
        key_tokens: vocabulary entries that each head reads, -1 for none, by place. *Shape:*
            ``(head, slot)`` each.

    Attributes:
        places: attention calls whose heads write into the stream that tokens are read from.
        directions: map from the residual stream to tokens; None before the first batch.
        remarks: what is approximate, one sentence each.
        error: largest difference between the summed contributions of embedding, heads and
            feed-forward blocks and the centred logits, on the first batch, relative to the largest
            centred logit; NaN if norms follow blocks or if there are no logits.
        items, half, hashes: the sentences, their halves, and hashes of their tokens.
        outputs: head outputs by place and batch. *Shape:* ``(query, head, width)``.
        queries: sentence, position and true token of each query, -1 without one, by batch.
            *Shape:* ``(query, 3)``.
        scale, states: scale of the final norm, and state of the last layer, by batch. *Shape:*
            ``(query,)`` and ``(query, width)``.
        strongest: weight, row of the query, and position of the key of the largest weight, by place
            and sentence; off the sink and the token itself. *Shape:* ``(head, 3)``.
        key_ids: vocabulary entries of the keys, by key side and sentence. *Shape:* ``(key,)``.
        read: by place and batch, head, slot and sentence of read tokens, and attention to the
            token beside the sum of values, weighted by attention and divided by the scale. *Shape:*
            ``(row, 3)`` and ``(row, 1 + width)``.
    """

    def __init__(
        self,
        model: Model,
        architecture: Architecture,
        lens: LogitLens | None,
        functions: TargetFunctions,
        key_tokens: Mapping[AttentionPlace, Ints],
    ) -> None:
        self.model, self.architecture, self.lens = model, architecture, lens
        self._functions, self.key_tokens = functions, key_tokens
        self.stack = "decoder" if "decoder" in architecture.layers else "self"
        stacks = {"self", "decoder", "cross"} if lens is not None else {"self"}
        ends = architecture.ends.projections
        self.places = [
            call
            for call in architecture.calls
            if call.stack in stacks and (call.stack, call.layer) in ends
        ]
        if not architecture.hooked or not self.places or self.stack not in architecture.layers:
            reason = architecture.unhooked or "no output projection or no layer was found"
            raise ModelError(f"model '{model.name}': outputs of heads are unknown: {reason}")
        self.directions: TokenDirections | None = None
        self.remarks: tuple[str, ...] = ()
        self.error = float("nan")
        self.items: list[TokenizedSentence] = []
        self.half: list[int] = []
        self.hashes: list[int] = []
        self.queries: list[Ints] = []
        self.scale: list[torch.Tensor] = []
        self.states: list[torch.Tensor] = []
        self.outputs: dict[AttentionPlace, list[torch.Tensor]] = defaultdict(list)
        self.strongest: dict[AttentionPlace, list[Floats]] = defaultdict(list)
        self.key_ids: dict[Side, list[Ints]] = defaultdict(list)
        self.read: dict[AttentionPlace, list[tuple[Ints, torch.Tensor]]] = defaultdict(list)

    @property
    def side(self) -> Side:
        """Side of the queries."""
        return self.architecture.stacks[self.stack].queries

    @property
    def is_full(self) -> bool:
        """Whether no more outputs are kept."""
        kept = (z for batches in self.outputs.values() for z in batches)
        return sum(z.numel() * z.element_size() for z in kept) >= MAX_BYTES

    def output_weights(self, place: AttentionPlace, width: int) -> torch.Tensor:
        """Return W_O of each head with the factor of the residual stream.

        *Shape:* ``(head, state width, width)``.
        """
        projection = self.architecture.ends.projections[place.stack, place.layer]
        return self._block_scale(place) * projection.slices(width).float()

    def add(self, batch: Batch) -> None:
        """Add the sentences of a batch."""
        prepared = self._functions.prepare_batch(batch)
        calls, states, points = self._run(prepared)
        if self.directions is None:
            self.directions = self._find_directions(prepared, calls, states, points)
        queries, true = self._true_tokens(batch, prepared)
        scale = torch.ones(int(queries.sum()), device=states.device)
        if self.lens is not None and len(scale):
            scale = self.directions.scale(states[queries])
        by_query = torch.zeros(queries.shape, device=scale.device)
        by_query[queries] = 1 / scale
        row, position = queries.nonzero().T
        row_of = torch.full_like(true, -1)
        row_of[queries] = sum(map(len, self.queries)) + torch.arange(len(row), device=row.device)
        masks = ViewMasks(prepared, self.architecture.stacks)
        for place, call in calls.items():
            frame = masks.get(place.stack, call)[SinkView.RAW].frame
            keys = frame.keys.valid & ~frame.sink
            if frame.stack.keys is self.side:  # masked tokens cannot be read
                keys = keys & (prepared.texts[self.side].ids == batch.texts[self.side].ids)
            self._add_strongest(place, call, queries, keys, row_of)
            assert call.output is not None
            self.outputs[place].append(call.gated(call.output)[queries].float().cpu())
            if place in self.key_tokens and self.lens is not None:
                ids = batch.texts[frame.stack.keys].ids.masked_fill(~keys, -1)
                self._add_read(place, call, by_query, ids)
        where = torch.stack([len(self.items) + row, position, true[queries]], 1)
        self.queries.append(where.cpu().numpy())
        self.scale.append(scale.cpu())
        self.states.append(states[queries].float().cpu())
        for side, texts in batch.texts.items():
            self.key_ids[side] += list(texts.ids.cpu().numpy())
        self.items += batch.items
        self.half += batch.half.tolist()
        self.hashes += batch.content_hash.tolist()

    def _true_tokens(self, batch: Batch, prepared: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return which tokens are queries, and the true token at each position, -1 without one.

        *Shape:* ``(sentence, token)`` each.
        """
        texts, original = prepared.texts[self.side], batch.texts[self.side]
        queries = texts.ordinary & ~texts.first
        if self.lens is None or (not self.lens.causal and not self._functions.needs_lm_head):
            return queries, torch.full_like(texts.ids, -1)
        if self.lens.causal:
            return queries, self.lens.targets(texts)
        is_masked = texts.ids != original.ids
        return queries & is_masked, torch.where(is_masked, original.ids, -1)

    def _run(
        self, batch: Batch
    ) -> tuple[dict[AttentionPlace, AttentionCall], torch.Tensor, Points]:
        """Return attention calls, states of the last layer, and residual states of a pass."""
        calls: dict[AttentionPlace, AttentionCall] = {}
        points: dict[tuple[str, int, ResidualPoint], torch.Tensor] = {}

        def keep(place: AttentionPlace, attention: AttentionCall) -> None:
            if place in self.places:
                calls[place] = attention

        def keep_state(stack: str, layer: int, point: ResidualPoint, vectors: torch.Tensor) -> None:
            points[stack, layer, point] = vectors

        with observe_states(self.model, self.architecture, keep_state):
            run_forward(self.model, self.architecture, batch, keep)
        last = len(self.architecture.layers[self.stack]) - 1
        return calls, points[self.stack, last, ResidualPoint.POST], points

    def _find_directions(
        self,
        batch: Batch,
        calls: Mapping[AttentionPlace, AttentionCall],
        states: torch.Tensor,
        points: Points,
    ) -> TokenDirections:
        """Return the directions of tokens; set remarks, and the error of summed contributions.

        Raises:
            ModelError: the way from head outputs to tokens is unknown.
        """
        valid = batch.texts[self.side].valid
        directions = token_directions(self.model, self.lens, states[valid])
        if isinstance(directions, str):
            raise ModelError(f"model '{self.model.name}': {directions}")
        self.remarks = directions.remarks
        total, adds_up = self._summed_parts(calls, points, valid)
        if self.lens is None:
            return directions
        if not adds_up:
            self.remarks = (POST_NORM, *self.remarks)
        elif not directions.remarks:
            self.error = residual_sum_error(directions, self.lens, total[valid], states[valid])
            tolerance = sum_tolerance(self.model)
            if not self.error <= tolerance:
                raise ModelError(
                    f"model '{self.model.name}': {NO_SUM}: they differ by {self.error:.2g} of the "
                    f"largest logit, more than {tolerance:g}"
                )
        return directions

    def _summed_parts(
        self,
        calls: Mapping[AttentionPlace, AttentionCall],
        points: Points,
        valid: torch.Tensor,
    ) -> tuple[torch.Tensor, bool]:
        """Return the sum of embedding, head outputs and feed-forward blocks, by token.

        Also returns whether attention blocks add nothing but head outputs to the residual stream,
        and no norm follows the addition.

        Raises:
            ModelError: a layer has unknown steps between its heads and the residual stream.
        """
        before = total = points[self.stack, 0, ResidualPoint.PRE].double()
        adds_up = True
        for layer in range(len(self.architecture.layers[self.stack])):
            post = points[self.stack, layer, ResidualPoint.POST].double()
            for name in dict.fromkeys((self.stack, "cross")):
                place = AttentionPlace(name, layer)
                if place not in calls:
                    continue
                # Without a known sum inside the layer, it must add its heads and nothing else.
                after = points.get((name, layer, ResidualPoint.MID), post).double()
                block = self._written(place, calls[place])
                is_same = block.shape == after.shape and _is_close(
                    block[valid], (after - before)[valid]
                )
                site = self.architecture.ends.sites.get((name, layer))
                if not is_same and (site is None or not site.straight):
                    raise ModelError(f"model '{self.model.name}': {UNKNOWN_STEP.format(layer)}")
                adds_up &= is_same and not (site is not None and site.closed)
                total, before = total + block, after
            total, before = total + post - before, post
        return total, adds_up

    def _written(self, place: AttentionPlace, call: AttentionCall) -> torch.Tensor:
        """Return the sum of head outputs behind the output projection, in double precision."""
        assert call.output is not None
        assert call.projection is not None
        block = call.projection.project(call.gated(call.output)) + call.projection.bias
        return self._block_scale(place) * block.double()

    def _block_scale(self, place: AttentionPlace) -> float:
        """Return the factor of an attention block's output in the residual stream."""
        site = self.architecture.ends.sites.get((place.stack, place.layer))
        return 1.0 if site is None else site.scale

    def _add_strongest(
        self,
        place: AttentionPlace,
        call: AttentionCall,
        queries: torch.Tensor,
        keys: torch.Tensor,
        row_of: torch.Tensor,
    ) -> None:
        """Add the strongest weight of each sentence and head, off the sink and the token itself."""
        counted = queries[:, :, None] & keys[:, None, :]
        if place.stack != "cross":
            counted = counted & ~torch.eye(keys.shape[1], dtype=torch.bool, device=keys.device)
        weights = (call.weights * counted[:, None]).flatten(2).float()
        weight, cell = weights.max(-1)
        query, key = cell // keys.shape[1], cell % keys.shape[1]
        row = row_of.gather(1, query)
        self.strongest[place] += list(torch.stack([weight, row, key], -1).double().cpu().numpy())

    def _add_read(
        self,
        place: AttentionPlace,
        call: AttentionCall,
        by_query: torch.Tensor,
        ids: torch.Tensor,
    ) -> None:
        """Add the values of read tokens, weighted by attention and divided by the scale.

        Args:
            by_query: 1 over the scale of each query, 0 for tokens that are no queries. *Shape:*
                ``(sentence, query)``.
            ids: vocabulary entries of the keys, -1 for keys that do not count.
        """
        assert call.value is not None
        n_heads = call.weights.shape[1]  # may be fewer than in other layers of the stack
        entries = torch.from_numpy(self.key_tokens[place][:n_heads]).to(ids.device)
        value = call.value.repeat_interleave(n_heads // call.value.shape[1], 1).float()
        weights = call.weights.float() * (by_query > 0)[:, None, :, None]
        factor = by_query[:, :, None, None]
        if call.factor is not None:
            factor = factor * call.factor.float()
        weighted = torch.einsum("shqk,sqhe->shke", weights, factor.expand(-1, -1, n_heads, -1))
        # Without a gate the factor has one number for all dimensions of a value.
        is_entry = (entries[:, :, None] == ids[:, None, None, :]) & (entries >= 0)[:, :, None]
        member = is_entry.float()
        sums = member @ (weighted * value)
        mass = (member @ weights.sum(2)[..., None])[..., 0]
        sentence, head, slot = (mass > 0).nonzero().T
        where = torch.stack([head, slot, sentence + len(self.items)], 1).cpu().numpy()
        rows = torch.cat([mass[..., None], sums], -1)[sentence, head, slot]
        self.read[place].append((where, rows.cpu()))


def _is_close(block: torch.Tensor, change: torch.Tensor) -> bool:
    """Return whether a block's output is the change of the residual stream, rounded."""
    return bool((change - block).norm() <= MAX_ERROR * change.norm())
