"""A study's files: JSON for what it says, safetensors for sums and maps, Parquet for rows."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from headbook.errors import StudyError
from headbook.study.manifest import Manifest
from headbook.study.querykeys import Place, QueriesAndKeys
from headbook.study.sentencedata import (
    Exemplar,
    HeadName,
    Ranking,
    SentenceData,
    StoredSentence,
    StoredText,
)
from headbook.study.summaries.packing import Arrays, pack, unpack
from headbook.study.summaries.sums import CorpusSums, HeadTable
from headbook.terms import Side, Twin

EXEMPLARS = ("stack", "layer", "head", "ranking", "rank", "sentence", "score", "query", "key")


DEMONSTRATION = "demonstration.parquet"
# What stands before the names of these arrays.
NORMS, ENDS, ROLLOUTS, QUERIES_AND_KEYS = "norms", "ends", "rollouts", "scores"
Tables = Mapping[str, HeadTable]
Twins = Mapping[Twin, Tables]


class Parts(NamedTuple):
    """What is stored of a study.

    Attributes:
        fitted: the numbers that follow from the statistics of the sample, so that who reads them
            need not fit anything; None where an older version has stored none.
    """

    manifest: Manifest
    corpus_sums: CorpusSums
    sentence_data: SentenceData
    twins: Twins
    fitted: Tables | None


def save(folder: Path, parts: Parts) -> None:
    """Write all files of a study into an empty folder."""
    manifest, corpus_sums, sentence_data, twins, fitted = parts
    (folder / "manifest.json").write_text(manifest.to_json() + "\n", encoding="utf-8")
    arrays: Arrays = {}
    named = {str(twin): tables for twin, tables in twins.items()}
    kept = {"model": corpus_sums, "twins": named, "fitted": fitted}
    layout = json.dumps([pack(each, name, arrays) for name, each in kept.items()])
    # Written by us, so that others may read them: safetensors' own files are private.
    (folder / "sums.safetensors").write_bytes(
        safetensors.numpy.save(arrays, metadata={"told": layout})
    )
    maps: Arrays = {
        f"{stack}/{index}": cells for (stack, index), cells in sentence_data.maps.items()
    }
    maps |= {_map_name(e.head, e.index): e.attention for e in sentence_data.exemplars}
    maps |= {_norms_name(e.head, e.index): e.norms for e in sentence_data.exemplars if len(e.norms)}
    maps |= {f"{_map_name(e.head, e.index)}/written": e.written for e in sentence_data.exemplars
             if e.written.size}  # fmt: skip
    maps |= {
        f"{NORMS}/{stack}/{index}": norm for (stack, index), norm in sentence_data.norms.items()
    }
    maps |= {f"{ENDS}/{stack}/{index}": end for (stack, index), end in sentence_data.ends.items()}
    maps |= {
        f"{ROLLOUTS}/{stack}/{index}/{kind}": shares
        for (stack, index, kind), shares in sentence_data.rollouts.items()
    }
    maps |= {
        f"{QUERIES_AND_KEYS}/{stack}/{index}/{layer}/{name}": array
        for (stack, index, layer), queries_and_keys in sentence_data.queries_and_keys.items()
        for name, array in vars(queries_and_keys).items()
    }
    # Arrays of no dimension would get one by `np.ascontiguousarray`.
    maps = {name: np.require(cells, requirements="C") for name, cells in maps.items()}
    (folder / "maps.safetensors").write_bytes(safetensors.numpy.save(maps))
    sentences = [_sentence_row(s) for s in sentence_data.sentences.values()]
    pd.DataFrame(sentences).to_parquet(folder / "sentences.parquet", index=False)
    exemplars = [_exemplar_row(e) for e in sentence_data.exemplars]
    pd.DataFrame(exemplars, columns=[*EXEMPLARS]).to_parquet(
        folder / "exemplars.parquet", index=False
    )
    sentence_data.tokens.to_parquet(folder / "tokens.parquet", index=False)
    sentence_data.nearest.to_parquet(folder / "nearest.parquet", index=False)
    if len(sentence_data.demonstration):
        sentence_data.demonstration.to_parquet(folder / DEMONSTRATION, index=False)


def load(folder: Path) -> Parts:
    """Read what `save` wrote.

    Raises:
        StudyError: a file is missing or broken.
    """
    if not (folder / "manifest.json").is_file():
        raise StudyError(f"{folder}: no manifest.json; expected a folder that collect has written")
    try:
        manifest = Manifest.from_json((folder / "manifest.json").read_text(encoding="utf-8"))
        with safe_open(folder / "sums.safetensors", framework="numpy") as file:
            layout = json.loads(file.metadata()["told"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        corpus_sums = unpack(CorpusSums, layout[0], "model", arrays)
        named = unpack(Mapping[str, Tables], layout[1], "twins", arrays)
        twins = {Twin.of(name): tables for name, tables in named.items()}
        fitted = unpack(Tables, layout[2], "fitted", arrays) if len(layout) > 2 else None
        maps = safetensors.numpy.load_file(folder / "maps.safetensors")
        frames = {
            name: pd.read_parquet(folder / f"{name}.parquet")
            for name in ("sentences", "exemplars", "tokens", "nearest")
        }
        sentence_data = _sentence_data(maps, frames)
        if (folder / DEMONSTRATION).exists():
            table = pd.read_parquet(folder / DEMONSTRATION)
            sentence_data = replace(sentence_data, demonstration=table)
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError) as error:
        came = (str(error) or type(error).__name__).splitlines()[0]
        raise StudyError(f"{folder}: {came}; expected the files of a study, whole") from error
    return Parts(manifest, corpus_sums, sentence_data, twins, fitted)


def _map_name(head: HeadName, index: int) -> str:
    return f"{head.stack}/{index}/{head.layer}/{head.head}"


def _norms_name(head: HeadName, index: int) -> str:
    return f"{_map_name(head, index)}/norms"


def _sentence_row(sentence: StoredSentence) -> dict[str, Any]:
    texts = {side: vars(text) for side, text in sentence.texts.items()}
    return {
        "index": sentence.index,
        "id": sentence.id,
        "listed": sentence.listed,
        "metadata": json.dumps(sentence.metadata),
        "texts": json.dumps(texts),
    }


def _exemplar_row(exemplar: Exemplar) -> dict[str, Any]:
    values = (
        *exemplar.head,
        str(exemplar.ranking),
        exemplar.rank,
        exemplar.index + 1,
        exemplar.score,
        exemplar.query,
        exemplar.key,
    )
    return dict(zip(EXEMPLARS, values, strict=True))


def _sentence_data(maps: Arrays, frames: dict[str, pd.DataFrame]) -> SentenceData:
    sentences = (_sentence(row) for row in frames["sentences"].to_dict("records"))
    listed = {
        (stack, int(index)): cells
        for (stack, index), cells in (
            (tuple(name.split("/")), cells) for name, cells in maps.items() if name.count("/") == 1
        )
    }
    norms = {(stack, int(index)): maps[name] for name, stack, index in _named(maps, NORMS)}
    ends = {(stack, int(index)): maps[name] for name, stack, index in _named(maps, ENDS)}
    rollouts = {
        (stack, int(index), kind): maps[name] for name, stack, index, kind in _named(maps, ROLLOUTS)
    }
    return SentenceData(
        sentences={sentence.index: sentence for sentence in sentences},
        maps=listed,
        exemplars=tuple(_exemplars(frames["exemplars"].itertuples(index=False), maps)),
        tokens=frames["tokens"],
        nearest=frames["nearest"],
        norms=norms,
        ends=ends,
        rollouts=rollouts,
        queries_and_keys=_queries_and_keys(maps),
    )


def _queries_and_keys(maps: Arrays) -> dict[Place, QueriesAndKeys]:
    arrays: dict[Place, Arrays] = {}
    for name, stack, index, layer, part in _named(maps, QUERIES_AND_KEYS):
        arrays.setdefault((stack, int(index), int(layer)), {})[part] = maps[name]
    return {place: QueriesAndKeys(**array) for place, array in arrays.items()}


def _named(maps: Arrays, kind: str) -> Iterator[tuple[str, ...]]:
    """Names of the arrays of one kind, whole and then in parts."""
    for name in maps:
        first, *parts = name.split("/")
        if first == kind:
            yield name, *parts


def _sentence(row: dict[Any, Any]) -> StoredSentence:
    texts = {
        Side(side): StoredText(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in text.items()}
            | {
                name: tuple((start, end) for start, end in text.get(name, ()))
                for name in ("spans", "parts")
            }
        )
        for side, text in json.loads(row["texts"]).items()
    }
    return StoredSentence(
        int(row["index"]), row["id"], json.loads(row["metadata"]), texts, bool(row["listed"])
    )


def _exemplars(rows: Iterable[Any], maps: Arrays) -> Iterable[Exemplar]:
    for row in rows:
        head = HeadName(row.stack, int(row.layer), int(row.head))
        index = int(row.sentence) - 1
        yield Exemplar(
            head,
            Ranking(row.ranking),
            int(row.rank),
            index,
            float(row.score),
            int(row.query),
            int(row.key),
            maps[_map_name(head, index)],
            maps.get(_norms_name(head, index), np.zeros(0, np.float32)),
            maps.get(f"{_map_name(head, index)}/written", np.zeros((2, 0, 0), np.uint8)),
        )
