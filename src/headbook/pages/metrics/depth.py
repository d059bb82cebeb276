"""The page on depth: how attention changes from the first layers to the last."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headbook.analysis.depth import third_of
from headbook.charts.heads import ScatterAxis, scatter_plot
from headbook.charts.plots import Plot
from headbook.pages.metrics.figures import curve_plot
from headbook.pages.parts.blocks import (
    Block,
    Caption,
    Columns,
    Group,
    Lead,
    Page,
    Question,
    Row,
    Symbols,
    Table,
    Text,
    blocks,
    by_stack,
    figure_name,
    row,
)
from headbook.report.facts import depth as facts
from headbook.report.facts import words
from headbook.report.head_numbers import HeadMetricNumbers
from headbook.report.leaders import layer_leaders
from headbook.report.results import StackResults, study_of
from headbook.report.wording import VIEWS, count_text, label_name
from headbook.results.formats import metric_page, number
from headbook.results.number import Number, unit_of
from headbook.results.sentence import Link, Sentence, listed, say
from headbook.schema import HeadKey, HeadName, heads_of
from headbook.study.sums.buckets import MAX_BUCKETS

NAMES = {  # numbers of the page, with the end of its questions
    facts.DISTANCE: ("distance", "Do deeper layers attend farther?"),
    facts.ENTROPY: ("entropy", "Do deeper layers spread attention more evenly?"),
    facts.VARIABILITY: (
        facts.VARIABILITY.metric,
        "Do deeper layers follow content rather than position?",
    ),
    facts.SINK: ("sink", "Do deeper layers attend more to the sink?"),
    facts.ALIGNMENT: ("alignment", "Do deeper layers follow dependencies more?"),
}
MAX_SCATTERED = 2000  # heads of a scatter plot, to keep pages small
Results = Mapping[str, StackResults]


def has_depth(results: Results) -> bool:
    """Return whether any stack has a number that can be compared between layers."""
    return any(_drawn(r) for r in results.values())


def _drawn(results: StackResults) -> list[HeadKey]:
    """Return the numbers that have a question and a curve."""
    return [key for key in facts.quantities(results) if key in NAMES]


def depth_page(results: Results) -> Page:
    """Return the page of depth; the first stack that has numbers answers."""
    stacks = [r for r in results.values() if _drawn(r)]
    first = stacks[0]
    key, *_ = _drawn(first)
    return Page(
        path="depth.html",
        topic="Depth",
        title=NAMES[key][1],
        description=f"Attention of {study_of(results).manifest.model.name} from the first layers "
        "to the last: distance, entropy, variability, sink, dependencies, parts of speech.",
        answer=facts.by_depth(first, key).text,
        scope=_scope(first),
        blocks=blocks(_lead(first, key), _side_by_side(first), _questions(first, key)),
        closer=by_stack(stacks[1:], _of_stack, results) if len(stacks) > 1 else (),
        measured=_measured(),
    )


def _scope(results: StackResults) -> tuple[tuple[str, str], ...]:
    manifest = results.study.manifest
    texts = count_text(manifest.counts["sentences"], manifest.text_noun)
    layers = results.stack.attention_layers
    third = count_text(third_of(len(layers)), "layer")
    return (
        ("Measured on", f"{texts}; {count_text(len(layers), 'layer')}, of which a third is "
         f"{third}, each layer counting alike"),
        ("Compared with", f"uniform attention; thirds and layers with each other, paired by "
         f"{manifest.text_noun}"),
    )  # fmt: skip


def _lead(results: StackResults, key: HeadKey) -> Iterator[Block]:
    """Yield the curve of a number with the layers that lead."""
    if leading := facts.leading_layer(results, key).text:
        yield Text(leading, "evidence")
    yield Lead(_curve(results, key))


def _curve(results: StackResults, key: HeadKey) -> Plot:
    """Return a number by layer with interval, uniform attention and baselines."""
    numbers = HeadMetricNumbers(results, results.by_id[key.metric], key.view, key.label)
    return replace(curve_plot(numbers), name=figure_name(results, "depth", NAMES[key][0]))


def _name(results: StackResults, key: HeadKey) -> Sentence:
    """Return the title of a metric as a link, with its view."""
    link = Link(results.by_id[key.metric].title, metric_page(key.metric))
    label = f" ({label_name(key.label)})" if key.label else ""
    return say("{link}{label}, {view}", link=link, label=label, view=VIEWS[key.view])


def _thirds(results: StackResults, key: HeadKey, change: facts.DepthChange) -> Row:
    """Return the cells of a change: both thirds, the change, and that without few sentences."""
    unit = unit_of(results.by_id[key.metric])
    value, tested = change.all.value.value, change.all
    first, last = (Number(v, unit, tested.row) for v in (tested.baseline_value, value))
    without = change.without and facts.number_of_change(results, change.without)
    return row(
        first.printed(""), last.printed(""),
        facts.number_of_change(results, tested), without or None,
    )  # fmt: skip


THIRDS = ("first third", "last third", "last minus first", "without few sentences")


def _side_by_side(results: StackResults) -> Table:
    """Return the table of all numbers of the page, with the layers that lead."""
    rows = []
    for key in facts.quantities(results):
        change = facts.change_of(results, key)
        assert change is not None
        ends = [_end(results, key, lowest=lowest) for lowest in (False, True)]
        rows.append(row(_name(results, key), *_thirds(results, key, change), *ends))
    return Table(
        ("number", *THIRDS, "most in", "least in"), tuple(rows), "All numbers side by side",
        "means of layers; 95 % intervals, sentences drawn",
    )  # fmt: skip


def _end(results: StackResults, key: HeadKey, *, lowest: bool) -> Sentence | None:
    """Return the layers of the largest or smallest number that a test does not tell apart."""
    leaders = layer_leaders(results, key, lowest=lowest)
    if leaders is None or leaders.none_differs:
        return None
    (layer,) = leaders.first
    alike = len(leaders.places) - 1
    note = f" or {count_text(alike, 'other')}" if alike else ""
    return say("L{layer}{note}, {n}", layer=layer, note=note, n=results.number(key, layer))


def _questions(results: StackResults, first: HeadKey) -> Iterator[Question]:
    """Yield a question for each further number, for parts of speech, and for heads."""
    for key in _drawn(results):
        if key != first:
            name, title = NAMES[key]
            answer, content = facts.by_depth(results, key).text, blocks(_lead(results, key))
            if key == facts.ALIGNMENT:
                beyond = facts.by_depth(results, facts.BEYOND_DISTANCE).text
                content = blocks(Text(beyond, "evidence") if beyond else None, content)
            yield Question(name, title, answer, content, "by layer deeper layers")
    for name, fact, table in (
        ("received", facts.received_by_depth, _received),
        ("given", facts.given_by_depth, _given),
    ):
        of_tags = results.cached(fact)
        if of_tags.text:
            title = f"Which words {'receive' if name == 'received' else 'give'} more, which less?"
            yield Question(name, title, of_tags.text, (table(results),), "parts of speech by layer")
    correlations = [*facts.head_correlations(results)]
    if correlations and len(heads_of(results.stack)) <= MAX_SCATTERED:
        scatters = Columns(tuple(Lead(_scatter(results, each.other)) for each in correlations))
        yield Question(
            "heads", "Do heads that attend far attend evenly?", _correlated(correlations),
            blocks(_correlations(correlations), scatters), "correlation scatter of heads",
        )  # fmt: skip


def _received(results: StackResults) -> Table:
    return _tags(results, facts.received_keys(results), "Attention received")


def _given(results: StackResults) -> Table:
    return _tags(results, facts.given_keys(results), "Attention given")


def _tags(results: StackResults, keys: Sequence[HeadKey], title: str) -> Table:
    """Return the change of each part of speech; those without a clear one step back."""
    made = facts.tag_changes(results, keys)
    rows = tuple(
        row(words.tag_name(key.label), *_thirds(results, key, change))
        for key, change in made.items()
    )
    grey = frozenset(i for i, change in enumerate(made.values()) if not change.holds)
    note = f"share of attention, {VIEWS[keys[0].view]}; grey: no clear change, tested together"
    return Table(("words", *THIRDS), rows, title, note, grey=grey)


def _correlated(correlations: Sequence[facts.HeadCorrelation]) -> Sentence:
    """Return the correlations as a sentence."""
    names = {facts.ENTROPY: "entropy", facts.ALIGNMENT: "dependency alignment"}
    parts = [
        say("with {name} {n:interval}", name=names[each.other], n=each.number)
        for each in correlations
    ]
    return say("Over heads, distance correlates {parts}.", parts=listed(parts))


def _correlations(correlations: Sequence[facts.HeadCorrelation]) -> Table:
    """Return the correlations beside the published ones."""
    rows = tuple(
        row(f"distance and {NAMES[each.other][0]}", each.number,
            number(facts.PUBLISHED[each.other]).replace("-", "−"))
        for each in correlations
    )  # fmt: skip
    note = "sink masked, rows of entropies renormalised; sentences drawn with replacement"
    columns = ("Pearson’s correlation over heads", "here", "GPT-2 small, Vig & Belinkov (2019)")
    return Table(columns, rows, "Beside the published correlations", note)


def _scatter(results: StackResults, other: HeadKey) -> Plot:
    """Draw distance against another number of every head."""
    keys = facts.MASKED_DISTANCE, other
    known = [~np.isnan(results.heads(*key).value) for key in keys]
    heads = [h for h in heads_of(results.stack) if all(k[h.layer, h.head] for k in known)]
    across, up = (_axis(results, key, heads) for key in keys)
    caption = (
        f"Heads by {across.title}, {VIEWS[keys[0].view]}, and {up.title}, {VIEWS[other.view]}. "
        "Each point is a head; ring: uniform attention."
    )
    name = figure_name(results, "depth", f"heads-{NAMES[other][0]}")
    return scatter_plot(name, caption, heads, across, up)


def _axis(results: StackResults, key: HeadKey, heads: Sequence[HeadName]) -> ScatterAxis:
    metric, layer = results.by_id[key.metric], results.stack.attention_layers[0]
    unit = "%" if metric.is_share else metric.unit
    numbers = [results.number(key, head.layer, head.head) for head in heads]
    uniform = float(results.uniform(*key).value[layer])
    factor = 100.0 if metric.is_share else 1.0
    return ScatterAxis(f"{metric.title.lower()} ({unit})", numbers, uniform, factor)


def _of_stack(results: StackResults) -> Iterator[Block]:
    """Yield what a further stack of the model shows."""
    yield Group(blocks(_side_by_side(results)), id=f"depth-{results.stack.name}")
    for key in _drawn(results):
        yield Text(facts.by_depth(results, key).text)
        yield from _lead(results, key)


def _measured() -> tuple[Block, ...]:
    symbols = Symbols((
        ("last minus first", "mean of the numbers of the last third of the layers minus that of "
         "the first third; p by a bootstrap-t, of parts of speech family-wise"),
        ("without few sentences", "if at most five sentences hold more than a third of a "
         "numerator, claims rest on the number without them; a corpus of many sentences keeps "
         f"sums of up to {MAX_BUCKETS} hash buckets, of which at most five with at most 5 % of the "
         "sentences count"),
        ("most in, least in", "layers that a paired test does not tell from the first one, on all "
         "sentences and without the few"),
        ("correlation", "over heads; sentences are drawn with replacement, and both numbers of "
         "every head are computed again in each draw"),
    ))  # fmt: skip
    source = Caption(("After Vig & Belinkov (2019, arXiv:1906.04284), section 5.",))
    return (symbols, source)
