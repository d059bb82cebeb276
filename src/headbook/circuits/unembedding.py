r"""Norms with their gain and scale, and the unembedding of a language-model head.

No module is known by name. A norm is a module that divides each vector by one number: its gain and
bias follow from its outputs for random vectors. The unembedding is the last linear map with an
output for each entry of the vocabulary; the steps before it are a norm, nothing, or a transform
(masked language models), of which the mean Jacobian over some states is used.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from headbook.model.block_match import first_states
from headbook.model.devices import read_parameter
from headbook.model.intervention import skip_layers
from headbook.model.logit_lens import LogitLens
from headbook.model.output_projection import is_linear, matrix
from headbook.model.probe import model_errors, some_token, varied_texts

PROBE_LENGTH = 16.0  # root mean square of random vectors: the epsilon of norms is rounding
N_PROBES = 8  # random vectors by which a norm is recognised
MAX_NORM_ERROR = 0.02  # of a norm's output, relative to the largest: rounding to half precision
MAX_LINEAR_ERROR = 1e-4  # of logits, relative to the largest difference: rounding of float32
MAX_JACOBIAN_STATES = 64  # states over which the Jacobian of a transform is averaged
TRANSFORM = (
    "approximate: the head transforms states before the unembedding; the mean of the transform's "
    "derivatives at some tokens is used"
)
POST_NORM = (
    "approximate: norms stand behind the sums of this model's residual stream; they are left out "
    "between a head and the logits or a later head"
)
SOFT_CAP = "approximate: the head's cap on logits is left out"


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm that maps x to gain * (x, centred or not) / scale(x) + bias.

    Attributes:
        module: the norm's module.
        centres: whether the mean of each vector is subtracted.
        gain, bias: *Shape:* ``(width,)``, in double precision on the CPU.
    """

    module: Any
    centres: bool
    gain: torch.Tensor
    bias: torch.Tensor

    def fold(self, weight: torch.Tensor) -> torch.Tensor:
        """Return a map of unscaled vectors that equals the map behind this norm, up to scale.

        Args:
            weight: the map behind the norm. *Shape:* ``(..., width, n)``.
        """
        folded = self.gain.to(weight)[:, None] * weight
        return folded - folded.mean(-2, keepdim=True) if self.centres else folded

    def fold_behind(self, weight: torch.Tensor) -> torch.Tensor:
        """Return a map in front of this norm with the norm's gain, up to scale.

        Args:
            weight: the map in front of the norm. *Shape:* ``(..., n, width)``.
        """
        return self.centre(weight) * self.gain.to(weight)

    def centre(self, states: torch.Tensor) -> torch.Tensor:
        """Return the states, minus their mean over the width if the norm subtracts the mean."""
        return states - states.mean(-1, keepdim=True) if self.centres else states

    def scale(self, states: torch.Tensor) -> torch.Tensor:
        """Return the number by which the norm divides each state. *Shape:* ``(..., 1)``."""
        numerator = self.gain * self.centre(states.cpu().double())
        output = _call(self.module, states) - self.bias
        squares = numerator.square().sum(-1, keepdim=True)
        return (squares / (numerator * output).sum(-1, keepdim=True)).to(states)

    def direction(self, states: torch.Tensor) -> torch.Tensor:
        """Return the norm's output for some states without gain and bias."""
        return self.centre(states) / self.scale(states)


def _call(module: Any, states: torch.Tensor) -> torch.Tensor:
    """Return a module's output for states of any shape, in double precision on the CPU."""
    parameter = next(module.parameters(), None)
    rows = states.reshape(1, -1, states.shape[-1])
    if parameter is None:
        rows = rows.float()
    else:  # an offloaded module moves its input itself
        rows = rows.to(parameter.dtype) if parameter.is_meta else rows.to(parameter)
    with torch.inference_mode():
        output: torch.Tensor = module(rows)
    return output.reshape(states.shape).cpu().double().clone()


def read_norm(module: Any, width: int) -> Norm | None:
    """Return a module as a norm, or None if it is none."""
    generator = torch.Generator().manual_seed(0)
    x = PROBE_LENGTH * torch.randn(N_PROBES, width, generator=generator, dtype=torch.float64)
    # Small numbers would leave only rounding in the ratio of output to input.
    x = torch.where(x.abs() < 1, x.sign() + x, x)
    try:
        up, down, shifted = (_call(module, states) for states in (x, -x, x + PROBE_LENGTH))
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError):
        return None
    if up.shape != x.shape or not up.isfinite().all():
        return None
    odd, bias = (up - down) / 2, (up + down).mean(0) / 2
    largest = odd.abs().max()
    centres = bool((shifted - up).abs().max() <= MAX_NORM_ERROR * largest)
    numerator = x - x.mean(-1, keepdim=True) if centres else x
    unit = numerator / numerator.square().mean(-1, keepdim=True).sqrt()
    gain = (unit * odd).sum(0) / unit.square().sum(0)
    fits = (unit * gain - odd).abs().max() <= MAX_NORM_ERROR * largest
    depends_on_length = (_call(module, 2 * x) - up).abs().max() > MAX_NORM_ERROR * largest
    return Norm(module, centres, gain, bias) if fits and not depends_on_length else None


@dataclass(frozen=True, eq=False)
class Unembedding:
    """Unembedding of a language-model head.

    Attributes:
        columns: logits of a state over its scale, centred over the vocabulary; gain of the final
            norm folded in. *Shape:* ``(width, entry)``, float32.
        bias: centred logits that do not depend on the state. *Shape:* ``(entry,)``.
        norm: the final norm; None without one.
        remark: what is approximate; empty if nothing is.
    """

    columns: torch.Tensor
    bias: torch.Tensor
    norm: Norm | None
    remark: str = ""

    def scale(self, states: torch.Tensor) -> torch.Tensor:
        """Return the final norm's scale at each position; 1 without a norm.

        Args:
            states: outputs of the last layer. *Shape:* ``(..., width)``.

        Returns:
            *Shape:* ``(..., 1)``.
        """
        return torch.ones_like(states[..., :1]) if self.norm is None else self.norm.scale(states)


class RecordedCall(NamedTuple):
    """A call of a module with one tensor.

    Attributes:
        module: the module.
        input, output: first tensors of arguments and result, flat. *Shape:* ``(token, width)``.
    """

    module: Any
    input: torch.Tensor
    output: torch.Tensor


def record_calls(network: Any, run: Callable[[], Any]) -> tuple[list[RecordedCall], Any]:
    """Run a network, and return the calls of all its modules that map states, and the result."""
    calls: list[RecordedCall] = []

    def keep(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        states, result = first_states((args, kwargs)), first_states(output)
        if states is not None and result is not None:
            # Copies, because some models change these tensors in place.
            flat = (x.detach().flatten(0, -2).clone() for x in (states, result))
            calls.append(RecordedCall(module, *flat))

    with ExitStack() as hooks, torch.inference_mode():
        for module in network.modules():
            hooks.callback(module.register_forward_hook(keep, with_kwargs=True).remove)
        result = run()
    return calls, result


def find_unembedding(lens: LogitLens, states: torch.Tensor) -> Unembedding | str:
    """Return the unembedding, or the reason why it is unknown.

    Args:
        lens: the logit lens.
        states: outputs of the last layer for some tokens, at which a transform is linearised.
            *Shape:* ``(token, width)``.

    Raises:
        ModelError: the model does not run.
    """
    model = lens.model
    with model_errors(model):
        calls, result = record_calls(model.network, lambda: model.network(**varied_texts(model)))
    logits = result.logits.flatten(0, 1).cpu().double()
    last = next(
        call for call in reversed(calls) if call.module is lens.architecture.layers[lens.stack][-1]
    )
    linear = next(
        (call for call in reversed(calls)
         if is_linear(call.module) and call.output.shape == logits.shape), None,
    )  # fmt: skip
    if linear is None:
        return "no linear map gives its logits"
    output = linear.output.cpu().double()
    formats = result.logits.dtype, linear.output.dtype
    rounds = any(torch.finfo(dtype).eps > MAX_LINEAR_ERROR for dtype in formats)
    if (own_bias := read_parameter(linear.module, "bias")) is not None:
        output = output - own_bias.detach().cpu().double()
    max_error = MAX_NORM_ERROR if rounds else MAX_LINEAR_ERROR
    factor, offset, remark = _linear_part(logits, output, max_error)
    columns = matrix(linear.module).float().cpu().T * factor
    norm, multiple = _last_norm(calls, last.output, linear.input)
    if multiple:
        bias = offset if norm is None else offset + (norm.bias * multiple).float() @ columns
        columns = multiple * columns if norm is None else norm.fold(multiple * columns)
    else:
        jacobian, constant = _transform(lens, linear.module, states[:MAX_JACOBIAN_STATES])
        bias, columns, remark = offset + constant @ columns, jacobian @ columns, TRANSFORM
    centred = columns - columns.mean(1, keepdim=True)
    return Unembedding(centred, (bias - bias.mean()).float(), norm, remark)


def _linear_part(
    logits: torch.Tensor, output: torch.Tensor, max_error: float
) -> tuple[float, torch.Tensor, str]:
    """Return factor and offset between a linear map without its bias and logits, and a remark.

    Args:
        max_error: difference, relative to the largest, that is rounding. A cap on logits bends
            small logits little.
    """
    differences, map_differences = logits - logits[0], output - output[0]
    factor = float((differences * map_differences).sum() / map_differences.square().sum())
    error = (differences - factor * map_differences).abs().max() / differences.abs().max()
    return factor, logits[0] - factor * output[0], "" if error <= max_error else SOFT_CAP


def _last_norm(
    calls: list[RecordedCall], last: torch.Tensor, read: torch.Tensor
) -> tuple[Norm | None, float]:
    """Return the norm between the last layer and the unembedding, and the factor behind it.

    The factor is 0 if another transform stands between both.
    """
    for call in calls:
        factor = _multiple(call.output, read) if torch.equal(call.input, last) else 0.0
        norm = read_norm(call.module, last.shape[-1]) if factor else None
        if norm is not None:
            return norm, factor
    return None, _multiple(last, read)


def _multiple(vectors: torch.Tensor, read: torch.Tensor) -> float:
    """Return the factor that maps vectors to others, or 0 if there is none."""
    if vectors.shape != read.shape:
        return 0.0
    before, after = vectors.cpu().double(), read.cpu().double()
    factor = float((before * after).sum() / before.square().sum())
    fits = (factor * before - after).abs().max() <= MAX_NORM_ERROR * after.abs().max()
    return factor if fits else 0.0


def _transform(
    lens: LogitLens, linear: Any, states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean Jacobian of the steps before the unembedding, and what it leaves out.

    Returns:
        *Shapes:* ``(width, width of the linear map's input)``, ``(width of the input,)``.
    """
    model, read = lens.model, []
    given = states.detach().clone().to(model.device, next(model.network.parameters()).dtype)
    given = given.unsqueeze(1).requires_grad_()
    ids = torch.full((len(states), 1), some_token(model), device=model.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    with ExitStack() as hooks, torch.enable_grad():
        for name, slots in lens.slots.items():
            hooks.enter_context(skip_layers(slots, given if name == lens.stack else None))
        handle = linear.register_forward_pre_hook(lambda _, args: read.append(args[0]))
        hooks.callback(handle.remove)
        model.network(**inputs)
        columns = [
            torch.autograd.grad(column, given, retain_graph=True)[0].mean((0, 1))
            for column in read[0].sum((0, 1)).unbind()
        ]
    jacobian = torch.stack(columns, 1).float().cpu()
    means = read[0].detach().mean((0, 1)), given.detach().mean((0, 1))
    output, mean = (x.float().cpu() for x in means)
    return jacobian, output - mean @ jacobian
