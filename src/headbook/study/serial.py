"""A value of ours as bytes, and back."""

import json
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import safetensors.numpy

from headbook.study.summaries.packing import Packed, pack, unpack

LAYOUT, TABLE = "layout", "table:"
CODEC = "zstd"  # much of what a few sentences give is zero: a tenth of the size
LENGTH = 8  # bytes of the length before compression


def serialised(value: Any) -> bytes:
    """Arrays, tables and the rest of a value, as one file."""
    packed = Packed()
    layout = json.dumps(pack(value, "v", packed)).encode()
    arrays = {**packed.arrays, LAYOUT: np.frombuffer(layout, np.uint8)}
    for name, table in packed.tables.items():
        arrays[TABLE + name] = np.frombuffer(table.to_parquet(index=False), np.uint8)
    body = safetensors.numpy.save(arrays)
    packed_body: bytes = pa.compress(body, codec=CODEC, asbytes=True)
    return len(body).to_bytes(LENGTH, "little") + packed_body


def deserialised(kind: Any, body: bytes) -> Any:
    """What `serialised` wrote."""
    size = int.from_bytes(body[:LENGTH], "little")
    arrays = safetensors.numpy.load(pa.decompress(body[LENGTH:], size, codec=CODEC, asbytes=True))
    layout = json.loads(arrays.pop(LAYOUT).tobytes())
    tables = {
        name.removeprefix(TABLE): pd.read_parquet(BytesIO(arrays.pop(name).tobytes()))
        for name in [name for name in arrays if name.startswith(TABLE)]
    }
    return unpack(kind, layout, Packed(arrays, tables))
