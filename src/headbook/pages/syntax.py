"""The page of syntax: relations against surface rules, an example, layers, trees."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT
from headbook.analysis.multiple_testing import ALPHA
from headbook.charts.syntax import RelationLine, TreePoint, relation_plot, tree_plot
from headbook.charts.theme import fills_between, points_class
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.blocks import (
    MOST_NARROW,
    Block,
    Caption,
    Columns,
    Details,
    Group,
    Heat,
    Lead,
    Page,
    Steps,
    Symbols,
    Table,
    Text,
    Words,
    blocks,
    by_stack,
    row,
)
from headbook.pages.parts.page import gap_text
from headbook.pages.parts.relations import example_of, examples_of_labels, relation_table
from headbook.report.facts.language import relations as facts
from headbook.report.facts.tested.relations import best_of_layer, relation_test
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import MOST_HALF_WIDTH, RelationTests, tests_of_stack
from headbook.report.relations import arrow_words, best_head_of_relation
from headbook.report.results import StackResults, study_of
from headbook.report.trees import TREES, best_heads_of_layers, plain_trees
from headbook.report.wording import DIRECTIONS, STACKS, count_text, rule_phrase, whole_points
from headbook.results.formats import MISSING, head_name, metric_page, percent
from headbook.results.number import SHARE
from headbook.results.sentence import Link, Marked, Sentence, say
from headbook.schema import HELD_OUT_SPLIT, HeadKey, HeadName, relation_of
from headbook.study.manifest import MissingPart

MOST_ROWS = 16  # relations in the figure, beside those that are claimed and the main ones
MAIN = ("obj", "nsubj")  # relations that readers ask for first, always in the figure
MOST_CELLS = 450  # cells of the tables by layer, of all stacks together
METRICS = (METRIC, ids.RELATION_ACCURACY_FAR, *TREES)
CAPTION = (
    "Share of words whose strongest other word is the right one: best head (dot) and best surface "
    "rule (tick), a rule of word order and word class. Bars are 95 % intervals. Arrows run "
    "from query to key. Hollow and dashed: not clearly above the rule, or perhaps only a "
    "preference for a class of words."
)
OBLIQUE = "An oblique is a noun that belongs to a verb by a preposition or case: sit in the garden."
OBLIQUE_RELATION = "obl"
Results = Mapping[str, StackResults]


def syntax_page(results: Results) -> Page:
    """Return the page of syntax, of all stacks that attend within one text."""
    manifest = study_of(results).manifest
    within = [r for r in results.values() if not r.stack.crosses]
    first = next((r for r in within if r.cached(tests_of_stack)), within[0])
    return Page(
        path="syntax.html",
        title="Which heads follow grammar?",
        topic="Syntax",
        description=f"Which heads of {manifest.model.name} attend along dependency relations more "
        "often than the best surface rule, and trees induced from their attention.",
        answer=first.cached(facts.follows_grammar).text,
        scope=tuple(_scope(first)),
        blocks=by_stack(within, _lead, results),
        closer=by_stack(within, lambda r: _closer(r, MOST_CELLS // len(within)), results),
        measured=_measured(within),
        absent=tuple(dict.fromkeys(text for r in within for text in _absent(r))),
    )


def _scope(results: StackResults) -> Iterator[tuple[str, str]]:
    sample = results.study.corpus_sums.heads[results.stack.name].strongest_words
    if results.cached(tests_of_stack) is None or sample is None:
        return
    reporting = int(sample.half.sum())
    yield (
        "Sentences",
        f"{len(sample.half):,}, with their trees: {len(sample.half) - reporting:,} choose head "
        f"and rule, {reporting:,} confirm; numbers are of all.",
    )
    yield (
        "Compared with",
        "the best surface rule on the same words: a fixed distance, or the next, previous or "
        "nearest word of a class.",
    )


def _absent(results: StackResults) -> Iterator[str]:
    for gap in results.study.manifest.gaps:
        if gap.key == MissingPart.TREE and gap.stack == results.stack.name:
            yield f"{gap_text(gap)}."
    lacking = [metric for metric in METRICS if metric not in results.by_id]
    if lacking:
        titles = ", ".join(all_metrics()[metric].title for metric in lacking)
        yield f"{titles}: measured with --metrics {','.join(lacking)}."


def _lead(results: StackResults) -> Iterator[Block]:
    tests = results.cached(tests_of_stack)
    if tests is None or not tests.labels:
        return
    drawn = _drawn(tests)
    examples = examples_of_labels(results)
    lines = [_line(results, tests, n, examples) for n in drawn]
    left_out = len(tests.labels) - len(drawn)
    number = count_text(left_out, "relation", "relations and directions")
    undecided = " Undecided: too few words to decide." if tests.undecided[drawn].any() else ""
    below = f" Not drawn: {number} farther below the rule." if left_out else ""
    oblique = any(relation_of(tests.labels[n])[0] == OBLIQUE_RELATION for n in drawn)
    terms = f" {OBLIQUE}" if oblique else ""
    caption = f"{CAPTION}{undecided}{below}{terms}"
    yield Lead(relation_plot(f"syntax-{results.stack.name}", caption, lines))


def _drawn(tests: RelationTests) -> list[int]:
    """Return the labels of the figure: claimed ones first, each part by margin over the rule."""
    order = np.argsort(-tests.scores.margin.value, kind="stable").tolist()
    claimed = [n for n in order if tests.claimed[n]]
    others = [n for n in order if not tests.claimed[n]]
    main = [n for n in others[MOST_ROWS:] if relation_of(tests.labels[n])[0] in MAIN]
    return [*claimed, *others[:MOST_ROWS], *main]


def _line(
    results: StackResults, tests: RelationTests, n: int, examples: Mapping[str, tuple[str, str]]
) -> RelationLine:
    label, head = tests.labels[n], best_head_of_relation(tests, n, results.stack.name)
    tested = relation_test(results, tests, n)
    accuracy, rule = tested.number(SHARE), tested.baseline_number(SHARE)
    p = relation_test(results, tests, n, HELD_OUT_SPLIT).p_number
    words = (
        f"{head_name(head)}, {arrow_words(label)} ({relation_of(label)[0]}): "
        f"{accuracy.as_text('interval')} of {count_text(round(accuracy.observations), 'word')}; "
        f"best surface rule ({rule_phrase(tests.rule[n])}): {rule.as_text()}"
    )
    points = f"{whole_points(tested.difference.value)} points"
    undecided = bool(tests.undecided[n])
    return RelationLine(
        name=arrow_words(label),
        example=" → ".join(examples.get(label, ())),
        head=head_name(head),
        accuracy=accuracy,
        rule=rule,
        against=f"against {rule_phrase(tests.rule[n])}",
        points=points,
        undecided=undecided,
        supported=bool(tests.claimed[n]),
        label=f"{words}; p = {p.as_text()} family-wise" if p.known else words,
    )


def _closer(results: StackResults, most_cells: int) -> tuple[Block, ...]:
    tests = results.cached(tests_of_stack)
    if tests is None or not tests.labels:
        return blocks(_trees(results))
    n = len(tests.labels)
    title = f"All numbers of {count_text(n, 'relation', 'relations and directions')}"
    numbers = Details(title, (relation_table(results, tests),), "tests")
    return blocks(
        example_of(results, tests),
        _layers(results, tests, most_cells),
        _trees(results),
        Group((numbers,), id=f"numbers-{results.stack.name}", link="all numbers"),
    )


def _layers(results: StackResults, tests: RelationTests, most_cells: int) -> Group:
    """Return the best head of each layer for the relations with the largest margins."""
    layers = results.stack.attention_layers
    best = np.nanmax(tests.layer_margin.value, axis=0)
    order = np.argsort(-best, kind="stable").tolist()
    listed = order[: max(1, most_cells // len(layers))]
    tables = tuple(_margins(results, tests, listed))
    left_out = len(order) - len(listed)
    more = say(
        "{n} more relations and directions: {link}.", n=left_out,
        link=Link("tests", "data.html#tests"),
    )  # fmt: skip
    framed = "Framed: p < {alpha} family-wise: allowing for all heads, relations and directions."
    parts: list[Words | Steps] = [
        *margin_legend(tests.layer_margin.value[:, listed]),
        *([framed.format(alpha=ALPHA)] if tests.layer_supported[:, listed].any() else []),
        *([more] if left_out else []),
    ]
    columns = Columns(tables, 1 if len(layers) > MOST_NARROW else 2)
    return Group(
        (columns, Caption(tuple(parts))),
        "Layer by layer: the best head of each, against the best surface rule",
        id=f"layers-{results.stack.name}", link="layer by layer", folded=True,
    )  # fmt: skip


def _margins(results: StackResults, tests: RelationTests, listed: Sequence[int]) -> Iterator[Table]:
    layers = results.stack.attention_layers
    for direction, title in DIRECTIONS.items():
        rows = tuple(
            row(
                say("{name} {relation}", name=arrow_words(tests.labels[n]),
                    relation=Marked(relation_of(tests.labels[n])[0], "small")),
                *(_margin(results, tests, n, layer) for layer in layers),
            )
            for n in listed
            if relation_of(tests.labels[n])[1] == direction
        )  # fmt: skip
        if rows:
            yield Table(
                row("from → to", *layers), rows, f"From {title.replace(' → ', ' to ')}",
                "best head of a layer, points over the best surface rule", "heat margins",
            )  # fmt: skip


def _margin(results: StackResults, tests: RelationTests, n: int, layer: int) -> Heat:
    tested = best_of_layer(results, tests, n, layer)
    if tested is None:
        return Heat(MISSING, "q0")
    margin = tested.change(share=True)
    fill = points_class(100 * margin.value) + " top1" * bool(tests.layer_supported[layer, n])
    head = HeadName(results.stack.name, layer, int(tests.layer_head[layer, n]))
    number = say("{margin:.0f} {head}", margin=margin, head=Marked(f"H{head.head}", "small"))
    return Heat(number, fill, f"{head_name(head)}: {margin.as_text('interval')}")


def margin_legend(margins: NDArray[np.float64]) -> Iterator[Steps]:
    """Yield the fills from that of the smallest difference to that of the largest, if any."""
    if np.isnan(margins).all():
        return
    low, high = float(np.nanmin(margins)), float(np.nanmax(margins))
    fills = fills_between(points_class(100 * low), points_class(100 * high))
    yield Steps(whole_points(low), fills, f"{whole_points(high)} points")


BEST_BINARY = "best binary tree"  # the highest score that trees of two branches can reach
TREE_TITLES = {
    ids.DEPENDENCY_TREES: (
        "Dependency trees from the best head of each layer",
        "undirected unlabelled attachment score (UUAS): share of words linked to a word that they "
        "depend on, or that depends on them",
    ),
    ids.PHRASE_TREES: (
        "Phrase trees from all heads of a layer together",
        "agreement of phrases (bracket F1; 100 %: all the same)",
    ),
}


def _trees(results: StackResults) -> Iterator[Group]:
    figures = tuple(_tree_figures(results))
    if figures:
        aligned = results.cached(facts.aligned_head).text
        content = blocks(Columns(figures), Text(aligned) if aligned else None)
        yield Group(content, id=f"trees-{results.stack.name}", link="trees")


def _tree_figures(results: StackResults) -> Iterator[Group]:
    for metric, (title, score) in TREE_TITLES.items():
        if not results.has_value(metric, VIEW, TREES[metric].own):
            continue
        plain = plain_trees(results, metric)
        points = [*_tree_points(results, metric)]
        if np.isnan(plain[0].score.value) or not points:
            continue
        baselines = [(plain[0].score.value, plain[0].name.removesuffix(" trees"))]
        if TREES[metric].ceiling:
            best = results.heads(metric, VIEW, TREES[metric].ceiling)
            baselines.append((best.at(points[0].layer, 0).value, BEST_BINARY))
        others = [f"{tree.name} {percent(tree.score.value)}" for tree in plain[1:]]
        beaten = "every tree without attention" if others else plain[0].name
        note = f"Filled: on the half that did not choose the head, above {beaten}" + (
            f"; {' and '.join(others)} are not drawn." if others else "."
        )
        name = f"syntax-{results.stack.name}-{metric.replace('_', '-')}"
        plot = tree_plot(name, f"{title}: {score}. {note}", points, baselines)
        yield Group((Lead(plot, note),), title, score)


def _tree_points(results: StackResults, metric: str) -> Iterator[TreePoint]:
    """Yield the score of each layer: of all heads together, else of the best head.

    A point is filled if the held-out interval lies above every tree without attention.
    """
    labels, best = TREES[metric], best_heads_of_layers(results, metric)
    key = HeadKey(metric, VIEW, labels.joint or labels.own)
    limit = max(tree.limit for tree in plain_trees(results, metric, HELD_OUT))
    held_out = results.split(HELD_OUT, *key)
    for layer in results.stack.attention_layers:
        head = 0 if labels.joint else best.get(layer)
        if head is None:
            continue
        score = results.number(key, layer, None if labels.joint else head)
        if not score.known:
            continue
        name = f"L{layer}" if labels.joint else f"L{layer}·H{head}"
        words = f"layer {layer}" if labels.joint else head_name(
            HeadName(results.stack.name, layer, head)
        )  # fmt: skip
        above = bool(held_out.low[layer, head] > limit)
        yield TreePoint(layer, name, score, above, f"{words}: {score.as_text('interval')}")


SYMBOLS = (
    ("dependent → head", "share of the words with a relation whose strongest other word is their "
     "syntactic head; special tokens masked, subword tokens of a word summed as keys, averaged as "
     "queries"),
    ("head → dependent", "share of these words that are the strongest other word of their "
     "syntactic head"),
    ("best surface rule", "the rule that is right for most of the words on the half that chooses, "
     "among: the word one to five before or after; the next, the previous and the nearest word of "
     "each part of speech, of content words, of nouns and pronouns, of verbs and auxiliaries, of "
     "verbs, adjectives and nouns; the next noun, or the last if several nouns follow each other"),
    ("supported", f"p below {ALPHA} family-wise, and the strongest word is of the right part of "
     "speech more often than for other words of the same part of speech outside the relation"),
    ("undecided", "too few words to decide: not supported, and the interval of the difference "
     f"reaches above 0 with ends farther than {100 * MOST_HALF_WIDTH:.0f} points from its "
     "middle"),
    ("p family-wise", "how often the largest difference of all heads, relations and directions is "
     "as large when the signs of the sentences’ differences are random, 2,000 times; the test says "
     "that a head beats a rule on these sentences, not what the model does with it"),
)  # fmt: skip


def _measured(within: Sequence[StackResults]) -> tuple[Block, ...]:
    tested = [(r, tests) for r in within if (tests := r.cached(tests_of_stack)) and tests.labels]
    examples = (
        facts.worked_example(r, tests, int(tests.scores.margin.value.argmax()))
        for r, tests in tested
    )
    trees = say(
        "Trees: the heaviest tree over the words by attention ({dependency}), or phrases of words "
        "with the same strongest word ({phrase}). The best head of a layer is chosen on one half "
        "of the sentences; its number is that of all.",
        dependency=Link("dependency trees", metric_page(ids.DEPENDENCY_TREES)),
        phrase=Link("phrase trees", metric_page(ids.PHRASE_TREES)),
    )
    return blocks(
        Symbols(SYMBOLS) if tested else None,
        [Text(example, "eg") for example in examples],
        [Text(text) for r in within for text in _untested(r, several=len(within) > 1)],
        Text(trees) if any(any(_trees(r)) for r in within) else None,
        _split_words(within[0]),
    )


def _untested(results: StackResults, *, several: bool) -> Iterator[Sentence]:
    """Yield the relations that were not tested, by the reason."""
    found = facts.untested(results)
    where = f" in {STACKS[results.stack.name]}" if several else ""
    if found.seldom:
        yield say(
            f"Not tested{where}, with too few sentences: {', '.join(found.seldom)} ({{link}} has "
            "all).",
            link=Link("relation accuracy", metric_page(METRIC)),
        )  # fmt: skip
    if found.masked:
        labels = ", ".join(map(arrow_words, found.masked))
        yield say(
            f"Not tested{where}, since the causal mask forbids it: a query sees no word that "
            f"follows, and here the key follows in most cases: {labels}."
        )


def _split_words(results: StackResults) -> Text | None:
    """Return how many words have several tokens, with a link to attention inside words."""
    manifest, side = results.study.manifest, results.stack.queries
    words, split = manifest.count(side, "words"), manifest.count(side, "split_words")
    if not words:
        return None
    text = "Of {words} words {split} are split into several tokens"
    inside = Link("attention inside words", metric_page(ids.ATTENTION_TO))
    text += "; {inside}." if ids.ATTENTION_TO in results.by_id else "."
    return Text(say(text, words=words, split=split, inside=inside))
