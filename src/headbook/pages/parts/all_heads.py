"""All heads of a stack with one number each: a row for each layer, a column for each head.

The table is the same wherever a page shows all heads. With many heads its numbers are no links, so
that pages stay small.
"""

from collections.abc import Callable

from headbook.pages.parts.blocks import Heat, Table, Words, row
from headbook.results.formats import MISSING, head_name
from headbook.results.number import Number
from headbook.schema import AttentionStack, HeadName

MAX_LINKED = 400  # heads beyond which pages are kept small: their numbers are no links
MANY = 24  # heads of a layer from which on cells are too small for numbers


def heads_table(
    stack: AttentionStack,
    number_of: Callable[[HeadName], Number],
    fill_of: Callable[[HeadName, Number], str],
    title: Words,
    note: Words = "",
    *,
    format_name: str = "bare",
    style: str = "all-heads",
    layer_name: str = "layer {}",
    more: Callable[[HeadName], str] = lambda _: "",
) -> Table:
    """Return the numbers of all heads of a stack on fills.

    Args:
        number_of: number of a head.
        fill_of: classes of a cell: its fill, and a frame or a ring.
        format_name: format of the numbers, as in `headbook.results.number.FORMATS`.
        style: ``all-heads``, or ``mini`` for one of many tables.
        layer_name: beginning of a row; ``{}`` is the layer.
        more: words for the tooltip of a head, after its number.
    """
    n_heads = len(stack.attention_layers) * stack.n_heads

    def cell(head: HeadName) -> Heat:
        number = number_of(head)
        if not number.known:
            return Heat(MISSING, "q0")
        note = f"{head_name(head)}: {number.as_text('interval')} {more(head)}".strip()
        printed = number.printed(format_name)
        return Heat(printed if n_heads <= MAX_LINKED else printed.text, fill_of(head, number), note)

    rows = tuple(
        row(layer_name.format(layer),
            *(cell(HeadName(stack.name, layer, head)) for head in range(stack.n_heads)))
        for layer in stack.attention_layers
    )  # fmt: skip
    columns = ("layer", *(f"H{head}" for head in range(stack.n_heads)))
    small = " small" * (stack.n_heads >= MANY)
    return Table(columns, rows, title, note, style=f"heat {style}{small}")
