"""SQL of BigQuery. Pure."""

import re
from collections.abc import Collection, Sequence
from typing import ClassVar

from opendataflow.core.chunks.chunk_predicates import Kind as ColumnKind
from opendataflow.core.chunks.chunk_predicates import Value
from opendataflow.core.databases.attempts import Attempt, Seen
from opendataflow.core.databases.destination import SUPERSEDED, Statement, Writer
from opendataflow.core.databases.dialect import NUMBER, Driver
from opendataflow.errors import InvalidInput


class BigQuery(Writer):
    """BigQuery. Statements are plain texts without `?`. `guarded_script` joins several to one transaction.

    A transaction can't create or drop tables. A transaction in conflict with another one is aborted and has to be
    retried by the caller.
    """

    spark_format = "bigquery"
    driver = Driver("bigquery", "spark-4.1-bigquery", "com.google.cloud.spark:spark-4.1-bigquery:0.45.0")
    read_options: ClassVar = {"viewsEnabled": "true"}
    write_options: ClassVar = {"writeMethod": "direct"}
    text_type = "STRING"

    def name(self, text: str) -> str:
        return "`" + text.replace("\\", "\\\\").replace("`", "\\`") + "`"

    def literal(self, value: Value, kind: ColumnKind | None = None) -> str:
        """Return a value. An untyped text takes the type of the column, such as a date or time."""
        if isinstance(value, int) or (kind == "number" and NUMBER.fullmatch(value)):
            return str(value)
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        return f"'{escaped}'"

    def bucket(self, column: str, buckets: int) -> str:
        """Return the same bucket as Postgres does."""
        digits = f"SUBSTR(TO_HEX(MD5(CAST({column} AS STRING))), 1, 15)"
        return f"MOD(CAST(CONCAT('0x', {digits}) AS INT64), {buckets})"

    def table_name(self, url: str, table: str) -> str:
        """Return a table with its project and data set. Missing parts come from `bigquery://PROJECT/DATASET`."""
        given = re.fullmatch(r"bigquery://([^/?#\s]+)(?:/([^/?#\s]+))?/?", url)
        if given is None:
            raise InvalidInput("the url of BigQuery is bigquery://PROJECT/DATASET")
        parts = [part.strip('"') for part in re.findall(r'"[^"]+"|[^."]+', table)]
        known = [*(it for it in given.groups() if it is not None)][: 3 - len(parts)] + parts
        if len(known) < 3:
            raise InvalidInput(
                f"the table {table} has no data set: write DATASET.{table}, or bigquery://PROJECT/DATASET"
            )
        return ".".join(self.name(part) for part in known)

    def create_chunk_table(self, table: str) -> Statement:
        return Statement(
            f"CREATE TABLE IF NOT EXISTS {self.chunk_table(table)} (dataset STRING NOT NULL, data_id STRING NOT NULL, "
            "fence INT64 NOT NULL, attempt STRING NOT NULL, begun_at TIMESTAMP NOT NULL, written_fence INT64, "
            "`rows` INT64, checksum STRING, written_at TIMESTAMP, owner STRING)"
        )

    def query_columns(self, table: str) -> Statement:
        """Query the columns without integer flags. The staging table has Spark's types and rounds nothing."""
        schema, _, name = table.rpartition(".")
        return Statement(
            f"SELECT column_name, NULL FROM {schema}.INFORMATION_SCHEMA.COLUMNS "
            f"WHERE table_name = {self.literal(name.strip('`'))} ORDER BY ordinal_position"
        )

    def record_start(self, table: str, attempt: Attempt) -> Statement:
        may = [] if attempt.fence is None else [f"known.fence <= {attempt.fence}"]
        may += [] if attempt.owner is None else [self._may_own(attempt, "known.owner")]
        allowed = "".join(f" AND {condition}" for condition in may)
        fence, token, owner = attempt.fence or 0, self.literal(attempt.token), self._owner(attempt)
        change = "" if attempt.owner is None else f", owner = {owner}"
        return Statement(
            f"MERGE INTO {self.chunk_table(table)} known USING (SELECT {self.literal(attempt.dataset)} AS dataset, "
            f"{self.literal(attempt.data_id)} AS data_id) given "
            "ON known.dataset = given.dataset AND known.data_id = given.data_id "
            f"WHEN MATCHED{allowed} THEN UPDATE SET fence = GREATEST(known.fence, {fence}), attempt = {token}, "
            f"begun_at = CURRENT_TIMESTAMP(){change} "
            "WHEN NOT MATCHED THEN INSERT (dataset, data_id, fence, attempt, begun_at, owner) "
            f"VALUES (given.dataset, given.data_id, {fence}, {token}, CURRENT_TIMESTAMP(), {owner})"
        )

    def _chunk_condition(self, attempt: Attempt) -> str:
        return f"dataset = {self.literal(attempt.dataset)} AND data_id = {self.literal(attempt.data_id)}"

    def query_attempt(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            f"SELECT fence, attempt, written_fence, `rows`, checksum, owner FROM {self.chunk_table(table)} "
            f"WHERE {self._chunk_condition(attempt)}"
        )

    def record_commit(self, table: str, attempt: Attempt, staged: Seen) -> Statement:
        checksum = "NULL" if staged.checksum is None else self.literal(staged.checksum)
        return Statement(
            f"UPDATE {self.chunk_table(table)} SET written_fence = fence, `rows` = {staged.rows}, "
            f"checksum = {checksum}, written_at = CURRENT_TIMESTAMP() "
            f"WHERE {self._chunk_condition(attempt)} AND attempt = {self.literal(attempt.token)}"
        )

    def query_leftovers(self, table: str, attempt: Attempt) -> Statement:
        schema = table.rpartition(".")[0]
        return Statement(
            f"SELECT CONCAT({self.literal(schema + '.')}, table_name) FROM {schema}.INFORMATION_SCHEMA.TABLES "
            f"WHERE STARTS_WITH(table_name, {self.literal(self.staging_prefix(attempt))})"
        )

    def create_staging(
        self,
        staging: str,  # noqa: ARG002 # Spark creates the table
        table: str,  # noqa: ARG002 # see above
        columns: Sequence[str],  # noqa: ARG002 # see above
        rounded: Collection[str],  # noqa: ARG002 # see above
    ) -> Sequence[Statement]:
        return ()

    def delete_rows(self, table: str, condition: str | None) -> Statement:
        return super().delete_rows(table, condition or "TRUE")

    def guarded_script(self, first: Statement, rest: Sequence[Statement]) -> str:
        """Return a script with one transaction, which raises SUPERSEDED if the first statement changes no row.

        An error in any statement rolls back all of them.
        """
        return "\n".join(
            [
                "BEGIN TRANSACTION;",
                f"{first.sql};",
                f"IF @@row_count = 0 THEN RAISE USING MESSAGE = {self.literal(SUPERSEDED)}; END IF;",
                *(f"{it.sql};" for it in rest),
                "COMMIT TRANSACTION;",
            ]
        )
