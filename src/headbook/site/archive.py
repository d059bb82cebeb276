"""A site as an archive with checksums, with names or anonymous.

Identifying data are removed from the study before its pages are drawn, not from finished files: a
search for a title of one common word could miss a place, or change a sentence with this word.

The same site gives the same bytes on one machine, with one version of zlib.
"""

import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import cast

from headbook.config import REPORT, SUPPLEMENT
from headbook.errors import OutputError
from headbook.file_list import listed_files
from headbook.inputs import ending
from headbook.inputs.records import MAX_COMPRESSION_RATIO
from headbook.output_folder import (
    OutputKind,
    file_list,
    is_site,
    replace_file,
    reserve,
    temporary_folder,
)
from headbook.progress import Progress
from headbook.python_options import names_arguments
from headbook.report.wording import size_text
from headbook.resources import DEMO_PACKAGES, sha256
from headbook.site.single_file import is_single_file, single_file_text
from headbook.site.sites import render
from headbook.study.corpus_sums import HeadSums
from headbook.study.manifest import Manifest
from headbook.study.sentence_data import StoredSentence
from headbook.study.study import Study

LOCAL_MODEL_NAME, LOCAL_ADAPTER_NAME = "a local model", "a local adapter"
FOLDER_REVISION = "sha256:"  # prefix of the revisions of models from a folder, not the hub
LINK_OR_ADDRESS = re.compile(r"://|www\.|@")  # web and mail addresses, and names of users


def anonymise(study: Study) -> Study:
    """Return a study without the author's words, date, links and names of files; numbers stay.

    The name of a hub's model stays, since reviewers need it; that of a local folder does not.
    Sentences stay as they are, and so do their ids and columns unless they hold a link.
    """
    sentences = {
        index: _without_links(sentence) for index, sentence in study.sentence_data.sentences.items()
    }
    heads = {stack: _groups_without_links(sums) for stack, sums in study.corpus_sums.heads.items()}
    return replace(
        study,
        manifest=_anonymous_manifest(study.manifest),
        corpus_sums=replace(study.corpus_sums, heads=heads),
        sentence_data=replace(study.sentence_data, sentences=sentences),
    )


def identifying_left(study: Study) -> Iterator[str]:
    """Yield descriptions of the data that `anonymise` keeps, for the author to check."""
    manifest = study.manifest
    yield f"the model's name, {manifest.model.name}"
    yield f"annotation: {', '.join(dict.fromkeys(manifest.annotators.values()))}"
    sentences = study.sentence_data.sentences.values()
    columns = sorted({name for sentence in sentences for name in sentence.metadata})
    yield f"the sentences and their ids{', and columns ' if columns else ''}{', '.join(columns)}"


def _anonymous_manifest(manifest: Manifest) -> Manifest:
    model = manifest.model
    local = model.revision.startswith(FOLDER_REVISION) and model.revision not in DEMO_PACKAGES
    name, _, adapter = model.name.rpartition(" + ") if model.adapter else (model.name, "", "")
    name, hidden = LOCAL_MODEL_NAME if local else name, model
    if adapter:
        kept = adapter
        if model.adapter_revision.startswith(FOLDER_REVISION):
            kept = LOCAL_ADAPTER_NAME
            facts = model.adapter.replace(adapter, kept, 1)
            hidden = replace(model, adapter=facts, adapter_base="")
        name = f"{name} + {kept}"
    return replace(
        manifest,
        created="",
        title=f"Attention heads of {name}",
        author="",
        text_source="",
        text_license="",
        notes="",
        head_notes={},
        page_notes={},
        sections=(),
        packages=dict.fromkeys(manifest.packages, "a package"),
        options={
            **manifest.options,
            "title": None,
            "model": name,
            "tokenizer": None,
            "adapter": None,
        },
        model=replace(hidden, name=name),
        inputs=tuple(
            replace(file, name=f"input-{number}{ending(file.name)}")
            for number, file in enumerate(manifest.inputs, 1)
        ),
    )


def _groups_without_links(sums: HeadSums) -> HeadSums:
    """Remove groups and labels of minimal pairs whose names or values have a link."""
    members = sums.members
    if members is not None:
        labels = {
            name: values
            for name, values in members.labels.items()
            if not LINK_OR_ADDRESS.search(" ".join((name, *values)))
        }
        members = replace(members, labels=labels)
    groups = tuple(
        group
        for group in sums.groups
        if not LINK_OR_ADDRESS.search(f"{group.column} {group.value}")
    )
    return replace(sums, groups=groups, members=members)


def _without_links(sentence: StoredSentence) -> StoredSentence:
    return replace(
        sentence,
        id="" if LINK_OR_ADDRESS.search(sentence.id) else sentence.id,
        metadata={
            name: value
            for name, value in sentence.metadata.items()
            if not LINK_OR_ADDRESS.search(f"{name} {value}")
        },
    )


# The one folder in an archive; the name of the site's own folder may identify its author.
ARCHIVE_FOLDER = "supplement"
CHECKSUM_FILE = "SHA256SUMS"
ENTRY_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date that an archive can have
ENTRY_MODE = 0o100644  # a plain file that everybody may read
UNIX_SYSTEM = 3  # code of the system whose file modes an entry has
# Limits of the size of an archive in bytes, and whose limits they are.
VENUE_LIMITS = {
    50_000_000: "GitHub warns of larger files",
    100_000_000: "as large as supplements at NeurIPS and files on GitHub may be",
}
README = f"""Supplement: the attention heads of a model, page by page

Open site/index.html in a browser. It needs no server and no network, and asks nothing of either;
with scripts off pages still read in full, but for tables that are closed at first: pages name the
file of each. site/README.txt says what each folder holds, site/methods.html how every number was
made, and site/data/ has the numbers as CSV and Parquet.

{CHECKSUM_FILE} has the SHA-256 sum of every other file. To check them, in this folder:

  sha256sum --check {CHECKSUM_FILE}          Linux
  shasum -a 256 --check {CHECKSUM_FILE}      macOS
  Get-FileHash -Algorithm SHA256 FILE   Windows, file by file
"""


@dataclass(frozen=True)
class PackedSite:
    """An archive, or a site in one file.

    Attributes:
        path: path of the archive or file.
        files: number of files inside.
        size: bytes of the archive or file.
        unpacked: bytes of the files inside.
        left: identifying data that anonymising keeps, for the author to check.
    """

    path: Path
    files: int
    size: int
    unpacked: int
    left: tuple[str, ...]

    def report(self) -> Iterator[str]:
        """Yield messages: the path, the size beside limits of venues, and data to check."""
        yield str(self.path)
        yield f"{self.files:,} files, {size_text(self.size)}, unpacked {size_text(self.unpacked)}"
        for limit, venue in VENUE_LIMITS.items():
            relation = "larger than" if self.size > limit else "within"
            yield f"{relation} {size_text(limit)}: {venue}"
        yield from (f"still there: {text}" for text in self.left)


@names_arguments
def pack(
    source: Study | str | Path,
    out: str | Path | None = None,
    *,
    anonymous: bool = False,
    single_file: bool = False,
    processes: int = 1,
    force: bool = False,
    progress: Progress | bool = True,
) -> PackedSite:
    """Write a site as an archive or as one HTML file, with the files that Headbook wrote alone.

    Args:
        source: the folder of a site; or a study or its folder, whose site is then drawn for the
            archive.
        out: the archive; it appears when it is complete. By default ``supplement.zip``, or
            ``report.html`` for one file.
        anonymous: leave out data that identify the author, see `headbook.site.archive`. An
            anonymous site is always drawn again, which requires a study.
        single_file: one HTML file instead of an archive, see `headbook.site.single_file`.
        processes: number of processes that draw pages, as for `headbook.render`.
        force: replace an existing archive of Headbook.
        progress: whether to show a bar in terminals and notebooks; or a `headbook.Progress`.

    Raises:
        StudyError: ``source`` is neither a site nor a study, or a site where a study is needed; or
            the site has a link, or lacks a file of its list.
        OutputError: ``out`` may not be replaced, or cannot be written.
    """
    out = Path(out or (REPORT if single_file else SUPPLEMENT))
    left: tuple[str, ...] = ()
    write = _one_file if single_file else _packed
    check = partial(_check_replaceable, out, single_file=single_file, force=force)
    if not isinstance(source, Study) and out.resolve().is_relative_to(Path(source).resolve()):
        raise OutputError(f"{out}: lies in the folder that is packed; expected another place")
    with reserve(out), ExitStack() as stack:
        check()
        if not isinstance(source, Study) and is_site(Path(source), anonymous=anonymous):
            site = Path(source)
        else:
            study = source if isinstance(source, Study) else Study.load(source)
            site = stack.enter_context(temporary_folder("pack")) / "site"
            published = anonymise(study) if anonymous else study
            render(published, site, processes=processes, progress=progress)
            left = tuple(identifying_left(published)) if anonymous else ()
        files = listed_files(site, file_list(site, OutputKind.SITE))
        n_files, unpacked = write(files, out, check)
    return PackedSite(out, n_files, out.stat().st_size, unpacked, left)


def _check_replaceable(out: Path, *, single_file: bool, force: bool) -> None:
    """Check that an existing file is an archive or one-file site and that ``force`` is set.

    A file that somebody has changed is neither.

    Raises:
        OutputError: the file is not of Headbook, or ``force`` is not set.
    """
    if not os.path.lexists(out):
        return
    if not (is_single_file(out) if single_file else _is_archive(out)):
        kind = "a site in one file" if single_file else "an archive"
        raise OutputError(f"{out}: not {kind} of Headbook's, or changed since; expected a new file")
    if not force:
        raise OutputError(f"{out}: exists already; pass --force to replace it")


def _is_archive(out: Path) -> bool:
    """Whether a file is an archive that `pack` wrote: the sums of all its files match."""
    try:
        with zipfile.ZipFile(out) as archive:
            return out.is_file() and _sums_match(archive, out.stat().st_size)
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return False


def _sums_match(archive: zipfile.ZipFile, size: int) -> bool:
    """Whether an archive of a size holds the files of its list of sums, each with its sum.

    Raises:
        zipfile.BadZipFile: an entry is damaged.
    """
    names = {entry.filename for entry in archive.infolist()}
    list_name, n_bytes = f"{ARCHIVE_FOLDER}/{CHECKSUM_FILE}", _unpacked_size(archive)
    if list_name not in names or n_bytes > MAX_COMPRESSION_RATIO * size:
        return False
    lines = archive.read(list_name).decode().splitlines()
    sums = {
        f"{ARCHIVE_FOLDER}/{name}": digest for digest, _, name in (x.partition("  ") for x in lines)
    }
    if names != {list_name, *sums} or len(names) < len(archive.infolist()):
        return False
    for name, digest in sums.items():
        with archive.open(name) as stream:
            if hashlib.file_digest(cast("BufferedIOBase", stream), "sha256").hexdigest() != digest:
                return False
    return True


def _unpacked_size(archive: zipfile.ZipFile) -> int:
    return sum(entry.file_size for entry in archive.infolist())


def _packed(files: Mapping[str, Path], out: Path, check: Callable[[], None]) -> tuple[int, int]:
    """Write files as an archive; return their number and size, with those of the archive's own."""
    inside = dict(sorted((f"site/{name}", file) for name, file in files.items()))
    with replace_file(out, check) as draft:
        with zipfile.ZipFile(draft, "w") as archive:
            sums = {"README.txt": hashlib.sha256(README.encode()).hexdigest()}
            sums |= {name: sha256(file) for name, file in inside.items()}
            _add(archive, "README.txt", README.encode())
            lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
            _add(archive, CHECKSUM_FILE, "".join(lines).encode())
            for name, file in inside.items():
                _add(archive, name, file.read_bytes())
        with zipfile.ZipFile(draft) as archive:
            return len(archive.infolist()), _unpacked_size(archive)


def _one_file(files: Mapping[str, Path], out: Path, check: Callable[[], None]) -> tuple[int, int]:
    """Write files as one HTML file; return their number and size."""
    with (
        replace_file(out, check) as draft,
        draft.open("w", encoding="utf-8", newline="\n") as stream,
    ):
        stream.writelines(single_file_text(files))
    return len(files), sum(file.stat().st_size for file in files.values())


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file with a fixed date, mode and system, so that equal sites give equal bytes."""
    entry = zipfile.ZipInfo(f"{ARCHIVE_FOLDER}/{name}", ENTRY_DATE)
    entry.create_system, entry.external_attr = UNIX_SYSTEM, ENTRY_MODE << 16
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=9)
