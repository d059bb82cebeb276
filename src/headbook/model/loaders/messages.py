"""Errors of transformers while a model or a tokenizer is loaded, as errors of one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import StrictDataclassError

from headbook.errors import ModelError, ResourceError, is_out_of_memory


@contextmanager
def explained(name: str, *, gguf: bool) -> Iterator[None]:
    """Turn errors of transformers while loading into errors of one line."""
    try:
        yield
    except (
        OSError, ValueError, KeyError, ImportError, RuntimeError, AttributeError, TypeError,
        ArithmeticError, IndexError, RecursionError, MemoryError, StrictDataclassError,
    ) as error:  # fmt: skip
        if is_out_of_memory(error):
            raise ResourceError(
                f"model '{name}': out of memory while it is loaded; expected more of it; --dtype "
                "bfloat16 takes half of it, --offload auto leaves layers on the disk"
            ) from error
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"model '{name}': it needs code of its repository, which can do anything on this "
                "machine; read that code, and add --trust-remote-code to run it"
            ) from error
        lines = (str(error).strip() or type(error).__name__).splitlines()
        kept_lines = lines if isinstance(error, StrictDataclassError) else lines[:1]
        message = " ".join(line.strip() for line in kept_lines).rstrip(".")
        expected = (
            "a GGUF file whose architecture and quantisation transformers can read"
            if gguf
            else "config.json, a tokenizer and safetensors weights of an architecture that "
            "transformers itself knows"
        )
        raise ModelError(f"model '{name}': {message}; expected {expected}") from error
