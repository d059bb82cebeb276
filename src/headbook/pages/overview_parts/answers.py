"""Answers of all pages, as lines of the overview and of the search."""

from collections.abc import Iterable

from headbook.pages.parts.blocks import Page, Words
from headbook.pages.parts.page import AnalysisPage, SentenceParts, TemplatePage, plain_text
from headbook.results.sentence import Link, Sentence

Answer = tuple[Link, Words | SentenceParts]  # the page by its topic, and what it answers


def answered_pages(pages: Iterable[TemplatePage]) -> list[AnalysisPage | Page]:
    """Return the pages that answer a question, those of single metrics last."""
    answered = [page for page in pages if isinstance(page, AnalysisPage | Page)]
    return sorted(answered, key=lambda page: page.path.startswith("metrics/"))


def answer_groups(pages: Iterable[TemplatePage]) -> dict[str, list[Answer]]:
    """Return the answers of analyses and of metrics, by the title of the group."""
    groups: dict[str, list[Answer]] = {}
    for page in answered_pages(pages):
        title = "Metrics" if page.path.startswith("metrics/") else "Analyses"
        link = Link(words_text(page.topic), page.path)
        groups.setdefault(title, []).append((link, page.answer))
    return groups


def words_text(words: Words | SentenceParts) -> str:
    """Return words of a page as text."""
    if isinstance(words, str):
        return words
    return words.text if isinstance(words, Sentence) else plain_text(words)
