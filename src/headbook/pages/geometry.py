"""The page on how words travel: from the embedding through layers, and the space of states."""

from collections.abc import Iterator, Mapping, Sequence

from headbook.charts.theme import amount_class
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerMetric, LayerPairMetric, Metric
from headbook.pages.geometry_parts import state_space
from headbook.pages.geometry_parts.travel_curves import mixing_plot, path_plot
from headbook.pages.parts.blocks import (
    Block,
    Bullets,
    Caption,
    Cell,
    Columns,
    Definitions,
    Details,
    Group,
    Heat,
    Lead,
    Page,
    Question,
    Symbols,
    Table,
    Text,
    blocks,
    by_stack,
    row,
)
from headbook.pages.parts.page import gap_text
from headbook.report.facts.states import geometry as facts
from headbook.report.facts.states import mixing, tokens, travel
from headbook.report.facts.states.outliers import dimension_names, outliers
from headbook.report.relations import TAG_NAMES
from headbook.report.results import StackResults, study_of
from headbook.report.token_neighbours import WORD_CLASS_NAMES, class_of_tag, own_tokens
from headbook.report.wording import FEW_WORDS, STACKS, count_text
from headbook.results.formats import MISSING, THIN
from headbook.results.number import Number
from headbook.results.sentence import Link, Marked, Sentence, say
from headbook.schema import UPOS, ResidualPoint
from headbook.study.manifest import MissingPart

Results = Mapping[str, StackResults]


def has_geometry(results: Results) -> bool:
    """Return whether a study has states of tokens, or numbers on what attention adds to states."""
    return any(map(facts.is_measured, results.values()))


def geometry_page(results: Results) -> Page:
    """Return the page on how words travel."""
    study = study_of(results)
    stacks = [r for r in results.values() if facts.is_measured(r)]
    first, *others = stacks
    return Page(
        path="geometry.html",
        title="Do words keep their identity through the layers?",
        description=f"How far tokens move from their embedding in {study.manifest.model.name}, "
        "what they take in from others, and the space of their states.",
        topic="How words travel",
        answer=first.cached(facts.identity).text,
        scope=tuple(_scope(first)),
        blocks=blocks(_paths(first), _sibling(results), map(_question, others)),
        closer=by_stack(stacks, _closer, results),
        measured=_measured(first, results),
        absent=tuple(dict.fromkeys(text for r in results.values() for text in _absent(r))),
    )


def _paths(results: StackResults) -> Iterator[Block]:
    """Yield the sentence that joins the curves of a stack, and the curves."""
    if joined := results.cached(facts.travel).text:
        yield Text(joined, "noted")
    if plot := path_plot(results):
        yield Lead(plot)


def _sibling(results: Results) -> Text | None:
    """Return a link to the page on words in several sentences."""
    if not any(map(tokens.is_measured, results.values())):
        return None
    words = "Whether a word ends in the same place in every sentence is another question: {link}."
    return Text(say(words, link=Link("Tokens", "tokens.html")), "noted")


def _question(results: StackResults) -> Question:
    stack, answer = results.stack.name, results.cached(facts.identity).text
    title = f"And in {STACKS[stack]}?"
    return Question(stack, title, answer, blocks(_paths(results)), "words identity layers")


def _definitions(results: Results) -> Iterator[Metric]:
    """Yield the metrics of states that a study has; they have no page of their own."""
    known = {*study_of(results).geometry["metric"]}
    return (
        metric
        for metric in all_metrics().values()
        if isinstance(metric, LayerMetric | LayerPairMetric) and metric.id in known
    )


def _scope(results: StackResults) -> Iterator[tuple[str, str]]:
    counted_tokens, cosines = own_tokens(results), facts.token_numbers(results, facts.COSINE, "all")
    behind = max((n.sentences for n in cosines), default=0)
    if counted_tokens:
        counts = [
            f"{shares.events[-1]:,.0f} of {WORD_CLASS_NAMES[kind] if kind != 'all' else 'text'}"
            for kind, shares in counted_tokens.shares.items()
            if kind in facts.word_classes(results)[:2] and kind in {"all", "content", "function"}
        ]
        by_class = ", ".join(counts)
        if cosines and behind != counted_tokens.sentences:
            paged = f"{counted_tokens.sentences:,} whose pages show all heads"
            near_own = f"tokens nearest to their own are counted in the {paged}: {by_class}."
            yield "Sentences", f"{behind:,}; {near_own}"
        else:
            yield "Sentences", f"{counted_tokens.sentences:,}, with tokens: {by_class}."
    elif cosines:
        yield "Sentences", f"{behind:,}."
    yield "State", f"after the layer; bands are 95{THIN}% intervals over sentences."
    if results.stack.causal:
        yield "Causal", "a state comes to predict the next token, so that its own one moves away."


def _closer(results: StackResults) -> Iterator[Block]:
    """Yield the tables and curves of a stack, those for specialists folded."""
    suffix = "" if results.stack.name == "self" else f"-{results.stack.name}"
    if kinds := blocks(_kinds_tables(results)):
        yield Group(
            (*kinds, Caption((_kinds_note(results),))), id=f"kinds{suffix}", link="kinds of words"
        )
    if plot := mixing_plot(results):
        notes = (
            results.cached(fact).text for fact in (mixing.mixing_range, mixing.mixing_by_class)
        )
        texts = [Text(note) for note in notes if note]
        yield Group(blocks(Lead(plot), texts), id=f"mixing{suffix}", link="mixing")
    if observed := blocks(_observed(results)):
        source = "After D. Avery’s exploration of RoBERTa (2024–25)."
        yield Group(
            (*observed, Caption((source,))), "Published observations, on all tokens of text",
            id=f"observations{suffix}", link="published observations",
        )  # fmt: skip
    yield from _space(results, suffix)


def _space(results: StackResults, suffix: str) -> Iterator[Block]:
    """Yield the curves and tables of the space of states."""
    if plot := state_space.space_plot(results):
        yield Group(
            (Lead(plot),), "The space they move in", id=f"space{suffix}", link="the space",
            folded=True,
        )  # fmt: skip
    tables = blocks(state_space.layer_similarity(results), state_space.outlier_table(results))
    if tables:
        title = "How alike layers are, and which dimensions make tokens alike"
        yield Group(
            (Columns(tables, len(tables)),), title, id=f"layers{suffix}",
            link="layers and dimensions", folded=True,
        )  # fmt: skip
    if numbers := blocks(state_space.number_tables(results)):
        all_numbers = Details("All numbers of states", numbers, "geometry.csv")
        yield Group((all_numbers,), id=f"numbers{suffix}", link="all numbers")


KIND_COLUMNS = (
    (facts.COSINE, "cosine to input", ""),
    (facts.KEPT, "neighbours kept", "whole"),
    (facts.RANK, "tokens nearer than its own", ""),
    (facts.MIXING, "from other tokens", "whole"),
)
Kind = tuple[str, float, dict[str, Number]]  # tag, number of words, and numbers by metric


def _kinds_tables(results: StackResults) -> Iterator[Block]:
    """Yield the parts of speech after the last layer; those of few words folded."""
    kinds = _kinds(results)
    frequent = [kind for kind in kinds if kind[1] >= FEW_WORDS]
    few = [kind for kind in kinds if kind[1] < FEW_WORDS]
    if frequent:
        yield _kinds_table(frequent, "Kinds of words after the last layer")
    if few:
        table = _kinds_table(few, "Kinds with few words")
        yield Details(f"Kinds with fewer than {FEW_WORDS} words", (table,))


def _kinds(results: StackResults) -> list[Kind]:
    """Return the parts of speech of the corpus with their words, most kept neighbours first."""
    kinds: list[Kind] = []
    for tag in UPOS:
        by_metric = {m: facts.token_numbers(results, m, tag) for m, *_ in KIND_COLUMNS}
        last = {metric: numbers[-1] for metric, numbers in by_metric.items() if numbers}
        if last:
            kinds.append((tag, max(n.observations for n in last.values()), last))

    def place(kind: Kind) -> float:
        number = kind[2].get(facts.KEPT) or next(iter(kind[2].values()))
        return -number.value if number.known else 1.0

    return sorted(kinds, key=place)


def _kinds_table(kinds: Sequence[Kind], caption: str) -> Table:
    columns = [
        column for column in KIND_COLUMNS if any(column[0] in numbers for *_, numbers in kinds)
    ]
    rows = []
    for tag, count, numbers in kinds:
        cells = (
            _kind_cell(numbers.get(metric), [of[metric] for *_, of in kinds if metric in of], form)
            for metric, _, form in columns
        )
        name = Marked(TAG_NAMES[tag], f"cl c-{class_of_tag(tag)}")
        rows.append(row(name, f"{count:,.0f}", *cells))
    titles = row("words", "tokens", *(title for _, title, _ in columns))
    return Table(titles, tuple(rows), caption, "most kept neighbours first", "heat")


def _kind_cell(number: Number | None, column: Sequence[Number], format_name: str) -> Heat:
    """Return a number of a kind of words.

    Fills run from the smallest number of the column to the largest; from 0 if 0 is near.
    """
    if number is None or not number.known:
        return Heat(MISSING, "q0")
    values = [n.value for n in column if n.known]
    least, most = min(values), max(values)
    least = 0.0 if 0 <= least < most / 4 else least
    fill = amount_class(number.value, least, most)
    return Heat(number.printed(format_name), fill, number.as_text("ends"))


def _kinds_note(results: StackResults) -> str:
    metrics = (facts.COSINE, facts.KEPT, facts.RANK, facts.MIXING)
    numbers = [n for metric in metrics for n in facts.token_numbers(results, metric, "all")]
    behind = max((n.sentences for n in numbers), default=0)
    sentences = count_text(behind, results.study.manifest.text_noun)
    return (
        f"Tokens of {sentences}, a word of several tokens with each of them. Colours: from the "
        "smallest number of a column, or 0 if that is near, to the largest. Tokens nearer than its "
        "own: geometric mean, so that few tokens with very many do not decide."
    )


def _observed(results: StackResults) -> Iterator[Block]:
    """Yield the tested observations as sentences, and those on means in both kinds of states."""
    of_page = (travel.walk_back, travel.function_shift, facts.hub_tokens)
    shifts = (results.cached(fact).text for fact in of_page)
    if items := tuple(text for text in shifts if text):
        yield Bullets(items)
    states = {ResidualPoint.POST: "after the layer", ResidualPoint.MID: "after attention"}
    tested = {state: {o.name: o for o in travel.observations(results, state)} for state in states}
    names = {name: o.text for by_name in tested.values() for name, o in by_name.items()}
    rows = tuple(
        row(text, *(_verdict(results, by_name.get(name)) for by_name in tested.values()))
        for name, text in names.items()
    )
    if rows:
        note = "means are compared, without a test"
        caption = "What was observed, and whether it holds here"
        yield Table(row("observation", *states.values()), rows, caption, note, "numbers")


def _verdict(results: StackResults, tested: travel.Observation | None) -> Cell:
    """Return whether an observation holds, with its numbers."""
    if tested is None:
        return "not measured"
    if tested.is_decided_by_outliers:
        names = dimension_names(outliers(results, state=tested.state))
        verdict = Marked(f"decided by {names}", "b")
    else:
        verdict = Marked("holds" if tested.holds else "does not hold", "b")
    printed = tested.printed(results.stack.name)
    numbers = [
        _observed_numbers(tested.metric, compared, *pair)
        for compared, pair in zip((tested.compared, tested.without), printed, strict=False)
        if compared is not None
    ]
    start = say("{verdict}: {numbers}", verdict=verdict, numbers=numbers[0])
    return (
        start
        if len(numbers) == 1
        else say("{start}; without outlier dimensions {numbers}", start=start, numbers=numbers[1])
    )


def _observed_numbers(
    metric: str, compared: travel.ObservedNumbers, first: Number, second: Number
) -> Sentence:
    """Return the numbers by which an observation holds or not."""
    one, other = compared.measure
    if metric == facts.KEPT:
        words = "{one} after layer {layer}, {first:whole}"
    else:
        words = "{one} {first}, {other} {second}"
    if metric == facts.COSINE:
        words += "; most in layer {layer} (not tested)"
    return say(words, one=one, other=other, first=first, second=second, layer=compared.layer)


def _measured(first: StackResults, results: Results) -> tuple[Block, ...]:
    symbols = Symbols((
        ("xᵢˡ", "state of token i after layer l, from the model’s own activations"),
        ("cosine to input", "cos(xᵢˡ, xᵢ) with xᵢ the state that enters layer 0"),
        ("nearest to its own", "no other vocabulary token, with its position if the model adds "
         "positions, has a larger cosine to xᵢˡ"),
        ("kept", "share of the 100 vocabulary tokens nearest before the layer that are among the "
         "100 nearest after it; the layer that keeps fewest is tested against all others, paired "
         "by sentence"),
        ("from other tokens", "context-mixing ratio: norm of what other tokens contribute to the "
         "output of an attention block, over that norm plus the norm of the token’s own part, "
         "residual included (Kobayashi et al. 2021)"),
        ("outlier dimensions", "of a state: dimensions whose mean over tokens of text lies more "
         "than 6 robust standard deviations (1.4826 × median absolute deviation) from the median "
         "of all dimensions’ means; cosine, rank and kept neighbours are also computed without "
         "them, and a finding that they decide is not stated"),
        ("attention rollout", "product over layers of attention, averaged over heads, and the "
         "share that each token keeps (Abnar & Zuidema 2020)"),
        ("any two", "mean cosine of tokens of different sentences: what similar tokens are "
         "compared with (Ethayarajh 2019)"),
    ))  # fmt: skip
    example = _example(first)
    return blocks(
        symbols, Text(example, "eg") if example else None,
        Definitions(tuple(_definitions(results))),
    )  # fmt: skip


def _example(results: StackResults) -> Sentence | None:
    """Return how the share in the answer follows from counts."""
    counted_tokens = own_tokens(results)
    kind = "content" if counted_tokens and "content" in counted_tokens.shares else "all"
    numbers = facts.own_numbers(results, kind)
    if not numbers or not numbers[-1].known:
        return None
    share = numbers[-1]
    counted = round(share.observations)
    kept = round(share.value * share.observations)
    return say(
        "Of {counted} {words} in {sentences}, {kept} have no nearer vocabulary token than their "
        "own after layer {last}: {kept} / {counted} = {share:interval}.",
        counted=counted, words=WORD_CLASS_NAMES[kind], kept=kept, share=share,
        sentences=count_text(share.sentences, "sentence"), last=share.place("layer"),
    )  # fmt: skip


MEASURES = {
    facts.COSINE: "The cosine of tokens to their input embedding is",
    facts.RANK: "Ranks of tokens among the vocabulary are",
    facts.KEPT: "Kept neighbours are",
    facts.MIXING: "Context mixing is",
    facts.MEASURED: "Attention rollout with measured mixing is",
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
        if not facts.token_numbers(results, metric, "all"):
            reason = gaps.get(metric) or (
                metric in {facts.MIXING, facts.MEASURED} and gaps.get(MissingPart.VALUES)
            )
            yield reason or f"{subject} not measured here: --metrics {metric}."
    if facts.token_numbers(results, facts.RANK, "all") and own_tokens(results) is None:
        yield "Tokens nearest to themselves are counted in sentences with a page: --sentence-pages."
    if facts.word_classes(results)[0] != "content":
        yield gaps.get(MissingPart.TAGS) or "Kinds of words need annotated sentences: --annotator."
    sums = results.study.corpus_sums.geometry.get(results.stack.name)
    if sums is None:
        yield gaps.get(MissingPart.GEOMETRY) or (
            "The space of states is not measured here: --metrics anisotropy,effective_rank."
        )
    else:
        yield from state_space.gaps_in_space(sums)
