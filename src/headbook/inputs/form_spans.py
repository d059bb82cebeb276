r"""Places of the words of a treebank in the text of their sentence.

Forms are searched as they are first. If that fails, both are compared without case, accents and
soft hyphens, with one kind of quote and of white space, so that normal forms of Unicode agree, too.
"""

import unicodedata
from collections.abc import Sequence

SOFT_HYPHEN = "\u00ad"
QUOTES = str.maketrans(dict.fromkeys("“”„‟«»″", '"') | dict.fromkeys("‘’‚‛‹›′`´", "'"))
Spans = list[tuple[int, int]]


def spans_of_forms(text: str, forms: Sequence[str]) -> tuple[Spans, str]:
    """Return the character spans of forms that spell a text, and an empty string.

    If they do not, there are no spans, and the string says which form differs from which text.
    """
    spans, fault = _found_as_they_are(text, forms)
    return (spans, "") if not fault else _found_folded(text, forms, fault)


def _found_as_they_are(text: str, forms: Sequence[str]) -> tuple[Spans, str]:
    """Search each form behind the last one, with nothing but white space between them."""
    spans, end = Spans(), 0
    for form in forms:
        while text[end : end + 1].isspace():
            end += 1
        if not text.startswith(form, end):
            return [], _fault(form, text[end:])
        spans.append((end, end + len(form)))
        end += len(form)
    return (spans, "") if not text[end:].strip() else ([], _fault("", text[end:]))


def _found_folded(text: str, forms: Sequence[str], fault: str) -> tuple[Spans, str]:
    """Search the folded forms in the folded text; see `spans_of_forms`."""
    folded, places = _folded(text)
    spans, position, end = Spans(), 0, 0  # in the folded text; end of the last form in the text
    for form in forms:
        position += folded.startswith(" ", position)
        form_folded = _folded(form)[0].strip()
        spellings = (form_folded, form_folded.replace("''", '"'), form_folded.replace('"', "''"))
        found = next((each for each in spellings if folded.startswith(each, position)), "")
        start = places[position] if found else end
        if not found or start < end:
            return [], fault
        position += len(found)
        end = places[position - 1] + 1
        while end < len(text) and unicodedata.combining(text[end]):
            end += 1
        spans.append((start, end))
    return (spans, "") if not folded[position:].strip() else ([], fault)


def _folded(text: str) -> tuple[str, list[int]]:
    """Return a text without what may differ, and the place in the text of each character of it."""
    characters, places = list[str](), list[int]()
    for place, character in enumerate(text):
        plain = unicodedata.normalize("NFD", character).casefold().translate(QUOTES)
        for part in unicodedata.normalize("NFD", plain):
            white = part.isspace()
            if part == SOFT_HYPHEN or unicodedata.combining(part):
                continue
            if not (white and characters and characters[-1] == " "):
                characters.append(" " if white else part)
                places.append(place)
    return "".join(characters), places


def _fault(form: str, rest: str) -> str:
    """Return in words that a form differs from what stands in its place."""
    own = f"the form {form!r}" if form else "no form"
    return f"{own} where the text has {rest.strip()[:20]!r}"
