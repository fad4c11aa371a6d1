"""The program that starts a JVM for many runs of one job. It becomes this JVM.

It reads the order of a pipeline from its folder, finds the project, and starts what pyspark would start for a run: the
same settings, the same drivers, the same folder. It starts no SparkContext, which the first run does. The JVM ends with
its standard input, as pyspark's own does.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from opendataflow.core.pipelines.pipeline_order import parse_order
from opendataflow.errors import DataflowError
from opendataflow.names import PIPELINE_FILE, ExitCode
from opendataflow.spark.pipeline.job import find_project
from opendataflow.spark.pipeline.measure.session import replace_with_jvm_of_pipeline
from opendataflow.spark.pipeline.project.project_folder import open_project
from opendataflow.spark.pipeline.storage.database_login import required_drivers


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Start the JVM. Return 0 if the pipeline needs none: projects of the Django tool's form run without Spark.

    Return another exit code if the start is impossible; then the last line of the log is the reason.
    """
    folder = Path(environ["SPARK_CONF_DIR"])
    file = folder / PIPELINE_FILE
    try:
        order = parse_order(file.read_text("utf-8"), str(file))
        with find_project(order) as found:
            os.chdir(found.folder)
            project = open_project(Path())
            pipeline = project.resolve(order.pipeline).pipeline
            if project.file.django:
                return ExitCode.OK
            replace_with_jvm_of_pipeline(required_drivers(pipeline), folder)
    except (DataflowError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
    return ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main())
