"""The rules of the models themselves; the sentences of the job file are in test_jobfile.py."""

import contextlib
import itertools
import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.resources.api import (
    MAX_CHUNKS,
    ChunkSource,
    DataFlowJob,
    DataSet,
    DateRange,
    IntegerRange,
    Location,
    Retry,
    contains_password,
    duration_seconds,
)
from opendataflow.names import API_VERSION


def dataset(name: str = "flights", **spec: Any) -> DataSet:
    return DataSet.model_validate(
        {"apiVersion": API_VERSION, "kind": "DataSet", "metadata": {"name": name}, "spec": spec}
    )


def job(name: str = "delays", **spec: Any) -> DataFlowJob:
    spec = {"inputs": ["flights"], "runtime": {"script": {"command": ["./x.sh"]}}, **spec}
    return DataFlowJob.model_validate(
        {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": name}, "spec": spec}
    )


def test_the_id_is_the_name_unless_it_is_written() -> None:
    assert (dataset().id, dataset(id="Flights 2013").id) == ("flights", "Flights 2013")
    assert (job().id, job(id="Delays").id) == ("delays", "Delays")


def test_a_job_has_the_documented_defaults() -> None:
    spec = job().spec
    assert (spec.parallelism, spec.suspend, spec.order, spec.priority) == (1, False, "ascending", 0)
    assert (spec.retry.limit, spec.retry.infrastructure_limit) == (2, 5)
    backoff = spec.retry.backoff
    assert (backoff.initial_seconds, backoff.factor, backoff.maximum_seconds) == (10, 2, 600)
    assert spec.run_deadline_seconds is None


def test_a_spark_runtime_has_one_core_and_one_gigabyte() -> None:
    spark = job(runtime={"spark": {"main": "etl.py"}}).spec.runtime.spark
    assert spark is not None
    size = spark.driver_size
    assert (size.cores, size.memory, spark.program_arguments, spark.settings) == (1, "1g", (), {})
    assert not spark.has_executors


def test_a_written_resource_can_not_be_changed() -> None:
    written = job()
    with pytest.raises(ValidationError, match="frozen"):
        written.spec.parallelism = 5  # type: ignore[misc] # the test is that it fails


def test_python_may_use_the_names_of_python() -> None:
    assert Retry(infrastructure_limit=7) == Retry.model_validate({"infrastructureLimit": 7})


# Chunks --------------------------------------------------------------------------------------------------


def chunks(**source: Any) -> list[Any]:
    return list(dataset(chunkSource=source).chunks())


def test_a_data_set_without_a_chunk_source_has_no_chunks_beforehand() -> None:
    assert list(dataset().chunks()) == []


def test_a_list_gives_its_ids_in_order_and_no_bounds() -> None:
    assert chunks(list=["b", "a"]) == [("b", None), ("a", None)]


def test_months_are_half_open_and_cross_the_year() -> None:
    assert chunks(dateRange={"from": "2013-11-01", "to": "2014-02-01", "step": "month"}) == [
        ("2013-11", {"from": "2013-11-01", "to": "2013-12-01"}),
        ("2013-12", {"from": "2013-12-01", "to": "2014-01-01"}),
        ("2014-01", {"from": "2014-01-01", "to": "2014-02-01"}),
    ]


def test_days_are_half_open_and_know_leap_years() -> None:
    assert chunks(dateRange={"from": "2012-02-28", "to": "2012-03-01", "step": "day"}) == [
        ("2012-02-28", {"from": "2012-02-28", "to": "2012-02-29"}),
        ("2012-02-29", {"from": "2012-02-29", "to": "2012-03-01"}),
    ]


def test_blocks_name_their_first_and_last_integer_and_the_last_block_may_be_short() -> None:
    assert chunks(range={"from": 0, "to": 2500, "step": 1000}) == [
        ("0-999", {"from": 0, "to": 1000}),
        ("1000-1999", {"from": 1000, "to": 2000}),
        ("2000-2499", {"from": 2000, "to": 2500}),
    ]


def test_buckets_name_themselves_and_how_many_there_are() -> None:
    assert chunks(hash={"buckets": 2}) == [
        ("0-of-2", {"bucket": 0, "buckets": 2}),
        ("1-of-2", {"bucket": 1, "buckets": 2}),
    ]


def test_bounds_are_json() -> None:
    source = ChunkSource(date_range=DateRange(start="2013-01-01", end="2013-02-01", step="month"))
    assert json.loads(json.dumps(list(source.chunks()))) == [["2013-01", {"from": "2013-01-01", "to": "2013-02-01"}]]


@pytest.mark.parametrize("step", ["day", "month"])
def test_neighbouring_date_chunks_leave_no_gap(step: str) -> None:
    bounds = [part for _, part in chunks(dateRange={"from": "1999-12-01", "to": "2001-01-01", "step": step})]
    assert bounds[0]["from"] == "1999-12-01"
    assert bounds[-1]["to"] == "2001-01-01"
    assert all(left["to"] == right["from"] for left, right in itertools.pairwise(bounds))


def test_a_range_makes_at_most_a_million_chunks() -> None:
    IntegerRange(start=0, end=MAX_CHUNKS, step=1)
    with pytest.raises(ValidationError, match="this makes 1000001 chunks and 1000000 are allowed"):
        IntegerRange(start=0, end=MAX_CHUNKS + 1, step=1)


@pytest.mark.parametrize(
    ("start", "end", "step", "fits"),
    [
        (-(2**63), 2**63 - 1, 2**64 // MAX_CHUNKS, False),
        (-(2**63), 2**63 - 1, 2**64 // MAX_CHUNKS + 1, True),
        (2**63 - 1 - MAX_CHUNKS, 2**63 - 1, 1, True),
        (-(2**63), -(2**63) + MAX_CHUNKS + 1, 1, False),
    ],
)
def test_a_range_of_big_integers_is_counted_exactly(start: int, end: int, step: int, fits: bool) -> None:
    with contextlib.nullcontext() if fits else pytest.raises(ValidationError, match="use a larger step"):
        IntegerRange(start=start, end=end, step=step)


# Durations and passwords ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1h", 3600), ("1.5s", 1.5), ("0s", 0), ("2h1m1s", 7261)],
)
def test_a_duration_is_hours_minutes_and_seconds(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "-5s", "30m1h", "1d", "5ms", "1e3s", " 5s", "5s\n", "٣s"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match='like "90s", "5m" or "1h30m", not "'):
        duration_seconds(text)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:secret@h/db",
        "s3a://key:secret@bucket/path",
        "jdbc:postgresql://h/db?user=u&password=secret",
        "jdbc:postgresql://h/db?sslpassword=secret",
        "jdbc:sqlserver://h:1433;user=u;Password=secret",
        "jdbc:oracle:thin:scott/tiger@//h:1521/x",
        "host=h password = secret",
        "//u:p@ss@h",
        "jdbc:mysql://(host=h,user=u,password=secret)/d",
        "jdbc:mysql://address=(host=h)(PASSWORD=secret)/d",
        "jdbc:postgresql://h/db?pass%77ord=secret",
        "jdbc:postgresql://h/db?a=b&%70assword=secret",
        "https://account.blob.core.windows.net/c?sv=1&sig=abc%3D",
        "https://h/x?token=abc",
        "https://h/x?X-Amz-Security-Token=abc",
        "https://h/x?X-Amz-Signature=abc",
        "jdbc:awsathena://h;SecretAccessKey=abc",
        "jdbc:bigquery://h;OAuthClientSecret=abc",
        "DefaultEndpointsProtocol=https;AccountKey=abc",
    ],
)
def test_a_url_with_a_password_is_recognised(url: str) -> None:
    assert contains_password(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@h:5432/db",
        "jdbc:postgresql://h:5432/db?user=u@x",
        "jdbc:oracle:thin:@//h:1521/x",
        "s3a://bucket/path:with@signs",
        "gs://b/p?passwordless=1",
        "https://h/x?token=",
        "https://h/x?design=1&a%5B0%5D=b%41",
        "s3a://bucket/token/sig/day%3D1",
        "file:///data/a:b@c",
        "password",
    ],
)
def test_a_url_without_a_password_is_left_alone(url: str) -> None:
    assert not contains_password(url)
    assert Location(url=url).url == url


def test_an_error_of_a_model_does_not_repeat_what_was_written() -> None:
    with pytest.raises(ValidationError) as caught:
        dataset(location={"url": "postgresql://u:secret@h/db"})
    assert "secret" not in str(caught.value)


# What is remembered --------------------------------------------------------------------------------------


def test_the_facts_of_a_data_set_are_its_location_and_its_ciphertext() -> None:
    written = dataset(
        location={"hostname": "h", "format": "csv", "options": {"header": "true"}},
        credentials={"encryptedPassword": "lmibu"},
    )
    assert DataSetFacts.of(written) == DataSetFacts(
        id="flights", hostname="h", format="csv", options={"header": "true"}, encryptedpass="lmibu"
    )


LOADS = "loads code or files on the machine of a run; leave it out, or write it in the program or project of the job"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("jdbc:postgresql://h/d?socketFactory=evil.Class&socketFactoryArg=x", "socketFactory"),
        ("jdbc:postgresql://h/d?ssl=true&SSLFACTORY=evil.Class", "SSLFACTORY"),
        ("jdbc:postgresql://h/d?loggerLevel=DEBUG&loggerFile=/app/x.jsp", "loggerLevel"),
        ("jdbc:mysql://h/d?allowLoadLocalInfile=true", "allowLoadLocalInfile"),
        ("jdbc:mysql://(host=h,autoDeserialize=true)/d", "autoDeserialize"),
        ("jdbc:mysql://address=(host=h)(queryInterceptors=a.B)/d", "queryInterceptors"),
        ("jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://h/x.sql'", "INIT"),
        ("jdbc:sqlserver://h; socketFactoryClass = a.B", "socketFactoryClass"),
    ],
)
def test_parameters_of_drivers_that_load_code_or_files_are_refused_by_name(url: str, name: str) -> None:
    for location in ({"url": url}, {"options": {"x": url}}):
        with pytest.raises(ValidationError, match=re.escape(f"{name} {LOADS}")):
            Location.model_validate(location)
    with pytest.raises(ValidationError, match=LOADS):
        Location.model_validate({"options": {name: "x"}})


def test_other_parameters_of_drivers_are_left_alone() -> None:
    url = "jdbc:postgresql://h/d?sslmode=verify-full&sslrootcert=/ca.pem&initial=1&currentSchema=init"
    options = {"fetchsize": "10", "sslmode": "require", "initialSize": "1"}
    assert Location(url=url, options=options).options == options
