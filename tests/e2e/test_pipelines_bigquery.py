"""BigQuery as source and destination: what its connector is asked, through a real Spark. BigQuery itself is not there;
`bigquery/BigQuery.java` stands in for the connector, behind the interfaces of Spark that the connector documents.
"""

import base64
import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opendataflow.names import ExitCode
from opendataflow.spark.shared.jvm_start import spark_home
from tests.e2e.conftest import Answer, Inside
from tests.e2e.projects import Project, copying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = json.dumps({"type": "service_account", "private_key": "hush-hush"})


@pytest.fixture(scope="module")
def connector(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What stands in for the connector is in Spark, until the last test of this module."""
    folder = tmp_path_factory.mktemp("connector")
    source = Path(__file__).parent / "bigquery/BigQuery.java"
    subprocess.run(["javac", "-cp", f"{spark_home()}/jars/*", "-d", folder, source], check=True)
    with zipfile.ZipFile(folder / "connector.jar", "w") as jar:
        jar.writestr("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister", "BigQuery")
        for made in folder.glob("*.class"):
            jar.write(made, made.name)
    jvm: Any = spark._jvm
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    spark.sql(f"ADD JAR '{folder / 'connector.jar'}'")
    yield
    thread.setContextClassLoader(before)


class Shop(Project):
    """A project that copies a table of BigQuery into another one, and what the connector was asked."""

    database = "{url: 'bigquery://shop/sales', passwordVariable: SHOP_KEY, options: {bigQueryHttpEndpoint: FOLDER}}"
    yml = copying("day", "date", database)

    def set_up(self, old: str = "", new: str = "", **answers: str) -> None:
        """Write the project, and what the connector answers to what contains some text."""
        self.write("project.yml", self.yml.replace(old, new, 1).replace("FOLDER", str(self.folder)))
        usual = {
            "Read": "SELECT id, 'it' AS name FROM range(3)",
            "INFORMATION_SCHEMA.COLUMNS": "id\tNULL|name\tNULL|data_id\tNULL",
            "SELECT fence": "7\tabc\tNULL\tNULL\tNULL\tNULL",
            "INFORMATION_SCHEMA.TABLES": "`shop`.`sales`.opendataflow_staging_1_old",
            "SELECT count(*)": "3\t0",
        }
        first = {"table_name = 'opendataflow_chunk'": "dataset\tNULL|owner\tNULL"}  # it is a question for columns, too
        known = {**first, **answers, **{text: rows for text, rows in usual.items() if text not in answers}}
        self.write("answers", "".join(f"{text}\t{rows}\n" for text, rows in known.items()))

    def run(self) -> Answer:
        """Do the chunk."""
        return self.ask("run", "p", "--data-id", "2013-01-01")

    def asked(self) -> list[str]:
        """What the connector was asked, with its options; the attempt's own name left out."""
        asked = (self.folder / "asked").read_text()
        return re.sub(r"staging_\w{16}_\w{12}|(?<=attempt = ')\w+", "ATTEMPT", asked).split("\n\n")[:-1]


@pytest.fixture
def shop(connector: None, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:  # noqa: ARG001
    """A project whose key is in the environment."""
    monkeypatch.setenv("SHOP_KEY", KEY)
    monkeypatch.setenv("DATAFLOW_DATA_ID", "2013-01-01")
    monkeypatch.setenv("DATAFLOW_FENCE", "7")
    made = Shop(tmp_path, inside)
    made.step("one", "def run(df):\n    return df\n")
    return made


def test_a_chunk_is_read_by_a_filter_staged_and_taken_over_in_one_transaction(shop: Shop) -> None:
    shop.set_up()
    answer = shop.run()
    assert answer.code == ExitCode.OK, answer.err
    key = base64.b64encode(KEY.encode()).decode()
    login = f"credentials={key}, "
    who = "dataset = 'out' AND data_id = '2013-01-01'"
    asked = shop.asked()
    assert [" ".join(text.removeprefix("-- of a query\n").split()[:3]) for text in asked] == [
        "Read {credentials=" + key + ", filter=`day`",
        "CREATE TABLE IF",
        "SELECT column_name, NULL",
        "SELECT column_name, NULL",
        "MERGE INTO `shop`.`sales`.opendataflow_chunk",
        "SELECT fence, attempt,",
        "SELECT CONCAT('`shop`.`sales`.', table_name)",
        "DROP TABLE IF",
        "Append 3 rows",
        "SELECT count(*), coalesce(0,",
        "BEGIN TRANSACTION; UPDATE",
        "DROP TABLE IF",
    ]
    assert asked[0] == (
        f"Read\n{{{login}filter=`day` >= '2013-01-01' AND `day` < '2013-01-02', parentproject=shop, "
        "path=shop.sales.orders, viewsenabled=true}"
    )
    assert asked[7].startswith("DROP TABLE IF EXISTS `shop`.`sales`.opendataflow_staging_1_old\n")
    assert asked[8] == (
        f"Append 3 rows\n{{{login}parentproject=shop, path=shop.sales.opendataflow_ATTEMPT, writemethod=direct}}"
    )
    assert re.sub(r"'xxhash64:\w+'", "CHECKSUM", asked[10].partition("\n{")[0]) == (
        "BEGIN TRANSACTION;\n"
        "UPDATE `shop`.`sales`.opendataflow_chunk SET written_fence = fence, `rows` = 3, checksum = CHECKSUM, "
        f"written_at = CURRENT_TIMESTAMP() WHERE {who} AND attempt = 'ATTEMPT';\n"
        "IF @@row_count = 0 THEN RAISE USING MESSAGE = 'opendataflow: another attempt has begun'; END IF;\n"
        "DELETE FROM `shop`.`sales`.`result` WHERE `data_id` = '2013-01-01';\n"
        "INSERT INTO `shop`.`sales`.`result` (`id`, `name`, `data_id`) "
        "SELECT `id`, `name`, `data_id` FROM `shop`.`sales`.opendataflow_ATTEMPT;\n"
        "COMMIT TRANSACTION;"
    )


def test_a_table_of_attempts_of_an_earlier_version_gets_the_column_owner(shop: Shop) -> None:
    shop.set_up(**{"table_name = 'opendataflow_chunk'": "dataset\tNULL"})
    assert shop.run().code == ExitCode.OK
    added = "ALTER TABLE `shop`.`sales`.opendataflow_chunk ADD COLUMN IF NOT EXISTS owner STRING"
    assert any(text.startswith(added) for text in shop.asked())


def test_a_table_that_is_not_there_is_made_with_the_chunks_side_by_side(shop: Shop) -> None:
    shop.set_up(**{"INFORMATION_SCHEMA.COLUMNS": ""})
    assert shop.run().code == ExitCode.OK
    made = next(text for text in shop.asked() if text.startswith("Append 0 rows"))
    assert "clusteredfields=data_id, " in made
    assert "path=shop.sales.result, " in made


def test_a_table_that_two_chunks_make_at_once_is_made_by_one(shop: Shop) -> None:
    shop.set_up(**{"Append 0": "!Already Exists: Table shop:sales.result", "INFORMATION_SCHEMA.COLUMNS": "once "})
    shop.write("answers", (shop.folder / "answers").read_text() + "INFORMATION_SCHEMA.COLUMNS\tid\tNULL\n")
    assert shop.run().code == ExitCode.OK


def test_what_meets_another_transaction_is_done_again(shop: Shop) -> None:
    shop.set_up(COMMIT="once !Transaction is aborted due to concurrent update against table shop:sales.result.")
    assert shop.run().code == ExitCode.OK
    assert sum("BEGIN TRANSACTION" in text for text in shop.asked()) == 2


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"SELECT fence": "8\tabc\tNULL\tNULL\tNULL\tNULL"}, "a newer attempt of the chunk 2013-01-01"),
        (
            {"BEGIN TRANSACTION": "!Query error: opendataflow: another attempt has begun at [3:1]"},
            "another attempt of the chunk 2013-01-01 has begun meanwhile",
        ),
    ],
    ids=["late", "overtaken"],
)
def test_an_attempt_that_is_not_the_newest_writes_nothing(shop: Shop, answers: dict[str, str], sentence: str) -> None:
    shop.set_up(**answers)
    answer = shop.run()
    assert answer.code == ExitCode.FAILED
    assert "write out has failed: project.yml, line 12: " in answer.err
    assert sentence in answer.err


def test_a_chunk_is_appended_only_once(shop: Shop) -> None:
    shop.set_up("table: result", "table: result\n      mode: append", **{"SELECT fence": "7\tabc\t7\t3\tsum\tNULL"})
    answer = shop.run()
    assert answer.code == ExitCode.OK, answer.err
    assert not [text for text in shop.asked() if text.startswith(("Append", "BEGIN"))]


def test_a_query_is_asked_for_the_rows_of_the_chunk_only(shop: Shop) -> None:
    shop.set_up("table: orders", "query: SELECT * FROM orders")
    assert shop.run().code == ExitCode.OK
    of_chunk = "SELECT * FROM (SELECT * FROM orders) given WHERE `day` >= '2013-01-01' AND `day` < '2013-01-02'"
    assert f"query={of_chunk}, " in shop.asked()[0]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "sales', passwordVariable: SHOP_KEY",
            "sales', passwordVariable: HOME",
            "the variable of passwordVariable has no key of Google",
        ),
        ("passwordVariable: SHOP_KEY", "passwordVariable: NO_KEY", "the variable NO_KEY is not set"),
        ("table: orders", "table: orders\n        options: {credentials: hush}", "credentials is no option for a file"),
        ("bigQueryHttpEndpoint: FOLDER", "credentials: hush", "credentials is no option for a file: write "),
        ("passwordVariable: SHOP_KEY", "user: me", "BigQuery has no user beside the key, and no driver; leave "),
        ("shop/sales", "shop", "the table orders has no data set: write DATASET.orders, or bigquery://PROJECT/DATASET"),
        ("bigquery://shop/sales", "bigquery://", "the url of BigQuery is bigquery://PROJECT/DATASET"),
        ("table: orders", "table: orders\n        schema: id INT", "leave out schema, connections and splitBy"),
    ],
    ids=["no key", "no variable", "a secret", "another", "a user", "no data set", "no project", "a schema"],
)
def test_what_means_nothing_to_bigquery_is_one_sentence(shop: Shop, old: str, new: str, sentence: str) -> None:
    shop.set_up(old, new)
    answer = shop.run()
    assert answer.code == ExitCode.FAILED
    assert "read orders has failed: project.yml, line 6: " in answer.err
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
    assert "hush" not in answer.err


def test_what_bigquery_says_is_one_sentence(shop: Shop) -> None:
    shop.set_up(Read="!Not found: Dataset shop:sales was not found in location EU")
    answer = shop.run()
    assert answer.code == ExitCode.FAILED
    assert answer.err == (
        "error: read orders has failed: project.yml, line 6: "
        "Not found: Dataset shop:sales was not found in location EU\n"
    )


def test_the_key_is_not_shown_in_a_plan(spark: "SparkSession", shop: Shop) -> None:  # the connector is there
    jvm: Any = spark._jvm
    options = jvm.PythonUtils.toScalaMap({"credentials": "hush", "bigQueryHttpEndpoint": str(shop.folder)})
    shop.set_up()
    plan = spark._jsparkSession.executeCommand("bigquery", "DROP", options).queryExecution().toString()
    assert "credentials" in plan
    assert "hush" not in plan
