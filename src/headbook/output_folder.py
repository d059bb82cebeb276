"""Safe writing of output folders and files: checks, locks, temporary folders and cleaning up.

An output folder belongs to Headbook. A new folder is written into a workspace, which is a hidden
folder beside the output, and replaces the old folder by two renames: of the old folder into the
workspace, and of the new folder out of it. A folder with a file that Headbook did not write is
refused. A lock file beside the folder excludes other runs from the first check to the last rename.

Systems release a lock when its process ends, even if the process was killed. A workspace that can
be locked was therefore left by a killed run, and the next run that writes the same output removes
it. Reading an output changes no file.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path

from headbook import safe_files
from headbook.errors import OutputError, StudyError
from headbook.file_list import FileList, first_foreign, read_file_list, write_file_list
from headbook.safe_files import DISK_ERRORS, DISK_FULL, NOTE, is_file, read_object

MANIFEST, FILE_LIST = "manifest.json", "files.json"
OWNER, NEW, OLD, DELETED = "owner", "new", "old", "gone"  # names in a workspace
MAX_NAME_BYTES = 200  # bytes of an output's name in the names beside it; file systems take 255
NAME_ERRORS = (OSError, ValueError, RuntimeError)  # raised for null bytes or circles of links
_reserved: ContextVar[frozenset[Path]] = ContextVar("reserved", default=frozenset())


class OutputKind(StrEnum):
    """Kind of output folder."""

    SITE = "site"
    STUDY = "study"
    FIGURES = "figures"

    @property
    def manifest(self) -> str:
        """Path of the manifest in a folder of this kind."""
        return f"data/{MANIFEST}" if self is OutputKind.SITE else MANIFEST

    @property
    def file_list(self) -> str:
        """Path of the list of all files in a folder of this kind."""
        return f"data/{FILE_LIST}" if self is OutputKind.SITE else FILE_LIST


@contextmanager
def replace_folder(out: Path, kind: OutputKind, *, force: bool) -> Iterator[Path]:
    """Yield a folder to write into, which takes the place of ``out`` when the block ends well.

    Until then the old folder is untouched. After an error the new folder is removed.

    Raises:
        OutputError: ``out`` may not be replaced, or cannot be written.
    """
    with ExitStack() as stack:
        try:
            _check_place(out).parent.mkdir(parents=True, exist_ok=True)
            path = stack.enter_context(reserve(out))
            _check_replaceable(out, path, kind, force=force)
            workspace = stack.enter_context(_workspace(path))
            new = workspace / NEW
            new.mkdir()
            new.chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o755)
        except NAME_ERRORS as error:
            raise _not_writable(out, error) from error
        try:
            yield new
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            raise _not_writable(out, error) from error
        try:
            write_file_list(new, kind.file_list, kind)
            # Checked again, because somebody may have added a file meanwhile.
            _check_replaceable(out, path, kind, force=force)
            try:
                if os.path.lexists(path):
                    path.rename(workspace / OLD)
                new.rename(path)
            finally:
                _finish_replacement(workspace, path)
        except OSError as error:
            raise _not_writable(out, error) from error


@contextmanager
def replace_file(out: Path, check: Callable[[], None]) -> Iterator[Path]:
    """Yield a file to write, which takes the place of ``out`` when the block ends well.

    Args:
        out: the file.
        check: raises an error if the file that is in this place at the end may not be replaced.

    Raises:
        OutputError: ``out`` cannot be written.
    """
    try:
        _check_place(out).parent.mkdir(parents=True, exist_ok=True)
        with reserve(out) as path, _workspace(path) as workspace:
            new = workspace / NEW
            yield new
            new.chmod(0o644)
            if not _appears(new, path):
                check()
                new.replace(path)
    except OSError as error:
        raise OutputError(f"{out}: {error.strerror}; expected a file to write") from error


def _appears(new: Path, path: Path) -> bool:
    """Give a file another name, and return False if a file has the name already."""
    try:
        path.hardlink_to(new)
    except FileExistsError:
        return False
    except OSError:  # a file system without two names of one file
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            return False
        new.replace(path)
    return True


@contextmanager
def reserve(out: Path) -> Iterator[Path]:
    """Lock an output against other runs, and remove what killed runs have left beside the output.

    A nested reservation of the same output does nothing. If the folder above the output is missing,
    there is nothing to lock yet.

    Yields:
        The output's path without symbolic links.

    Raises:
        OutputError: the output may not be written, another run writes it, or the folder that a
            killed run has moved away cannot be moved back.
    """
    with ExitStack() as stack:
        try:
            path, reserved = _check_place(out), _reserved.get()
            if path not in reserved and path.parent.is_dir():
                file = path.with_name(f"{_prefix(path)}lock")
                lock = safe_files.lock_file(file)
                if lock is None:
                    raise OutputError(
                        f"{out}: another run writes here; wait for it, or choose another --out"
                    )
                stack.callback(safe_files.remove_lock, lock, file)
                _reserved.set(reserved | {path})
                stack.callback(_reserved.set, reserved)
                for workspace in _left_workspaces(path):
                    _finish_replacement(workspace, path)
        except NAME_ERRORS as error:
            raise _not_writable(out, error) from error
        yield path


def check_output_folder(out: Path, kind: OutputKind, *, force: bool) -> None:
    """Raise an error, before a run begins, if a folder may not be replaced.

    Raises:
        OutputError: the folder may not be replaced; the message says what to do instead.
    """
    with reserve(out) as path:
        try:
            _check_replaceable(out, path, kind, force=force)
        except OSError as error:
            raise _not_writable(out, error) from error


def has_manifest(folder: Path, kind: OutputKind) -> bool:
    """Whether a folder holds a manifest of this kind that Headbook wrote."""
    return "headbook" in read_object(folder / kind.manifest)


def _check_place(out: Path) -> Path:
    r"""Return the absolute path of an output, with links above it resolved.

    Raises:
        OSError, ValueError, RuntimeError: no file can have this name, or the place cannot be
            written.
        OutputError: nothing may be written there; the message says what to do instead.
    """
    path, current = out.resolve(), Path.cwd().resolve()
    if out.is_symlink():
        raise OutputError(f"{out}: a symbolic link; expected a place of its own, not a link")
    if path in {current, Path.home().resolve(), *current.parents} or path == path.parent:
        raise OutputError(
            f"{out}: the current folder, one above it or the home folder; "
            "expected a folder of its own, for example --out=site"
        )
    if os.path.ismount(path):
        raise OutputError(f"{out}: mounted, so it cannot be renamed; expected a folder inside it")
    nearest = next(parent for parent in path.parents if parent.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is a file")
    for folder in (nearest, path) if path.is_dir() else (nearest,):
        if not _writable(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return path


def _writable(folder: Path) -> bool:
    """Whether a folder can be written, or is being replaced by another run at this moment."""
    mode = os.W_OK | os.X_OK
    return os.access(folder, mode) or not folder.exists() or os.access(folder, mode)


def _check_replaceable(out: Path, path: Path, kind: OutputKind, *, force: bool) -> None:
    r"""Raise an error if an output is neither empty nor, with ``force``, written by Headbook alone.

    Raises:
        OSError: a folder cannot be read.
        OutputError: the output may not be replaced; the message says what to do instead.
    """
    if not os.path.lexists(path):
        return
    is_folder = path.is_dir() and not path.is_symlink()
    if is_folder and not any(path.iterdir()):
        return
    kind_found = _output_kind(path) if is_folder else None
    if kind_found is None:
        raise OutputError(
            f"{out}: holds something that Headbook did not write; expected a new folder"
        )
    if kind_found is not kind:
        raise OutputError(
            f"{out}: holds Headbook's {kind_found}; expected a new folder, or one with a {kind}"
        )
    if not force:
        raise OutputError(f"{out}: exists already; pass --force to replace it")
    if file_list(path, kind) is None or not has_manifest(path, kind):
        raise OutputError(
            f"{out}: without a manifest or list of files that this Headbook can read; expected a "
            "new folder; or move what is yours out of it and delete it"
        )
    foreign = first_foreign(path, file_list(path, kind))
    if foreign is not None:
        raise OutputError(
            f"{out}: holds {foreign}; expected nothing of your own in a "
            "folder that --force replaces; move it elsewhere, or choose another --out; nothing was "
            "changed"
        )


def _finish_replacement(workspace: Path, path: Path) -> None:
    r"""Complete or undo a replacement, in the run that began it or in the run after a killed one.

    Raises:
        OSError: the old folder cannot be renamed.
        OutputError: the old folder stays in the workspace, because another folder is in its place
            or a file of someone else is in it.
    """
    old = workspace / OLD
    unfinished = os.path.lexists(workspace / NEW)
    if not os.path.lexists(old):
        return
    is_folder = old.is_dir() and not old.is_symlink()
    if unfinished and is_folder and not os.path.lexists(path):
        old.rename(path)
    elif unfinished or not is_folder or _holds_foreign(old):
        raise OutputError(
            f"{path}: a run was stopped while it replaced this folder; the folder from before is "
            f"kept in {old}; move it elsewhere or delete it, then run the command again"
        )
    else:
        old.rename(workspace / DELETED)  # no other run may restore it while it is deleted


def _output_kind(folder: Path) -> OutputKind | None:
    """Return the kind of an output folder, or None if Headbook did not write the folder."""
    for kind in OutputKind:
        if file_list(folder, kind) is not None:
            return kind
    return next((kind for kind in OutputKind if has_manifest(folder, kind)), None)


def file_list(folder: Path, kind: OutputKind) -> FileList | None:
    """Return the list of files of an output folder, or None if it has no such list."""
    return read_file_list(folder, kind.file_list, kind)


def _holds_foreign(folder: Path) -> bool:
    kind = _output_kind(folder)
    return first_foreign(folder, file_list(folder, kind) if kind else None) is not None


def _not_writable(out: Path, error: Exception) -> OutputError:
    """Return the error to raise if an output cannot be written."""
    reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
    if getattr(error, "errno", None) in DISK_FULL:
        return OutputError(
            f"{out}: {reason}; expected room for all of it, beside what is there now; nothing was "
            "changed"
        )
    return OutputError(f"{out}: {reason}; expected a folder that can be written")


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Yield an empty folder in the system's temporary folder; it is removed afterwards.

    Raises:
        OSError: the folder cannot be created.
    """
    path = Path(tempfile.gettempdir(), name)
    for _ in _left_workspaces(path):
        pass
    with _workspace(path) as folder:
        yield folder


@contextmanager
def _workspace(path: Path) -> Iterator[Path]:
    """Yield a new hidden folder beside an output; it is removed unless it holds the old output."""
    folder = Path(tempfile.mkdtemp(prefix=_prefix(path), dir=path.parent))
    try:
        with (folder / OWNER).open("wb", buffering=0) as owner:
            with suppress(OSError):  # no note without a lock: later runs then keep the folder
                safe_files.lock_stream(owner)
                # Written after the lock: folders with a note are in use or abandoned.
                owner.write(NOTE + os.fsencode(path.name))
            try:
                yield folder
            finally:
                if not os.path.lexists(folder / OLD):
                    clear_folder(folder, OWNER)
    finally:
        _remove_cleared(folder)


def _left_workspaces(path: Path) -> Iterator[Path]:
    r"""Yield the workspaces that killed runs have left beside an output, then remove each.

    A workspace is one of Headbook's if it is a folder of this user, not a link, and its owner file
    holds `NOTE`.
    """
    pattern = re.compile(re.escape(_prefix(path)) + r"[a-z0-9_]{8}")
    try:
        candidates = [file for file in path.parent.iterdir() if pattern.fullmatch(file.name)]
    except OSError:  # the folder can be written but not listed
        return
    for folder in candidates:
        file = folder / OWNER
        try:
            is_ours = is_own_folder(folder) and is_file(file)
            if not is_ours or file.read_bytes() != NOTE + os.fsencode(path.name):
                continue
            owner = file.open("r+b")
        except OSError:
            continue
        with owner:
            try:
                safe_files.lock_stream(owner)
            except OSError:  # workspace in use, or file system without locks
                continue
            yield folder
            clear_folder(folder, OWNER)
        _remove_cleared(folder)


def _prefix(path: Path) -> str:
    """Return the beginning of the names of hidden files and folders beside an output."""
    name = path.name.encode(errors="ignore")[:MAX_NAME_BYTES].decode(errors="ignore")
    return f".{name}.headbook-"


def clear_folder(folder: Path, *keep: str) -> None:
    """Remove the content of a folder as far as possible, except the files named in ``keep``."""
    for entry in [*os.scandir(folder)]:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name not in keep:
            with suppress(OSError):
                Path(entry).unlink()


def _remove_cleared(folder: Path) -> None:
    """Remove a workspace that holds its owner file alone."""
    with suppress(OSError):
        if [entry.name for entry in folder.iterdir()] == [OWNER]:
            (folder / OWNER).unlink()
            folder.rmdir()


def is_own_folder(path: Path) -> bool:
    """Whether a path is a folder of this user, not a link to one."""
    is_owned = not hasattr(os, "getuid") or path.lstat().st_uid == os.getuid()
    return is_owned and path.is_dir() and not path.is_symlink()


def store_folder(out: Path) -> Path:
    """Return the folder beside an output that stores finished parts until the run ends."""
    path = out.resolve()
    return path.with_name(f"{_prefix(path)}work")


def is_site(source: Path, *, anonymous: bool) -> bool:
    """Whether a folder holds a site, to be packed unchanged, rather than a study.

    Raises:
        StudyError: the folder holds neither, or a site although ``anonymous`` requires a study.
    """
    if has_manifest(source, OutputKind.STUDY):
        return False
    if not has_manifest(source, OutputKind.SITE):
        raise StudyError(
            f"{source}: neither a site nor a study; expected a folder that Headbook has written"
        )
    if anonymous:
        raise StudyError(
            f"{source}: a site; expected a study for --anonymous, which draws the pages again "
            "without names: a folder of headbook collect, or of headbook build --keep-study"
        )
    return True
