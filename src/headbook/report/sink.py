"""The sink of a stack, in words."""

from headbook.report.results import StackResults
from headbook.results.formats import word_list

FIRST_TOKEN = "the first token"  # noqa: S105 - no password
MAX_NAMED_TOKENS = 3  # special tokens that pages name; of more they say "special tokens"


def sink_tokens(results: StackResults) -> str:
    """Return the sink tokens of a stack by name: ``[CLS] and [SEP]``, ``the first token``."""
    added = results.study.manifest.model.special_tokens.split()
    names = [*dict.fromkeys(name for name in added if name != "…")]
    if len(names) > MAX_NAMED_TOKENS:
        names = ["special tokens"]
    if results.stack.causal or not names:
        names = [FIRST_TOKEN if results.stack.causal else "special tokens", *names]
    return word_list(names)


def first_position_is_sink(results: StackResults) -> bool:
    """Check whether the first key of a stack belongs to the sink: a start token, or by order."""
    return results.stack.causal or not results.study.manifest.model.special_tokens.startswith("…")


def sink_words(results: StackResults) -> str:
    """Return the tokens that are the sink of a stack, in words."""
    tokens = "special tokens and the first position" if results.stack.causal else "special tokens"
    return f"{tokens}, and the learned sink" if results.stack.learned_sink else tokens
