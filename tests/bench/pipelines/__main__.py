"""Measure, and print one table: python -m tests.bench.pipelines [--rows 1000000,10000000] [--repeat 3] …"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.bench.pipelines.place import CONTENDERS, PIPELINES, Contender, Place, check, empty
from tests.bench.server import database, server

GOAL = 5
"""Per cent that a pipeline may take longer than the script."""

LACKS = """\
The script has no fence (an older attempt may write over a newer one), can't be repeated (a chunk done twice is there
twice, a killed one is there in part), and knows neither rows nor checksum nor the step that has failed. All start from
an empty destination. Cold is a whole command in a process of its own, warm is in a session that has done it before.
The first run on a machine leaves an archive of Spark's classes for all later ones; images have it from the start."""

Times = dict[Contender, list[float]]


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    given = _parsed(arguments)
    lines: list[str] = []
    with server() as dsn:
        for rows in given.rows:
            with database(dsn, "bench_pipelines", empty=True) as here:
                folder = Path(tempfile.mkdtemp(prefix="dataflow-bench-"))
                try:
                    lines += _measured(Place(folder, here, rows), here, given)
                finally:
                    shutil.rmtree(folder)
    print("", *lines, LACKS, sep="\n")


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m tests.bench.pipelines")
    parser.add_argument("--rows", type=numbers, default=[1_000_000, 10_000_000], help="one table of each size")
    parser.add_argument("--repeat", type=int, default=3, help="how often each is measured; medians count")
    parser.add_argument("--only", default="cold,warm", help="%(default)s")
    parser.add_argument("--quick", action="store_true", help="a small one, to see that it works")
    if "--quick" in arguments:
        parser.set_defaults(rows=[20_000], repeat=1)
    return parser.parse_args(arguments)


def _measured(place: Place, dsn: str, given: argparse.Namespace) -> list[str]:
    _say(f"{place.rows:,} rows")
    place.fill()
    found: list[str] = []
    if "cold" in given.only:
        found += _table(f"{place.rows:,} rows, cold", _repeated(given.repeat, place.cold, CONTENDERS))
    if "warm" in given.only:
        with place.warm() as process:

            def warm(contender: Contender) -> float:
                empty(dsn)
                assert process.stdin is not None
                assert process.stdout is not None
                print(CONTENDERS.index(contender), file=process.stdin, flush=True)
                answer = process.stdout.readline()
                if not answer:
                    raise SystemExit((place.folder / "log").read_text()[-3000:])
                check(dsn, place.folder, contender, place.rows)
                return float(json.loads(answer))

            started = [it for it in CONTENDERS if not it.first]
            _repeated(1, warm, started)  # whoever comes first would pay for what a session does once
            found += _table(f"{place.rows:,} rows, warm", _repeated(given.repeat, warm, started))
    return found


def _repeated(times: int, seconds: Callable[[Contender], float], contenders: Sequence[Contender]) -> Times:
    """One after another, and every second time the other way round: what else the machine does hits all alike."""
    found: Times = {it: [] for it in contenders}
    for number in range(times):
        for it in contenders if number % 2 == 0 else reversed(contenders):
            found[it].append(seconds(it))
            _say(f"  {found[it][-1]:8.2f} s  {PIPELINES[it.direction]}: {it.title}")
    return found


def _table(title: str, found: Mapping[Contender, Sequence[float]]) -> list[str]:
    lines = [f"{title:<62}{'median s':>10}{'least':>9}{'most':>9}{'to script':>11}   goal"]
    for direction, words in PIPELINES.items():
        lines.append(f"  {words}")
        mine = {it: times for it, times in found.items() if it.direction == direction}
        base = next(median(times) for it, times in mine.items() if it.title.startswith("script"))
        for it, times in mine.items():
            more = (median(times) / base - 1) * 100
            goal = "" if it.name else f"   <= +{GOAL} %  {'met' if more <= GOAL else 'MISSED'}"
            compared = f"{more:>+9.1f} %" if not it.title.startswith("script") else ""
            figures = f"{median(times):>10.2f}{min(times):>9.2f}{max(times):>9.2f}"
            lines.append(f"    {it.title:<58}{figures}{compared:>11}{goal}")
    return [*lines, ""]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
