"""Metrics and readers of other packages, found through their entry points.

A fault of a package is a `HeadbookWarning` that names the package and the entry point; whatever is
at fault is left out, so that no package can keep others from being used.
"""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from headbook.errors import warn

METRICS, READERS = "headbook.metrics", "headbook.readers"  # groups of entry points


def load_plugins(group: str, expected: str) -> Iterator[tuple[EntryPoint, Any]]:
    """Yield the entry points of a group with their objects, sorted by name and package.

    Args:
        group: `METRICS` or `READERS`.
        expected: what the objects should be, for the warning about one that cannot be imported.
    """
    found = entry_points(group=group)
    for point in sorted(found, key=lambda point: (point.name, package_of(point))):
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - a package may raise anything on import
            warn_of(point, f"{type(error).__name__}: {error}", expected)
        else:
            yield point, loaded


def package_of(point: EntryPoint) -> str:
    """Return name and version of the package of an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module


def warn_of(point: EntryPoint, found: str, expected: str) -> None:
    """Warn that an entry point is left out.

    Args:
        found: the fault.
        expected: what was expected instead.
    """
    place = f"package {package_of(point)}, entry point '{point.name}' of {point.group}"
    warn(f"{place}: {found}; expected {expected}; left out")
