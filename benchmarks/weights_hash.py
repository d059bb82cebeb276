"""Seconds a gigabyte that a run takes to hash the weights of a model object."""

import argparse
import json
import time

import torch

from headbook.progress import NoProgress
from headbook.run.weights_hash import HASH_BYTES, weights_hash

LAYERS = 16  # matrices that the weights consist of


def main() -> None:
    """Print a line of JSON for each number format: megabytes, and seconds a gigabyte."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1, help="size of the weights")
    parser.add_argument("--device", default="cpu", help="device of the weights")
    parser.add_argument("--repeats", type=int, default=3, help="the fastest one counts")
    options = parser.parse_args()
    for dtype in (torch.float32, torch.bfloat16):
        width = int((options.gigabytes * 1e9 / LAYERS / dtype.itemsize) ** 0.5)
        network = torch.nn.Sequential(
            *(
                torch.nn.Linear(width, width, bias=False, dtype=dtype, device=options.device)
                for _ in range(LAYERS)
            )
        )
        size = sum(parameter.nbytes for parameter in network.parameters())
        seconds = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            weights_hash(network, NoProgress())
            seconds.append(time.perf_counter() - start)
        row = {
            "dtype": str(dtype).removeprefix("torch."),
            "device": options.device,
            "megabytes": round(size / 1e6),
            "megabytes at a time": HASH_BYTES >> 20,
            "seconds a gigabyte": round(min(seconds) / size * 1e9, 2),
        }
        print(json.dumps(row))  # noqa: T201


if __name__ == "__main__":
    main()
