"""The bounds that an id has by itself: the store compares chunks by the same bounds that runs read."""

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.core.chunks.chunk_bounds import Kind, bounds_of
from opendataflow.errors import InvalidInput
from tests.sql.conftest import Connection

NUMBER = st.integers(-120, 120).map(str) | st.sampled_from(["007", "-0", "9" * 30])
DAY = st.builds(
    "{:04}-{:02}{}".format,
    st.sampled_from([0, 1, 1900, 2000, 2013, 2024, 9999, 10000]),
    st.integers(0, 13),
    st.just("") | st.integers(0, 32).map("-{:02}".format),
)
IDS = (
    DAY
    | st.builds("{}-{}".format, NUMBER, NUMBER)
    | st.builds("{}-of-{}".format, NUMBER, NUMBER)
    | st.builds("{}..".format, NUMBER)
    | st.builds("..{}".format, NUMBER)
    | st.builds("{}_{}-{}".format, NUMBER, NUMBER, NUMBER)
    | st.sampled_from(["null", "2013-W13", "2013-01-05T00", "20130105", "٣-٤", "٣-of-٤", "٢٠١٣-٠١", "2013-01\n", ".."])
    | st.text(max_size=8).filter(lambda text: "\0" not in text)
)


def bounds_of_run(data_id: str, kind: Kind) -> object:
    try:
        return bounds_of(data_id, kind)
    except InvalidInput:
        return None


@settings(max_examples=200)
@given(ids=st.lists(IDS, min_size=1, max_size=20))
def test_the_store_and_a_run_agree_on_the_bounds_of_an_id(shared: Connection, ids: list[str]) -> None:
    for kind in get_args(Kind):
        query = "SELECT ARRAY(SELECT opendataflow.bounds_of_id(i, %s) FROM unnest(%s::text[]) AS i) AS bounds"
        ((found,),) = (row.values() for row in shared.execute(query, (kind, ids)))
        assert found == [bounds_of_run(i, kind) for i in ids]
