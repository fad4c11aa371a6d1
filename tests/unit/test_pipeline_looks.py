"""The places that a pipeline's run reports as looked at."""

import json
from datetime import UTC, datetime

from opendataflow.core.databases.attempts import Result
from opendataflow.core.pipelines.looks import looks_of, report_looks
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.report import read_report
from opendataflow.model.projects.project import Pipeline, parse_project
from opendataflow.names import StepStatus

PROJECT = """\
version: 2
name: x
pipelines:
  - slug: a
    sources: {sources}
    transformations: [t]
    destination: {destination}
"""
AT = datetime(2026, 1, 2, tzinfo=UTC)
DATABASE = "{url: 'jdbc:postgresql://h1:5432/dw', user: etl}"


def pipeline(sources: str = "[s]", destination: str = "{name: d, path: /data/d}") -> Pipeline:
    text = PROJECT.replace("{sources}", sources).replace("{destination}", destination)
    return parse_project(text, "project.yml").pipeline("a")[1]


def steps(rows: int | None = 7, *sources: str) -> list[Step]:
    return [Step(f"read {name}", StepStatus.DONE, rows) for name in sources or ("s",)]


def reported(it: Pipeline, result: Result | None, done: list[Step], *datasets: str) -> dict[str, tuple[str, str]]:
    """The place and the sentence of each look, by data set."""
    looks = report_looks(looks_of(it, done, result, "2013-01", "/project", AT), datasets or ("s", "d"))
    return {one["dataset"]: (one["place"], one["sentence"]) for one in looks or ()}


def test_a_run_reports_the_folder_that_it_wrote_and_the_file_that_it_read() -> None:
    assert reported(pipeline(), Result("d", rows=5), steps()) == {
        "d": ("/data/d/data_id=2013-01", "has written 5 rows to /data/d/data_id=2013-01"),
        "s": ("/project/sources/s.csv", "has read 7 rows from /project/sources/s.csv"),
    }


def test_a_run_reports_tables_with_the_address_of_their_database() -> None:
    it = pipeline(destination=f"{{name: d, table: sales.d, database: {DATABASE}}}")
    place = "jdbc:postgresql://h1:5432/dw sales.d"
    assert reported(it, Result("sales.d", rows=1), steps())["d"] == (place, f"has written 1 row to {place}")


def test_a_chunk_that_an_earlier_attempt_has_written_says_so() -> None:
    found = reported(pipeline(), Result("d", rows=5, kept=True), steps())
    assert found["d"][1].startswith("an earlier attempt has written 5 rows to")


def test_a_run_that_wrote_nothing_reports_no_place() -> None:
    assert reported(pipeline(), None, steps()) == {}


def test_places_without_a_data_set_of_the_job_are_left_out() -> None:
    assert [*reported(pipeline(), Result("d"), steps(None), "d")] == ["d"]


def test_very_many_sources_leave_room_in_the_report_of_a_pod() -> None:
    names = [f"source{number}" for number in range(100)]
    looks = report_looks(
        looks_of(pipeline(f"[{', '.join(names)}]"), steps(1, *names), Result("d"), "1", "/project", AT), [*names, "d"]
    )
    assert looks is not None
    assert looks[0]["dataset"] == "d"
    assert len(json.dumps(looks)) < 1200
    assert read_report(json.dumps({"looks": looks, "rows": 1})) is not None
