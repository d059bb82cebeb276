"""The facts that the list of heads shows: function, family, best relation, and verdict."""

from dataclasses import dataclass

from headbook.report.ablation import head_changes, short_verdict
from headbook.report.facts.functions import HeadFunction, families_of, functions_of
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import best_relation, tests_of_stack
from headbook.report.relations import points_text, relation_words
from headbook.report.results import StackResults
from headbook.report.wording import rule_phrase
from headbook.results.formats import head_name, head_page
from headbook.results.number import Number
from headbook.schema import HeadKey, HeadName, heads_of


@dataclass(frozen=True)
class HeadWord:
    """A word about a head, with what supports the word.

    Attributes:
        word: the word that readers filter by; empty if nothing is known.
        detail: further words.
        number: number printed beside the word, by which heads with equal words are sorted; None
            without one.
    """

    word: str = ""
    detail: str = ""
    number: Number | None = None


@dataclass(frozen=True)
class HeadFacts:
    """The facts about a head in the list of heads.

    Attributes:
        head: stack, layer and number of the head.
        name, href: name of the head and address of its page.
        function: function of the head.
        label: its family by name, with the noun and the number of the function.
        relation: the relation that is claimed for the head, whatever its function; empty without
            one.
        verdict: verdict by ablation; empty for heads that were not replaced.
    """

    head: HeadName
    name: str
    href: str
    function: HeadFunction
    label: HeadWord
    relation: HeadWord
    verdict: HeadWord

    @property
    def beats(self) -> bool:
        """Whether a relation is claimed for the head, beyond the best surface rule."""
        return bool(self.relation.word)


def head_facts(results: StackResults) -> tuple[HeadFacts, ...]:
    """Return the facts about every head of a stack, layer by layer."""
    return results.cached(_facts)


def _facts(results: StackResults) -> tuple[HeadFacts, ...]:
    verdicts, functions, names = _verdicts(results), functions_of(results), families_of(results)
    facts = []
    for head in heads_of(results.stack):
        function = functions[head]
        family = names[function.family] if function.family else ""
        facts.append(
            HeadFacts(
                head=head,
                name=head_name(head),
                href=head_page(head),
                function=function,
                label=HeadWord(family, function.noun, function.number),
                relation=_claimed_relation(results, head),
                verdict=HeadWord(short_verdict(verdicts.get(head, ""))),
            )
        )
    return tuple(facts)


def _verdicts(results: StackResults) -> dict[HeadName, str]:
    """Return the verdict of each head that was replaced; empty without ablation."""
    ablation = results.study.corpus_sums.ablation
    if ablation is None:
        return {}
    rows = head_changes(ablation)
    heads = zip(rows["stack"], rows["layer"], rows["head"], strict=True)
    return {HeadName(*head): verdict for head, verdict in zip(heads, rows["verdict"], strict=True)}


def _claimed_relation(results: StackResults, head: HeadName) -> HeadWord:
    """Return the relation that is claimed for a head, with its accuracy over all sentences."""
    tests = results.cached(tests_of_stack)
    n = best_relation(tests, (head.layer, head.head))
    if tests is None or n is None:
        return HeadWord()
    accuracy = results.number(HeadKey(METRIC, VIEW, tests.labels[n]), head.layer, head.head)
    margin = points_text(float(tests.scores.margin.value[n]))
    detail = f"{margin} points over {rule_phrase(tests.rule[n])}"
    return HeadWord(relation_words(tests.labels[n]), detail, accuracy)
