"""Files that may hold code, code of repositories, and answers of the hub: one line each."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import environ, system
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import headbook
import tiny
import treebank
from headbook.errors import ModelError
from headbook.model.checkpoint import ADAPTER, MODEL, TOKENIZER, check_name, find_model_files
from headbook.model.load import load_model, untrained_copy
from headbook.progress import NoProgress


def pickled(folder: Path, *, legacy: bool = False) -> Path:
    """Store the weights of a tiny model as ``torch.save`` does, instead of safetensors."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    return folder


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_pickled_weights_are_those_of_safetensors(
    family: str, legacy: bool, tmp_path: Path
) -> None:
    folder = tiny.write(family, tmp_path / family, head=True)
    safe = load_model(str(folder), device="cpu")
    other = load_model(str(pickled(folder, legacy=legacy)), device="cpu")
    assert other.weights == safe.weights
    assert other.headless == safe.headless
    assert other.revision.startswith("sha256:")
    assert other.revision != safe.revision
    weights = dict(other.network.named_parameters())
    for name, weight in safe.network.named_parameters():
        assert torch.equal(weight, weights[name])


class Trap:
    """An object that runs a command where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._command = f"touch {file}"

    def __reduce__(self) -> Any:
        return system, (self._command,)


def test_pickled_files_with_more_than_weights_are_one_line(tmp_path: Path) -> None:
    folder = pickled(tiny.write("bert", tmp_path / "bert"))
    file = folder / "pytorch_model.bin"
    weights = torch.load(file, weights_only=True)
    contents: dict[str, tuple[Any, str]] = {
        "code": (
            {**weights, "trap": Trap(tmp_path / "sprung")},
            r"code \(posix.system\), which is",
        ),
        "nested": ({"state_dict": weights}, "a value of type dict under 'state_dict'"),
        "number": ({**weights, "epoch": 3}, "a value of type int under 'epoch'"),
        "list": ([*weights.values()], "a value of type list"),
    }
    for content, line in contents.values():
        torch.save(content, file)
        with pytest.raises(ModelError, match=f"pytorch_model.bin: holds {line}") as refused:
            load_model(str(folder), device="cpu")
        assert "convert it with safetensors.torch.save_file" in str(refused.value)
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "sprung").exists()
    torch.save(weights, file)
    for content in (file.read_bytes()[:2000], b"", b"no pickle"):
        file.write_bytes(content)
        with pytest.raises(
            ModelError, match=r"cut off, damaged or not a torch.save file"
        ) as refused:
            load_model(str(folder), device="cpu")
        assert "\n" not in str(refused.value)


CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

(Path(__file__).parent / "ran").touch()

class MineConfig(LlamaConfig):
    model_type = "mine"

class MineModel(LlamaModel):
    config_class = MineConfig

class MineForCausalLM(LlamaForCausalLM):
    config_class = MineConfig
"""


@pytest.fixture
def own_code(tmp_path: Path) -> Path:
    """A tiny model whose architecture is in its own repository."""
    folder = tiny.write("llama", tmp_path / f"mine{tmp_path.name}", head=True)
    file = folder / "config.json"
    names = {"AutoConfig": "MineConfig", "AutoModel": "MineModel"}
    names["AutoModelForCausalLM"] = "MineForCausalLM"
    config = json.loads(file.read_text()) | {
        "model_type": "mine",
        "architectures": ["MineForCausalLM"],
        "auto_map": {key: f"mine.{value}" for key, value in names.items()},
    }
    file.write_text(json.dumps(config))
    (folder / "mine.py").write_text(CODE)
    return folder


def test_code_of_a_repository_runs_only_on_request(own_code: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"it needs code of its repository, .* add --trust-remote-"
    ):
        load_model(str(own_code), device="cpu")
    model = load_model(str(own_code), device="cpu", trust_remote_code=True)
    assert model.weights.remote_code == ("MineConfig", "MineForCausalLM")
    assert model.headless == ""
    untrained = untrained_copy(model, seed=0)
    assert type(untrained.network).__name__ == "MineModel"
    plain = tiny.write("llama", tmp_path / "plain", head=True)
    assert load_model(str(plain), device="cpu", trust_remote_code=True).weights.remote_code == ()


class Messages(NoProgress):
    """Lines that a run prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)


@pytest.mark.slow
def test_a_run_with_code_of_a_repository_warns_and_records_it(
    own_code: Path, tmp_path: Path
) -> None:
    texts, printed = treebank.write_trees(tmp_path / "trees.conllu"), Messages()
    study = headbook.collect(
        texts, model=str(own_code), annotator="none", importance="off", trust_remote_code=True,
        progress=printed,
    )  # fmt: skip
    expected = "warning: --trust-remote-code: code of the model's repository runs on this machine"
    assert any(line.startswith(expected) for line in printed.lines)
    assert study.manifest.options["trust_remote_code"] is True
    headbook.render(study, tmp_path / "site")
    overview, methods = (
        (tmp_path / "site" / name).read_text() for name in ("index.html", "methods.html")
    )
    assert "repository was run (--trust-remote-code): MineConfig, MineForCausalLM" in overview
    assert "trusted: MineConfig, MineForCausalLM" in methods


REPLIES = {  # status, code and message of the hub for a repository
    "gated": (403, "GatedRepo", "Access to model owner/gated is restricted"),
    "gated-alone": (401, "GatedRepo", "Access to model owner/gated-alone is restricted"),
    "missing": (404, "RepoNotFound", "Repository not found"),
    "private": (401, "RepoNotFound", "Repository not found"),
    "denied": (401, "", "Invalid credentials in Authorization header"),
    "forbidden": (403, "", "Your token has no read access"),
    "broken": (500, "", ""),
    "old": (404, "RevisionNotFound", "Invalid rev id: old"),
}


class Hub(BaseHTTPRequestHandler):
    """Answers that the hub gives to requests for models that cannot be read."""

    def do_GET(self) -> None:
        """Answer as the name of the model says."""
        names = [name for name in REPLIES if f"/owner/{name}/" in f"{self.path}/"]
        status, code, message = REPLIES[names[0] if names else "missing"]
        self.send_response(status)
        for header, value in (("X-Error-Code", code), ("X-Error-Message", message)):
            if value:
                self.send_header(header, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - a name of the library

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    """The address of a hub on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


PROGRAM = """
import sys
from headbook.errors import ModelError
from headbook.model.checkpoint import find_adapter_files, find_model_files
for name in sys.argv[1:]:
    try:
        if name.startswith("adapter:"):
            find_adapter_files(name.removeprefix("adapter:"))
        else:
            find_model_files(name, "old" if name.endswith("old") else None)
    except ModelError as error:
        print(str(error).replace("\\n", "|"))
"""


def lines_of(address: str, cache: Path, *names: str, **variables: str) -> list[str]:
    """The lines of models on a hub, read by a process of its own."""
    kept = {name: value for name, value in environ.items() if not name.startswith("HF_")}
    place = {"HF_ENDPOINT": address, "HF_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], check=True, capture_output=True, text=True,
        env=kept | place | variables,
    )  # fmt: skip
    return done.stdout.splitlines()


LOGIN = "run hf auth login or set HF_TOKEN"


def test_models_that_the_hub_does_not_give_are_a_line_each(hub: str, tmp_path: Path) -> None:
    names = [f"owner/{name}" for name in REPLIES]
    lines = lines_of(hub, tmp_path, *names, "adapter:owner/gated")
    gated = f"gated: its authors grant access at {hub}/owner/"
    missing = f"not on the hub, or private; see {hub}/models; for a private one {LOGIN}"
    refused = "the hub refused the login (Invalid credentials in Authorization header); expected a "
    token = f"valid token with read access to {hub}/owner/"
    assert lines == [
        f"model 'owner/gated': {gated}gated; ask there, then {LOGIN}",
        f"model 'owner/gated-alone': {gated}gated-alone; ask there, then {LOGIN}",
        f"model 'owner/missing': {missing}",
        f"model 'owner/private': {missing}",
        f"model 'owner/denied': {refused}{token}denied: {LOGIN}",
        "model 'owner/forbidden': the hub refused the login (Your token has no read access); "
        f"expected a {token}forbidden: {LOGIN}",
        f"model 'owner/broken': not in the cache, and {hub} cannot be reached (status 500); check "
        "the network, or give a local folder",
        "model 'owner/old': no revision 'old'; expected a branch, tag or commit of "
        f"{hub}/owner/old",
        f"adapter 'owner/gated': {gated}gated; ask there, then {LOGIN}",
    ]
    (line,) = lines_of(hub, tmp_path, "owner/private", HF_TOKEN="hf_" + "a" * 34)
    assert line.startswith(
        "model 'owner/private': the hub refused the login (Repository not found)"
    )


def test_models_without_a_network_are_a_line_each(hub: str, tmp_path: Path) -> None:
    (line,) = lines_of(hub, tmp_path, "owner/missing", HF_HUB_OFFLINE="1")
    assert line == (
        "model 'owner/missing': not in the cache, and HF_HUB_OFFLINE keeps off the network; unset "
        "it, or download once with hf download owner/missing, or give a local folder"
    )
    (line,) = lines_of("http://127.0.0.1:9", tmp_path, "owner/missing")
    assert line == (
        "model 'owner/missing': not in the cache, and http://127.0.0.1:9 cannot be reached "
        "(ConnectError); check the network, or give a local folder"
    )


@pytest.mark.parametrize("name", ["../other/model.safetensors", "{absolute}", "link.safetensors"])
def test_a_list_of_weights_leads_to_no_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    """The revision would be the hash of nothing, and the weights anybody's."""
    folder, other = tmp_path / "model", tmp_path / "other"
    for each in (folder, other):
        tiny.write("bert", each)
    (folder / "model.safetensors").unlink()
    named = name.format(absolute=other / "model.safetensors")
    (folder / "link.safetensors").symlink_to(other / "model.safetensors")
    if named != "link.safetensors":
        (folder / "link.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": named}}))
    with pytest.raises(ModelError) as caught:
        find_model_files(str(folder), None)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [MODEL, ADAPTER, TOKENIZER])
def test_a_vocabulary_is_no_link_to_another_folder(tmp_path: Path, kind: str) -> None:
    folder = tiny.write("bert", tmp_path / "model")
    (tmp_path / "secret.txt").write_text("a secret")
    (folder / "vocab.txt").unlink(missing_ok=True)
    (folder / "vocab.txt").symlink_to("../secret.txt")
    with pytest.raises(ModelError, match=rf"{kind} 'model': vocab\.txt is a link"):
        check_name(str(folder), kind)


def test_links_of_the_cache_of_the_hub_are_followed(tmp_path: Path) -> None:
    """Also of one that is given as a folder; the weights of a list count in the revision."""
    written = tiny.write("bert", tmp_path / "written")
    plain = find_model_files(str(written), None)
    folder = tmp_path / "models--owner--name/snapshots/1"
    (folder / "../../blobs").resolve().mkdir(parents=True)
    folder.mkdir(parents=True)
    for file in written.iterdir():
        file.rename(tmp_path / "models--owner--name/blobs" / file.name)
        (folder / file.name).symlink_to(f"../../blobs/{file.name}")
    assert find_model_files(str(folder), None).revision == plain.revision


def test_a_list_of_weights_that_are_not_read_changes_no_revision(tmp_path: Path) -> None:
    folder = tiny.write("bert", tmp_path / "model")
    before = find_model_files(str(folder), None).revision
    (folder / "pytorch_model-1.bin").write_bytes(b"another format")
    index = {"weight_map": {"a": "pytorch_model-1.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert find_model_files(str(folder), None).revision == before


def test_weights_in_a_folder_of_a_list_count_in_the_revision(tmp_path: Path) -> None:
    folder = tiny.write("bert", tmp_path / "model")
    before = find_model_files(str(folder), None).revision
    (folder / "parts").mkdir()
    (folder / "model.safetensors").rename(folder / "parts/1.safetensors")
    index = {"weight_map": {"a": "parts/1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert find_model_files(str(folder), None).revision == before
