"""Languages of multilingual tokenizers: codes around a source, and before a target.

NLLB, M2M-100, mBART, mBART-50, PLBart and Seamless mark the language of a text by a token. Their
decoders read the start token and then the code of the target. mBART and PLBart, whose targets end
in the code, are trained on targets that are rotated by one: their code is the start token.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headbook.errors import ConfigError
from headbook.languages import UNDETERMINED, language_named, language_of
from headbook.model.tokens.special import start_token

if TYPE_CHECKING:
    from headbook.model.load import Model

EXAMPLES = ("en", "fr", "de", "es", "zh", "ar", "hi", "ru")  # languages that messages name first


def is_multilingual(tokenizer: Any) -> bool:
    """Whether a tokenizer marks the language of each text."""
    return hasattr(tokenizer, "set_src_lang_special_tokens")


def choose_languages(
    tokenizer: Any,
    source: str | None,
    target: str | None,
    name: str,
    has_decoder: Callable[[], bool],
) -> None:
    """Set the languages of a multilingual tokenizer.

    Args:
        tokenizer: tokenizer of the model; a multilingual one is changed.
        source: value of ``--source-lang``.
        target: value of ``--target-lang``.
        name: name of the model, for messages.
        has_decoder: function that returns whether the model is an encoder-decoder, which needs a
            target language.

    Raises:
        ConfigError: a language is missing or unknown, or the tokenizer has none.
    """
    given = {"--source-lang": source, "--target-lang": target}
    if not is_multilingual(tokenizer):
        for option, code in given.items():
            if code is not None:
                raise ConfigError(
                    f"{option}: got {code!r} with model '{name}', whose tokenizer "
                    f"({type(tokenizer).__name__}) marks no languages; expected no such option"
                )
        return
    _add_codes(tokenizer)
    ids = language_ids(tokenizer)
    missing = [
        option
        for option, code in given.items()
        if code is None and (option == "--source-lang" or has_decoder())
    ]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: got none with model '{name}', whose tokenizer marks the "
            f"language of each text; expected {_examples(ids)}"
        )
    for option, code in given.items():
        if code is not None and _plain(code) not in ids:
            raise ConfigError(
                f"{option}: got {code!r}, expected {_examples(ids)}{_hint(code, ids)}"
            )
    if target is not None:
        tokenizer.tgt_lang = _own(tokenizer, target)
    tokenizer.src_lang = _own(tokenizer, source)  # last, so that texts are read as sources


def language_ids(tokenizer: Any) -> Mapping[str, int]:
    """Return the tokens of the languages of a multilingual tokenizer, by code."""
    codes = getattr(tokenizer, "lang_code_to_id", None)
    if codes:
        return {_plain(code): token for code, token in codes.items() if token is not None}
    names = [str(token) for token in tokenizer.extra_special_tokens]
    vocabulary = tokenizer.get_vocab()
    return {
        _plain(name): vocabulary[name]
        for name in names
        if name in vocabulary and language_of(name) != UNDETERMINED
    }


def begin_with_target_language(network: Any, tokenizer: Any) -> None:
    """Let an encoder-decoder begin its outputs with the target language of its tokenizer."""
    if not (is_multilingual(tokenizer) and network.config.is_encoder_decoder):
        return
    code = language_ids(tokenizer)[_plain(tokenizer.tgt_lang)]
    if _ends_with_code(tokenizer):
        network.generation_config.decoder_start_token_id = code
        network.generation_config.forced_bos_token_id = None
    else:
        network.generation_config.forced_bos_token_id = code


def decoder_start(model: "Model") -> list[int]:
    """Return the tokens at the start of every decoder input: the start token, and a language."""
    return [start_token(model), *_target_code(model)]


def _target_code(model: "Model") -> list[int]:
    """Return the code that a decoder reads after its start token; empty without one."""
    if not is_multilingual(model.tokenizer) or _ends_with_code(model.tokenizer):
        return []
    return [language_ids(model.tokenizer)[_plain(model.tokenizer.tgt_lang)]]


def target_frame(tokenizer: Any) -> tuple[int, int]:
    """Return the number of tokens around a target that no decoder reads.

    All tokenizers but multilingual ones close a target by one token, and have none before.
    """
    if not is_multilingual(tokenizer):
        return 0, 1
    tokenizer.set_tgt_lang_special_tokens(tokenizer.tgt_lang)
    n_before, n_after = len(tokenizer.prefix_tokens), len(tokenizer.suffix_tokens)
    tokenizer.set_src_lang_special_tokens(tokenizer.src_lang)
    return n_before, n_after


def _ends_with_code(tokenizer: Any) -> bool:
    """Whether targets end in their code, as those of mBART; NLLB's old order differs from it."""
    if getattr(tokenizer, "legacy_behaviour", False):
        return False
    return target_frame(tokenizer)[0] == 0


def _add_codes(tokenizer: Any) -> None:
    """Enter the codes of M2M-100 that its files do not list, with the ids that they have.

    They follow the last piece of the vocabulary. Without an entry they are no special tokens, and
    lie above the length of the tokenizer.
    """
    names = getattr(tokenizer, "lang_token_to_id", {})
    if any(token >= len(tokenizer) for token in names.values()):
        tokenizer.add_special_tokens(
            {"extra_special_tokens": [*names]}, replace_extra_special_tokens=False
        )


def _plain(code: str) -> str:
    """Return a code without the underscores around it that the tokens of some tokenizers have."""
    return code.strip("_")


def _own(tokenizer: Any, code: str | None) -> str:
    """Return a code as the tokenizer spells it."""
    plain = _plain(code or "")
    spellings = {*getattr(tokenizer, "lang_code_to_id", {}), *tokenizer.get_vocab()}
    return plain if plain in spellings else f"__{plain}__"


def _examples(ids: Mapping[str, int]) -> str:
    """Return some codes of a tokenizer for a message, those of `EXAMPLES` first."""
    by_language = {language_of(code): code for code in reversed([*ids])}
    first = [by_language[language] for language in EXAMPLES if language in by_language]
    listed = [*dict.fromkeys([*first, *ids])][: len(EXAMPLES)]
    more = ", …" if len(ids) > len(listed) else ""
    return f"one of the {len(ids):,} codes of its tokenizer, such as {', '.join(listed)}{more}"


def _hint(code: str, ids: Mapping[str, int]) -> str:
    """Return a question that names the code that was meant, or an empty text."""
    language = language_of(code)
    if language == UNDETERMINED:
        language = language_of(language_named(code))
    same = [each for each in ids if language != UNDETERMINED and language_of(each) == language]
    similar = same[:1] or difflib.get_close_matches(code, ids, n=1)
    return f"; did you mean '{similar[0]}'?" if similar else ""
