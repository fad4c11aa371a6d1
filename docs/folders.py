"""The tables of docs/architecture.md that describe the source tree: layers and folders.

The layers come from the contracts of import-linter in pyproject.toml, the folders from the docstrings of the packages.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "operator" / "opendataflow"
PAGE = ROOT / "docs" / "architecture.md"


def page(text: str) -> str:
    """Return the text of docs/architecture.md with both tables written again."""
    for name, rows in (("layers", _layers()), ("folders", _folders())):
        begin, end = f"<!-- {name}: written by docs/folders.py -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = before + "\n".join((begin, *rows, end)) + rest.partition(end)[2]
    return text


def _layers() -> Iterator[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    yield "| package | its layers, from high to low |\n|---|---|"
    for contract in settings["contracts"]:
        if contract["type"] == "layers":
            yield f"| {_package(contract)} | {' > '.join(_layer(one) for one in contract['layers'])} |"


def _package(contract: dict[str, Any]) -> str:
    containers = [_path(name) for name in contract.get("containers", [])]
    return ", ".join(f"`{name}/`" for name in containers) or "`opendataflow/`"


def _layer(names: str) -> str:
    return ", ".join(f"`{_path(name.strip())}`" for name in names.split("|"))


def _path(module: str) -> str:
    return module.removeprefix("opendataflow.").replace(".", "/")


def _folders() -> Iterator[str]:
    yield "| folder | what is inside |\n|---|---|"
    for file in sorted(PACKAGE.rglob("__init__.py")):
        if file.parent != PACKAGE:
            yield f"| `{file.parent.relative_to(PACKAGE)}/` | {_summary(file)} |"


def _summary(file: Path) -> str:
    """Return the first paragraph of a package's docstring, as one line."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")
