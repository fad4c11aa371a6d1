"""docs/architecture.md describes the source tree: its paths, layers, folders and imports."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import folders
from folders import PACKAGE, PAGE, ROOT

MOST_MODULES = 13
PAGES = [PAGE, ROOT / "docs" / "decisions.md"]
FUNCTIONS = ROOT / "sql" / "functions"


def _paths(page: Path) -> set[str]:
    """Return the texts in backticks that look like paths of this repository."""
    texts = re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", page.read_text("utf-8"))
    return {text for text in texts if text.endswith((".py", ".sql")) or ("/" in text and _starts_here(text))}


def _starts_here(text: str) -> bool:
    first = text.partition("/")[0]
    return (ROOT / first).is_dir() or (PACKAGE / first).is_dir()


def _exists(path: str) -> bool:
    return any((base / path).exists() or (base / f"{path}.py").exists() for base in (ROOT, PACKAGE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_of_a_page_exists(page: Path) -> None:
    paths = _paths(page)
    assert len(paths) >= 8
    assert sorted(path for path in paths if not _exists(path)) == []


def test_the_tables_of_layers_and_folders_are_those_of_the_program() -> None:
    text = PAGE.read_text("utf-8")
    assert folders.page(text) == text, "run: python docs/generate.py"


def test_every_folder_with_modules_is_in_the_table_and_says_what_is_inside() -> None:
    rows = dict(re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE))
    tree = {str(file.parent.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if file.parent != PACKAGE}
    assert {folder for folder in tree if not rows.get(folder)} == set()


def test_no_folder_has_too_many_modules() -> None:
    modules = Counter(file.parent for file in PACKAGE.rglob("*.py") if file.name != "__init__.py")
    assert {str(folder): count for folder, count in modules.items() if count > MOST_MODULES} == {}


def test_third_party_clients_are_imported_only_where_the_page_says() -> None:
    table = PAGE.read_text("utf-8").split("| imported only in |")[1].partition("\n\n")[0]
    rows = re.findall(r"^\| ([a-z_0-9, ]+) \| (`.+`) \|$", table, re.MULTILINE)
    allowed = {package: re.findall("`(.+?)`", places) for packages, places in rows for package in packages.split(", ")}
    assert {"psycopg", "kopf", "aiohttp", "pyspark", "cryptography"} <= allowed.keys()
    found: dict[str, list[str]] = {package: [] for package in allowed}
    for file in PACKAGE.rglob("*.py"):
        for package in set(_imports(file)) & allowed.keys():
            found[package].append(str(file.relative_to(PACKAGE)))
    for package, places in allowed.items():
        assert [path for path in found[package] if not path.startswith(tuple(places))] == [], package
        assert [place for place in places if not any(path.startswith(place) for path in found[package])] == [], package


def _imports(file: Path) -> Iterator[str]:
    """Yield the packages that a module imports anywhere, without those in texts."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_the_numbers_of_the_files_of_sql_functions_are_unique() -> None:
    numbers = Counter(file.name.partition("_")[0] for file in FUNCTIONS.glob("*.sql"))
    assert len(numbers) >= 20
    assert [number for number, files in numbers.items() if files > 1] == []
