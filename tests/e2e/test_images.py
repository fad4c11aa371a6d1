"""What is in the images, what is not, and that their programs run in them. No cluster is needed."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import images.build as building
from tests.e2e import images
from tests.e2e.layers import own_storage
from tests.e2e.opened import Archive, Root, mounted
from tests.share import in_share

MOST_BYTES = 200_000_000
NOT_WANTED = re.compile(
    r"bin/(pip[\d.]*|gcc.*|cc|g\+\+.*|ld|as|make)$|/site-packages/pip|/(ensurepip|tests?)/.*\.py$"
    r"|^var/(lib/apt/lists|cache/apt)/."
)
LIKE_A_SECRET = re.compile(
    r"(^|/)(\.git/|\.env$|\.netrc$|\.pypirc$|id_rsa|\.ssh/.|\.docker/|dataflow\.properties$)|\.(key|p12)$"
)

pytestmark = pytest.mark.timeout(func_only=True)  # the first one builds the images


@pytest.fixture(scope="module")
def archives() -> Iterator[dict[str, Path]]:
    """The images, built where they are not there yet."""
    if not (os.getuid() == 0 and shutil.which("buildah")):
        if os.environ.get("CI"):
            pytest.fail("the images can't be looked into: root and buildah are needed, and CI has to have them")
        pytest.skip("THE IMAGES WERE NOT TESTED: root and buildah are needed")
    with own_storage():
        yield images.build()


@pytest.fixture(scope="module")
def operator(archives: dict[str, Path]) -> Archive:
    return Archive(archives["operator"])


@pytest.fixture(scope="module")
def spark(archives: dict[str, Path]) -> Archive:
    return Archive(archives["spark"])


@pytest.fixture(scope="module")
def in_operator(operator: Archive) -> Iterator[Root]:
    with mounted(operator, "/tmp") as root:
        yield root


@pytest.fixture(scope="module")
def in_spark(spark: Archive) -> Iterator[Root]:
    with mounted(spark, "/tmp", "/opt/opendataflow/work") as root:
        yield root


@pytest.mark.parametrize("lock", ["operator", "spark", "build"])
def test_what_images_have_is_what_the_tests_run_with(lock: str) -> None:
    def pins(name: str) -> set[str]:
        lines = (building.ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        return {line.split()[0] for line in lines if "==" in line}

    assert pins(lock) - pins("dev") <= {pin for pin in pins(lock) if pin.startswith("wheel==")}


def test_both_have_a_numeric_user_who_is_not_root(operator: Archive, spark: Archive) -> None:
    assert operator.config["User"] == "65532:65532"
    assert spark.config["User"] == "185:185"


def test_both_say_what_they_are(operator: Archive, spark: Archive) -> None:
    for image in (operator, spark):
        labels = image.config["Labels"]
        for name in ("title", "version", "revision", "source", "licenses"):
            assert labels[f"org.opencontainers.image.{name}"]


def test_the_operator_s_image_is_small(operator: Archive) -> None:
    assert sum(file.size for file in operator.files()) < MOST_BYTES


def test_nothing_that_builds_or_installs_is_left_in_the_operator_s_image(operator: Archive) -> None:
    assert [file.name for file in operator.files() if NOT_WANTED.search(file.name.removeprefix("./"))] == []


@pytest.mark.parametrize("image", building.IMAGES)
def test_no_file_looks_like_a_secret(archives: dict[str, Path], image: str) -> None:
    names = [file.name.removeprefix("./") for file in Archive(archives[image]).files()]
    assert len(names) > 1000
    assert [name for name in names if LIKE_A_SECRET.search(name)] == []


def test_no_program_of_the_operator_s_image_has_the_rights_of_another_user(operator: Archive) -> None:
    assert [file.name for file in operator.files() if file.isfile() and file.mode & 0o6000] == []


def test_the_operator_s_programs_start_without_writing_anything(in_operator: Root) -> None:
    for command in (["opendataflow", "--help"], ["opendataflow", "--version"], ["dataflow", "--version"]):
        done = in_operator.run(*command)
        assert (done.returncode, done.stderr) == (0, "")


def test_no_python_file_is_compiled_at_the_start(in_operator: Root) -> None:
    programs = "import opendataflow.control.main, opendataflow.control.operator, opendataflow.cli.commands as commands"
    programs += "; commands.all_commands()"
    done = in_operator.run("python", "-v", "-c", programs)
    assert done.returncode == 0
    assert "matches" in done.stderr
    assert [line for line in done.stderr.splitlines() if "code object from /" in line and ".pyc" not in line] == []


def test_its_busybox_needs_no_library(in_operator: Root, tmp_path: Path) -> None:
    alone = tmp_path / "bin"
    alone.mkdir()
    tmp_path.chmod(0o755)
    shutil.copy(in_operator.folder / "usr/local/bin/busybox", alone)
    shell = Root(tmp_path, in_operator.archive, ())
    for name in ("proc", "dev"):
        (tmp_path / name).mkdir()
    for name in ("sh", "env"):
        (alone / name).symlink_to("busybox")
    done = shell.run("/bin/busybox", "echo", "alone")
    assert (done.stdout, done.stderr) == ("alone\n", "")


def test_where_a_database_is_not_named_it_says_so_in_a_sentence(in_operator: Root) -> None:
    done = in_operator.run("dataflow", "status")
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "DATAFLOW_DSN" in done.stderr


def test_passwords_are_opened_by_it(in_operator: Root) -> None:
    done = in_operator.run("python", "-m", "opendataflow.runtime.open_passwords", "/tmp", DATAFLOW_SEALED="{}")
    assert (done.returncode, done.stderr) == (0, "")


@in_share(0)
def test_equal_sources_give_equal_layers(operator: Archive, tmp_path: Path) -> None:
    with images.only_one():
        order = images.order(images.base_image(), tmp_path, "local/opendataflow-{}:again", options=["--no-cache"])
        building.make(order, ["operator"], contents=None, builder="buildah")
    assert Archive(tmp_path / "operator.tar").layers == operator.layers


@in_share(2)
def test_the_list_of_contents_names_what_debian_python_and_java_have_brought(
    archives: dict[str, Path], tmp_path: Path
) -> None:
    syft = building.find_syft()
    assert syft, "neither syft nor go is there"
    listed = {}
    for image, archive in archives.items():
        building.list_contents(syft, archive, image, tmp_path / f"{image}.json")
        listed[image] = (tmp_path / f"{image}.json").read_text()
    for name in ("libc6", "busybox", "kopf", "psycopg", "opendataflow"):
        assert f'"name":"{name}"' in listed["operator"]
    for name in ("openjdk-17-jre-headless", "pyspark", "postgresql", "spark-kubernetes_2.13"):
        assert f'"name":"{name}"' in listed["spark"]


def test_java_is_the_one_that_spark_supports(in_spark: Root) -> None:
    assert 'openjdk version "17' in in_spark.run("/opt/opendataflow/entrypoint", "java", "-version").stderr


def test_a_local_spark_job_finds_the_driver_for_postgres(in_spark: Root) -> None:
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print(spark.range(5).count(), spark._jvm.java.lang.Class.forName('org.postgresql.Driver').getName())\n"
    )
    done = in_spark.run("/opt/opendataflow/entrypoint", "python", "-c", program, SPARK_LOCAL_IP="127.0.0.1")
    assert done.stdout.split() == ["5", "org.postgresql.Driver"], done.stderr[-2000:]


def test_functions_of_python_pandas_and_arrow_work_in_a_local_spark_job(in_spark: Root) -> None:
    program = (
        "import pydantic, yaml\n"
        "from pyspark.sql import SparkSession, functions as F\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "twice = F.udf(lambda number: number * 2, 'long')\n"
        "handed_on = spark.range(5).mapInArrow(lambda batches: batches, 'id long')\n"
        "print(handed_on.select(twice('id').alias('n')).toPandas().n.sum())\n"
    )
    done = in_spark.run("/opt/opendataflow/entrypoint", "python", "-c", program, SPARK_LOCAL_IP="127.0.0.1")
    assert done.stdout.split() == ["20"], done.stderr[-2000:]


@pytest.mark.parametrize("who", ["driver", "executor"])
def test_java_starts_from_the_archive_of_spark_s_classes(in_spark: Root, who: str) -> None:
    """Spark's own class is one that it does not read from a jar."""
    option = "-Xlog:class+load=info:stdout"
    loaded = "org.apache.spark.SparkConf source: shared objects file (top)"
    if who == "driver":
        program = (
            "import os\n"
            "from pathlib import Path\n"
            "from opendataflow.spark import class_archive\n"
            "os.environ.update(class_archive.pyspark_variables(os.environ, Path('/opt/spark')))\n"
            f"os.environ['SPARK_SUBMIT_OPTS'] += ' {option}'\n"
            "os.execv('/opt/spark/bin/spark-submit', ['spark-submit', '--driver-class-path',\n"
            "    os.environ['PYSPARK_SUBMIT_ARGS'].split()[1], '--version'])\n"
        )
        done = in_spark.run("/opt/opendataflow/entrypoint", "python", "-c", program, SPARK_LOCAL_IP="127.0.0.1")
        loaded = "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)"
    else:
        done = executor(in_spark, SPARK_JAVA_OPT_1=option)
    assert loaded in done.stdout, done.stdout[-500:] + done.stderr[-2000:]


def executor(in_spark: Root, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Start one whose driver is not there."""
    return in_spark.run(
        "/opt/opendataflow/entrypoint",
        "executor",
        SPARK_EXECUTOR_MEMORY="256m",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@127.0.0.1:1",
        SPARK_EXECUTOR_ID="1",
        SPARK_EXECUTOR_CORES="1",
        SPARK_APPLICATION_ID="spark-1",
        SPARK_EXECUTOR_POD_IP="127.0.0.1",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="executor-1",
        SPARK_JAVA_OPT_0="-Dspark.rpc.numRetries=1",
        **environ,
    )


def test_an_executor_asks_the_driver_that_spark_names(in_spark: Root) -> None:
    done = executor(in_spark)
    assert done.returncode != 0
    assert "127.0.0.1:1" in done.stderr


def test_an_executor_outside_of_spark_says_what_it_is_for(in_spark: Root) -> None:
    done = in_spark.run("/opt/opendataflow/entrypoint", "executor")
    assert done.returncode == 1
    assert done.stderr == "error: SPARK_EXECUTOR_MEMORY is not set: `executor` is for pods that Spark starts\n"


def test_a_driver_outside_of_spark_says_what_it_is_for(in_spark: Root) -> None:
    done = in_spark.run("/opt/opendataflow/entrypoint", "driver", "program.py")
    assert done.returncode == 1
    assert done.stderr == "error: SPARK_DRIVER_BIND_ADDRESS is not set: `driver` is for pods that Spark starts\n"
