"""Attention maps with known answers, for the metrics' own examples. Plain numbers, no torch."""

Map = tuple[tuple[float, ...], ...]


def identity(n: int) -> Map:
    """Each token looks at itself."""
    return tuple(tuple(float(i == j) for j in range(n)) for i in range(n))


def previous_token(n: int) -> Map:
    """Each token looks one back; the first at itself, having nothing before it."""
    return tuple(tuple(float(j == max(i - 1, 0)) for j in range(n)) for i in range(n))


def uniform(n: int) -> Map:
    """Each token looks at all tokens alike."""
    return tuple(tuple(1 / n for _ in range(n)) for _ in range(n))


def to_token(n: int, key: int) -> Map:
    """Each token looks at one and the same token."""
    return tuple(tuple(float(j == key) for j in range(n)) for _ in range(n))


def causal_uniform(n: int) -> Map:
    """Each token looks at itself and all before it alike."""
    return tuple(tuple(1 / (i + 1) if j <= i else 0.0 for j in range(n)) for i in range(n))
