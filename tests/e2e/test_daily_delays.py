"""The example with two pipelines: its days in Parquet and in Postgres are what pandas computes of the same files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import Program
from tests.e2e.projects import login_of
from tests.share import in_share
from tests.sql.conftest import Connection

if TYPE_CHECKING:
    import pandas

EXAMPLE = Path(__file__).parents[2] / "examples" / "daily-delays"
DAYS = ("2013-11-02", "2013-11-03")
HOUR = ["origin", "year", "month", "day", "hour"]
FIGURES = ("flights", "cancelled", "late", "mean_delay", "distance", "wind_speed", "seats")


def by_pandas(folder: Path) -> "pandas.DataFrame":
    """The table, computed without Spark and without a join that could double a row."""
    import pandas

    flights = pandas.concat(pandas.read_csv(folder / "flights" / f"{day}.csv") for day in DAYS)
    wind = pandas.read_csv(folder / "weather.csv").groupby(HOUR)["wind_speed"].mean()
    seats = pandas.read_csv(folder / "planes.csv").set_index("tailnum")["seats"]
    flights["wind_speed"] = [wind.get(tuple(hour)) for hour in flights[HOUR].itertuples(index=False)]
    flights["seats"] = flights["tailnum"].map(seats)
    flights["data_id"] = [f"2013-11-{day:02}" for day in flights["day"]]
    groups = flights.groupby(["data_id", "origin", "carrier"])
    return pandas.DataFrame(
        {
            "flights": groups.size(),
            "cancelled": groups["dep_time"].apply(lambda times: times.isna().sum()),
            "late": groups["arr_delay"].apply(lambda delays: (delays >= 15).sum()),
            "mean_delay": groups["arr_delay"].mean(),
            "distance": groups["distance"].sum(),
            "wind_speed": groups["wind_speed"].mean(),
            "seats": groups["seats"].sum(min_count=1),
        }
    )


@in_share(2)
def test_both_tables_are_what_pandas_computes(dataflow: Program, db: Connection, dsn: str, tmp_path: Path) -> None:
    import pandas

    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data"))
    subprocess.run([sys.executable, str(folder / "make_data.py")], check=True, stdout=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(("URL", "USER", "PASSWORD"), login_of(dsn), strict=True):
            patch.setenv(f"WAREHOUSE_{name}", value)
        dataflow.run("local", "-f", str(folder / "job.yaml"), "--until-caught-up")
    expected = by_pandas(folder / "data")
    assert len(expected) > 40
    parquet = pandas.read_parquet(folder / "data/results/daily_delays", partitioning=None)
    rows = db.execute("SELECT * FROM public.daily_delays").fetchall()
    table = pandas.DataFrame(rows).rename(columns={"day": "data_id"}).set_index(["data_id", "origin", "carrier"])
    assert len(parquet) == len(table) == len(expected)
    for figure in FIGURES:
        pandas.testing.assert_series_equal(
            table[figure].sort_index(), expected[figure].sort_index(), check_dtype=False, rtol=1e-9
        )
    assert sorted(parquet["distance"]) == sorted(table["distance"])
    reports = [run["metrics"] for run in json.loads(dataflow.run("get", "runs", "delays", "-o", "json"))]
    assert [all(it["held"] for it in report["expectations"]) for report in reports] == [True, True]
