"""Which files of an output folder are ours: the list that stands in it, and names that it takes."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from headbook import __version__

LIST, MANIFEST = "files.json", "manifest.json"


class Kind(StrEnum):
    """What an output folder holds."""

    SITE = "site"
    STUDY = "study"
    FIGURES = "figures"

    @property
    def list(self) -> str:
        """Where the list of its files stands."""
        return f"data/{LIST}" if self is Kind.SITE else LIST

    @property
    def mark(self) -> str:
        """Where the manifest stands."""
        return f"data/{MANIFEST}" if self is Kind.SITE else MANIFEST


# Names that Headbook gives without being asked to. Figures are named after what they show, and the
# files for search engines are there only with an address: both are compared one by one.
PAGES = (
    "404|about|alignment|context|data|demonstration|flow|geometry|groups|heads|index|methods|"
    "patterns|reproducing|similar|speech|syntax|tokens"
)
HEAD = r"(?:(?:self|encoder|decoder|cross)-)?L\d{2,}-H\d{2,}"
NAMES = {
    Kind.SITE: re.compile(
        rf"(?:{PAGES})\.html|\.nojekyll|CITATION\.cff|README\.txt|references\.bib"
        rf"|(?:data/)?heads/{HEAD}\.(?:html|js)|sentences/(?:index|\d{{4,}})\.html"
        r"|data/(?:manifest|files)\.json|assets/(?:site\.(?:css|js)|vega\.js|LICENSES\.txt)"
        r"|data/(?:heads|layers|controls|compared|pairs|groups|geometry|tokens|nearest|types"
        r"|alignments|minimal_pairs)\.(?:csv|parquet)|data/exemplars\.jsonl"
    ),
    Kind.STUDY: re.compile(
        r"(?:manifest|files)\.json|arrays\.safetensors"
        r"|(?:tokens|nearest|demonstration)\.parquet"
    ),
    Kind.FIGURES: re.compile(r"(?:manifest|files)\.json|figures\.(?:tex|bib)"),
}


@dataclass(frozen=True)
class Listing:
    """The files of one output folder that Headbook wrote.

    Attributes:
        files: by their way from the folder, with slashes.
        folders: those in which they stand, and empty ones that Headbook made.
    """

    kind: Kind
    files: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The list that a folder holds; None without one."""
        for kind in Kind:
            table = _json(folder / kind.list)
            if isinstance(table, dict) and table.get("kind") == kind and "headbook" in table:
                files, folders = (frozenset(table.get(name, ())) for name in ("files", "folders"))
                return cls(kind, files, folders)
        return None

    @classmethod
    def write(cls, folder: Path, kind: Kind) -> Self:
        """List all that stands in a folder, the list too, and write it there."""
        (folder / kind.list).touch()
        files, folders = set[str](), set[str]()
        for name, is_folder in walked(folder):
            (folders if is_folder else files).add(name)
        table = {"headbook": __version__, "kind": str(kind)}
        text = json.dumps(table | {"files": sorted(files), "folders": sorted(folders)}, indent=1)
        (folder / kind.list).write_text(text + "\n", encoding="utf-8", newline="\n")
        return cls(kind, frozenset(files), frozenset(folders))

    def strays(self, folder: Path) -> Iterator[str]:
        """What else stands in a folder; of foreign folders the name alone."""
        yield from (name for name, _ in walked(folder, self) if not self.has(folder, name))

    def alone(self, folder: Path, name: str) -> bool:
        """Whether it is ours, and all that stands in it."""
        if not self.has(folder, name):
            return False
        below = walked(folder, self, name) if (folder / name).is_dir() else ()
        return all(self.has(folder, text) for text, _ in below)

    def has(self, folder: Path, name: str) -> bool:
        """Whether it is ours; a link never is."""
        path = folder / name
        if path.is_symlink():
            return False
        return name in (self.folders if path.is_dir() else self.files)


NOTHING = Listing(Kind.SITE, frozenset(), frozenset())


def walked(
    folder: Path, listing: Listing | None = None, at: str = ""
) -> Iterator[tuple[str, bool]]:
    """What stands below a folder, and whether it is a folder; never into links or foreign folders.

    Raises:
        OSError: a folder cannot be read.
    """
    with os.scandir(folder / at) as found:
        entries = sorted((each.name, each.is_dir(follow_symlinks=False)) for each in found)
    for entry, is_folder in entries:
        name = f"{at}/{entry}" if at else entry
        yield name, is_folder
        if is_folder and (listing is None or name in listing.folders):
            yield from walked(folder, listing, name)


def kind_of(folder: Path) -> Kind | None:
    """What a folder of ours holds, with or without a list; None for other folders."""
    listing = Listing.read(folder)
    if listing is not None:
        return listing.kind
    if is_ours(folder / Kind.SITE.mark):
        return Kind.SITE
    if is_ours(folder / Kind.STUDY.mark):
        return Kind.FIGURES if (folder / "figures.tex").exists() else Kind.STUDY
    return None


def is_ours(manifest: Path) -> bool:
    """Whether a file is a manifest that Headbook wrote."""
    found = _json(manifest)
    return isinstance(found, dict) and "headbook" in found


def _json(file: Path) -> Any:
    """What a file holds; None where there is none, or something else."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
