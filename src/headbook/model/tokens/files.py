"""Comparison of a tokenizer's tokens with those that its file ``tokenizer.json`` describes.

Some classes of transformers build their own rules and read little more than the vocabulary from the
file; a file with other rules is then read in another way than the model was trained on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

MAX_LETTERS = 40  # of a text that is quoted


def differences_from_file(tokenizer: Any, file: Path, texts: Sequence[str]) -> str:
    """Return how a tokenizer's ids differ from those of its file.

    Args:
        tokenizer: a tokenizer of transformers.
        file: ``tokenizer.json`` of the folder that the tokenizer was loaded from.
        texts: texts to compare, without special tokens around them.

    Returns:
        A message with class and file; empty without a file, and if all ids are equal.
    """
    if not texts or not file.is_file():
        return ""
    try:
        as_written = Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001 - what the library raises; transformers has not read the file
        return ""
    as_written.no_truncation()
    as_written.no_padding()
    rows = tokenizer([*texts], add_special_tokens=False, verbose=False)["input_ids"]
    encoded = as_written.encode_batch([*texts], add_special_tokens=False)
    different = [
        (text, len(ids), len(own.ids))
        for text, ids, own in zip(texts, rows, encoded, strict=True)
        if [*ids] != own.ids
    ]
    if not different:
        return ""
    text, found, written = different[0]
    return (
        f"{type(tokenizer).__name__} makes other tokens of {len(different):,} of {len(texts):,} "
        f"texts than {file}: {found:,} of {text[:MAX_LETTERS]!r}, where the file makes "
        f"{written:,}; expected the same. If the model was trained with the file, give --tokenizer "
        "a folder with a copy of it and a tokenizer_config.json whose tokenizer_class is "
        "PreTrainedTokenizerFast, but without config.json"
    )
