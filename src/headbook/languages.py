"""Codes of languages: their check, names for them, and the language of a tokenizer's code."""

import re
from collections.abc import Iterable

NO_LANGUAGE = "none"  # value of the options on languages that names none
UNDETERMINED = "und"  # code of a language that is not known
ENGLISH = "en"
MAX_DISTANCE = 1  # of codes of one language, as langcodes measures it


def code_problem(code: str) -> str:
    """Return what is wrong with a code of a language, for a message; empty if it is valid.

    Args:
        code: a tag such as ``en``, ``pt-BR`` or ``zho_Hans``, or ``none``.
    """
    import langcodes  # noqa: PLC0415 - few runs name a language

    if code == NO_LANGUAGE or langcodes.tag_is_valid(code):
        return ""
    expected = "a language code such as 'en', or 'none'"
    meant = language_named(code)
    return expected + (f"; did you mean '{meant}'?" if meant else "")


def language_named(name: str) -> str:
    """Return the code of a language from its name, such as ``de`` for ``german``, or ''."""
    import langcodes  # noqa: PLC0415 - few runs name a language

    try:
        return str(langcodes.find(name))
    except LookupError:
        return ""


def language_of(code: str) -> str:
    """Return the language of a tokenizer's code, `UNDETERMINED` if it is none.

    Languages have two letters if they can: ``en`` for ``eng_Latn``, ``en_XX`` and ``__en__``, and
    ``zh`` for ``cmn_Hant``.
    """
    import langcodes  # noqa: PLC0415 - few runs name a language

    plain = code.strip("_")
    if not langcodes.tag_is_valid(plain):
        return UNDETERMINED
    language = langcodes.Language.get(plain).language or UNDETERMINED
    return langcodes.standardize_tag(language, macro=True)


def closest_language(code: str, available: Iterable[str]) -> str:
    """Return the code among those available that means a language, such as ``nb`` for ``no``.

    Country and script do not matter. An empty text if no code means the language.
    """
    import langcodes  # noqa: PLC0415 - few runs name a language

    language = langcodes.Language.get(code).language or UNDETERMINED
    return langcodes.closest_supported_match(language, [*available], MAX_DISTANCE) or ""


def is_english(code: str) -> bool:
    """Whether a code means English, of any country."""
    return re.split("[-_]", code.lower())[0] in {ENGLISH, "eng"}
