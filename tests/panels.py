"""The switches and tokens of attention views in a browser."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page

from headbook.charts.images import Ink

DEFAULTS = {"view": "raw", "units": "pieces", "scale": "root", "mass": "90"}


def switches(page: Page) -> dict[str, str]:
    """How the switches stand."""
    return {name: page.locator(f"[data-switch={name}]").first.input_value() for name in DEFAULTS}


def switch(page: Page, **choices: str) -> None:
    """Set switches."""
    for options in page.locator("details.options:not([open]) > summary").all():
        options.click()
    for name, value in choices.items():
        page.locator(f"[data-switch={name}]").first.select_option(value)


def tokens(page: Page | Locator, side: str) -> Locator:
    """The tokens that look, or that are looked at."""
    return page.locator(f".tokens.{side} > div")


def picture(address: str) -> Any:
    """The pixels of a picture in a ``data:`` address. *Shape:* ``(row, column, 4)``."""
    content = base64.b64decode(address.partition(",")[2])
    return np.array(Image.open(io.BytesIO(content)).convert("RGBA"))


def ink_steps(address: str, ink: Ink) -> Any:
    """Which step of an ink each pixel of a picture has. *Shape:* ``(row, column)``."""
    same = (picture(address)[..., None, :] == np.array(ink)).all(-1)
    assert same.any(-1).all(), "a colour that the ink lacks"
    return same.argmax(-1)


def cells(box: Locator, shape: tuple[int, int]) -> Any:
    """The colour in the middle of each cell of the map. *Shape:* ``(query, key, 4)``."""
    canvas = box.locator("canvas.cells").first
    grid = (canvas.get_attribute("data-grid") or "").split()
    left, above, size = (round(float(text)) for text in grid)
    pixels = picture(canvas.evaluate("(canvas) => canvas.toDataURL()"))[above:, left:]
    return pixels[size // 2 :: size, size // 2 :: size][: shape[0], : shape[1]]


def strength(colours: Any) -> Any:
    """How far colours are from white paper, 0 to 255."""
    return 255 - colours[..., :3] @ np.array([0.2126, 0.7152, 0.0722])
