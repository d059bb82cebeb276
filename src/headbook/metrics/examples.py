"""Attention maps with known answers, for the examples of metrics. Plain numbers, no torch."""

Map = tuple[tuple[float, ...], ...]


def identity(n: int) -> Map:
    """Return a map in which each token attends to itself."""
    return tuple(tuple(float(i == j) for j in range(n)) for i in range(n))


def previous_token(n: int) -> Map:
    """Return a map in which each token attends to the previous one, and the first to itself."""
    return tuple(tuple(float(j == max(i - 1, 0)) for j in range(n)) for i in range(n))


def uniform(n: int) -> Map:
    """Return a map in which each token attends to all tokens equally."""
    return tuple(tuple(1 / n for _ in range(n)) for _ in range(n))


def to_token(n: int, key: int) -> Map:
    """Return a map in which each token attends to one key."""
    return tuple(tuple(float(j == key) for j in range(n)) for _ in range(n))


def causal_uniform(n: int) -> Map:
    """Return a map in which each token attends equally to itself and all earlier tokens."""
    return tuple(tuple(1 / (i + 1) if j <= i else 0.0 for j in range(n)) for i in range(n))
