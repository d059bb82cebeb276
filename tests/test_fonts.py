"""Charts are measured with the font that vl-convert carries; the system's serve for the rest."""

import os
import subprocess
import sys
from pathlib import Path

from headbook.charts.base.fonts import CONFIGURED, font_folders, others

# Prints how long a text is as PDF, with its font, and whether the variable is there that was set
# while fonts were looked for.
PRINTS = """
import os
from headbook.charts.base.fonts import CONFIGURED, TEXT, converter
print(len(converter().svg_to_pdf(TEXT)), CONFIGURED in os.environ)
"""


def filled(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_the_folder_of_the_carried_font_is_left_out(tmp_path: Path) -> None:
    root = filled(
        tmp_path,
        "truetype/liberation/LiberationSans-Regular.ttf",
        "truetype/liberation/LiberationMono-Regular.ttf",
        "truetype/noto/NotoSans-Regular.ttf",
        "opentype/stix/STIX.otf",
    )
    assert others(root) == [root / "opentype", root / "truetype/noto"]


def test_a_folder_with_other_fonts_beside_it_stays(tmp_path: Path) -> None:
    root = filled(tmp_path, "TTF/LiberationSans-Regular.ttf", "TTF/DejaVuSans.TTF", "x/a.otf")
    filled(tmp_path, "y/liberation/LiberationSans-Bold.ttf")
    assert others(root) == [root / "TTF", root / "x"]
    assert others(filled(tmp_path / "x", "b.ttc")) == [tmp_path / "x"]


def test_a_link_beside_it_stays_wherever_it_leads(tmp_path: Path) -> None:
    root = filled(tmp_path / "fonts", "liberation/LiberationSans-Regular.ttf")
    (root / "more").symlink_to(tmp_path)
    assert others(root) == [root / "more"]


def test_a_folder_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert others(tmp_path / "nothing") == []


def test_folders_are_those_of_all_files_of_fontconfig(tmp_path: Path) -> None:
    lists = {
        "fonts.conf": '<dir>/usr/fonts</dir><dir prefix="xdg">fonts</dir><dir>~/.fonts</dir>',
        "conf.d/10-more.conf": "<dir>/opt/fonts</dir>\n<dir>/usr/fonts</dir>",
    }
    (tmp_path / "conf.d").mkdir()
    for name, text in lists.items():
        (tmp_path / name).write_text(f"<fontconfig>{text}</fontconfig>")
    (tmp_path / "conf.d/20-broken.conf").write_text("<fontconfig>")
    paths = ["/usr/fonts", "/home/a/.local/share/fonts", "/home/a/.fonts", "/opt/fonts"]
    assert font_folders(tmp_path, {"HOME": "/home/a"}) == [*map(Path, paths)]
    (data,) = {*font_folders(tmp_path, {"XDG_DATA_HOME": "/data"})} - {
        *font_folders(tmp_path, {"XDG_DATA_HOME": "/other"})
    }
    assert data == Path("/data/fonts")
    assert font_folders(tmp_path / "nothing", {}) == []


def test_texts_are_printed_the_same_whether_the_system_has_the_font_or_not(tmp_path: Path) -> None:
    (tmp_path / "fonts.conf").write_text(f"<fontconfig><dir>{tmp_path}</dir></fontconfig>")
    size, left = printed({})
    carried, given = printed({CONFIGURED: str(tmp_path / "fonts.conf")})
    assert size == carried
    assert (left, given) == ("False", "True")


def printed(variables: dict[str, str]) -> list[str]:
    """What a process of its own prints, as fonts are looked for once in each."""
    environment = {name: value for name, value in os.environ.items() if name != CONFIGURED}
    given = [sys.executable, "-c", PRINTS]
    run = subprocess.run(
        given, env=environment | variables, check=True, capture_output=True, text=True
    )
    return run.stdout.split()
