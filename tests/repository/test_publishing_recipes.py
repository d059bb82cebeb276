"""What the documents say of publishing can be copied."""

import shlex
import typing
from typing import Any

import yaml
from typer.main import get_command

from code_blocks import ROOT, blocks, read
from headbook.cli import main as cli
from sites import Site


def yaml_blocks() -> list[Any]:
    """The YAML of the document on publishing, in order."""
    rows = blocks(read(ROOT / "docs" / "publishing.md"), "yaml")
    return [next(yaml.safe_load_all(code)) for _, code in rows]


def test_the_workflow_publishes_the_folder_that_it_builds() -> None:
    workflow = next(block for block in yaml_blocks() if "jobs" in block)
    assert workflow["permissions"]["pages"] == "write"
    assert workflow["permissions"]["id-token"] == "write"
    steps = workflow["jobs"]["publish"]["steps"]
    uses = [step["uses"].partition("@")[0] for step in steps if "uses" in step]
    assert uses[-2:] == ["actions/upload-pages-artifact", "actions/deploy-pages"]
    command = next(s["run"] for s in steps if "run" in s).splitlines()[-1]
    program, name, *words = shlex.split(command)
    known = typing.cast("Any", get_command(cli.app)).commands[name]
    given = known.make_context(name, words).params
    uploaded = next(s["with"]["path"] for s in steps if "upload" in s.get("uses", ""))
    assert (program, str(given["out"])) == ("headbook", uploaded)


def test_the_front_matter_of_a_space_names_a_file_of_the_site(small_site: Site) -> None:
    front = next(block for block in yaml_blocks() if "sdk" in block)
    assert front["sdk"] == "static"
    assert (small_site.folder / front["app_file"]).is_file()
