"""The answer of the page of similar heads."""

from headbook.report.findings.finding import sentence_start
from headbook.report.results import StackResults
from headbook.report.similar_heads import MAX_DOUBLE_DISTANCE, HeadDistanceMatrix
from headbook.report.wording import number_word

SMALL_GROUP = 10  # heads of the largest group that is still small


def similar_answer(results: StackResults, matrix: HeadDistanceMatrix, n_even: int = 0) -> str:
    """Return how many heads of a stack have a near double, and in what kind of groups.

    Args:
        n_even: number of groups whose heads all attend nearly evenly.
    """
    groups, n_heads = matrix.doubles, len(matrix.heads)
    if not groups:
        text = f"No two of {n_heads:,} heads are closer than {MAX_DOUBLE_DISTANCE:.2f} nats."
        return sentence_start(results, text)
    n_doubles = sum(len(group.heads) for group in groups)
    if n_doubles == n_heads:
        text = f"All {n_heads:,} heads have near doubles"
    else:
        who = "Some" if n_doubles <= n_heads / 2 else "Most"
        text = f"{who} heads have near doubles: {n_doubles:,} of {n_heads:,}"
    if len(groups) == 1:
        text += ", in one group" if n_doubles > 2 else ", one pair"
        text += ", which attend nearly evenly" * (n_even == 1)
        return sentence_start(results, f"{text}.")
    is_small = max(len(group.heads) for group in groups) <= SMALL_GROUP
    text += f" {'in' if n_doubles == n_heads else 'form'} {'small ' * is_small}groups"
    n_pairs = sum(len(group.heads) == 2 for group in groups)
    if n_pairs > len(groups) / 2:
        text += f", {'all' if n_pairs == len(groups) else 'most'} of them pairs"
    n_across = sum(len({*matrix.layers[[*group.heads]].tolist()}) > 1 for group in groups)
    if n_across >= len(groups) / 2:
        text += ", often across layers"
    elif not n_across:
        text += ", each within one layer"
    if n_even:
        of = "all groups" if n_even == len(groups) else f"{number_word(n_even)} of them"
        text += f"; in {of}, heads attend nearly evenly"
    return sentence_start(results, f"{text}.")
