"""Options of `headbook.collect` and of the functions that call it, with their types.

Written by ``tests/support/options_module.py`` from `headbook.config.Config`, which explains them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch
    from spacy.language import Language


class Options(TypedDict, total=False):
    """Options by name; one that is left out, or None, has its default."""

    revision: str | None
    source_lang: str | None
    target_lang: str | None
    adapter: str | Path | None
    merge_adapter: bool | None
    quantization: str | None
    trust_remote_code: bool | None
    limit: int | None
    sample: int | None
    text_column: str | None
    pair_column: str | None
    subset: str | None
    split: str | None
    title: str | None
    author: str | None
    text_source: str | None
    text_license: str | None
    notes: str | Path | None
    section: str | Path | Sequence[str | Path] | None
    annotator: "str | Path | Language | None"
    target_annotator: "str | Path | Language | None"
    language: str | None
    target_language: str | None
    device: "str | Sequence[str] | torch.device | None"
    dtype: "str | torch.dtype | None"
    offload: str | bool | None
    batch_tokens: int | None
    max_length: int | None
    pack: int | None
    exemplars: int | None
    sentence_pages: str | int | None
    query_key_sentences: int | None
    vocabulary_sentences: int | None
    vocabulary_precision: str | None
    sample_sentences: int | None
    importance: str | bool | None
    importance_sentences: int | None
    circuits: str | bool | None
    margin: float | None
    task: str | Sequence[str] | None
    label_column: str | None
    acceptable: str | None
    metrics: str | Sequence[str] | None
    facet: str | Sequence[str] | None
    pair_member: str | None
    control: str | Sequence[str] | None
    control_seeds: int | None
    seed: int | None
    memory: str | None
    workers: int | None
    engine: str | None
    address: str | None
    verbose: bool | None
