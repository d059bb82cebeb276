"""Trials on folders that may not be written, and on read-only and full file systems.

Needs root, which mounts small file systems in memory. Trials "without permission" give up root's
capabilities, so that the permissions of files hold for them.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headbook.output_folder import store_folder
from trials import OFF, SHARD, Desk, Line, content, left, small_shards, trial

NOBODY = 65534


@contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """Mount a small file system in memory."""
    place.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place))
    try:
        yield place
    finally:
        _run("umount", "-l", str(place))


def remount(place: Path, options: str) -> None:
    """Change the options of a mounted file system."""
    _run("mount", "-o", f"remount,{options}", str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)  # noqa: S603


def disks(desk: Desk) -> Iterator[Line]:
    """Run all trials of this file."""
    if os.getuid():
        yield {"trial": "left out", "said": "needs root"}
        return
    place = desk.folder / "disks"
    place.mkdir(mode=0o755)
    many = desk.texts("disks.txt", 5 * SHARD)
    study, site = place / "study", place / "site"
    yield trial("collect", desk.command(desk.few, study, OFF), wanted=(0,))
    yield trial("render", ["render", str(study), f"--out={site}"], wanted=(0,))
    with small_shards():
        yield from _closed_work(desk, many, place / "open")
    yield from _closed(desk, study, place / "closed")
    yield from _read_only(desk, study, site, place)
    yield from _full(desk, study, site, place / "full")
    with small_shards():
        yield from _full_work(desk, many, place)


def _closed_work(desk: Desk, many: Path, place: Path) -> Iterator[Line]:
    """Folders of finished parts without permission."""
    place.mkdir()
    command = desk.command(many, place / "study", OFF)
    work = store_folder(place / "study")
    for owner, modes in ((NOBODY, (0o755, 0o700, 0)), (0, (0o500, 0))):
        for mode in modes:
            work.mkdir()
            work.chmod(mode)
            os.chown(work, owner, owner)
            whose = "another user's" if owner else "own"
            yield trial(f"{whose} work folder, mode {mode:o}", command, plain=True)
            work.rmdir()
    for name in ("plan.json", "lock", "model", "*.part"):
        desk.stopped(many, place / "study", plain=True)
        for path in work.rglob(name):
            path.chmod(0)
        wanted = (0,) if name == "*.part" else (2,)
        yield trial(f"own work folder, {name} of mode 0", command, plain=True, wanted=wanted)
        shutil.rmtree(work, ignore_errors=True)


def _closed(desk: Desk, study: Path, place: Path) -> Iterator[Line]:
    """Yield outputs, studies, inputs and models without permission."""
    place.mkdir(mode=0o755)
    shutil.copytree(study, place / "study")
    os.chown(place, NOBODY, NOBODY)
    yield trial(
        "collect into another user's folder",
        desk.command(desk.few, place / "new", OFF),
        plain=True,
    )
    yield trial(
        "replace a study there",
        desk.command(desk.few, place / "study", OFF, "--force"),
        plain=True,
    )
    os.chown(place, 0, 0)
    render = ["render", str(study), f"--out={place / 'site'}"]
    collect = desk.command(desk.few, place / "new", OFF)
    tried = [(file, render) for file in (study, *sorted(study.iterdir()))]
    model = ("model.safetensors", "config.json", "tokenizer.json")
    tried += [(file, collect) for file in (desk.few, *(desk.model / name for name in model))]
    for file, command in tried:
        if file.name == "files.json":  # of which rendering has no need
            continue
        mode = file.stat().st_mode
        file.chmod(0)
        yield trial(f"{command[0]}, {file.name} of mode 0", command, plain=True)
        file.chmod(mode)


def _read_only(desk: Desk, study: Path, site: Path, place: Path) -> Iterator[Line]:
    with mounted(place / "fixed", "size=20m") as fixed:
        shutil.copytree(study, fixed / "study")
        remount(fixed, "ro")
        commands = {
            "collect": desk.command(desk.few, fixed / "new"),
            "replace a study": desk.command(desk.few, fixed / "study", "--force"),
            "render": ["render", str(study), f"--out={fixed / 'site'}"],
            "figures": ["figures", str(study), f"--out={fixed / 'figures'}"],
            "pack": ["pack", str(site), f"--out={fixed / 'site.zip'}"],
        }
        for name, command in commands.items():
            yield trial(f"{name}, read-only", command)
        render = ["render", str(fixed / "study"), f"--out={place / 'other'}"]
        yield trial("render a study on a read-only file system", render, wanted=(0,))


def _full(desk: Desk, study: Path, site: Path, place: Path) -> Iterator[Line]:
    """Yield outputs that do not fit; a failed write leaves nothing."""
    commands = {
        "collect": desk.command(desk.few, place / "new", OFF),
        "render": ["render", str(study), f"--out={place / 'site'}"],
        "figures": ["figures", str(study), f"--out={place / 'figures'}"],
        "pack": ["pack", str(site), f"--out={place / 'site.zip'}"],
    }
    for name, command in commands.items():
        for size in (0, 8, 40, 100, 300):
            with mounted(place, f"size={max(size, 4)}k"):
                if not size:
                    (place / "x").write_bytes(bytes(4096))
                before = left(place)
                line = trial(f"{name} onto {size} KB", command, wanted=(0, 2))
                if line["code"] and left(place) != before:
                    line["fault"] = f"left behind: {left(place)}"
                yield line
    with mounted(place, "size=20m"):
        shutil.copytree(study, place / "study")
        used = sum(len(body) for body in content(study).values()) // 1024
        remount(place, f"size={used + 60}k")
        replace = desk.command(desk.few, place / "study", OFF, "--force")
        line = trial("replace a study on a full file system", replace)
        if content(place / "study") != content(study) or left(place) != ["study"]:
            line["fault"] = f"the old study is not as it was, or {left(place)}"
        yield line


def _full_work(desk: Desk, many: Path, place: Path) -> Iterator[Line]:
    """File systems that take some of the parts; with room the same command goes on."""
    yield trial("undisturbed", desk.command(many, place / "whole", OFF), wanted=(0,))
    with mounted(place / "full", "size=20m") as full:
        command = desk.command(many, full / "study", OFF)
        for size in (16, 60, 120, 250, 500):
            remount(full, f"size={size}k")
            yield trial(f"parts on {size} KB", command)
            remount(full, "size=20m")
            line = trial("the same with room", command, wanted=(0,))
            if content(full / "study") != content(place / "whole"):
                line["fault"] = "other bytes"
            yield line
            shutil.rmtree(full / "study", ignore_errors=True)
