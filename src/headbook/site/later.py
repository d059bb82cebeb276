"""Closed parts of pages, which wait in a file of their own until a reader opens them.

What a template puts between two marks leaves the page; ``templates/assets/site.js`` brings it back.
The file is compressed, so that the many numbers of a head weigh a fifth of what they would there.
"""

FOLDER = "data/later"
START, END = "<!--later-->", "<!--/later-->"


def taken_out(html: str, root: str, path: str) -> tuple[str, list[str]]:
    """A page without its parts that wait, and these.

    Args:
        root: the way from the page to the site's root.
        path: of the page.
    """
    kept, *marked = html.split(START)
    parts: list[str] = []
    for each in marked:
        part, _, rest = each.partition(END)
        kept += f'<div data-later="{len(parts)}" data-src="{root}{file_of(path)}"></div>{rest}'
        parts.append(part.removeprefix("\n").removesuffix("\n"))
    return kept, parts


def name_of(path: str) -> str:
    """What scripts call the parts of a page."""
    return f"later-{path.removesuffix('.html').replace('/', '-')}"


def file_of(path: str) -> str:
    """Where they are, from the site's root."""
    return f"{FOLDER}/{name_of(path).removeprefix('later-')}.js"
