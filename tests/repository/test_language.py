"""The language of sources is checked by a script, which sees what it looks for."""

from pathlib import Path

import pytest

import language


def test_the_sources_have_no_problem() -> None:
    """Run by `make check`, too; here only those that take a moment."""
    assert [*language.template_names(), *language.file_names(), *language.class_names()] == []


@pytest.mark.parametrize("name", ["survey", "_portrait", "ShownText", "told_by", "LayerView"])
def test_a_retired_name_is_seen(name: str) -> None:
    assert language.is_retired(name)
    assert name in language.names_of(f"x = f'{{{name}}}'")
    assert name in language.names_of_script(f"const x = {name};")


def test_names_of_the_language_are_no_fault() -> None:
    assert [*language.names_of_script("Number(x) + Numbers")] == ["x", "Numbers"]


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("MIN_ENCES = 20", ["ences"]),
        ("def of_sentnces(layr): pass", ["sentnces", "layr"]),
        ("MIN_SENTENCES = 20", []),
        ("class Tokenizer: pass", []),
        ("self.unembedding, n = 1, 2", []),
    ],
)
def test_misspelt_names_are_found(code: str, parts: list[str]) -> None:
    names = language.defined_names(code)
    assert sorted(part for name in names for part in language.misspelt(name)) == sorted(parts)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('"""What is in the file."""', True),
        ('"""Iterators of whole items."""', False),
        ('class A:\n    """The same for words."""', True),
        ('class A:\n    """Asymmetric sums."""', False),
        ('def f() -> int:\n    """None where nothing is known."""', True),
        ('def f() -> bool:\n    """Whether a file is whole."""', False),
        ('def f() -> "Tensor":\n    """Whether each word is seen."""', True),
        ('class A:\n    def f(self) -> str:\n        """Of all heads."""', True),
        (
            'class A:\n    async def f(self) -> str:\n        """Return the name of a head."""',
            False,
        ),
    ],
)
def test_docstrings_that_lean_on_others_are_found(code: str, *, wrong: bool) -> None:
    assert [language.leans(node, text) for _, node, text in language.docstrings(code)] == [wrong]


def test_texts_of_scripts_are_found() -> None:
    script = 'tell(`It ${seen ? "looks up" : `finds ${1}`} here`); /* "no" */ all(".looked .t");'
    assert [*language.texts_of_script(script)] == ["It ", "looks up", "finds ", " here"]


def test_each_kind_of_problem_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "src/headbook/survey.py": '"""What is here."""\nMIN_ENCES = 1\nclass Two: ...\n',
        "src/headbook/other.py": '"""Nothing."""\nclass Two: ...\n',
        "templates/page.html": '{{ portrait }}<p class="told">',
        "templates/page.css": ".story { color: red }",
        "templates/page.js": 'const stories = "it looks at this";',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(language, "ROOT", tmp_path)
    monkeypatch.setattr(language, "SOURCE", tmp_path / "src/headbook")
    monkeypatch.setattr(language, "TEMPLATES", tmp_path / "templates")
    monkeypatch.setattr(language, "PYTHON", [tmp_path / "src/headbook"])
    assert {check.__name__: len([*check()]) for check in language.CHECKS} == {
        "python_names": 0,
        "spelling": 1,
        "script_names": 2,
        "template_names": 3,
        "file_names": 1,
        "class_names": 1,
        "docstring_beginnings": 1,
    }
    (tmp_path / "src/headbook/other.py").write_text("told = 1\n", encoding="utf-8")
    assert [problem.text for problem in language.python_names()] == ["retired name told"]
