"""Stored studies that are changed after they were saved, with right sums or without."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.numpy
from safetensors import safe_open

Edit = Callable[[dict[str, Any]], object]


def reseal(folder: Path) -> None:
    """Write right sums into the manifest of a study, whatever its files hold."""
    file = folder / "manifest.json"
    table = json.loads(file.read_text())
    table.pop("sha256", None)
    text = json.dumps(table, sort_keys=True, indent=1)
    sums = {each.name: _sum(each.read_bytes()) for each in folder.iterdir() if each != file}
    sums["manifest.json"] = _sum(text.encode())
    written = table | {"sha256": {n: s for n, s in sums.items() if n != "files.json"}}
    file.write_text(json.dumps(written, sort_keys=True, indent=1) + "\n")


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def edit_manifest(folder: Path, edit: Edit) -> None:
    """Change the manifest of a study as somebody who knows how sums are made would."""
    file = folder / "manifest.json"
    table = json.loads(file.read_text())
    edit(table)
    file.write_text(json.dumps(table))
    reseal(folder)


def edit_arrays(folder: Path, edit: Edit) -> None:
    """Change the arrays of a study, by name, with right sums."""
    file = folder / "arrays.safetensors"
    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata()
        arrays = {name: opened.get_tensor(name) for name in [*opened.keys()]}
    edit(arrays)
    file.write_bytes(safetensors.numpy.save(arrays, metadata=metadata))
    reseal(folder)
