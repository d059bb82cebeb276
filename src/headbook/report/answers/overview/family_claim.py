"""The families of functions of a study's heads, and the claim of the overview on one of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from headbook.report.answers.overview.claim_parts import (
    OverviewClaim,
    layers_text,
    short_link,
)
from headbook.report.facts.functions import (
    WHERE_OF_FAMILY,
    FunctionFamily,
    HeadFunction,
    families_of,
    functions_of,
)
from headbook.report.results import StackResults
from headbook.report.thresholds import PART_OF_LAYERS
from headbook.report.wording import count_text, number_word
from headbook.results.sentence import NOTHING, Sentence, say
from headbook.schema import HeadName

# Families that the claim can be about, as all others have claims of their own or none.
CLAIMED = (
    FunctionFamily.NEARBY, FunctionFamily.POSITION, FunctionFamily.WORDS, FunctionFamily.REPEATS,
    FunctionFamily.EVEN,
)  # fmt: skip


class FunctionHeads(NamedTuple):
    """The heads of a stack that have one function.

    Attributes:
        functions: function of each head, in the order of layers.
        example: the function of the head with the largest number; of the first without numbers.
    """

    functions: tuple[HeadFunction, ...]
    example: HeadFunction

    @property
    def heads(self) -> tuple[HeadName, ...]:
        """The heads."""
        return tuple(function.head for function in self.functions)


class FamilyHeads(NamedTuple):
    """The heads of one family in all stacks.

    Attributes:
        family: the family.
        name: name of the family on pages.
        functions: functions of the family, stack by stack, the commonest of each stack first.
        heads: the heads, stack by stack.
    """

    family: FunctionFamily
    name: str
    functions: tuple[FunctionHeads, ...]
    heads: tuple[HeadName, ...]

    @property
    def example(self) -> HeadFunction:
        """Function of the head that shows best what the family does."""
        return max(self.functions, key=lambda function: len(function.functions)).example


def function_heads(results: StackResults) -> list[FunctionHeads]:
    """Return the known functions of a stack, by family, the commonest first."""
    return results.cached(_function_heads)


def _function_heads(results: StackResults) -> list[FunctionHeads]:
    by_noun: dict[tuple[str, str], list[HeadFunction]] = {}
    for function in functions_of(results).values():
        if function.is_known:
            by_noun.setdefault((function.id, function.noun), []).append(function)
    groups = [
        FunctionHeads(tuple(of_noun), max(of_noun, key=_value)) for of_noun in by_noun.values()
    ]
    families = [*FunctionFamily]

    def rank(group: FunctionHeads) -> tuple[int, int]:
        family = group.example.family
        assert family is not None  # heads without a family are in no group
        return families.index(family), -len(group.functions)

    return sorted(groups, key=rank)


def _value(function: HeadFunction) -> float:
    """Return the number of a function; 0 without one."""
    return function.number.value if function.number else 0.0


def family_heads(results: Mapping[str, StackResults]) -> list[FamilyHeads]:
    """Return the families that have heads, in their order."""
    names = {
        family: name
        for of_stack in results.values()
        for family, name in families_of(of_stack).items()
    }
    groups = [group for of_stack in results.values() for group in function_heads(of_stack)]
    families = []
    for family in FunctionFamily:
        of_family = tuple(group for group in groups if group.example.family is family)
        if of_family:
            heads = [head for group in of_family for head in group.heads]
            in_order = sorted(heads, key=lambda head: ([*results].index(head.stack), head[1:]))
            families.append(FamilyHeads(family, names[family], of_family, tuple(in_order)))
    return families


def family_layers(results: StackResults, members: Sequence[HeadName]) -> tuple[int, ...]:
    """Return the layers from the first to the last head of a family.

    Empty if fewer than `PART_OF_LAYERS` of the heads of these layers belong to the family.
    """
    if not members:
        return ()
    first, last = members[0].layer, members[-1].layer
    layers = tuple(x for x in results.stack.attention_layers if first <= x <= last)
    share = len(members) / (len(layers) * results.stack.n_heads)
    return layers if share >= PART_OF_LAYERS.value else ()


def family_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the largest family, with its commonest function's best head by number.

    Evenly spread heads come last, because most models have many of them.
    """
    families = {family.family: family for family in family_heads({results.stack.name: results})}
    claimed = [family for family in CLAIMED if family in families]
    order = sorted(
        claimed, key=lambda family: (family is FunctionFamily.EVEN, -len(families[family].heads))
    )
    for family in order:
        members = families[family].heads
        layers, example = family_layers(results, members), families[family].example
        if not layers or example.number is None:
            continue
        where, many = WHERE_OF_FAMILY[family], number_word(len(members))
        one, several = f"one head attends {where}:", f"{many} heads attend {where}, such as"
        does = one if len(members) == 1 else several
        yield OverviewClaim(
            "family",
            results.stack.name,
            say(
                "In {layers}, {does} {head} ({noun}{number}).",
                layers=layers_text(results, layers), does=does, head=short_link(example.head),
                noun="" if example.noun in where else f"{example.noun}, ", number=example.number,
            ),
            frozenset(members),
            _evidence(results, example, families[family].functions),
        )  # fmt: skip
        return


def _evidence(
    results: StackResults, example: HeadFunction, functions: Sequence[FunctionHeads]
) -> Sentence:
    """Return the number of the example beside uniform attention, and how many heads do what."""
    number, noun = example.number, results.study.manifest.text_noun
    assert number is not None
    even = say("; uniform attention: {even}", even=example.even) if example.even else NOTHING
    return say(
        "{head}, {noun}: {number:interval}{even}. {sentences}. Heads by function: {counts}.",
        head=example.head, noun=example.noun, number=number, even=even,
        sentences=count_text(number.sentences, noun),
        counts=", ".join(f"{group.example.noun} {len(group.functions):,}" for group in functions),
    )  # fmt: skip
