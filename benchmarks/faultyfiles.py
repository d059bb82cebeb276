"""Trials with damaged GGUF files, models without numbers, archives and odd sentences."""

import gzip
import json
import resource
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import psutil
import safetensors.torch
import torch

import gguf_files as written
import tiny
from trials import FAST, OFF, Desk, Line, trial

BOMB = 1024  # MiB that each archive holds
MEMORY = 4 << 30  # bytes of address space that a trial with an archive may have besides libraries
PAIRS = "source\ttarget\nthe cat\tthe dog\nthe old bird\tthe red house\nthe dog\tthe old cat\n"
HUGE = {"2^63": 1 << 63, "2^64-1": (1 << 64) - 1, "10^9": 10**9, "0": 0}
LARGE = {"0": 0, "99": 99, "2^32-1": (1 << 32) - 1}
SPOILT = {
    "bert": ("query.weight", "LayerNorm.weight", "embeddings.weight", "predictions.bias"),
    "gpt2": ("c_attn.weight", "ln_1.weight", "ln_f.weight", "wte.weight"),
    "marian": ("q_proj.weight", "shared.weight", "final_logits_bias"),
}
ODD = {
    "NUL": "the \0 cat", "NUL alone": "\0", "escapes": "\x1b[31mthe cat\x07",
    "a noncharacter": "the \uffff cat", "a bidi override": "the \u202e cat", "CR": "the\rcat\r",
}  # fmt: skip
IDS = {
    "duplicate ids": [("a", "the cat"), ("a", "the dog"), ("a", "the cat")],
    "NUL in an id": [("a\0b", "the cat"), ("c", "the dog")],
    "ids like paths": [("../../x", "the cat"), ("/etc/passwd", "the dog")],
}


def gguf_files(desk: Desk) -> Iterator[Line]:
    """Truncate a GGUF file and change the numbers of its header."""
    words = tiny.write("gpt2", desk.folder / "gpt2")
    llama = written.original(words, desk.folder / "llama")
    body = written.write(llama, desk.folder / "whole.gguf").read_bytes()
    file, out = desk.folder / "tiny.gguf", desk.folder / "gguf"
    for name, changed in (_cut(desk, body) | _changed(desk, body)).items():
        file.write_bytes(changed)
        yield trial(name, desk.command(desk.few, out, OFF, model=file), limit=40)
        shutil.rmtree(out, ignore_errors=True)


def _reader(desk: Desk) -> Any:
    make: Any = gguf.GGUFReader
    return make(desk.folder / "whole.gguf")


def _cut(desk: Desk, body: bytes) -> dict[str, bytes]:
    data = _reader(desk).data_offset
    places = (4, 8, 12, 16, 20, 24, 40, 1000, data - 1, data, data + 100, len(body) // 2)
    return {f"cut at {at:,}": body[:at] for at in (*places, len(body) - 1)}


def _changed(desk: Desk, body: bytes) -> dict[str, bytes]:
    """Return the file with one number of its header changed, by what was changed."""
    reader = _reader(desk)
    (query,) = (each.field for each in reader.tensors if each.name == "blk.0.attn_q.weight")
    field = reader.fields
    start = reader.data.ctypes.data

    def place(part: Any) -> int:
        return int(part.ctypes.data - start)

    tokens = field["tokenizer.ggml.tokens"].parts
    long = {
        "tensors": 8,
        "fields": 16,
        "length of a tensor's name": place(query.parts[0]),
        "first size of a tensor": place(query.parts[3]),
        "offset of a tensor": place(query.parts[5]),
        "entries of the vocabulary": place(tokens[4]),
        "length of a vocabulary entry": place(tokens[5]),
        "length of the architecture's name": place(field["general.architecture"].parts[3]),
    }
    short = {
        "version": 4,
        "dimensions of a tensor": place(query.parts[2]),
        "layers": place(field["llama.block_count"].parts[-1]),
        "heads": place(field["llama.attention.head_count"].parts[-1]),
        "width": place(field["llama.embedding_length"].parts[-1]),
    }

    def put(at: int, form: str, value: int) -> bytes:
        return body[:at] + struct.pack(form, value) + body[at + struct.calcsize(form) :]

    changes = {f"{n}: {k}": put(at, "<Q", v) for n, at in long.items() for k, v in HUGE.items()}
    changes |= {f"{n}: {k}": put(at, "<I", v) for n, at in short.items() for k, v in LARGE.items()}
    return changes | {"format of a tensor: 99": put(place(query.parts[4]), "<I", 99)}


def models(desk: Desk) -> Iterator[Line]:
    """Models whose weights are NaN or infinite: all of them, or one tensor."""
    (desk.folder / "pairs.tsv").write_text(PAIRS)
    for family, ends in SPOILT.items():
        source = tiny.write(family, desk.folder / f"sound-{family}", head=True)
        weights = safetensors.torch.load_file(source / "model.safetensors")
        names = [name for name in weights if name.endswith(ends)]
        texts = desk.folder / "pairs.tsv" if family == "marian" else desk.few
        for name in ("all", *names):
            for value in (float("nan"), float("inf")):
                folder, out = desk.folder / "spoilt", desk.folder / "spoilt-study"
                shutil.copytree(source, folder)
                changed = {
                    n: (torch.full_like(w, value) if name in {"all", n} else w).contiguous()
                    for n, w in weights.items()
                }
                file = folder / "model.safetensors"
                safetensors.torch.save_file(changed, file, metadata={"format": "pt"})
                command = desk.command(texts, out, "--importance=full", model=folder)
                yield trial(f"{family}: {name} = {value}", command, wanted=(0, 2))
                shutil.rmtree(folder)
                shutil.rmtree(out, ignore_errors=True)


def archives(desk: Desk) -> Iterator[Line]:
    """Yield archives that inflate to a gigabyte, in a limited address space."""
    place = desk.folder / "archives"
    place.mkdir()
    shutil.make_archive(str(place / "texts"), "zip", desk.folder, "few.txt")
    shutil.copy(place / "texts.zip", place / "zip.txt.gz")
    bombs = [
        _bomb(place / "line.txt.gz", b"", b"the cat "),
        _bomb(place / "zeros.txt.gz", b"", b"\0"),
        _bomb(place / "blank.txt.gz", b"the cat\n", b"\n"),
        _bomb(place / "text.jsonl.gz", b'{"text": "', b"the cat "),
        _bomb(place / "number.jsonl.gz", b'{"text": "a", "n": ', b"1"),
        _bomb(place / "cell.csv.gz", b"text\n", b"the cat "),
        _bomb(place / "lines.csv.gz", b'text\n"', b"the cat\n"),
        _bomb(place / "tree.conllu.gz", b"# text = ", b"the cat "),
        place / "zip.txt.gz",
        place / "texts.zip",
    ]
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + MEMORY
    for file in bombs:
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
        line = trial(file.name, desk.command(file, place / "study", OFF))
        resource.setrlimit(resource.RLIMIT_AS, before)
        yield line | {"KiB": file.stat().st_size >> 10}


def _bomb(file: Path, head: bytes, filling: bytes) -> Path:
    """Write an archive that repeats some bytes, and return it."""
    with gzip.open(file, "wb", compresslevel=6) as stream:
        stream.write(head)
        for _ in range(BOMB):
            stream.write(filling * ((1 << 20) // len(filling)))
    return file


def sentences(desk: Desk) -> Iterator[Line]:
    """Sites of sentences with odd characters and odd ids; no page holds a control character."""
    inputs = {f"a sentence with {name}": f"{text}\nthe dog runs\n" for name, text in ODD.items()}
    for name, rows in IDS.items():
        inputs[name] = "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in rows)
    for name, text in inputs.items():
        file = desk.folder / ("odd.jsonl" if name in IDS else "odd.txt")
        file.write_text(text)
        site = desk.folder / "odd-site"
        given = [f"--model={desk.model}", f"--out={site}", *FAST, OFF]
        line = trial(name, ["build", str(file), *given], wanted=(0,))
        bodies = {page: page.read_bytes() for page in site.rglob("*.html")}
        if wrong := [p.name for p, body in bodies.items() if {*body} & {0, 7, 27}]:
            line["fault"] = f"control characters in {wrong}"
        yield line
        shutil.rmtree(site, ignore_errors=True)
