"""The program that starts a JVM for many runs of a PySpark program. It becomes this JVM.

It starts what pyspark would start for a run: with the same settings, in the same folder. It starts no SparkContext,
which the first run does. The JVM ends with its standard input, as pyspark's own does.
"""

import os
import sys
from pathlib import Path

from opendataflow.errors import DataflowError
from opendataflow.names import ExitCode
from opendataflow.spark.shared.jvm_start import Start, replace_with_jvm, spark_home


def main() -> int:
    """Start the JVM. Return an exit code if that is impossible; then the last line of the log is the reason."""
    try:
        spark_home()
        replace_with_jvm(Start.with_settings({}), Path(os.environ["SPARK_CONF_DIR"]), {})
    except (DataflowError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
    return ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main())
