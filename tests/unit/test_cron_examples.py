"""Every crontab in the documentation works in the bare environment that cron gives it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CRONTABS = [
    (page, block)
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for block in re.findall(r"```cron\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    if re.search(r"\b(RunJob|dataflow)\b", block)
]


@pytest.mark.parametrize(("page", "block"), CRONTABS, ids=lambda part: getattr(part, "name", ""))
def test_a_crontab_sets_the_path_and_the_database_before_its_first_line(page: Path, block: str) -> None:
    lines = [line.strip() for line in block.splitlines() if line.strip()]
    settings = [line.partition("=")[0] for line in lines if re.match(r"[A-Z_]+=", line)]
    assert lines[: len(settings)] == [line for line in lines if re.match(r"[A-Z_]+=", line)], page
    assert "PATH" in settings
    assert {"DATAFLOW_HOME", "DATAFLOW_DSN"} & set(settings)


def test_there_are_crontabs() -> None:
    assert len(CRONTABS) >= 2
