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


TEXTS = ["operator", "tests", "images", "docs", "examples", "helm", ".ci", "crds", "Makefile", "README.md"]
EMBEDDED = re.compile(r"from (opendataflow(?:\.\w+)*) import (\w+)|(?:-m|import) (opendataflow(?:\.\w+)+)")


def test_modules_named_in_embedded_programs_and_commands_exist() -> None:
    """mypy reads no program inside of a text, such as `python -c '…'` in a Dockerfile."""
    found = [(file, match) for file in _texts() for match in EMBEDDED.finditer(file.read_text("utf-8"))]
    assert len(found) > 1000
    missing = [f"{file.relative_to(ROOT)}: {match[0]}" for file, match in found if not _importable(*match.groups())]
    assert missing == []


def _texts() -> Iterator[Path]:
    suffixes = {".py", ".md", ".yaml", ".yml", ".sh", ".toml", ""}
    for start in (ROOT / text for text in TEXTS):
        for file in [start] if start.is_file() else start.rglob("*"):
            if file.is_file() and file.suffix in suffixes and "__pycache__" not in file.parts:
                yield file


def _importable(package: str | None, name: str | None, module: str | None) -> bool:
    path = PACKAGE.parent / (package or module or "").replace(".", "/")
    if not (path.is_dir() or path.with_suffix(".py").is_file()):
        return False
    if name is None or (path / name).is_dir() or (path / f"{name}.py").is_file():
        return True
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return source.is_file() and re.search(rf"\b{name}\b", source.read_text("utf-8")) is not None


def test_the_numbers_of_the_files_of_sql_functions_are_unique() -> None:
    numbers = Counter(file.name.partition("_")[0] for file in FUNCTIONS.glob("*.sql"))
    assert len(numbers) >= 20
    assert [number for number, files in numbers.items() if files > 1] == []
