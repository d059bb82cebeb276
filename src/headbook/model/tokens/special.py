"""Special tokens: those that stand for no text, such as ``[CLS]``, ``</s>`` and language codes.

A token is special if the tokenizer gives it a role or marks it as special: Llama 3's
``<|start_header_id|>`` has no role. So is the token that every input of a decoder begins with, even
if the tokenizer knows nothing of it. The unknown token and the mask stand for a word; they are
special only if they have another role, too, as ``<|endoftext|>`` of GPT-2.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from headbook.errors import ModelError

if TYPE_CHECKING:
    from headbook.model.load import Model

FRAME_ROLES = ("bos", "eos", "cls", "sep", "pad")


def special_ids(model: "Model") -> frozenset[int]:
    """Return the tokens that stand for no text."""
    tokenizer = model.tokenizer
    added = getattr(tokenizer, "added_tokens_decoder", {})
    marked = {entry for entry, token in added.items() if token.special}
    codes = getattr(tokenizer, "lang_code_to_id", {})  # mBART, M2M-100 and their relatives
    marked.update(tokenizer.all_special_ids, codes.values())
    marked -= {*_word_ids(model), None}  # None: a code without an entry
    marked |= ids_of_roles(tokenizer, *FRAME_ROLES)
    if model.config.is_encoder_decoder and (start := _decoder_start(model)) is not None:
        marked.add(start)
    return frozenset(marked)


def reserved_ids(model: "Model") -> frozenset[int]:
    """Return the special tokens, the unknown token and the mask: all that no word is made of."""
    return special_ids(model) | _word_ids(model)


def _word_ids(model: "Model") -> set[int]:
    """Return the unknown token and the mask, as far as there are such tokens."""
    mask = set() if model.mask_id is None else {model.mask_id}
    return ids_of_roles(model.tokenizer, "unk") | mask


def unknown_id(model: "Model") -> int | None:
    """Return the token of text that the vocabulary lacks; None if no token stands for it alone."""
    token: int | None = getattr(model.tokenizer, "unk_token_id", None)
    return None if token in special_ids(model) else token


def ids_of_roles(tokenizer: Any, *roles: str) -> set[int]:
    """Return the tokens that a tokenizer has for some roles."""
    ids = (getattr(tokenizer, f"{role}_token_id", None) for role in roles)
    return {token for token in ids if token is not None}


def start_token(model: "Model") -> int:
    """Return the token at the start of every decoder input.

    Raises:
        ModelError: the configuration has no start token.
    """
    token = _decoder_start(model)
    if token is None:
        raise ModelError(
            f"model '{model.name}': no decoder_start_token_id in its configuration; expected one"
        )
    return token


def _decoder_start(model: "Model") -> int | None:
    configurations = (model.network.generation_config, model.config)
    for name in ("decoder_start_token_id", "bos_token_id"):
        for configuration in configurations:
            token = getattr(configuration, name, None)
            if token is not None:
                return int(token)
    return None


def tokens_around(ids: Sequence[int], special: Collection[int]) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after the ordinary ones of a text."""
    ordinary = [place for place, token in enumerate(ids) if token not in special]
    if not ordinary:
        return [*ids], []
    return [*ids[: ordinary[0]]], [*ids[ordinary[-1] + 1 :]]


def special_pattern(model: "Model") -> str:
    """Return the special tokens around a text, with ``…`` for the text itself."""
    special, tokenizer = special_ids(model), model.tokenizer
    ids = tokenizer("a")["input_ids"]
    names = tokenizer.convert_ids_to_tokens(ids)
    pattern: list[str] = []
    for token, name in zip(ids, names, strict=True):
        if token in special:
            pattern.append(name)
        elif "…" not in pattern:
            pattern.append("…")
    return " ".join(pattern)
