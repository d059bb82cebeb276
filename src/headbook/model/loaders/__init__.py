"""Files of weights, adapters, and quantised weights, before and after transformers loads them."""

from pathlib import Path

PICKLED = "pytorch_model*.bin"  # weights in the format of torch.save


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder, or, without any, its ``pytorch_model.bin``."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob(PICKLED))
