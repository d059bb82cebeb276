"""Groups of heads that are taken away together: types, heavy sinks, layers, shared keys."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from headbook.passes.ablation.removed import HeadGroup
from headbook.report.numbers.headtypes import head_types
from headbook.report.numbers.results import StackResults
from headbook.study.sentencedata import HeadName, heads_of
from headbook.terms import Replacement

HEAVY = 0.9  # of all attention on the sink
HEAVY_NAME = "over 90 % of attention on the sink"
LAYER, KEYS, SINK = "layer ", " keys ", "sink"  # in names of groups
REPLACEMENTS = (Replacement.MEAN, Replacement.WITHOUT_SINK, Replacement.ZERO)
"""What tells whether heads that rest on the sink are dead: all three."""


def head_groups(results: Mapping[str, StackResults]) -> list[HeadGroup]:
    """All groups of all stacks."""
    return [group for result in results.values() for group in _groups(result)]


def layers_and_sinks(groups: Iterable[HeadGroup]) -> list[HeadGroup]:
    """Return the groups of the fast level: each layer, and the sink heads of each stack."""
    return [
        group
        for group in groups
        if group.name == SINK or (group.name.startswith(LAYER) and KEYS not in group.name)
    ]


def _groups(results: StackResults) -> Iterator[HeadGroup]:
    stack, of_type = results.stack, defaultdict[str, list[HeadName]](list)
    heavy = []
    for (layer, head), head_kind in head_types(results).items():
        if head_kind is None:
            continue
        name = HeadName(stack.name, layer, head)
        of_type[head_kind.family].append(name)
        if head_kind.shares.sink.value > HEAVY:
            heavy.append(name)
    for family, heads in sorted(of_type.items()):
        if family:
            yield HeadGroup(stack.name, family, tuple(heads), REPLACEMENTS, banded=True, type=True)
    if heavy:
        yield HeadGroup(stack.name, HEAVY_NAME, tuple(heavy), REPLACEMENTS, banded=True)
    mean = (Replacement.MEAN,)
    shared = stack.n_heads // max(stack.n_key_heads, 1)
    for layer in stack.attention_layers:
        heads = [each for each in heads_of(stack) if each.layer == layer]
        yield HeadGroup(stack.name, f"{LAYER}{layer}", tuple(heads), mean)
        for key in range(stack.n_key_heads if shared > 1 else 0):
            some = tuple(heads[key * shared : (key + 1) * shared])
            yield HeadGroup(stack.name, f"{LAYER}{layer}{KEYS}{key}", some, mean)
