"""A site as an archive with checksums, with names or anonymous.

What identifies is taken away before a page is drawn, not looked for in finished files: there a
title of one common word could be missed in one place, or changed in a sentence that holds it.

The same site gives the same bytes on one machine, with one version of zlib.
"""

import hashlib
import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from headbook.errors import OutputError
from headbook.inputs import ending
from headbook.output_folder import is_site, replace_file, reserve, temporary_folder
from headbook.progress import Progress
from headbook.report.wording import size_text
from headbook.resources import DEMO_CAUSAL_SHA256, DEMO_SHA256, sha256
from headbook.site.export import walk
from headbook.site.single_file import is_single_file, single_file_text
from headbook.site.sites import render
from headbook.study.corpus_sums import HeadSums
from headbook.study.manifest import Manifest
from headbook.study.sentence_data import StoredSentence
from headbook.study.study import Study

LOCAL = "a local model"
FOLDER = "sha256:"  # how revisions of models begin that came from a folder, not from the hub
KNOWN = {f"{FOLDER}{digest}" for digest in (DEMO_SHA256, DEMO_CAUSAL_SHA256)}
LINK = re.compile(r"://|www\.|@")  # web and mail addresses, and names of users


def anonymise(study: Study) -> Study:
    """Return a study without title, notes, date, links and names of files; numbers stay.

    The name of a hub's model stays, since reviewers need it; that of a local folder does not.
    Sentences stay as they are, and so do their ids and columns unless they hold a link.
    """
    sentences = {index: _unlinked(s) for index, s in study.sentence_data.sentences.items()}
    heads = {stack: _unlinked_groups(sums) for stack, sums in study.corpus_sums.heads.items()}
    return replace(
        study,
        manifest=_nameless(study.manifest),
        corpus_sums=replace(study.corpus_sums, heads=heads),
        sentence_data=replace(study.sentence_data, sentences=sentences),
    )


def identifying_left(study: Study) -> Iterator[str]:
    """Return what `anonymise` leaves in a study and the author should judge, in words."""
    manifest = study.manifest
    yield f"the model's name, {manifest.model.name}"
    yield f"annotation: {', '.join(dict.fromkeys(manifest.annotators.values()))}"
    sentences = study.sentence_data.sentences.values()
    columns = sorted({name for sentence in sentences for name in sentence.metadata})
    yield f"the sentences and their ids{', and columns ' if columns else ''}{', '.join(columns)}"


def _nameless(manifest: Manifest) -> Manifest:
    model = manifest.model
    local = model.revision.startswith(FOLDER) and model.revision not in KNOWN
    name = LOCAL if local else model.name
    return replace(
        manifest,
        created="",
        title=f"Attention heads of {name}",
        notes="",
        options={**manifest.options, "title": None, "model": name, "tokenizer": None},
        model=replace(model, name=name),
        inputs=tuple(
            replace(file, name=f"input-{number}{ending(file.name)}")
            for number, file in enumerate(manifest.inputs, 1)
        ),
    )


def _unlinked_groups(sums: HeadSums) -> HeadSums:
    """Without groups that a link names; members of pairs that one tells apart come in order."""
    members = sums.members
    if members is not None:
        labels = {k: v for k, v in members.labels.items() if not LINK.search(" ".join((k, *v)))}
        members = replace(members, labels=labels)
    groups = tuple(g for g in sums.groups if not LINK.search(f"{g.column} {g.value}"))
    return replace(sums, groups=groups, members=members)


def _unlinked(sentence: StoredSentence) -> StoredSentence:
    return replace(
        sentence,
        id="" if LINK.search(sentence.id) else sentence.id,
        metadata={k: v for k, v in sentence.metadata.items() if not LINK.search(f"{k} {v}")},
    )


TOP = "supplement"  # the one folder in an archive; the site's own folder may name its author
SUMS = "SHA256SUMS"
DATE = (1980, 1, 1, 0, 0, 0)  # the first that an archive can hold
MODE = 0o100644  # a plain file that everybody may read
UNIX = 3
# Bytes of an archive, and who draws the line there.
LIMITS = {
    50_000_000: "GitHub warns of larger files",
    100_000_000: "as large as supplements at NeurIPS and files on GitHub may be",
}
README = f"""Supplement: the attention heads of a model, page by page

Open site/index.html in a browser. It needs no server and no network, and asks nothing of either;
with scripts off pages still read in full, but for tables that are closed at first: pages name the
file of each. site/README.txt says what each folder holds, site/methods.html how every number was
made, and site/data/ has the numbers as CSV and Parquet.

{SUMS} has the SHA-256 sum of every other file. To check them, in this folder:

  sha256sum --check {SUMS}          Linux
  shasum -a 256 --check {SUMS}      macOS
  Get-FileHash -Algorithm SHA256 FILE   Windows, file by file
"""


@dataclass(frozen=True)
class PackedSite:
    """An archive, or a site in one file.

    Attributes:
        path: where it is.
        files: number of files in it.
        size: its own bytes.
        unpacked: bytes of the files in it.
        left: what its author should judge, because leaving out names did not touch it.
    """

    path: Path
    files: int
    size: int
    unpacked: int
    left: tuple[str, ...]

    def report(self) -> Iterator[str]:
        """Return what was written, its size against limits of venues, and what to check."""
        yield str(self.path)
        yield f"{self.files:,} files, {size_text(self.size)}, unpacked {size_text(self.unpacked)}"
        for limit, who in LIMITS.items():
            place = "larger than" if self.size > limit else "within"
            yield f"{place} {size_text(limit)}: {who}"
        yield from (f"still there: {text}" for text in self.left)


def pack_site(
    source: Study | str | Path,
    out: str | Path,
    *,
    anonymous: bool = False,
    single_file: bool = False,
    processes: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> PackedSite:
    """Write a site as an archive or as one HTML file.

    Args:
        source: the folder of a site; or a study or its folder, whose site is then drawn for the
            archive.
        out: the archive; it appears when it is complete.
        anonymous: leave out what tells who made it, see `headbook.site.archive`. Such a site is
            always drawn anew, which takes a study.
        single_file: one HTML file instead of an archive, see `headbook.site.single_file`.
        processes: that draw pages, as for `headbook.render`.
        force: replace an archive of ours that stands there.
        progress: told how many pages are drawn.

    Raises:
        StudyError: ``source`` is neither a site nor a study, or a site where a study is needed.
        OutputError: ``out`` may not be replaced, or cannot be written.
    """
    out = Path(out)
    write = _one_file if single_file else _packed
    if not isinstance(source, Study) and out.resolve().is_relative_to(Path(source).resolve()):
        raise OutputError(f"{out}: lies in the folder that is packed; expected another place")
    with reserve(out), ExitStack() as stack:
        _check_replaceable(out, single_file=single_file, force=force)
        if not isinstance(source, Study) and is_site(Path(source), anonymous=anonymous):
            return write(Path(source), out, ())
        study = source if isinstance(source, Study) else Study.load(source)
        path = stack.enter_context(temporary_folder("pack"))
        site = path / "site"
        published = anonymise(study) if anonymous else study
        render(published, site, processes=processes, progress=progress)
        return write(site, out, tuple(identifying_left(published)) if anonymous else ())


def _check_replaceable(out: Path, *, single_file: bool, force: bool) -> None:
    """Refuse to replace a file that is not ours.

    Raises:
        OutputError: with what to do instead.
    """
    if not out.exists():
        return
    if not (is_single_file(out) if single_file else _is_archive(out)):
        kind = "a site in one file" if single_file else "an archive"
        raise OutputError(f"{out}: not {kind} of Headbook's; expected a new file")
    if not force:
        raise OutputError(f"{out}: exists already; pass --force to replace it")


def _is_archive(out: Path) -> bool:
    if not zipfile.is_zipfile(out):
        return False
    with zipfile.ZipFile(out) as archive:
        return f"{TOP}/{SUMS}" in archive.namelist()


def _packed(site: Path, out: Path, left: tuple[str, ...]) -> PackedSite:
    """Return the archive of a folder.

    Hidden files, a version history among them, stay out.
    """
    files = dict(sorted((f"site/{name}", file) for name, file in _site_files(site)))
    with replace_file(out) as draft, zipfile.ZipFile(draft, "w") as archive:
        sums = {"README.txt": hashlib.sha256(README.encode()).hexdigest()}
        sums |= {name: sha256(file) for name, file in files.items()}
        _add(archive, "README.txt", README.encode())
        _add(archive, SUMS, "".join(f"{each}  {name}\n" for name, each in sums.items()).encode())
        for name, file in files.items():
            _add(archive, name, file.read_bytes())
    with zipfile.ZipFile(out) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    return PackedSite(out, len(files) + 2, out.stat().st_size, unpacked, left)


def _one_file(site: Path, out: Path, left: tuple[str, ...]) -> PackedSite:
    """Return the one file of a folder."""
    with replace_file(out) as draft, draft.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(single_file_text(site))
    sizes = [file.stat().st_size for _, file in _site_files(site)]
    return PackedSite(out, len(sizes), out.stat().st_size, sum(sizes), left)


def _site_files(site: Path) -> Iterator[tuple[str, Path]]:
    for file in walk(site):
        parts = file.relative_to(site).parts
        if parts == (".nojekyll",) or not any(part.startswith(".") for part in parts):
            yield "/".join(parts), file


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file; neither clock nor disk decides a byte of its entry."""
    entry = zipfile.ZipInfo(f"{TOP}/{name}", DATE)
    entry.create_system, entry.external_attr = UNIX, MODE << 16
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=9)
