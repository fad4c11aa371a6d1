"""python -m tests.repeat TIER [N] [ARGUMENTS…]: run the tests of a tier several times, and add up how each ended.

The results of all runs and days are added up in one file per tier, in ~/.cache/opendataflow/repeat or in the folder
that DATAFLOW_TEST_RESULTS names. At the end the program prints which tests have failed, and how often.
ARGUMENTS are those of pytest; files among them are run in place of the whole tier.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.kube.cluster.building import cache_folder

ROOT = Path(__file__).parents[1]
TIERS = {tier: [f"tests/{tier}"] for tier in ("unit", "sql", "helm", "kube")} | {
    "e2e": ["tests/e2e", "--ignore=tests/e2e/cluster"],
    "nodes": ["tests/e2e/cluster"],
}
FOLDER = "DATAFLOW_TEST_RESULTS"
Results = dict[str, Any]
"""`runs`: {day: how many}; `tests`: {test: {"runs": in how many it was, "failed": {day: how often}}}."""


def main(arguments: list[str]) -> int:
    """Repeat a tier; return 1 where a test has failed now."""
    if not arguments or arguments[0] not in TIERS:
        sys.exit(f"{__doc__}\nTIER is one of {', '.join((*TIERS, 'nodes'))}.")
    tier, *rest = arguments
    number = int(rest.pop(0)) if rest and rest[0].isdigit() else 5
    folder = Path(os.environ.get(FOLDER) or cache_folder() / "repeat")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{tier}.json"
    failed = False
    for turn in range(1, number + 1):
        print(f"{tier}: run {turn} of {number}", flush=True)
        ended = run(tier, rest)
        failed = failed or not ended or any(not good for good in ended.values())
        add(file, ended, datetime.now(UTC).date())
    print("\n".join(summary(read(file))))
    return int(failed)


def run(tier: str, arguments: list[str]) -> dict[str, bool]:
    """Run a tier once; return of each test whether it has ended well. Skipped ones are left out."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.xml")
        kept = [*arguments, f"--junit-xml={file}", "-o", "junit_family=xunit1"]
        whole = [] if any(word.startswith("tests/") for word in arguments) else TIERS[tier]
        subprocess.run([*command(tier), *whole, *kept], cwd=ROOT, check=False)
        return dict(outcomes(file)) if file.exists() else {}


def command(tier: str) -> list[str]:
    """Return what runs a tier, as `make` does."""
    pytest = [sys.executable, "-m", "pytest", "--quiet"]
    if tier == "nodes":
        return pytest
    workers = os.environ.get("WORKERS") or str(min(8, 2 * (os.cpu_count() or 1)))
    return [*pytest, f"--numprocesses={workers}", "--dist=worksteal"]


def outcomes(file: Path) -> Iterator[tuple[str, bool]]:
    """Yield each test of a report that was not skipped, and whether it has ended well."""
    for case in ElementTree.parse(file).iter("testcase"):
        if case.find("skipped") is None:
            good = case.find("failure") is None and case.find("error") is None
            yield f"{case.get('file') or case.get('classname')}::{case.get('name')}", good


def read(file: Path) -> Results:
    """Return what a file has; nothing where there is none yet."""
    found: Results = json.loads(file.read_text()) if file.exists() else {"runs": {}, "tests": {}}
    return found


def add(file: Path, ended: dict[str, bool], today: date) -> None:
    """Add a run to a file."""
    results, day = read(file), today.isoformat()
    results["runs"][day] = results["runs"].get(day, 0) + 1
    for test, good in ended.items():
        known = results["tests"].setdefault(test, {"runs": 0, "failed": {}})
        known["runs"] += 1
        if not good:
            known["failed"][day] = known["failed"].get(day, 0) + 1
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1, sort_keys=True))
    fresh.rename(file)


def summary(results: Results) -> list[str]:
    """Return the lines of the report: the tests that have failed, the one that failed most often first."""
    runs, days = sum(results["runs"].values()), len(results["runs"])
    bad = [(sum(known["failed"].values()), test, known) for test, known in results["tests"].items() if known["failed"]]
    lines = [f"{runs} runs on {days} days, {len(results['tests'])} tests, {len(bad)} of which have failed"]
    for times, test, known in sorted(bad, key=lambda one: (-one[0], one[1])):
        last = max(known["failed"])
        lines.append(f"{times} of {known['runs']} runs, on {len(known['failed'])} days, last on {last}: {test}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
