"""Wording of numbers, heads, files and texts, and of extreme values with their ties.

Values are tied if they are equal, or if pages print them alike: a reader who compares the printed
numbers cannot tell such values apart.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimate
from headbook.attention.surface_rules import LAST_NOUN, SIDES
from headbook.metrics.base import Metric
from headbook.results.formats import THIN, interval_text, number, p_text, signed
from headbook.schema import EmbeddingSpace, ResidualPoint, SinkView, relation_of
from headbook.study.sentence_data import UINT8_STEPS

ROUNDING_NOTE = "may be rounding"  # note on differences if no rounding floor was measured
FEW_WORDS = 30  # words, or rows that two heads share, below which a number is greyed
# Characters that HTML may not contain (controls, surrogates, and the last two of each plane), and
# those that change the order of all text that follows, on other words of a page as well.
FORBIDDEN_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u206f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(
        f"{chr(plane | 0xFFFE)}{chr(plane | 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
    )
    + "]"
)
UNIT_SPACE = re.compile(r"(?<=\d) (?=%|pp\b|MB\b|kB\b)")  # the space between a number and its unit
NOT_IN_FILE_NAMES = re.compile(r"[^\w.+-]", re.ASCII)  # characters that names of files do not have
UNITS = ("bytes", "kB", "MB", "GB")

VIEWS = {
    SinkView.RAW: "all keys",
    SinkView.NOSINK: "sink masked",
    SinkView.RENORM: "sink masked and renormalised",
}
STATES = {
    ResidualPoint.PRE: "input",
    ResidualPoint.MID: "after attention",
    ResidualPoint.POST: "after the layer",
}
SPACES = {
    EmbeddingSpace.POSITIONAL: "token + position embedding",
    EmbeddingSpace.RAW: "token embedding",
}
TOKEN_CLASSES = {
    "all": "all tokens",
    "content": "content words",
    "function": "function words",
    "special": "special tokens",
}
STACKS = {
    "self": "self-attention",
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
# Names of labels that are not words; `label_name` derives the others.
LABELS = {
    "0.9": "cosine ≥ 0.9",
    "f1": "F1",
    "uas": "undirected UAS",
    "raw": "unchanged",
    "previous": "previous token",
    "next": "next token",
    "first": "first token",
    "self": "the token itself",
    "special": "special tokens",
    "separator": "separators",
    "rest_of_word": "the rest of the same word",
    "same_token": "other occurrences of the token",
    "column": "left over by one weight per key",
    "offset": "left over by one weight per distance",
    "same_word": "other subword tokens of the word",
    "chain": "linking neighbours",
    "alignment:sum": "alignment, subword tokens summed",
    "alignment:first": "alignment, first subword tokens",
    "alignment:unsplit": "alignment, unsplit words",
    "head_found:sum": "accuracy, subword tokens summed",
    "head_found:first": "accuracy, first subword tokens",
    "head_found:unsplit": "accuracy, unsplit words",
}
DIRECTIONS = {"to_head": "dependent → head", "to_dependent": "head → dependent"}
NUMBER_WORDS = (  # up to the largest count that is written as a word
    "none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
)  # fmt: skip
ORDINAL_ENDINGS = {1: "st", 2: "nd", 3: "rd"}  # by last digit
MEASURES = {  # of segmentation, before a rule
    "f1": "F1", "f1_1": "F1 within 1 token", "f1_2": "F1 within 2 tokens", "pk": "Pk",
    "windowdiff": "WindowDiff",
}  # fmt: skip
CONTEXT_SIDES = {"within": "within a sentence", "across": "across sentences"}  # before a distance


def is_share(metric: Metric) -> bool:
    """Check whether values of a metric are shares, printed in per cent."""
    return metric.is_share


def whole_points(difference: float) -> str:
    """Return a difference of shares in whole percentage points, with its sign: ``+16``."""
    return signed(round(100 * difference))


def stored_weight(steps: int) -> str:
    """Return an attention weight stored with 8 bits in whole per cent, exact to ± 0.2 %."""
    share = 100 * steps / UINT8_STEPS
    return f"<{THIN}1{THIN}%" if 0 < share < 0.5 else f"{share:.0f}{THIN}%"


def sentence_file(sentence_number: int) -> str:
    """Return the name of a sentence's page and data files, without suffix."""
    return f"{sentence_number:04d}"


def choice_file(name: str, view: str = "", label: str = "") -> str:
    """Return a figure's name with view and label; characters other than letters become hyphens."""
    name_parts = [name, NOT_IN_FILE_NAMES.sub("-", label), view]
    return "-".join(part for part in name_parts if part)


def sentence_page(sentence_number: int) -> str:
    """Return the address of a sentence's page, from the root of the site."""
    return f"sentences/{sentence_file(sentence_number)}.html"


RULE_KINDS = {"offset", "last", *SIDES}
WORD_CLASS_NOUNS = {  # names of one word of a class, for rules
    "ADJ": "adjective",
    "ADP": "adposition",
    "ADV": "adverb",
    "AUX": "auxiliary",
    "CCONJ": "coordinating conjunction",
    "DET": "determiner",
    "INTJ": "interjection",
    "NOUN": "noun",
    "NUM": "numeral",
    "PART": "particle",
    "PRON": "pronoun",
    "PROPN": "proper noun",
    "PUNCT": "punctuation mark",
    "SCONJ": "subordinating conjunction",
    "SYM": "symbol",
    "VERB": "verb",
    "X": "other word (X)",
    "content": "content word",
    "NOUN_PRON_PROPN": "noun or pronoun",
    "VERB_AUX": "verb or auxiliary",
    "VERB_ADJ_NOUN": "verb, adjective or noun",
}


def rule_phrase(rule: str) -> str:
    """Return the word that a surface rule names: ``the next noun or pronoun``."""
    kind, _, name = rule.partition(":")
    if rule == LAST_NOUN:
        return "the next noun (of several in a row, the last)"
    if kind != "offset":
        return f"the {kind} {WORD_CLASS_NOUNS.get(name, f'word tagged {name}')}"
    offset = int(name)
    if abs(offset) == 1:
        return "the next word" if offset > 0 else "the previous word"
    return f"the word {abs(offset)} words {'ahead' if offset > 0 else 'back'}"


def label_name(label: str) -> str:
    """Return a label in words: ``obj (dependent → head)``, ``F1 by similarity``."""
    relation, direction = relation_of(label)
    if relation and direction in DIRECTIONS:
        return f"{relation} ({DIRECTIONS[direction]})"
    measure, _, rule = label.partition(":")
    if rule and measure in RULE_KINDS:
        return rule_phrase(label)
    if rule and measure in MEASURES:
        return f"{MEASURES[measure]} by {rule}"
    if rule and measure in CONTEXT_SIDES:
        return f"{rule}, {CONTEXT_SIDES[measure]}"
    return LABELS.get(label) or DIRECTIONS.get(label) or label.replace("_", " ")


def shortened(text: str, most: int) -> str:
    """Return the first characters of a text, with an ellipsis if there are more."""
    return text[:most] + "…" * (len(text) > most)


def unbroken(text: str) -> str:
    """Join numbers and their units with narrow no-break spaces, for HTML."""
    return UNIT_SPACE.sub(THIN, text)


def first_option(values: Iterable[str], order: type[StrEnum]) -> str:
    """Return the first option among values, in the order of the enumeration; empty without one."""
    present = set(values)
    return next((str(option) for option in order if option in present), "")


def count_text(amount: int, one: str, many: str = "") -> str:
    """Return an amount with its noun: ``1 sentence``, ``1,204 sentences``."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def number_word(amount: int) -> str:
    """Return a small count as a word, so that no sentence begins with a figure."""
    return NUMBER_WORDS[amount] if 0 <= amount < len(NUMBER_WORDS) else f"{amount:,}"


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def ordinal(number: int) -> str:
    """Return an ordinal number: ``1st``, ``2nd``, ``11th``."""
    if 10 < number % 100 < 20:
        return f"{number}th"
    return f"{number}{ORDINAL_ENDINGS.get(number % 10, 'th')}"


def p_family_wise_text(p: float) -> str:
    """Return a p corrected over all heads and relations as text: ``p = 0.005 family-wise``."""
    return f"p {p_text(p) if p < 0.001 else f'= {p_text(p)}'} family-wise"


def visible(text: str) -> str:
    """Return text that HTML can contain: control characters become their pictures.

    Spaces, line feeds and tabs stay; characters that HTML may not contain become U+FFFD, and
    characters that change the order of text (U+202E and the like) their escapes.
    """
    if text.isprintable():  # most texts, which need no search
        return text
    return FORBIDDEN_CHARACTERS.sub(_visible_character, text)


def _visible_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if 0x202A <= code <= 0x206F:
        return f"\\u{code:04x}"
    return "\u2421" if code == 0x7F else "\ufffd"


def size_text(size: float) -> str:
    """Return a number of bytes in few digits."""
    for unit in UNITS[:-1]:
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} {UNITS[-1]}"


def floor_text(floor: float, *, share: bool) -> str:
    """Return a rounding floor in two digits: ``rounding floor 0.012 points``."""
    digits = np.format_float_positional(
        100 * floor if share else floor, precision=2, fractional=False, trim="-"
    )
    return f"rounding floor {digits}{' points' if share else ''}"


def counted_if(floor: float, *, share: bool) -> str:
    """Return the rule by which a difference counts, given its rounding floor; NaN without one."""
    if math.isnan(floor):
        return f"q < 0.05; consistent across sentences; {ROUNDING_NOTE}"
    return f"q < 0.05, interval beyond the {floor_text(floor, share=share)}"


MAX_NAMED_TIES = 3  # tied places that a note names; it counts the others
Values = NDArray[np.floating]
Written = Callable[[float], str]


def tied_places(values: Values, written: Written, *, lowest: bool = False) -> list[tuple[int, ...]]:
    """Return the index of the highest value, then the indices of values tied with it, in order.

    Args:
        values: numbers of any shape; NaN if unknown.
        written: formats a number as the page does.
        lowest: whether to search the lowest value instead.

    Returns:
        An empty list if no value is known.
    """
    if np.isnan(values).all():
        return []
    best = int(np.nanargmin(values) if lowest else np.nanargmax(values))
    flat = values.ravel()
    best_text = written(float(flat[best]))
    tied = [place for place in np.flatnonzero(~np.isnan(flat)).tolist()
             if flat[place] == flat[best] or written(float(flat[place])) == best_text]  # fmt: skip
    order = [best, *(place for place in tied if place != best)]
    return [tuple(map(int, np.unravel_index(place, values.shape))) for place in order]


def tie_note(others: Sequence[str]) -> str:
    """Return `` (tied with L0·H1 and L2·H3)`` for the names of tied places; empty without one."""
    if not others:
        return ""
    *named, last = others
    if len(others) > MAX_NAMED_TIES:
        named = [*others[:MAX_NAMED_TIES]]
        last = f"{number_word(len(others) - MAX_NAMED_TIES)} more"
    return f" (tied with {', '.join(named)}{' and ' * bool(named)}{last})"


def estimate(value: Estimate, *, share: bool = True) -> str:
    """Return a number with its interval as text, with one unit: ``84.4 % [72.0, 96.9]``."""
    return " ".join(value_and_interval(value, share=share)).strip()


def value_and_interval(value: Estimate, *, share: bool = True) -> tuple[str, str]:
    """Return a number and its interval as two texts; the second is empty without an interval."""
    interval = interval_text(value.low, value.high, share=share)
    return number(value.value, share=share), interval


def signed_points(value: float) -> str:
    """Return a difference of shares in points as text, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def layers_text(layers: Sequence[int]) -> str:
    """Return layers in words: ``layer 4``, ``layers 1–3``, ``layers 0, 2 and 5``."""
    in_order = sorted(layers)
    if len(in_order) == 1:
        return f"layer {in_order[0]}"
    if in_order == list(range(in_order[0], in_order[-1] + 1)) and len(in_order) > 2:
        return f"layers {in_order[0]}–{in_order[-1]}"
    return f"layers {', '.join(map(str, in_order[:-1]))} and {in_order[-1]}"
