"""Style rules that follow from the colours of charts."""

import re
from collections.abc import Iterator

from headbook.charts.base.ink import DARK, DARK_DIVERGING, DIVERGING, STOPS, colours, letters
from headbook.pages.parts.cells import COLOUR_STEPS

PAPER = "var(--paper)"  # of any page


def colour_rules() -> Iterator[str]:
    """The stops of the scale as variables, and a class for each step of both scales.

    ``c0`` is paper and the last step dark, or bright on dark paper; ``d0`` is the lower end of the
    scale of signed values. Letters are black or white by contrast.
    """
    yield from _variables()
    yield from _steps("c", STOPS, DARK)
    yield from _steps("d", DIVERGING, DARK_DIVERGING)


def _variables() -> Iterator[str]:
    stops = [PAPER, *(_both(*pair) for pair in zip(STOPS[1:], DARK[1:], strict=True))]
    yield f":root{{{''.join(f'--q{n}:{stop};' for n, stop in enumerate(stops))}}}\n"
    for n, each in enumerate(zip(DIVERGING, DARK_DIVERGING, strict=True)):
        yield f".v{n}{{background:{_both(*each)}}}\n"


def _steps(name: str, light: tuple[str, ...], dark: tuple[str, ...]) -> Iterator[str]:
    scales = (colours(COLOUR_STEPS, stops) for stops in (light, dark))
    for step, pair in enumerate(zip(*scales, strict=True)):
        paper = step == 0 and light is STOPS
        colour, text = PAPER if paper else _both(*pair), _both(*map(letters, pair))
        rule = f"background:{colour};color:{text};fill:{colour}"
        yield f".{name}{step},.{name}{step} a{{{rule}}}"


def _both(light: str, dark: str) -> str:
    return f"light-dark({light},{dark})"


def size_rules(most: int) -> Iterator[str]:
    """How many columns and rows, up to so many, a table of tiles has; no attribute may say it."""
    for number in range(1, most + 1):
        yield f".n{number}{{--cols:{number}}}.r{number}{{--rows:{number}}}"


def compact(style: str) -> str:
    """A style sheet without comments and spaces that only its authors need."""
    bare = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    lines = (line.strip() for line in bare.splitlines())
    text = re.sub(r"\s*([{};,])\s*", r"\1", "\n".join(filter(None, lines)))
    text = re.sub(r":\s+", ":", text)
    return text.replace(";}", "}") + "\n"


def bare(script: str) -> str:
    """A script without comments, indents and empty lines; its texts do not run over lines.

    Comments go that are lines of their own, end a line, or give a type; each up to its own end.
    """
    comment = r"/\*(?:(?!\*/).)*\*/"
    typed = re.sub(r"/\*\* @type (?:(?!\*/).)*\*/ (?=\S)", "", script)
    ended = re.sub(rf"(?<=\S)[ \t]+{comment}[ \t]*$", "", typed, flags=re.MULTILINE)
    return re.sub(rf"^\s*(?:{comment}[ \t]*\n)?", "", ended, flags=re.DOTALL | re.MULTILINE)
