"""Each message that docs/troubleshooting.md quotes is still in the sources."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
ANYTHING = "…"


def _quoted() -> list[str]:
    """Return the messages in the first column of the page's tables."""
    cells = re.findall(r"^\| (`.+?`) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


def _templates(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module. `…` stands for what an f-string inserts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(one.value) if isinstance(one, ast.Constant) else ANYTHING for one in node.values]
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _sources() -> set[str]:
    modules = sorted((ROOT / "operator").rglob("*.py"))
    texts = {text for module in modules for text in _templates(ast.parse(module.read_text("utf-8")))}
    for file in sorted((ROOT / "sql" / "functions").glob("*.sql")):
        code = re.sub("--.*", "", file.read_text("utf-8"))
        texts.update(text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", code))
    return texts


def _is_in(message: str, texts: set[str]) -> bool:
    if re.fullmatch("[A-Za-z]+", message):  # a reason, or the class of a run
        return message in texts
    parts = [part.strip() for part in message.split(ANYTHING)]
    wanted = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(parts[0] in text and wanted.search(text) for text in texts)


def test_every_quoted_message_is_in_the_sources() -> None:
    messages, texts = _quoted(), _sources()
    assert len(messages) >= 40
    assert len(messages) == len(set(messages))
    assert [message for message in messages if not _is_in(message, texts)] == []
