"""The data of the flights example: twelve months of real flights, two of them wrong as the demo describes."""

from pathlib import Path

import pytest

import prepare

AIRLINES = prepare.package_data() / "airlines.csv"


@pytest.fixture(scope="module")
def months() -> dict[str, bytes]:
    return prepare.split(prepare.package_data() / "flights.csv.zip")


@pytest.fixture
def data(tmp_path: Path, months: dict[str, bytes]) -> Path:
    prepare.prepare(tmp_path / "data", months, AIRLINES)
    return tmp_path / "data"


def test_the_package_gives_twelve_months_with_all_flights_of_the_year(months: dict[str, bytes]) -> None:
    assert list(months) == [f"2013-{month:02}" for month in range(1, 13)]
    assert sum(map(prepare.flights_in, months.values())) == 336_776
    assert prepare.flights_in(months["2013-02"]) == 24_951


def test_each_file_has_the_header_and_the_flights_of_its_month_alone(months: dict[str, bytes]) -> None:
    for month, content in months.items():
        header, *lines = content.splitlines()
        assert header.startswith(b"year,month,day,dep_time,")
        number = str(int(month[-2:])).encode()
        assert {tuple(line.split(b",", 2)[:2]) for line in lines} == {(b"2013", number)}


def test_all_files_are_as_in_the_package_but_the_two_wrong_ones(data: Path, months: dict[str, bytes]) -> None:
    same = [month for month, whole in months.items() if prepare.month_file(data, month).read_bytes() == whole]
    assert sorted(set(months) - set(same)) == [prepare.TORN_MONTH, prepare.BAD_MONTH]
    assert (data / "airlines.csv").read_bytes() == AIRLINES.read_bytes()


def test_the_torn_file_is_a_beginning_that_ends_in_the_middle_of_a_line(data: Path, months: dict[str, bytes]) -> None:
    torn, whole = prepare.month_file(data, "2013-03").read_bytes(), months["2013-03"]
    assert whole.startswith(torn)
    assert 0 < torn.rsplit(b"\n", 1)[1].count(b",") < whole.split(b"\n", 1)[0].count(b",")


def test_the_bad_file_has_one_other_row_whose_arrival_delay_is_no_number(data: Path, months: dict[str, bytes]) -> None:
    bad = prepare.month_file(data, "2013-09").read_bytes().splitlines()
    good = months["2013-09"].splitlines()
    [(before, after)] = [(old, new) for old, new in zip(good, bad, strict=True) if old != new]
    changed = [
        (position, value)
        for position, (old, value) in enumerate(zip(before.split(b","), after.split(b","), strict=True))
        if old != value
    ]
    assert changed == [(good[0].split(b",").index(b"arr_delay"), b"late")]


def test_a_finished_file_has_the_original_bytes(data: Path, months: dict[str, bytes]) -> None:
    prepare.finish(data, "2013-03", months["2013-03"])
    assert prepare.month_file(data, "2013-03").read_bytes() == months["2013-03"]


def test_to_finish_a_whole_file_changes_nothing(data: Path, months: dict[str, bytes]) -> None:
    prepare.finish(data, "2013-04", months["2013-04"])
    assert prepare.month_file(data, "2013-04").read_bytes() == months["2013-04"]


def test_a_repaired_file_has_the_original_bytes_and_leaves_nothing_beside_it(
    data: Path, months: dict[str, bytes]
) -> None:
    prepare.repair(data, "2013-09", months["2013-09"])
    assert prepare.month_file(data, "2013-09").read_bytes() == months["2013-09"]
    assert sorted(path.stem for path in (data / "flights").iterdir()) == list(months)


def test_preparing_again_removes_what_an_earlier_demo_left(data: Path, months: dict[str, bytes]) -> None:
    (data / "results").mkdir()
    prepare.repair(data, "2013-09", months["2013-09"])
    prepare.prepare(data, months, AIRLINES)
    assert not (data / "results").exists()
    assert prepare.month_file(data, "2013-09").read_bytes() == prepare.spoil(months["2013-09"])
