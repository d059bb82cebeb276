"""What each key brings, from a bare model's own modules; plain loops."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self


class Block(NamedTuple):
    """Where an attention block projects its values and its heads' outputs.

    Attributes:
        values: module whose output ends with the values.
        out: module that the heads' outputs go through; ``turned`` if its weight has a row for each
            input.
        share: which part of the first one's output the values are.
    """

    values: str
    out: str
    share: float = 1
    turned: bool = False


BLOCKS = {  # by model type and stack
    ("bert", "self"): Block(
        "encoder.layer.{}.attention.self.value", "encoder.layer.{}.attention.output.dense"
    ),
    ("gpt2", "self"): Block("h.{}.attn.c_attn", "h.{}.attn.c_proj", share=1 / 3, turned=True),
    ("llama", "self"): Block("layers.{}.self_attn.v_proj", "layers.{}.self_attn.o_proj"),
    ("gpt_oss", "self"): Block("layers.{}.self_attn.v_proj", "layers.{}.self_attn.o_proj"),
    ("gemma3_text", "self"): Block("layers.{}.self_attn.v_proj", "layers.{}.self_attn.o_proj"),
    **{
        ("t5", stack): Block(
            f"{stack}.block.{{}}.layer.0.SelfAttention.v",
            f"{stack}.block.{{}}.layer.0.SelfAttention.o",
        )
        for stack in ("encoder", "decoder")
    },
    ("modernbert", "self"): Block("layers.{}.attn.Wqkv", "layers.{}.attn.Wo", share=1 / 3),
    **{
        ("bart", stack): Block(f"model.{place}.v_proj", f"model.{place}.out_proj")
        for stack, place in (
            ("encoder", "encoder.layers.{}.self_attn"),
            ("decoder", "decoder.layers.{}.self_attn"),
            ("cross", "decoder.layers.{}.encoder_attn"),
        )
    },
}
Table = list[list[float]]


class Written:
    """What value projections gave while the network ran inside the block."""

    def __init__(self, network: Any) -> None:
        self._modules = dict(network.named_modules())
        self._type = network.config.model_type
        self._given: dict[str, Table] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        watched = {block.values for (kind, _), block in BLOCKS.items() if kind == self._type}
        for layer in range(8):
            for path in (text.format(layer) for text in watched):
                if path in self._modules:
                    self._handles.append(self._watch(path))
        return self

    def _watch(self, path: str) -> Any:
        def keep(_: Any, __: Any, output: Any) -> None:
            self._given[path] = output[0].tolist()

        return self._modules[path].register_forward_hook(keep)

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def norms(self, stack: str, layer: int, head: int, n_heads: int) -> Sequence[float]:
        """Lengths of `vectors`."""
        found = self.vectors(stack, layer, head, n_heads)
        return [math.sqrt(sum(value * value for value in out)) for out in found]

    def values(self, stack: str, layer: int, head: int, n_heads: int) -> Table:
        """Values before the projection, by key; nothing for other types."""
        block = BLOCKS.get((self._type, stack))
        if block is None:
            return []
        weight = self._modules[block.out.format(layer)].weight
        width = weight.shape[0 if block.turned else 1] // n_heads
        found = []
        for given in self._given[block.values.format(layer)]:
            values = given[len(given) - round(len(given) * block.share) :]
            shared = n_heads // (len(values) // width)
            found.append(values[head // shared * width :][:width])
        return found

    def vectors(self, stack: str, layer: int, head: int, n_heads: int) -> Table:
        """Values after the head's part of the projection, by key; nothing for other types."""
        block = BLOCKS.get((self._type, stack))
        if block is None:
            return []
        weight: Table = self._modules[block.out.format(layer)].weight.tolist()
        if block.turned:
            weight = [list(column) for column in zip(*weight, strict=True)]
        width = len(weight[0]) // n_heads
        part = [row[head * width : (head + 1) * width] for row in weight]
        vectors = []
        for given in self._given[block.values.format(layer)]:
            values = given[len(given) - round(len(given) * block.share) :]
            shared = n_heads // (len(values) // width)  # heads for each that has values
            own = values[head // shared * width :][:width]
            vectors.append([sum(w * v for w, v in zip(row, own, strict=True)) for row in part])
        return vectors
