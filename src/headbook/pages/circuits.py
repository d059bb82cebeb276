"""The page on circuits: what heads write and which heads read it."""

from collections.abc import Iterator, Mapping, Sequence

from headbook.charts import Drawing, Plot
from headbook.charts.circuits import WalkArc, feeding_plot, pairs_plot, walk_drawing
from headbook.metrics import ids
from headbook.pages.parts.all_heads import heads_table
from headbook.pages.parts.blocks import (
    STYLES,
    Block,
    Bullets,
    Caption,
    Columns,
    Details,
    Group,
    Lead,
    Page,
    Picture,
    Question,
    Row,
    Steps,
    Symbols,
    Table,
    Text,
    Title,
    blocks,
    links_below,
    row,
)
from headbook.pages.parts.table import colour_step
from headbook.pages.parts.written_tokens import exemplar_sentence, tokens_sentence
from headbook.report.facts.circuits import facts, rules
from headbook.report.facts.circuits.facts import number_of
from headbook.report.facts.circuits.rules import ExemplarRow, Feed, Written
from headbook.report.results import StackResults, study_of
from headbook.report.wording import STACKS, capital, count_text, sentence_page
from headbook.results.formats import MISSING, head_name
from headbook.results.number import Number
from headbook.results.sentence import Link, Marked, Sentence, listed, say
from headbook.schema import HeadName
from headbook.study.sentence_data import LOGIT_LENS_SPACE

TITLE = "What do heads write, and which heads read it?"
MAX_PAIRS = 24  # rows of the table of pairs
WALK_BEFORE, WALK_AFTER, WALK_SPAN = 2, 1, 16  # tokens around a circuit, and between its ends
INPUTS = {"q": "queries", "k": "keys", "v": "values"}
# Approximations of every model.
ALWAYS = (
    "Composition and copying take weights alone: scales of norms, and feed-forward blocks between "
    "two heads, are left out.",
    "Contributions to logits are direct: what later heads and feed-forward blocks make of an "
    "output is not in them.",
)
FILES = ("composition", "promoted_tokens", "exemplar_tokens", "heads")
Results = Mapping[str, StackResults]


def circuits_page(results: Results) -> Page:
    """Return the page on circuits of a study of a language model."""
    study, first = study_of(results), facts.circuit_stack(results)
    evidence = facts.intervention(results).text
    questions = tuple(_questions(results, first))
    remarks = (*(f"{capital(remark.rstrip('.'))}." for remark in study.circuits.remarks), *ALWAYS)
    return Page(
        path="circuits.html",
        topic="Circuits",
        title=TITLE,
        description=f"Circuits of {study.manifest.model.name}: heads that copy, tokens that heads "
        "promote and suppress, and which heads use what others write.",
        answer=facts.circuits(results).text,
        scope=tuple(_scope(results)),
        blocks=blocks(
            Text(evidence, "evidence") if evidence else None,
            links_below("circuits.html", questions, *_logit_lens(first)),
            _feeding(first),
            _pairs(first),
            questions,
        ),
        closer=(
            Group((Bullets(remarks),), "What is approximate here", id="approximate",
                  link="what is approximate"),
        ),
        measured=_measured(),
        styles=(*STYLES, "written"),
        absent=tuple(_absent(results)),
    )  # fmt: skip


def _logit_lens(results: StackResults) -> Iterator[Link]:
    """Yield a link to the logit lens of the first sentence that has one."""
    data, stack = results.study.sentence_data, results.stack.name
    nearest = data.nearest
    is_lens = nearest["space"].eq(LOGIT_LENS_SPACE) & nearest["stack"].eq(stack)
    with_lens = {*nearest.loc[is_lens, "sentence"]}
    number = next((text.number for text in data.paged if text.number in with_lens), None)
    if number is not None:
        address = f"{sentence_page(number)}#entries-{stack}"
        yield Link("Logit lens: the five most probable tokens after each layer", address)


def _scope(results: Results) -> Iterator[tuple[str, str]]:
    study = study_of(results)
    circuits = study.circuits
    numbers = circuits.numbers
    heads = (numbers["metric"].eq(ids.COPYING_SCORE) & numbers["label"].eq("")).sum()
    weights = (
        f"weights of {heads:,} heads, {count_text(circuits.types, 'token type')}, " if heads else ""
    )
    texts = count_text(len(circuits.sentences), study.manifest.text_noun)
    yield "Measured on", f"{weights}exemplars of {texts}"
    if study.manifest.model.bits:
        yield "Weights", f"dequantised from {study.manifest.model.bits} bits"
    yield "Compared with", "permuted token types, random matrices, each head’s own mean output"


def _questions(results: Results, first: StackResults) -> Iterator[Question]:
    """Yield the further questions that the study answers."""
    if used := rules.used_feeds(first):
        drawing, steps = _walk(first, used)
        yield Question(
            "text", "What does the circuit do on one text?", "",
            (Columns((Picture(drawing), Bullets(steps, numbered=True))),),
            "induction example prompt",
        )  # fmt: skip
    if maps := tuple(_copying_maps(results)):
        yield Question(
            "copying", "Which heads copy, by their weights?", facts.copying(results).text,
            (*maps, _copying_caption(results)),
            "copying score ov circuit eigenvalues copy suppression name mover",
        )  # fmt: skip
    if any(of_stack.has_value(*rules.ATTENDED) for of_stack in results.values()):
        yield Question(
            "writes", "Which tokens do heads promote?", facts.writers(results).text,
            (*_writers(results), _writers_caption(results)),
            "what do heads write promote suppress logits direct attribution unembedding mover",
        )  # fmt: skip
    pairs = rules.induction_feeds(first)
    if agreement := facts.agreement(first).text:
        yield Question(
            "weights", "Do weights tell what an intervention finds?", agreement,
            (Lead(_scatter(first, pairs)),) if len(pairs) > 2 else (),
            "k-composition q-composition v-composition path patching",
        )  # fmt: skip


def _absent(results: Results) -> Iterator[str]:
    if not facts.circuit_stack(results).has_value(*rules.INDUCTION):
        yield "Induction circuits: --metrics with induction_score and previous_score."
    if "encoder" in results:
        yield "Encoder heads: the encoder has no output vocabulary."


def _feeding(results: StackResults) -> Lead | None:
    """Return the picture of heads that feed others; None without a supported pair."""
    used = rules.used_feeds(results)
    if not used:
        return None
    main = rules.main_feeder(used)
    previous, induction = (
        [number for head in sorted(heads) if (number := number_of(results, key, head))]
        for heads, key in (
            ({feed.lower for feed in used}, rules.PREVIOUS),
            ({feed.upper for feed in used}, rules.INDUCTION),
        )
    )
    caption = (
        f"Boxes: heads with a score of at least {rules.MIN_SCORE} on repeated random tokens, "
        "filled up to it. Line: induction score that the lower head loses when the mean output of "
        f"the upper one is taken out of its keys, from {rules.MIN_LOSS} on; as wide as the loss. "
        f"Green: {head_name(main)}, which costs most in sum."
    )
    plot = feeding_plot("circuits-feeds", caption, previous, induction, used)
    words = say("{caption}", caption=caption) + facts.without_links(results)
    return Lead(plot, words, blocks=(Title("Which heads feed which", 2),))


def _pairs(results: StackResults) -> Details | None:
    """Return pairs of heads with composition and intervention, the largest loss first."""
    measured = [feed for feed in rules.feeds(results) if feed.change.known]
    pairs = sorted(measured, key=lambda feed: (feed.measure, feed.change.value))[:MAX_PAIRS]
    if not pairs:
        return None
    rows = tuple(
        row(
            feed.lower,
            say("{input} of {upper}", input=INPUTS[feed.kind], upper=feed.upper),
            feed.change,
            feed.before,
            say("{composition} (rank {rank})", composition=feed.value, rank=feed.rank),
        )
        for feed in pairs
    )
    titles = ("Head taken out", "of the", "Change of the score [95 %]", "Score", "Composition")
    hint = say(
        "Score: induction score, or the strongest weight of the upper head; changes on {sequences} "
        "of repeated random tokens. Largest loss first; {all}.",
        sequences=count_text(max(feed.sequences for feed in pairs), "sequence"),
        all=Link("all pairs", "data.html#composition"),
    )  # fmt: skip
    return Details(
        "Table: heads taken out of one input of another, with intervals",
        (Table(titles, rows, label="Heads taken out of one input of another"), Text(hint, "hint")),
    )


def _walk(results: StackResults, used: Sequence[Feed]) -> tuple[Drawing, tuple[Sentence, ...]]:
    """Return the picture of the circuit on one text, or on random tokens, and its steps."""
    feed, exemplar = facts.circuit_exemplar(results) or (used[0], None)
    if exemplar is None:
        words = ["…", "token A", "token B", "other tokens", "token A", "token B"]
        query, key = 4, 2
        steps = facts.random_walk(results, feed)
    else:
        words, query, key = _walk_words(results, exemplar)
        steps = facts.walk_steps(results, feed, exemplar)
    arcs = [
        WalkArc(key, key - 1, f"1 {head_name(feed.lower)}", "f-position", above=True),
        WalkArc(query, key, f"2 {head_name(feed.upper)}", "f-repeats", above=False),
        WalkArc(query, query + 1, "3 next token", "f-same_keys", above=True),
    ]
    on = "one text" if exemplar else "repeated random tokens"
    caption = f"The circuit on {on}: arrows run from query to key, the last to the next token."
    marked = key - 1, key, query, query + 1
    return walk_drawing("circuits-walk", caption, words, marked, arcs), steps


def _walk_words(results: StackResults, exemplar: ExemplarRow) -> tuple[list[str], int, int]:
    """Return the tokens around a circuit, with the indices of query and key among them."""
    pieces = rules.exemplar_texts(results)[int(exemplar.row["sentence"])].pieces
    query, key = int(exemplar.row["query"]), int(exemplar.row["key"])
    first = max(0, key - 1 - WALK_BEFORE)
    last = min(len(pieces), query + 2 + WALK_AFTER)
    positions = [*range(first, last)]
    if len(positions) > WALK_SPAN:
        positions = [*range(first, key + 3), -1, *range(query - 2, last)]
    words = ["…" if n < 0 else pieces[n].strip() or pieces[n] for n in positions]
    return words, positions.index(query), positions.index(key)


def _copying_maps(results: Results) -> Iterator[Table]:
    """Yield a map of copying scores for each stack that has them."""
    measured = [r for r in results.values() if r.has_value(*rules.COPYING)]
    for of_stack in measured:
        several = f", {STACKS[of_stack.stack.name]}" if len(measured) > 1 else ""
        yield _copying_map(of_stack, f"Copying score of each head{several}")


def _copying_map(results: StackResults, title: str) -> Table:
    """Return the copying scores of a stack on fills: framed if a head copies, with its role."""
    signs = rules.copying_heads(results)
    roles = {
        head: style
        for key, style in ((rules.PREVIOUS, "dot-previous"), (rules.INDUCTION, "dot-induction"))
        for head in rules.heads_from(results, key)
    }

    def number(head: HeadName) -> Number:
        return results.number(rules.COPYING, head.layer, head.head, unit=rules.CHANGE)

    def fill(head: HeadName, score: Number) -> str:
        frame = {1: "copies", -1: "copies turned", 0: ""}[signs.get(head[1:], 0)]
        step = colour_step(score.value, (-1.0, 1.0))
        return " ".join(filter(None, (f"d{step}", frame, roles.get(head, ""))))

    def more(head: HeadName) -> str:
        note = facts.copying_note(results, head)
        return f"({note})" if note else ""

    return heads_table(results.stack, number, fill, title, more=more)


def _copying_caption(results: Results) -> Caption:
    """Return the definition of the copying score, its scale, and the meaning of frames and dots."""
    meanings = {
        "copies": "outside the 95 % band of permuted types, and a tenth of the types or more are "
        "copied",
        "copies turned": "the same, with the sign turned",
        "dot-previous": "previous-token head",
        "dot-induction": "induction head",
    }
    return Caption((
        say("Copying score: sum of the eigenvalues of the head’s path from a token to the logits "
            "over the sum of their moduli, for {types} token types, each read from the stream "
            "after layer 0. +1: every token raises its own logit.",
            types=study_of(results).circuits.types),
        Steps("−1", ("d0", "d3", "d6", "d10", "d14", "d17", "d20"), "+1"),
        *(say("{mark} {meaning}", mark=Marked("", f"frame-key {style}"), meaning=meaning)
          for style, meaning in meanings.items()),
    ))  # fmt: skip


def _writers(results: Results) -> Iterator[Table]:
    """Yield the heads that promote or suppress the token that they attend to, and others."""
    titles = (
        "Head", "Rank of the token attended to", "First token promoted at each exemplar",
        "First token suppressed", "Strongest exemplar, and what it writes there",
    )  # fmt: skip
    for title, heads in rules.writers_by_group(results).items():
        rows = tuple(_writer(results[head.stack], head) for head in heads)
        if rows:
            yield Table(titles, rows, title, style="numbers wrote ranked")


def _writer(results: StackResults, head: HeadName) -> Row:
    """Return the row of a head: rank of the token attended to, its tokens, and an exemplar."""
    kind = rules.written_tokens(results).get(head[1:])
    role = next(
        (
            say("{name} {score}", name=name, score=score)
            for key, name in ((rules.INDUCTION, "induction"), (rules.PREVIOUS, "previous-token"))
            if (score := number_of(results, key, head)) and score.value >= rules.MIN_SCORE
        ),
        Sentence(),
    )
    return row(
        say("{head}", head=head) + role,
        number_of(results, rules.ATTENDED, head, rules.RANK) or MISSING,
        tokens_sentence(results, head, "promoted", 6),
        tokens_sentence(results, head, "suppressed", 4),
        exemplar_sentence(
            results, head, "suppressed" if kind is Written.SUPPRESSES else "promoted"
        ),
    )


def _writers_caption(results: Results) -> Caption:
    """Return how contributions and ranks are made."""
    return Caption((
        say("Direct contribution to the logits at the query of each head’s strongest exemplars, "
            "minus the head’s own mean. Rank: median over the exemplars of the rank of the "
            "attended token among {vocabulary} tokens; up to {top} from the top: promotes; from "
            "the end: suppresses. Filled: the key; outlined: the query; ␣: a space. {all}, "
            "{exemplars}.",
            vocabulary=study_of(results).circuits.vocabulary, top=rules.TOP,
            all=Link("All tokens", "data.html#promoted_tokens"),
            exemplars=Link("all exemplars", "data.html#exemplar_tokens")),
    ))  # fmt: skip


def _scatter(results: StackResults, pairs: Sequence[Feed]) -> Plot:
    """Return composition against interventions of induction heads."""
    caption = (
        "Each point: a lower head in the keys of an induction head, where the intervention was "
        "made. Blue: previous-token heads. Dashed: mean of random matrices of these shapes."
    )
    previous = rules.heads_from(results, rules.PREVIOUS)
    return pairs_plot("circuits-weights", caption, pairs, previous)


def _measured() -> tuple[Block, ...]:
    """Return the definitions of the page, its sources and its files."""
    return (
        Symbols((
            ("previous-token head", f"gives at least {rules.MIN_SCORE} of its attention on "
             "repeated random tokens to the token before"),
            ("induction head", f"gives at least {rules.MIN_SCORE} of it to what followed the "
             "earlier occurrence of the current token"),
            ("uses", f"its induction score falls by at least {rules.MIN_LOSS}, interval below 0, "
             "when the lower head’s mean output is taken out of its keys alone; other inputs stay"),
            ("copies", "its copying score lies above the band of permuted token types, and a tenth "
             "of the types or more are among their own five highest logits"),
            ("promotes, suppresses", "the token attended to is, in the median exemplar, among the "
             "ten tokens of highest or lowest contribution"),
            ("K-composition", "Frobenius norm of the product of the lower head’s output matrix and "
             "the upper head’s key matrix, over the product of their norms; random: mean of "
             "matrices of these shapes"),
        )),
        Text(say(
            "Sources: Elhage et al. 2021, Olsson et al. 2022, Wang et al. 2022, McDougall et al. "
            "2023. Files: {files}.",
            files=listed((Link(name, f"data.html#{name}") for name in FILES), ", "),
        )),
    )  # fmt: skip
