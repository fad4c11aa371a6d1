"""How a JVM is started for a Python program that uses Spark: as pyspark itself would start it.

This module starts no SparkContext and connects to no JVM.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn, Self

from opendataflow.errors import NotInstalled
from opendataflow.names import HOLDER_CONNECTION, HOLDER_START
from opendataflow.spark import class_archive

NO_SPARK = "Spark is not installed: pip install 'opendataflow[spark]'"


@dataclass(frozen=True)
class Start:
    """How a JVM is started. `settings`: those on its command line. `arguments`: the other ones of the user."""

    folder: str
    spark: str
    arguments: str
    settings: Mapping[str, str]

    @classmethod
    def with_settings(cls, settings: Mapping[str, str]) -> Self:
        """Return how this process would start a JVM now."""
        from pyspark import __version__  # optional and slow to import

        return cls(os.getcwd(), __version__, os.environ.get("PYSPARK_SUBMIT_ARGS", ""), settings)

    def write(self, folder: Path) -> None:
        """Write the description to the folder of a holder."""
        (folder / HOLDER_START).write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the description. Raises OSError, ValueError or TypeError."""
        return cls(**json.loads((folder / HOLDER_START).read_text("utf-8")))


def replace_with_jvm(start: Start, folder: Path, variables: Mapping[str, str]) -> NoReturn:
    """Replace this process by a JVM, and describe it in the folder of a holder. `variables`: of the JVM.

    Raises NotInstalled if Spark is missing, and OSError.
    """
    home = spark_home()
    start.write(folder)
    own = {
        **os.environ,
        **class_archive.pyspark_variables(os.environ, home),
        **variables,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / HOLDER_CONNECTION),
    }
    settings = [word for key, value in start.settings.items() for word in ("--conf", f"{key}={value}")]
    program = str(home / "bin" / "spark-submit")
    os.execve(program, [program, *settings, *shlex.split(own.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))], own)


def spark_home() -> Path:
    """Return Spark's home folder. Raises NotInstalled without Spark."""
    try:
        from pyspark.find_spark_home import _find_spark_home  # optional
    except ModuleNotFoundError:
        raise NotInstalled(NO_SPARK) from None
    return Path(_find_spark_home())


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
    """Set variables during the block, for child processes."""
    kept = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
