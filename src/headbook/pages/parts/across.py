"""Pages across metrics, which a site has where its study has their numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from headbook.pages.parts.page import Page
from headbook.report.numbers.results import StackResults

Results = Mapping[str, StackResults]
Made_co = TypeVar("Made_co", bound=Page, covariant=True)


@dataclass(frozen=True)
class Across(Generic[Made_co]):
    """A page that not every site has; called with the results of a study, it makes it.

    Whether it is there is known long before it is made: menus say it on the first page.

    Attributes:
        path: its address.
        there: whether a study has its numbers.
        make: makes it of a study that has.
    """

    path: str
    there: Callable[[Results], bool]
    make: Callable[[Results], Made_co]

    def __call__(self, results: Results) -> Made_co | None:
        """The page; None where a study has nothing for it."""
        return self.make(results) if self.there(results) else None


def always(_: Results) -> bool:
    """What every site has."""
    return True


def across(
    path: str, there: Callable[[Results], bool]
) -> Callable[[Callable[[Results], Made_co]], Across[Made_co]]:
    """Make a function that makes a page one that knows whether there is one."""
    return partial(Across, path, there)
