"""Checks during a run: identities that must hold, with their largest errors.

The ranks of a coarse product with the vocabulary are compared with exact ranks, too.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from headbook.attention.flow import attention_blocks, split_block_output
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.block_match import first_states
from headbook.model.devices import read_parameter
from headbook.model.embedding import Embedding
from headbook.model.forward import observe_states, run_forward
from headbook.model.load import Model
from headbook.model.logit_lens import LogitLens, NoLogitLens
from headbook.model.vocabulary import VocabularyEmbeddings
from headbook.passes.model_checks import applied, difference, eager, eager_attention
from headbook.schema import ResidualPoint, Side
from headbook.study.manifest import Check, Rounding
from headbook.study.merging import merge_roundings
from headbook.text.batch import Batch


def learned_share(attention: attention_hook.AttentionCall) -> torch.Tensor:
    """Return the attention to a stack's learned sink, from the sink's logit if the module has one.

    A weight is exp(score) over the sum of all exponentials, so that the row's strongest key gives
    the sum. Without a logit named ``sinks``, the share is the mass that a row lacks; `nothing_lost`
    checks that this mass contributes nothing.

    Returns:
        *Shape:* ``(sentence, head, query)``.
    """
    sinks, (query, key) = (
        read_parameter(attention.module, "sinks"),
        (attention.query, attention.key),
    )
    if sinks is None or query is None or key is None:
        return 1 - attention.weights.sum(-1)
    largest_weight, largest_key = attention.weights.max(-1)
    keys = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    strongest_keys = keys.gather(2, largest_key.unsqueeze(-1).expand(-1, -1, -1, keys.shape[-1]))
    scaling = query.shape[-1] ** -0.5 if attention.scaling is None else attention.scaling
    scores = (query * strongest_keys).sum(-1) * scaling
    if attention.mask is not None:
        mask = attention.mask.expand_as(attention.weights)
        scores = scores + mask.gather(-1, largest_key.unsqueeze(-1)).squeeze(-1)
    share: torch.Tensor = (sinks.reshape(1, -1, 1) - scores).exp() * largest_weight
    return share


# Identities, by the names that pages show.
ROW_SUMS = "rows of attention sum to 1"
ROW_SUMS_WITH_SINK = "rows of attention + share of the learned sink = 1"
WEIGHTS_TIMES_VALUES = "weights times values = what heads give, the learned sink nothing"
OWN_ATTENTION = "attention = the model's own, each text alone"
N_SENTENCES_ALONE = 4  # sentences of the batch that are also run one by one
Errors = Iterator[tuple[str, str, float]]  # identity, stack, largest difference


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest value of ``b``."""
    scale = b.abs().max().clamp_min(torch.finfo(b.dtype).tiny)
    return float((a - b).abs().max() / scale)


def largest_error(errors: Iterable[float]) -> float:
    """Return the largest error; NaN, which `max` would ignore, if there is one."""
    return float(torch.tensor([*errors], dtype=torch.float64).max())


def check_row_sums(
    architecture: Architecture,
    batch: Batch,
    attention: Mapping[AttentionPlace, attention_hook.AttentionCall],
) -> Errors:
    """Check that the weights of a query, with the share of a learned sink, sum to 1."""
    for name, stack in architecture.stacks.items():
        valid = batch.texts[stack.queries].valid
        sums = [
            (call.weights.sum(-1) + (learned_share(call) if stack.learned_sink else 0)).movedim(
                1, -1
            )
            for place, call in attention.items()
            if place.stack == name
        ]
        yield (
            ROW_SUMS_WITH_SINK if stack.learned_sink else ROW_SUMS,
            name,
            largest_error(float((row_sums[valid] - 1).abs().max()) for row_sums in sums),
        )


def nothing_lost(
    architecture: Architecture,
    batch: Batch,
    attention: Mapping[AttentionPlace, attention_hook.AttentionCall],
) -> Errors:
    """Check that a learned sink contributes nothing: weights times values give the head outputs."""
    for name, stack in architecture.stacks.items():
        if stack.learned_sink:
            valid = batch.texts[stack.queries].valid
            pairs = [
                (applied(call), call.output)
                for place, call in attention.items()
                if place.stack == name
            ]
            yield (
                WEIGHTS_TIMES_VALUES,
                name,
                largest_error(
                    torch.nan if product is None or output is None
                    else relative(product[valid], output[valid])
                    for product, output in pairs
                ),
            )  # fmt: skip


def as_returned(
    model: Model,
    architecture: Architecture,
    batch: Batch,
    attention: Mapping[AttentionPlace, attention_hook.AttentionCall],
) -> Errors:
    """Compare the attention of a batch with the model's own for some of its texts alone."""
    checked_sentences = range(min(N_SENTENCES_ALONE, len(batch.items)))
    alone = [
        eager_attention(model, architecture, Batch.of([batch.items[row]], model.device))
        for row in checked_sentences
    ]
    errors: dict[str, list[float]] = defaultdict(list)
    for call, seen in attention.items():
        stack = architecture.stacks[call.stack]
        for row, returned in enumerate(returned_weights.get(call) for returned_weights in alone):
            if returned is not None and returned.ndim == seen.weights.ndim:
                n_queries, n_keys = (
                    int(batch.texts[side].valid[row].sum()) for side in (stack.queries, stack.keys)
                )
                read = seen.weights[row, :, :n_queries, :n_keys]
                errors[call.stack].append(difference(read, returned[0, :, :n_queries, :n_keys]))
    for name, stack_errors in errors.items():
        yield OWN_ATTENTION, name, largest_error(stack_errors)


def check_causal_mask(
    architecture: Architecture,
    batch: Batch,
    attention: Mapping[AttentionPlace, attention_hook.AttentionCall],
) -> Errors:
    """Check that queries of causal stacks give no attention to later keys."""
    for name, stack in architecture.stacks.items():
        if stack.causal:
            # Rows of padding may see no key at all; their attention is then uniform.
            valid = batch.texts[stack.queries].valid
            maps = [
                call.weights.triu(1) for place, call in attention.items() if place.stack == name
            ]
            later = largest_error(
                float(attention_map.movedim(1, -1)[valid].max()) for attention_map in maps
            )
            yield "no attention to later positions", name, later


def roundings(
    model: Model, architecture: Architecture, batch: Batch, embeddings: Mapping[Side, Embedding]
) -> tuple[Rounding, ...]:
    """Compare ranks of all states of a batch under the coarse and the exact product.

    Empty if the model's product with the vocabulary is exact.
    """
    coarse = {
        side: embedding.vocabulary
        for side, embedding in embeddings.items()
        if embedding.vocabulary is not None and embedding.vocabulary.coarse is not None
    }
    if not coarse:
        return ()
    found: list[Rounding] = []

    def on_state(stack: str, _: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        side = architecture.stacks[stack].queries
        if side in coarse and state is not ResidualPoint.PRE:
            found.extend(_compared(coarse[side], vectors, batch, side))

    with observe_states(model, architecture, on_state):
        run_forward(model, architecture, batch)
    return merge_roundings(found)


def _compared(
    vocabulary: VocabularyEmbeddings, vectors: torch.Tensor, batch: Batch, side: Side
) -> Iterator[Rounding]:
    """Yield the difference in ranks of one state of all tokens, for every embedding space.

    *Shape* of ``vectors``: ``(sentence, token, width)``.
    """
    texts = batch.texts[side]
    states, exact = vectors.to(texts.share.dtype)[None], replace(vocabulary, coarse=None)
    for space in vocabulary.spaces:
        ranks_of_both = (
            embeddings.compare(states, texts, space, 1).ranks for embeddings in (vocabulary, exact)
        )
        coarse_ranks, exact_ranks = (ranks[0][texts.valid] for ranks in ranks_of_both)
        differences = (coarse_ranks - exact_ranks).abs()
        yield Rounding(
            str(side),
            str(space),
            states=len(differences),
            changed=int((differences > 0).sum()),
            largest=int(differences.max()) if len(differences) else 0,
        )


# Largest relative error that rounding explains, by number format.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}
HALF_PRECISION_TOLERANCE = 0.05
BLOCK_PARTS = "other tokens' part + own part + biases = state after attention"
ORIGINAL_ENCODING = "original encoding of a token = what enters layer 0"
# Identities with the tolerance of float32 in models of float64.
FLOAT32_IDENTITIES = {
    ROW_SUMS,
    ROW_SUMS_WITH_SINK,
    WEIGHTS_TIMES_VALUES,
    OWN_ATTENTION,
    BLOCK_PARTS,
    ORIGINAL_ENCODING,
}


def self_checks(
    model: Model,
    architecture: Architecture,
    batch: Batch,
    embeddings: Mapping[Side, Embedding],
    lens: LogitLens | NoLogitLens,
) -> tuple[Check, ...]:
    """Run every check that applies to a model, on one batch."""
    tolerance = TOLERANCES.get(next(model.network.parameters()).dtype, HALF_PRECISION_TOLERANCE)
    attention: dict[AttentionPlace, attention_hook.AttentionCall] = {}
    entered: dict[str, torch.Tensor] = {}

    def enter(stack: str, _: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        if state is ResidualPoint.PRE:
            entered[stack] = vectors

    with _Record(architecture) as record, observe_states(model, architecture, enter):
        run_forward(model, architecture, batch, attention.__setitem__)
    errors: list[tuple[str, str, float]] = [
        *check_row_sums(architecture, batch, attention),
        *nothing_lost(architecture, batch, attention),
        *as_returned(model, architecture, batch, attention),
        *check_causal_mask(architecture, batch, attention),
        *_blocks(record, attention),
        *_mids(record),
        *_parts(record, attention, architecture),
        *_starts(architecture, batch, embeddings, entered),
        *_lens(lens, batch),
        (
            "final output = output of the model without the hook",
            "",
            _bare(model, architecture, batch),
        ),
    ]
    # Many models in float64 still compute their softmax, or a norm, in float32.
    float32_tolerance = max(tolerance, TOLERANCES[torch.float32])
    return tuple(
        Check(name, stack, error, float32_tolerance if name in FLOAT32_IDENTITIES else tolerance)
        for name, stack, error in errors
    )


def worst_checks(batches: Iterable[Sequence[Check]]) -> tuple[Check, ...]:
    """Return each check with its largest error over several batches."""
    errors: dict[tuple[str, str], list[Check]] = defaultdict(list)
    for check in chain.from_iterable(batches):
        errors[check.name, check.stack].append(check)
    return tuple(
        replace(checks[0], error=largest_error(check.error for check in checks))
        for checks in errors.values()
    )


class _Record:
    """Inputs and outputs of the modules around each attention block in one pass."""

    def __init__(self, architecture: Architecture) -> None:
        self.sites = architecture.ends.sites
        self.projections = architecture.ends.projections
        self._layers = architecture.layers
        self._calls: dict[torch.nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]
        self._calls = defaultdict(list)
        self._handles: list[Any] = []

    def layers(self, stack: str) -> tuple[torch.nn.Module, ...]:
        """Return the layers that contain a stack's attention."""
        return self._layers["decoder" if stack == "cross" else stack]

    def of(self, stack: str, layer: int, path: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return input and output of a module inside a layer; of the layer for an empty path."""
        layers = self.layers(stack)
        # A module that several layers share was called once for each layer.
        earlier = layers[:layer].count(layers[layer])
        return self._calls[layers[layer].get_submodule(path)][earlier]

    def projected(self, place: tuple[str, int]) -> torch.Tensor:
        """Return the output of a layer's output projection."""
        module = self.projections[place].module
        places = [
            projected_place
            for projected_place, projection in self.projections.items()
            if projection.module is module
        ]
        return self._calls[module][places.index(place)][1]

    def residual(self, stack: str, layer: int) -> torch.Tensor:
        """Return the residual stream to which the block's output is added."""
        site = self.sites[stack, layer]
        return self.of(stack, layer, site.residual)[int(bool(site.residual) and not site.enters)]

    def mid(self, stack: str, layer: int) -> torch.Tensor:
        """Return the state after attention, computed as residual stream plus block output."""
        site, residual = self.sites[stack, layer], self.residual(stack, layer)
        block = self.of(stack, layer, site.block)[1]
        return site.total(residual, block.reshape(residual.shape))

    def __enter__(self) -> "_Record":
        modules = {
            self.layers(stack)[layer].get_submodule(path)
            for (stack, layer), site in self.sites.items()
            for path in ("", site.block, site.residual, site.after, site.parallel)
            if path is not None
        } | {projection.module for projection in self.projections.values()}
        self._handles = [
            module.register_forward_hook(self._keep, with_kwargs=True) for module in modules
        ]
        return self

    def _keep(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        state, result = first_states((args, kwargs)), first_states(output)
        assert state is not None
        assert result is not None
        # Clones, because some models change these tensors in place.
        self._calls[module].append((state.clone(), result.clone()))

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()


def _by_stack(errors: Mapping[str, list[float]], name: str) -> Errors:
    for stack, stack_errors in errors.items():
        yield name, stack, largest_error(stack_errors)


def _blocks(
    record: _Record, attention: Mapping[AttentionPlace, attention_hook.AttentionCall]
) -> Errors:
    """Check that head outputs, each through its slice of W_O, sum to the projection's output."""
    errors: dict[str, list[float]] = defaultdict(list)
    for (stack, layer), projection in record.projections.items():
        call = attention[AttentionPlace(stack, layer)]
        assert call.output is not None
        output = call.gated(call.output)
        slices = projection.slices(output.shape[-1])
        total = sum(
            head_output @ head_slice.T
            for head_output, head_slice in zip(output.unbind(2), slices, strict=True)
        )
        block = record.projected((stack, layer))
        errors[stack].append(relative((total + projection.bias).reshape(block.shape), block))
    yield from _by_stack(errors, "head outputs + bias = attention block output")


def _mids(record: _Record) -> Errors:
    """Check that the model's next step maps the state after attention to the model's next state."""
    errors: dict[str, list[float]] = defaultdict(list)
    for (stack, layer), site in record.sites.items():
        mid = record.mid(stack, layer)
        if site.after is None:
            output = record.of(stack, layer, "")[1]
            parallel = record.of(stack, layer, site.parallel)[1] if site.parallel else 0
            errors[stack].append(relative(mid + parallel, output))
            continue
        before, following = record.of(stack, layer, site.after)
        after = record.layers(stack)[layer].get_submodule(site.after)
        with torch.inference_mode():
            step = first_states(after(mid.reshape(before.shape).to(before.dtype)))
        assert step is not None
        errors[stack].append(relative(step, following))
    yield from _by_stack(errors, "mid state through the model's own next step = its next state")


def _parts(
    record: _Record,
    attention: Mapping[AttentionPlace, attention_hook.AttentionCall],
    architecture: Architecture,
) -> Errors:
    """Check that other tokens' part, own part and biases sum to the state after attention."""
    errors: dict[str, list[float]] = defaultdict(list)
    for (stack, layer), block in attention_blocks(architecture).items():
        site, call = record.sites[stack, layer], attention[AttentionPlace(stack, layer)]
        state = record.mid(stack, layer)
        if site.closed and site.after is not None:
            state = record.of(stack, layer, site.after)[1].reshape(state.shape)
        parts = split_block_output(call, record.residual(stack, layer), block)
        errors[stack].append(relative(parts.mixed + parts.kept + parts.bias, state))
    yield from _by_stack(errors, BLOCK_PARTS)


def _starts(
    architecture: Architecture,
    batch: Batch,
    embeddings: Mapping[Side, Embedding],
    entered: Mapping[str, torch.Tensor],
) -> Errors:
    """Check that the input of layer 0 is each token's original encoding at its position."""
    for name, stack in architecture.stacks.items():
        vocabulary = embeddings[stack.queries].vocabulary
        if name in entered and vocabulary is not None and vocabulary.positions is not None:
            texts = batch.texts[stack.queries]
            encodings = vocabulary.encode(texts)
            error = relative(encodings[texts.valid], entered[name].to(encodings)[texts.valid])
            yield ORIGINAL_ENCODING, name, error


def _lens(lens: LogitLens | NoLogitLens, batch: Batch) -> Errors:
    """Check that the last layer's output through norm and head gives the model's logits."""
    if isinstance(lens, LogitLens):
        first_sentence = Batch.of(batch.items[:1], lens.model.device)  # logits of all would be many
        states, model_logits = (
            lens.final_states(first_sentence)[0],
            lens.model_logits(first_sentence)[0],
        )
        error = relative(lens.logits(states), model_logits)
        yield "last layer through norm and head = the model's logits", lens.stack, error


def _bare(model: Model, architecture: Architecture, batch: Batch) -> float:
    """Return the error of the final output against a pass with the model's own attention.

    Each sentence is run alone: without padding both passes must agree to the last bit.
    """
    alone = [Batch.of([item], model.device) for item in batch.items[:N_SENTENCES_ALONE]]
    hooked = [
        run_forward(model, architecture, sentence_batch, lambda *_: None)[0]
        for sentence_batch in alone
    ]
    with eager(model, architecture):
        unhooked = [run_forward(model, architecture, sentence_batch)[0] for sentence_batch in alone]
    return largest_error(
        relative(hooked_output.float(), unhooked_output.float())
        for hooked_output, unhooked_output in zip(hooked, unhooked, strict=True)
    )
