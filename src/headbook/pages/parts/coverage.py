"""Which sentences a study is of, in words: how many, of which inputs, and what was left out."""

from collections.abc import Iterator

from headbook.report.wording import counted
from headbook.study.manifest import InputFacts, Manifest

NAMED, LISTED = 3, 10  # inputs that every page names, and the overview lists
HASHES = "those with the smallest content hashes"


def coverage(manifest: Manifest) -> str:
    """How many sentences; of a part of the input also which.

    ``1,000 sentences``, ``1,000 sentences (of 25,000, those with the smallest content hashes)``.
    """
    sentences = counted(manifest.counts["sentences"], "sentence")
    part = _part(manifest)
    return f"{sentences} ({part})" if part else sentences


def _part(manifest: Manifest) -> str:
    """What is said of sentences that are not the whole input; nothing of those that are."""
    left = [file.left for file in manifest.inputs]
    if not any(amount is None or amount for amount in left):
        return ""
    taken = sum(file.sentences for file in manifest.inputs)
    known = [amount for amount in left if amount is not None]
    total = f"{taken + sum(known):,}" if len(known) == len(left) else ""
    if taken == manifest.options.get("sample"):
        return f"of {total}, {HASHES}"
    if taken == manifest.options.get("limit"):
        packed = taken != manifest.places
        return f"{f'from the first {taken:,}' if packed else 'the first'} of {total or 'the input'}"
    return f"of {total}" if total else "a part of the input"  # several parts, added up


def input_names(manifest: Manifest) -> str:
    """The inputs that were read by name; of many the first ones, and how many more there are."""
    names = [file.name for file in manifest.inputs if file.sha256]
    more = len(names) - NAMED
    if more <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {more:,} more inputs"


def input_rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The inputs as terms and values, each with what was found in it."""
    files = manifest.inputs
    listed = files if len(files) <= LISTED + 1 else files[:LISTED]
    for file in listed:
        blank = f" · {counted(file.blank, 'blank line')} skipped" if file.blank else ""
        yield "Input", f"{file.name} · {_taken(file)}{blank}"
    rest = files[len(listed) :]
    if rest:
        sentences = sum(file.sentences for file in rest)
        yield "Input", f"{len(rest):,} more inputs · {counted(sentences, 'sentence')}"


def _taken(file: InputFacts) -> str:
    if not file.left and file.left is not None:
        return counted(file.sentences, "sentence")
    if not file.sha256:
        return "not read"
    if file.left is None:
        return f"the first {counted(file.sentences, 'sentence')}"
    return f"{file.sentences:,} of {counted(file.sentences + file.left, 'sentence')}"
