"""The project that `dataflow pipeline init` writes: it can be tested and run as it is."""

import os
import re
import shlex
from pathlib import Path

from opendataflow.errors import InvalidInput, Refused

_PROJECT = """\
# All fields: docs/reference/project.md
version: 2
name: {name}
pipelines:
  - slug: delays
    sources:
      - name: flights                     # sources/flights.csv
        schema: day DATE, carrier STRING, flight INT, delay INT
        partitioning: {{column: day, type: date}}
    transformations: [arrived, by_carrier]
    destination:
      name: delays                        # output/delays/day=2013-01-01/
      partition: day
"""

_ARRIVED = '''\
"""Keeps the flights that have arrived. Its unit test is beside it: `dataflow pipeline test`."""

from pyspark.sql import DataFrame

expected_inputs = [
    [
        {"carrier": "AA", "flight": 1, "delay": 12},
        {"carrier": "AA", "flight": 2, "delay": None},
    ]
]
expected_output = [{"carrier": "AA", "flight": 1, "delay": 12}]


def run(df: DataFrame) -> DataFrame:
    return df.where("delay IS NOT NULL")
'''

_BY_CARRIER = '''\
"""Counts flights and late flights of each carrier."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    [
        {"carrier": "AA", "delay": 12},
        {"carrier": "AA", "delay": 15},
        {"carrier": "UA", "delay": -3},
    ]
]
expected_output = [
    {"carrier": "AA", "flights": 2, "late": 1, "mean_delay": 13.5},
    {"carrier": "UA", "flights": 1, "late": 0, "mean_delay": -3.0},
]


def run(df: DataFrame) -> DataFrame:
    return df.groupBy("carrier").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("delay") >= 15).alias("late"),
        F.mean("delay").alias("mean_delay"),
    )
'''

_FLIGHTS = """\
day,carrier,flight,delay
2013-01-01,AA,1141,2
2013-01-01,AA,301,17
2013-01-01,UA,1545,11
2013-01-01,UA,1714,
2013-01-02,AA,1141,-8
2013-01-02,B6,725,31
"""

_IGNORED = "output/\n__pycache__/\n"


def write_project(folder: Path) -> list[str]:
    """Write the files; return what to tell. Raises Refused where one of them is there already."""
    name = re.sub(r"[\"'\\:#\n]", " ", folder.absolute().resolve().name).strip() or "project"
    files = {
        "project.yml": _PROJECT.format(name=f'"{name}"'),
        "pipelines/delays/arrived.py": _ARRIVED,
        "pipelines/delays/by_carrier.py": _BY_CARRIER,
        "sources/flights.csv": _FLIGHTS,
        ".gitignore": _IGNORED,
    }
    there = [file for file in files if os.path.lexists(folder / file)]
    if there:
        raise Refused(f"{folder / there[0]} is there already: nothing was written; take another folder")
    try:
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            with (folder / file).open("x", encoding="utf-8") as opened:
                opened.write(text)
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder}: can't be written: {error.strerror}") from error
    shown = shlex.quote(str(folder))
    return [
        f"wrote {', '.join(str(folder / file) for file in files)}; next:",
        f"  dataflow pipeline test --project {shown}",
        f"  dataflow pipeline run delays --data-id 2013-01-01 --project {shown}",
    ]
