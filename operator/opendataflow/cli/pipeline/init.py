"""The project that `dataflow pipeline init` writes. It can be tested and run unchanged."""

import os
import re
import shlex
from pathlib import Path

from opendataflow.errors import InvalidInput, Refused
from opendataflow.model.projects.project import schema_text

_PROJECT = """\
# yaml-language-server: $schema=project.schema.json
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

_JOB = """\
# The pipeline `delays`, once for each day: dataflow local -f job.yaml --until-caught-up
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: flights}
spec:
  chunkSource:
    dateRange: {from: 2013-01-01, to: 2013-01-03, step: day}   # the end is not included
---
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: delays}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {name: delays}
spec:
  inputs: [flights]
  outputs: [delays]
  runtime:
    pipeline:
      project: {path: .}
      pipeline: delays
      requireTests: true
"""

_README = """\
# {name}

A project of pipelines, run by OpenDataFlow.

    dataflow pipeline test                              # the unit test of each transformation
    dataflow pipeline run delays --data-id 2013-01-01   # one chunk by hand
    dataflow local -f job.yaml --until-caught-up        # all chunks, with retries and a history
    dataflow pipeline history                           # the runs of the job

| file | content |
|---|---|
| `project.yml` | the pipelines: sources, transformations in their order, destination |
| `pipelines/delays/*.py` | one transformation each, with its unit test beside it |
| `sources/` | the files that are read on this machine |
| `output/` | the results; `dataflow pipeline clean` empties it |
| `job.yaml` | the job that runs the pipeline for each ready chunk; on a cluster its `project` names a repository |
| `project.schema.json` | the schema of `project.yml`, for editors; `dataflow pipeline schema` prints it |
"""

_IGNORED = "output/\n__pycache__/\n"

_KEPT_IF_PRESENT = ("README.md", ".gitignore")
"""Files that a new repository may already have. They are not overwritten."""


def write_project(folder: Path) -> list[str]:
    """Write the files. Return the lines to print. Raise Refused if a file exists already, see `_KEPT_IF_PRESENT`."""
    name = re.sub(r"[\"'\\:#\n]", " ", folder.absolute().resolve().name).strip() or "project"
    files = {
        "project.yml": _PROJECT.format(name=f'"{name}"'),
        "pipelines/delays/arrived.py": _ARRIVED,
        "pipelines/delays/by_carrier.py": _BY_CARRIER,
        "sources/flights.csv": _FLIGHTS,
        "job.yaml": _JOB,
        "project.schema.json": schema_text(),
        "README.md": _README.format(name=name),
        ".gitignore": _IGNORED,
    }
    existing = [file for file in files if os.path.lexists(folder / file)]
    for file in existing:
        if file not in _KEPT_IF_PRESENT:
            raise Refused(f"{folder / file} is there already: nothing was written; take another folder")
        del files[file]
    try:
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            with (folder / file).open("x", encoding="utf-8") as opened:
                opened.write(text)
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder}: can't be written: {error.strerror}") from error
    return [
        f"wrote a project into {folder}:",
        *(f"  {file}" for file in files),
        *(f"there already, and left as it is: {file}" for file in existing),
        "next:",
        *([f"  cd {shlex.quote(str(folder))}"] if folder.resolve() != Path.cwd() else []),
        "  dataflow pipeline test",
        "  dataflow pipeline run delays --data-id 2013-01-01",
        "  dataflow local -f job.yaml --until-caught-up",
    ]
