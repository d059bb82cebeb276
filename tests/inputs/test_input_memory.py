"""Reading takes as much memory for ten times as many sentences."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headbook.inputs import Selection, open_corpus

TEXT = "x" * 400
WORD = f"\t{TEXT}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
FEW, MANY = 1500, 15_000
SLACK = 1.25


def parquet(file: Path, size: int) -> None:
    """All rows in one group, as most writers make it."""
    table = pa.table({"text": [f"{number} {TEXT}" for number in range(size)]})
    pq.write_table(table, file, data_page_size=1 << 14, use_dictionary=False, compression="none")


def lines(line: Callable[[int], str], head: str = "") -> Callable[[Path, int], None]:
    def write(file: Path, size: int) -> None:
        text = head + "".join(map(line, range(size)))
        file.write_bytes(gzip.compress(text.encode(), 1) if file.suffix == ".gz" else text.encode())

    return write


WRITERS = {
    "a.txt": lines(lambda n: f"{n} {TEXT}\n"),
    "a.txt.gz": lines(lambda n: f"{n} {TEXT}\n"),
    "a.jsonl": lines(lambda n: json.dumps({"text": f"{n} {TEXT}", "n": n}) + "\n"),
    "a.csv": lines(lambda n: f"{n} {TEXT},{n}\n", "text,n\n"),
    "a.conllu": lines(lambda n: f"# sent_id = {n}\n1{WORD}"),
    "a.parquet": parquet,
}


def peak(file: Path, selection: Selection) -> int:
    """Bytes of Python and of Arrow that reading a file twice takes at most."""
    before, arrow = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    try:
        with open_corpus([file], selection) as corpus:
            for _ in corpus:
                arrow = max(arrow, pa.total_allocated_bytes() - before)
        return tracemalloc.get_traced_memory()[1] + arrow
    finally:
        tracemalloc.stop()


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    scale = 5 if name == "a.conllu" else 1  # its parser takes its time
    peaks = []
    for size in (FEW, FEW, MANY):  # twice, since the first loads what is used
        WRITERS[name](tmp_path / name, size // scale)
        peaks.append(peak(tmp_path / name, Selection()))
    assert peaks[2] < SLACK * peaks[1], peaks


def test_memory_of_a_sample_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for size in (FEW, FEW, MANY):
        WRITERS["a.txt"](tmp_path / "a.txt", size)
        peaks.append(peak(tmp_path / "a.txt", Selection(sample=200)))
    assert peaks[2] < SLACK * peaks[1], peaks
