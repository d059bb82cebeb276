"""A pass over a few tokens, to see what a model does; its own faults become one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from headbook.errors import HeadbookError, ModelError
from headbook.model import hook
from headbook.model.model import Model
from headbook.terms import Side

# Different, so that shapes tell the stacks of a pair apart.
LENGTHS = {Side.SOURCE: 3, Side.TARGET: 5}
ROWS = 4  # texts of different tokens


@contextmanager
def own_code(model: Model) -> Iterator[None]:
    """Around calls of the model itself: what its own code raises becomes one line.

    Raises:
        ModelError: with the type of the model and the first line of what it said.
    """
    try:
        yield
    except (HeadbookError, hook.NoEagerAttention, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        lines = (str(error).strip() or type(error).__name__).splitlines()
        raise ModelError(
            f"model '{model.name}': its own code ('{model.config.model_type}') fails on text alone "
            f"({type(error).__name__}: {lines[0].rstrip('.')}); expected a model that takes token "
            "ids and a mask, and nothing else"
        ) from error


def some_token(model: Model, number: int = 0) -> int:
    """An ordinary token; with another number another one."""
    special = set(model.tokenizer.all_special_ids)
    return [i for i in range(len(special) + 1 + number) if i not in special][number]


def run(model: Model, *, number: int = 0, whole: bool = False, **extra: Any) -> Any:
    """One pass over a few ordinary tokens.

    Args:
        number: which token is repeated.
        whole: with the language-model head.
    """
    token = some_token(model, number)
    tokens = torch.full((1, LENGTHS[Side.TARGET]), token, device=model.device)
    inputs = {"input_ids": tokens[:, : LENGTHS[Side.SOURCE]]}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    with own_code(model), torch.inference_mode():
        return (model.network if whole else model.body)(**inputs, **extra)


def varied(model: Model) -> dict[str, torch.Tensor]:
    """Texts with different tokens at each place, as the model's arguments."""
    ids = torch.tensor([some_token(model, number) for number in range(2 * ROWS)])
    places = torch.arange(ROWS)[:, None] + torch.arange(LENGTHS[Side.TARGET])
    tokens = ids[places % len(ids)].to(model.device)
    inputs = {"input_ids": tokens[:, : LENGTHS[Side.SOURCE]]}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    return inputs
