"""The page on how words travel: from the embedding through layers, and the space of states."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headbook.charts.panels import PanelPlot
from headbook.charts.theme import amount_class
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerMetric, LayerPairMetric, Metric
from headbook.pages.geometry_parts import state_space
from headbook.pages.geometry_parts.travel_curves import mixing_plot, path_plot
from headbook.pages.parts.blocks import Definitions
from headbook.pages.parts.page import (
    AnalysisPage,
    SentenceParts,
    StackSection,
    TemplateQuestion,
    gap_text,
)
from headbook.pages.parts.table import HeatCell, MarkedText, PageTable, Row, WordsCell, words_cell
from headbook.report.answers import geometry as answers
from headbook.report.linked_rows import LinkedNumber
from headbook.report.relations import TAG_NAMES
from headbook.report.results import StackResults, study_of
from headbook.report.token_neighbours import WORD_CLASS_NAMES, class_of_tag, own_tokens
from headbook.report.wording import FEW_WORDS, STACKS, count_text
from headbook.results.formats import MISSING, THIN, interval_text, number, percent, whole_percent
from headbook.schema import UPOS, ResidualPoint
from headbook.study.manifest import MissingPart

Written = Callable[[float], str]


@dataclass(frozen=True)
class TravelSection(StackSection):
    """The paths of the tokens of one stack.

    Attributes:
        paths: curves that answer the question of the page.
        kinds: kinds of words after the last layer; ``few`` are those with few words.
        mixing: curves of what other tokens give; ``mixing_notes`` are sentences on it.
        observed: published observations, tested.
        space: curves of the similarity of tokens and of the rank.
        similarity: similarity of every two layers.
        outliers: dimensions that make tokens alike.
        outlier_title: title of that table.
        n_sentences: number of sentences behind the table of kinds, with the noun.
        numbers: all numbers of states.
    """

    paths: PanelPlot | None
    kinds: PageTable | None
    few: PageTable | None
    mixing: PanelPlot | None
    mixing_notes: tuple[SentenceParts, ...]
    observed: PageTable | None
    space: PanelPlot | None
    similarity: PageTable | None
    outliers: PageTable | None
    outlier_title: str
    n_sentences: str
    numbers: tuple[PageTable, ...]

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Fragments and names of the parts below the question."""
        names = (
            ("kinds", "kinds of words", self.kinds or self.few),
            ("mixing", "mixing", self.mixing),
            ("observations", "published observations", self.observed),
            ("space", "the space", self.space),
            ("layers", "layers and dimensions", self.similarity or self.outliers),
            ("numbers", "all numbers", self.numbers),
        )
        return tuple((name, text) for name, text, there in names if there)


@dataclass(frozen=True, kw_only=True)
class GeometryPage(AnalysisPage):
    """Paths of tokens through the layers, in all stacks that have states.

    Attributes:
        sections: by stack; the first answers the question.
        example: a worked example of a share; empty without one.
        definitions: metrics of states, which have no page of their own.
    """

    template: ClassVar[str] = "geometry.html"
    styles = (*AnalysisPage.styles, "geometry")
    sections: tuple[TravelSection, ...]
    example: SentenceParts
    definitions: Definitions


def has_geometry(results: Mapping[str, StackResults]) -> bool:
    """Whether a study has states of tokens, or numbers on what attention adds to states."""
    return any(_has_states(r) for r in results.values())


def _has_states(results: StackResults) -> bool:
    if results.stack.crosses:  # states after cross-attention are those of the decoder
        return False
    metrics = (
        answers.COSINE,
        answers.RANK,
        answers.KEPT,
        answers.MIXING,
        answers.HALF,
        answers.MEASURED,
    )
    return results.stack.name in results.study.corpus_sums.geometry or any(
        answers.token_numbers(results, metric, "all") for metric in metrics
    )


def geometry_page(results: Mapping[str, StackResults]) -> GeometryPage:
    """Return the page on how words travel."""
    study = study_of(results)
    stacks = [r for r in results.values() if _has_states(r)]
    first, *others = stacks
    return GeometryPage(
        path="geometry.html",
        title="Do words keep their identity through the layers?",
        description=f"How far tokens move from their embedding in {study.manifest.model.name}, "
        "what they take in from others, and the space of their states.",
        topic="How words travel",
        answer=answers.identity_answer(first),
        scope=tuple(_scope(first)),
        questions=tuple(
            TemplateQuestion(
                r.stack.name,
                f"And in {STACKS[r.stack.name]}?",
                answers.identity_answer(r),
                "words identity layers",
            )
            for r in others
        ),
        absent=tuple(dict.fromkeys(text for r in results.values() for text in _absent(r))),
        sections=tuple(map(_section, stacks)),
        example=_example(first),
        definitions=Definitions(tuple(_definitions(results))),
    )


def _definitions(results: Mapping[str, StackResults]) -> Iterator[Metric]:
    """Yield the metrics of states that a study has."""
    known = {*study_of(results).geometry["metric"]}
    return (
        metric
        for metric in all_metrics().values()
        if isinstance(metric, LayerMetric | LayerPairMetric) and metric.id in known
    )


def _scope(results: StackResults) -> Iterator[tuple[str, str]]:
    own, cosine = own_tokens(results), answers.token_numbers(results, answers.COSINE, "all")
    behind = int(cosine.estimates.sentences.max()) if cosine else 0
    if own:
        counts = [
            f"{shares.events[-1]:,.0f} of {WORD_CLASS_NAMES[kind]}"
            if kind != "all"
            else f"{shares.events[-1]:,.0f} of text"
            for kind, shares in own.shares.items()
            if kind in answers.word_classes(results)[:2] and kind != "special"
        ]
        by_class = ", ".join(counts)
        if cosine and behind != own.sentences:
            paged = f"{own.sentences:,} whose pages show all heads"
            counted = f"tokens nearest to their own are counted in the {paged}: {by_class}."
            yield "Sentences", f"{behind:,}; {counted}"
        else:
            yield "Sentences", f"{own.sentences:,}, with tokens: {by_class}."
    elif cosine:
        yield "Sentences", f"{behind:,}."
    yield "State", f"after the layer; bands are 95{THIN}% intervals over sentences."


def _section(results: StackResults) -> TravelSection:
    sums = results.study.corpus_sums.geometry.get(results.stack.name)
    kinds = [*_kinds(results)]
    return TravelSection(
        stack=results.stack.name,
        paths=path_plot(results),
        kinds=_kinds_table(kinds, lambda n: n >= FEW_WORDS),
        few=_kinds_table(kinds, lambda n: n < FEW_WORDS),
        mixing=mixing_plot(results),
        mixing_notes=tuple(answers.mixing_sentences(results)),
        observed=_observed(results),
        space=state_space.space_plot(results, sums) if sums else None,
        similarity=state_space.layer_similarity(results, sums) if sums else None,
        outliers=state_space.outlier_table(results, sums) if sums else None,
        outlier_title=state_space.outlier_title(sums) if sums else "",
        n_sentences=_sentences(results),
        numbers=tuple(state_space.number_tables(sums)) if sums else (),
    )


def _sentences(results: StackResults) -> str:
    """Return how many sentences the averages over tokens are of, with the noun."""
    metrics = (answers.COSINE, answers.KEPT, answers.RANK, answers.MIXING)
    numbers = (answers.token_numbers(results, metric, "all") for metric in metrics)
    found = [int(each.estimates.sentences.max()) for each in numbers if each]
    return count_text(max(found, default=0), results.study.manifest.text_noun)


PER_CENT = f"{THIN}%"
KIND_COLUMNS = (
    (answers.COSINE, "cosine to input", number),
    (answers.KEPT, "neighbours kept", whole_percent),
    (answers.RANK, "tokens nearer than its own", lambda rank: number(10**rank - 1)),
    (answers.MIXING, "from other tokens", whole_percent),
)


def _kinds(results: StackResults) -> Iterator[tuple[str, float, dict[str, answers.TokenNumbers]]]:
    """Yield the parts of speech of the corpus with their words, most kept neighbours first."""
    last = results.stack.n_layers - 1
    kinds = []
    for tag in UPOS:
        numbers = {m: n for m, *_ in KIND_COLUMNS if (n := answers.token_numbers(results, m, tag))}
        if numbers:
            counts = [n.estimates.events.item(last) for n in numbers.values()]
            key = (numbers.get(answers.KEPT) or next(iter(numbers.values()))).estimates.value[last]
            kinds.append((-np.nan_to_num(key, nan=-1), tag, max(counts), numbers))
    for _, tag, count, numbers in sorted(kinds, key=lambda each: each[:2]):
        yield tag, count, numbers


def _kinds_table(
    kinds: list[tuple[str, float, dict[str, answers.TokenNumbers]]], chosen: Callable[[float], bool]
) -> PageTable | None:
    """Return the parts of speech with as many words as chosen, after the last layer."""
    columns = [each for each in KIND_COLUMNS if any(each[0] in numbers for *_, numbers in kinds)]
    rows = []
    for tag, count, numbers in kinds:
        if chosen(count):
            cells = (
                _kind_cell(numbers.get(metric), [f[metric] for *_, f in kinds if metric in f], text)
                for metric, _, text in columns
            )
            head = words_cell(TAG_NAMES[tag], style=f"cl c-{class_of_tag(tag)}")
            rows.append(Row(head, (words_cell(f"{count:,.0f}", style="few"), *cells)))
    titles = ("words", "tokens", *(title for _, title, _ in columns))
    return PageTable(titles, tuple(rows), style="heat") if rows else None


def _kind_cell(
    numbers: answers.TokenNumbers | None, column: list[answers.TokenNumbers], written: Written
) -> HeatCell:
    """Return the number of a kind after the last layer.

    Fills run from the smallest number of the column to the largest; from 0 if 0 is near.
    """
    if numbers is None or np.isnan(numbers.estimates.value[-1]):
        return HeatCell(MISSING, "q0")
    layer = len(numbers.estimates.value) - 1
    last = numbers.estimates.at(layer)
    values = [each.estimates.value[layer] for each in column]
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    least = 0.0 if 0 <= least < most / 4 else least
    linked = numbers.linked(written(last.value), layer)
    ends = (
        ""
        if np.isnan(last.low)
        else f"[{', '.join(written(end).removesuffix(PER_CENT) for end in (last.low, last.high))}]"
    )
    return HeatCell(linked.text, amount_class(last.value, least, most), linked, ends)


def _observed(results: StackResults) -> PageTable | None:
    """Return the table of published observations in both kinds of states."""
    states = {ResidualPoint.POST: "after the layer", ResidualPoint.MID: "after attention"}
    tested = {state: {s.name: s for s in answers.observations(results, state)} for state in states}
    names = {name: s.text for by_name in tested.values() for name, s in by_name.items()}
    rows = tuple(
        Row(text, tuple(_verdict(results, by_name.get(name)) for by_name in tested.values()))
        for name, text in names.items()
    )
    return PageTable(("observation", *states.values()), rows, style="observed") if rows else None


def _verdict(results: StackResults, tested: answers.Observation | None) -> WordsCell:
    """Return whether an observation holds, with its numbers."""
    if tested is None:
        return words_cell("not measured")
    stack, (one, other), (first, second) = results.stack.name, tested.measure, tested.numbers
    row = (
        ("claim", answers.OBSERVATION), ("stack", stack), ("metric", tested.metric),
        ("label", tested.label),
    )  # fmt: skip
    verdict = MarkedText("holds" if tested.holds else "does not hold", "b")
    style = "vd yes" if tested.holds else "vd"
    if tested.layer is not None:
        share = LinkedNumber(whole_percent(first), "tests", row)
        return words_cell(verdict, f" {one} after layer {tested.layer}: ", share, style=style)
    numbers = (LinkedNumber(number(each), "tests", row) for each in (first, second))
    return words_cell(
        verdict, f" {one}: ", next(numbers), f"; {other}: ", next(numbers), style=style
    )


def _example(results: StackResults) -> SentenceParts:
    """Return how the share in the answer follows from counts."""
    own, last = own_tokens(results), results.stack.n_layers - 1
    kind = "content" if own and "content" in own.shares else "all"
    if own is None or kind not in own.shares or np.isnan(own.shares[kind].value[last]):
        return ()
    share = own.shares[kind].at(last)
    counted, kept = round(share.events), round(share.value * share.events)
    number_ = answers.own_token_number(results, kind, last)._replace(text=percent(share.value))
    interval = interval_text(share.low, share.high, share=True)
    return (
        f"Of {counted:,} {WORD_CLASS_NAMES[kind]} in {count_text(share.sentences, 'sentence')}, "
        f"{kept:,} have no nearer vocabulary token than their own after layer {last}: {kept:,} / "
        f"{counted:,} = ", number_, f" {interval}.".replace(" .", "."),
    )  # fmt: skip


MEASURES = {
    answers.COSINE: "The cosine of tokens to their input embedding is",
    answers.RANK: "Ranks of tokens among the vocabulary are",
    answers.KEPT: "Kept neighbours are",
    answers.MIXING: "Context mixing is",
    answers.MEASURED: "Attention rollout with measured mixing is",
}


def _absent(results: StackResults) -> Iterator[str]:
    """Yield the numbers that a stack lacks, with the reason or the option that measures them."""
    if results.stack.crosses:
        yield "Cross-attention has no states of its own; those of the decoder are shown."
        return
    gaps = {
        gap.key: f"{gap_text(gap)}."
        for gap in results.study.manifest.gaps
        if gap.stack in {"", results.stack.name}
    }
    for metric, subject in MEASURES.items():
        if answers.token_numbers(results, metric, "all") is None:
            reason = gaps.get(metric) or (
                metric in {answers.MIXING, answers.MEASURED} and gaps.get(MissingPart.VALUES)
            )
            yield reason or f"{subject} not measured here: --metrics {metric}."
    if answers.token_numbers(results, answers.RANK, "all") and own_tokens(results) is None:
        yield "Tokens nearest to themselves are counted in sentences with a page: --sentence-pages."
    if answers.word_classes(results)[0] != "content":
        yield gaps.get(MissingPart.TAGS) or "Kinds of words need annotated sentences: --annotator."
    sums = results.study.corpus_sums.geometry.get(results.stack.name)
    if sums is None:
        yield gaps.get(MissingPart.GEOMETRY) or (
            "The space of states is not measured here: --metrics anisotropy,effective_rank."
        )
    else:
        yield from state_space.gaps_in_space(sums)
