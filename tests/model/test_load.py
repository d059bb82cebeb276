"""Loading a checkpoint takes its weights once: what is on the disk is mapped, not copied."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from headbook.model.load import load_model

LAYERS, WIDTH = 8, 1024
PROGRAM = """
import json, resource, sys
from headbook.model.load import load_model

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def own():
    with open("/proc/self/smaps_rollup") as lines:
        (line,) = [line for line in lines if line.startswith("Anonymous:")]
    return int(line.split()[1]) * 1024

load_model("demo", device="cpu", dtype=sys.argv[2])  # what any load needs
before, without = peak(), own()
network = load_model(sys.argv[1], device="cpu", dtype=sys.argv[2]).network
for weight in network.parameters():
    weight.sum()  # mapped weights are read
size = sum(weight.nbytes for weight in network.parameters())
print(json.dumps([peak() - before, own() - without, size]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random decoder of about 0.1 billion parameters, stored in bfloat16."""
    made = tmp_path_factory.mktemp("large")
    tokenizer = load_model("demo", device="cpu").tokenizer
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=16,
        dtype=torch.bfloat16,
    )
    network: Any = LlamaForCausalLM(config)
    network.to(torch.bfloat16)
    network.save_pretrained(made)
    tokenizer.save_pretrained(made)
    return made


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "most", "most_own"), [("bfloat16", 1.25, 0.25), ("float32", 1.75, 1.25)]
)
def test_loading_takes_the_weights_once(
    folder: Path, dtype: str, most: float, most_own: float
) -> None:
    """In another format than that of the file, what is read stays mapped beside its copy.

    In that of the file nearly all of it stays the file's: where memory is short, the system lets go
    of it and reads it again.
    """
    asked = [sys.executable, "-c", PROGRAM, str(folder), dtype]
    answer = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    peak, own, size = json.loads(answer.splitlines()[-1])
    assert size > 1e8
    assert peak < most * size
    assert own < most_own * size
