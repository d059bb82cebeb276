"""Facts about how words travel: from their embedding through the layers, and the space of states.

Numbers of token metrics are means over the tokens of a class, in the table `words`; numbers of the
space of states are in the table `geometry`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from headbook.analysis.accumulators import Estimates, without_interval
from headbook.metrics import all_metrics, ids
from headbook.report.facts.states.outliers import dimension_names, outliers
from headbook.report.leaders import Leaders, token_leaders
from headbook.report.results import StackResults
from headbook.report.token_neighbours import (
    WORD_CLASS_NAMES,
    WORD_CLASSES,
    hubs,
    own_tokens,
)
from headbook.report.wording import capital, count_text, visible
from headbook.results.fact import Fact, Tested
from headbook.results.formats import number, word_list
from headbook.results.number import PLAIN, SHARE, Number, RowAddress, Unit
from headbook.results.sentence import Sentence, listed, say
from headbook.schema import (
    NO_OUTLIERS,
    SPECIAL_ROLES,
    EmbeddingSpace,
    ResidualPoint,
    TokenKey,
)
from headbook.study.sums.state_geometry import GeometrySums, StateColumn

COSINE, KEPT, RANK = ids.COSINE_TO_INPUT, ids.NEIGHBOUR_OVERLAP, ids.VOCABULARY_RANK
ANOTHER = ids.NEIGHBOUR_OVERLAP_RANDOM
MIXING, HALF, MEASURED = ids.MIXING_RATIO, ids.ROLLOUT_SELF, ids.ROLLOUT_SELF_MEASURED
STATES = {MIXING: ResidualPoint.MID}  # of a metric; after the layer for all others
# Embedding spaces of a metric; the first that exists counts.
SPACES = dict.fromkeys((RANK, KEPT, ANOTHER), (*EmbeddingSpace,))
LABELS = {"punctuation": "PUNCT"}  # names in tables of classes of tokens
OWN_NEAREST = "nearest to own vocabulary token"  # claim
HUB = "vocabulary token among the ten nearest"  # claim
MAX_NAMED_HUBS = 5  # hubs by name
MOST_REPLACED = "layer that keeps fewest neighbours"  # claim
# Shares from which on most, some, and few tokens do; from `FEW` down hardly any.
MOST, SOME, FEW = 0.75, 0.25, 0.1
DOMINANT = 1 / 4  # share of the mean cosine from which on a dimension makes tokens alike
ANY_TWO = StateColumn(ids.ANISOTROPY, "raw")
LARGEST = StateColumn(ids.OUTLIER_DIMENSIONS, "largest")
NEAR = 0.9  # cosine from which on states stay near their embedding
NEAREST = math.log10(2)  # mean of log10(1 + rank) below which less than one token is nearer
# A mean of log10(1 + rank), written as a geometric mean of ranks.
RANKS = Unit("", lambda value: number(10**value - 1))
UNITS = {COSINE: PLAIN, RANK: RANKS}  # of a metric; per cent of all others


def is_measured(results: StackResults) -> bool:
    """Check whether a study has states of a stack, or numbers on what attention adds to them."""
    if results.stack.crosses:  # states after cross-attention are those of the decoder
        return False
    metrics = (COSINE, RANK, KEPT, MIXING, HALF, MEASURED)
    return results.stack.name in results.study.corpus_sums.geometry or any(
        token_key(results, metric, "all") for metric in metrics
    )


def token_key(
    results: StackResults, metric: str, kind: str, state: ResidualPoint | None = None
) -> TokenKey | None:
    """Return the key of the averages of a metric over a class of tokens; None if not measured.

    Args:
        kind: class of words as in `WORD_CLASS_NAMES`, or a part of speech.
        state: state of tokens; by default that of pages.
    """
    state = state or STATES.get(metric, ResidualPoint.POST)
    for space in SPACES.get(metric, (None,)):
        key = TokenKey(metric, state, space, LABELS.get(kind, kind))
        if results.tokens(*key) is not None:
            return key
    return None


def token_numbers(
    results: StackResults, metric: str, kind: str, state: ResidualPoint | None = None
) -> list[Number]:
    """Return the averages of a metric over a class of tokens by layer; empty if not measured."""
    key = token_key(results, metric, kind, state)
    estimates = results.tokens(*key) if key else None
    if key is None or estimates is None:
        return []
    row: tuple[tuple[str, str | int], ...] = (
        ("stack", results.stack.name), ("metric", metric), ("class", key.label),
        ("state", str(key.state)), ("space", str(key.space or "")),
    )  # fmt: skip
    unit = UNITS.get(metric, SHARE)
    return [
        Number.of(estimates.at(layer), unit, RowAddress("words", (*row, ("layer", layer))))
        for layer in range(results.stack.n_layers)
    ]


def without_outliers(
    results: StackResults, metric: str, layers: Sequence[int]
) -> list[Number] | None:
    """Return the averages of a metric without outlier dimensions, by layer.

    Args:
        layers: layers that a finding rests on.

    Returns:
        None if they are not measured or if none of the layers has an outlier dimension: a finding
        then rests on all dimensions.
    """
    numbers = token_numbers(results, metric, NO_OUTLIERS)
    known = bool(numbers) and all(numbers[layer].known for layer in layers)
    return numbers if known and outliers(results, layers) else None


def numbers_by_class(results: StackResults, metric: str) -> dict[str, list[Number]]:
    """Return the averages of a metric by class of tokens, for the classes that figures draw."""
    by_class = {kind: token_numbers(results, metric, kind) for kind in word_classes(results)}
    return {kind: numbers for kind, numbers in by_class.items() if numbers}


def space_number(results: StackResults, column: StateColumn, state: int) -> Number | None:
    """Return a number of a state from the table `geometry`; None if it was not measured.

    Args:
        state: place among the states, 0 for the input of layer 0.
    """
    sums = results.study.corpus_sums.geometry.get(results.stack.name)
    if sums is None or column not in sums.columns:
        return None
    row = state_row(results.stack.name, state, column)
    return Number.of(state_estimates(sums, column).at(state), PLAIN, row)


def state_estimates(sums: GeometrySums, column: StateColumn) -> Estimates:
    """Return a number of every state; NaN if it was not measured."""
    metric = all_metrics()[column.metric]
    return Estimates.of(sums.of(*column), metric.limits, metric.spread(column.label))


def state_row(stack: str, state: int, column: StateColumn) -> RowAddress:
    """Return the row of a number of a state in the table `geometry`."""
    place = ("layer", state - 1) if state else ("state", str(ResidualPoint.PRE))
    key = (("stack", stack), place, ("metric", column.metric), ("label", column.label))
    return RowAddress("geometry", key)


def few_dimensions(results: StackResults) -> Fact:
    """Return whether one dimension gives a quarter of the mean cosine of two tokens in any state.

    If the mean cosine may be 0, the share of one dimension means nothing.
    """
    sums = results.study.corpus_sums.geometry[results.stack.name]
    whole, largest = (state_estimates(sums, column).value for column in (ANY_TWO, LARGEST))
    positive = sums.above(*ANY_TWO)
    holds = bool((largest[positive] >= DOMINANT * whole[positive]).any())
    clear, unclear = "Few dimensions make tokens alike", "Which dimensions make tokens alike"
    return Fact("few_dimensions", say(clear if holds else unclear), holds=holds)


def word_classes(results: StackResults) -> tuple[str, ...]:
    """Return the classes that figures draw: without annotation all tokens and special ones."""
    annotated = (
        any(
            token_key(results, metric, kind)
            for metric in (COSINE, KEPT, MIXING)
            for kind in ("content", "function")
        )
        or {"content", "function"} & _own_shares(results).keys()
    )
    return WORD_CLASSES if annotated else ("all", *SPECIAL_ROLES)


def _own_shares(results: StackResults) -> Mapping[str, Estimates]:
    tokens = own_tokens(results)
    return tokens.shares if tokens else {}


def own_nearest(results: StackResults) -> Fact:
    """Return the share of each class of tokens nearest to its own vocabulary token, by layer."""
    evidence = tuple(
        Tested(OWN_NEAREST, results.stack.name, RANK, "", kind, shares.at(layer), layer)
        for kind, shares in _own_shares(results).items()
        for layer in range(len(shares.value))
    )
    return Fact("own_nearest", evidence=evidence, holds=bool(evidence))


def own_numbers(results: StackResults, kind: str) -> list[Number]:
    """Return the share of a class nearest to its own vocabulary token, by layer; empty if none."""
    evidence = results.cached(own_nearest).evidence
    return [tested.number(SHARE) for tested in evidence if tested.label == kind]


def how_many(share: float) -> str:
    """Return a share in words."""
    names = ("Most", MOST), ("Some", SOME), ("Few", FEW)
    return next((name for name, least in names if share >= least), "Hardly any")


def identity(results: StackResults) -> Fact:
    """Return whether words keep their identity, by the state after all layers."""
    shares = _own_shares(results)
    kind = "content" if "content" in shares else "all"
    numbers = own_numbers(results, kind)
    if not numbers or not numbers[-1].known:
        return _identity_without_ranks(results)
    below = [
        name
        for name in ("function", "punctuation")
        if kind == "content" and name in shares and shares[name].high[-1] < numbers[-1].low
    ]
    words = word_list([WORD_CLASS_NAMES[name] for name in below]) if below else ""
    share, decided = numbers[-1], nearest_by_outliers(results)
    holds = share.value >= MOST and not decided
    clear = holds and "function" in below
    often = "often are not" if all(shares[n].value[-1] < MOST for n in below) else "less often"
    text = say(
        "{Words} do: after the last layer, {share:whole} are still nearest to their own vocabulary "
        "token; {others} {often}."
        if clear
        else "{verdict} do: after the last layer, {share:whole} of {words} are still nearest to "
        "their own vocabulary token{ending}.",
        Words=capital(WORD_CLASS_NAMES[kind]), verdict=how_many(share.value), share=share,
        words=WORD_CLASS_NAMES[kind], others=words, often=often,
        ending=f"; decided by {dimension_names(decided)}" if decided
        else f"; {words} less often" if words else "",
    )  # fmt: skip
    return Fact("identity", text, holds=holds)


def _identity_without_ranks(results: StackResults) -> Fact:
    """Return a fact on the best of the other measures that a study has."""
    kind = "content" if token_key(results, COSINE, "content") else "all"
    rollout = "by attention rollout, {n:whole} of a last state is its own input."
    for metric, words in (
        (COSINE, "after the last layer, {kind} have a cosine of {n} to their embedding."),
        (MEASURED, rollout),
        (HALF, rollout),
        (MIXING, "other tokens give {n:whole} of the last attention block’s output."),
    ):
        numbers = token_numbers(results, metric, kind if metric == COSINE else "all")
        if numbers and numbers[-1].known:
            start = "Vocabulary tokens were not compared; "
            text = say(start + words, kind=WORD_CLASS_NAMES[kind], n=numbers[-1])
            return Fact("identity", text, holds=False)
    text = say("Not known here: only how similar the states of tokens are to each other.")
    return Fact("identity", text, holds=False)


def leaves_embedding(results: StackResults) -> Fact:
    """Return whether states leave their embedding: their cosine after all layers is below `NEAR`.

    The interval counts, over all tokens of text. The fact holds only if the cosine without outlier
    dimensions is below `NEAR`, too.
    """
    numbers = token_numbers(results, COSINE, "all")
    if not numbers or math.isnan(numbers[-1].high):
        return Fact("leaves_embedding", say("How near they stay to their embedding"), holds=False)
    last = len(numbers) - 1
    without = without_outliers(results, COSINE, [last])
    leave = numbers[-1].high < NEAR
    agrees = without is None or (without[-1].high < NEAR) == leave
    decided = "" if agrees else f", decided by {dimension_names(outliers(results, [last]))}"
    words = "They leave their embedding" if leave else "They stay near their embedding"
    return Fact("leaves_embedding", say(words + decided), holds=leave and agrees)


def stays_nearest(results: StackResults) -> Fact:
    """Return how many tokens of text are nearest to their own vocabulary token in the end.

    The fact holds if they are most, and if the geometric mean of nearer vocabulary tokens lies on
    the same side of 1 with outlier dimensions and without.
    """
    numbers = own_numbers(results, "all")
    if not numbers or not numbers[-1].known:
        return Fact("stays_nearest", say("How many are nearest to themselves"), holds=False)
    many, decided = how_many(numbers[-1].value), nearest_by_outliers(results)
    ending = f", decided by {dimension_names(decided)}" if decided else ""
    text = say(f"{many} are nearest to themselves{ending}")
    return Fact("stays_nearest", text, holds=numbers[-1].value >= MOST and not decided)


def nearest_by_outliers(results: StackResults) -> tuple[int, ...]:
    """Return the outlier dimensions that decide whether last states are nearest to themselves.

    Shares without outlier dimensions are not measured, so that mean ranks are compared.
    """
    ranks, last = token_numbers(results, RANK, "all"), results.stack.n_layers - 1
    without = without_outliers(results, RANK, [last])
    if without is None or not ranks or not ranks[-1].known:
        return ()
    is_decided = (ranks[-1].value < NEAREST) != (without[-1].value < NEAREST)
    return outliers(results, [last]) if is_decided else ()


def most_replaced(results: StackResults) -> Fact:
    """Return the layer that keeps the fewest neighbours, tested against all other layers.

    The test is paired by sentence, on all tokens of text. The fact holds if the layer leads alone,
    also without outlier dimensions.
    """
    key, numbers = token_key(results, KEPT, "all"), token_numbers(results, KEPT, "all")
    leaders = token_leaders(results, key, lowest=True) if key else None
    if leaders is None or len(numbers) < 2:
        return Fact("most_replaced", say("How many neighbours stay"), holds=False)
    (layer,) = leaders.first
    evidence = [_replaced_row(results, "all", leaders)]
    agrees, without = True, token_key(results, KEPT, NO_OUTLIERS)
    if without and without_outliers(results, KEPT, range(len(numbers))):
        others = token_leaders(results, without, lowest=True)
        if others is not None:
            evidence.append(_replaced_row(results, NO_OUTLIERS, others))
            agrees = others.leads_alone and others.first == leaders.first
    decided = dimension_names(outliers(results))
    text = (
        say("How many neighbours stay")
        if not leaders.leads_alone
        else say("Most are exchanged in layer {layer}", layer=layer)
        if agrees
        else say("That most are exchanged in layer {layer} is decided by {decided}",
                 layer=layer, decided=decided)
    )  # fmt: skip
    return Fact("most_replaced", text, tuple(evidence), holds=leaders.leads_alone and agrees)


def _replaced_row(results: StackResults, kind: str, leaders: Leaders) -> Tested:
    """Return the row of the layer that keeps the fewest neighbours of a class of tokens."""
    key, (layer,) = token_key(results, KEPT, kind), leaders.first
    estimates = results.tokens(*key) if key else None
    assert estimates is not None
    return Tested(
        MOST_REPLACED, results.stack.name, KEPT, "", kind, estimates.at(layer), layer,
        baseline=_other_layer(leaders), baseline_value=_other_value(leaders, estimates),
        p=leaders.p,
    )  # fmt: skip


def _other_layer(leaders: Leaders) -> str:
    """Return the layer that the first one is told from, in words; empty without one."""
    return f"layer {leaders.second[0]}" if leaders.second else ""


def _other_value(leaders: Leaders, estimates: Estimates) -> float:
    return float(estimates.value[leaders.second[0]]) if leaders.second else math.nan


def travel(results: StackResults) -> Fact:
    """Return one sentence that joins cosine, nearest token and neighbours after all layers."""
    parts = [*_journey(results)]
    if not parts:
        return Fact("travel", holds=False)
    return Fact("travel", say("{parts}.", parts=_joined(parts)))


def _joined(parts: list[Sentence]) -> Sentence:
    first, *others = parts
    return Sentence((*first.parts, *(part for other in others for part in other.parts)))


def _journey(results: StackResults) -> Iterator[Sentence]:
    """Yield what becomes of the cosine, of the token itself and of its other neighbours."""
    cosines, nearest = token_numbers(results, COSINE, "all"), own_numbers(results, "all")
    leave, stay = results.cached(leaves_embedding), results.cached(stays_nearest)
    if not cosines or not cosines[-1].known or not nearest or not nearest[-1].known:
        return
    last = len(cosines) - 1
    without, names = without_outliers(results, COSINE, [last]), _last_names(results)
    yield say(
        "States {leave} their embedding (cosine {cosine}{beside})",
        leave="leave" if leave.holds else "do not clearly leave", cosine=cosines[-1],
        beside=say(", without {names} {n}", names=names, n=without[-1]) if without else "",
    )  # fmt: skip
    if nearest_by_outliers(results):
        ranks = (token_numbers(results, RANK, kind)[-1] for kind in ("all", NO_OUTLIERS))
        yield say(
            "; whether the own vocabulary token stays nearest is decided by {names}: on average "
            "{n} are nearer, without {other}",
            names=names, n=next(ranks), other=next(ranks),
        )  # fmt: skip
    else:
        rarely = "the own vocabulary token is nearest to only {share:whole} of them"
        mostly = "the own vocabulary token stays nearest ({share:whole})"
        joint = ", but " if leave.holds == stay.holds else ", and "
        yield say(joint + (mostly if stay.holds else rarely), share=nearest[-1])
    kept = token_numbers(results, KEPT, "all")
    if kept and all(n.known for n in kept):
        replaced = results.cached(most_replaced)
        layer = min(range(len(kept)), key=lambda layer: kept[layer].value)
        where = (
            say("most of all in layer {layer} ({share:whole} kept)", layer=layer, share=kept[layer])
            if replaced.holds
            else say("{low:whole} to {high:whole} are kept in a layer",
                     low=kept[layer], high=max(kept, key=lambda n: n.value))
        )  # fmt: skip
        yield say("; other neighbours are exchanged, {where}", where=where)


def _last_names(results: StackResults) -> str:
    """Return the outlier dimensions after the last layer in words."""
    return dimension_names(outliers(results, [results.stack.n_layers - 1]))


def hub_tokens(results: StackResults) -> Fact:
    """Return the hubs of the last layer: vocabulary tokens near to many of its states."""
    tokens, last = own_tokens(results), results.stack.n_layers - 1
    if tokens is None:
        return Fact("hub_tokens", holds=False)
    place = str(ResidualPoint.POST), str(tokens.space), last
    shares = results.cached(hubs).get(place, {})
    ranked = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    evidence = tuple(
        Tested(
            HUB, results.stack.name, ids.NEAREST_TOKENS, "", name,
            without_interval(share, tokens.sentences), last,
        )
        for name, share in ranked
    )  # fmt: skip
    if not evidence:
        text = say("No vocabulary token is among the ten nearest of more than 10 % of last states.")
        return Fact("hub_tokens", text, holds=False)
    named = listed(
        say("{name} ({share:whole})", name=visible(tested.label), share=tested.number(SHARE))
        for tested in evidence[:MAX_NAMED_HUBS]
    )
    text = say(
        "Hubs: {n}, each among the ten nearest of more than 10 % of last states, first {named}.",
        n=count_text(len(evidence), "vocabulary token"), named=named,
    )  # fmt: skip
    return Fact("hub_tokens", text, evidence)
