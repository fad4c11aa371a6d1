"""A tour for newcomers: twelve months of flights through two Spark jobs, with one torn file and one bad row.

It runs `dataflow` commands like a person and prints each command before its output. Each tour starts with fresh data
and its own state folder beside the usual one. It never uses a database of the user.
"""

import csv
import fcntl
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import prepare
from opendataflow.errors import DataflowError
from opendataflow.settings import Settings, read_settings
from opendataflow.store.embedded import EmbeddedPostgres

JOB_FILE = prepare.DATA.parent / "job.yaml"
RESULTS = prepare.DATA / "results"
DATAFLOW = Path(sys.executable).parent / "dataflow"
OUTPUTS = ("carrier_delays", "delay_report")
OLDEST_JAVA = 17
ALL_DONE, UNFINISHED, INTERRUPTED = 0, 3, 130
MARKER = ".opendataflow-demo"
POLL_SECONDS = 1.0
INTERRUPT_SECONDS = 30.0
NOT_PASSED_ON = {
    "DATAFLOW_DSN",  # the demo works in its own Postgres
    "SPARK_HOME",  # another Spark than the installed package's
}


class DemoError(Exception):
    """The demo can't continue. The text is one sentence for a person."""


def main() -> int:
    """Run the tour. Return 0 if all twelve chunks of both outputs are READY. Otherwise print an error and return 1."""
    try:
        started = time.monotonic()
        require_programs()
        require_java()
        source = prepare.package_data()
        home = read_settings().home
        with fresh_home(home.with_name(f"{home.name}-demo")) as demo_home:
            Tour(demo_home, prepare.split(source / "flights.csv.zip"), source / "airlines.csv").walk()
        print(f"\nDone in {time.monotonic() - started:.0f} seconds. `make demo` starts again from fresh data.")
    except (DemoError, DataflowError, prepare.NotInstalledError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


class Tour:
    """The steps of the tour. `months`: the correct content of each month's file."""

    def __init__(self, home: Path, months: Mapping[str, bytes], airlines: Path) -> None:
        self.months = months
        self.flights = sum(map(prepare.flights_in, months.values()))
        self.airlines = airlines
        self.environ = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
        self.environ["DATAFLOW_HOME"] = str(home)

    def walk(self) -> None:
        """Run all steps. Raise DemoError at the first step with an unexpected result."""
        self.prepare_data()
        self.run_all(expected=UNFINISHED)
        self.put_right()
        self.run_all(expected=ALL_DONE)
        self.show_results()

    def prepare_data(self) -> None:
        """Create the monthly files and print the errors in two of them."""
        prepare.prepare(prepare.DATA, self.months, self.airlines)
        folder = shown(prepare.DATA / "flights")
        print_text(
            f"{self.flights:,} flights from New York in 2013 are in {folder}: {len(self.months)} CSV files,\n"
            "one a month, the chunks of the data set `flights`. "
            f"The file of {prepare.TORN_MONTH} is still being written, and in\n"
            f"{prepare.BAD_MONTH} one row is bad: its delay is no number. "
            f"{shown(JOB_FILE)} declares two Spark jobs,\n"
            "flights -> delays -> carrier_delays -> report -> delay_report. The state of each chunk is in a\n"
            "Postgres of this demo's own; to ask it in another terminal, now or later:\n"
            f"  export DATAFLOW_HOME={shlex.quote(self.environ['DATAFLOW_HOME'])}"
        )

    def run_all(self, expected: int) -> None:
        """Run both jobs until no task can run. Complete the torn file after its first attempt has failed."""
        command = ["local", "-f", shown(JOB_FILE), "--parallelism", "2", "--until-caught-up"]
        torn = prepare.month_file(prepare.DATA, prepare.TORN_MONTH)
        whole = self.months[prepare.TORN_MONTH]
        was_torn = torn.stat().st_size < len(whole)
        echo(command)
        waiting = was_torn
        with started([DATAFLOW, *command], self.environ) as running:
            while (code := wait(running)) is None:
                if waiting and self.first_attempt_failed(prepare.TORN_MONTH):
                    prepare.finish(prepare.DATA, prepare.TORN_MONTH, whole)
                    waiting = False
        if was_torn and not waiting:
            print_text(f"Meanwhile {shown(torn)} was written to its end, so the retry succeeded.")
        if code != expected:
            raise DemoError(f"`dataflow local` ended with {code}, not with {expected}; see its output above")

    def first_attempt_failed(self, month: str) -> bool:
        """Return whether the first attempt at a month has failed. Return False while the state can't be read yet."""
        asked = self.quietly(["get", "runs", "delays", month, "-o", "json"])
        runs = json.loads(asked.stdout) if asked.returncode == 0 else []
        return any(run["attempt"] == 1 and run["state"] == "FAILED" for run in runs)

    def put_right(self) -> None:
        """Show the failed chunks and their blocked consumers, repair the files, and run the proposed command."""
        failed = [chunk["data_id"] for chunk in self.chunks("carrier_delays") if chunk["status"] == "FAILED"]
        if not failed:
            raise DemoError(f"no chunk failed, though {prepare.BAD_MONTH} has a bad row; look at `dataflow get chunks`")
        for month in failed:
            reason = self.show(["why", "delays", month])
            self.show(["why", "report", month])
            prepare.repair(prepare.DATA, month, self.months[month])
            print_text(
                f"The file is repaired now: {shown(prepare.month_file(prepare.DATA, month))}. "
                "Now the command that `why` named:"
            )
            self.show(named_command(reason, "delays", month))

    def show_results(self) -> None:
        """Show the chunks, the paths of the results and one month of them. Check that no flight is missing."""
        self.show(["get", "chunks"])
        for dataset in OUTPUTS:
            ready = [chunk["data_id"] for chunk in self.chunks(dataset) if chunk["status"] == "READY"]
            if sorted(ready) != sorted(self.months):
                raise DemoError(
                    f"{len(ready)} chunks of {dataset} are READY, not {len(self.months)}; see the table above"
                )
        reports = sorted((RESULTS / "delay_report").glob("month=*/carriers.csv"))
        reported = sum(map(reported_flights, reports))
        if reported != self.flights:
            raise DemoError(f"the reports in {shown(RESULTS)} have {reported:,} flights, the files {self.flights:,}")
        print_text(f"All {reported:,} flights are in the results:")
        print(f"  {shown(RESULTS / 'carrier_delays')}/month=*/   Parquet, one row for each carrier and day")
        print(f"  {shown(RESULTS / 'delay_report')}/month=*/     report.md and carriers.csv")
        month = RESULTS / "delay_report" / f"month={prepare.BAD_MONTH}" / "report.md"
        print_text(f"The month that was repaired, {shown(month)}:\n\n{month.read_text(encoding='utf-8').rstrip()}")

    def chunks(self, dataset: str) -> list[dict[str, str]]:
        """Return the chunks of a data set, as the command line prints them."""
        asked = self.quietly(["get", "chunks", dataset, "-o", "json"])
        if asked.returncode != 0:
            raise DemoError(f"`dataflow get chunks {dataset}` failed: {asked.stderr.strip()}")
        chunks: list[dict[str, str]] = json.loads(asked.stdout)
        return chunks

    def show(self, command: Sequence[str]) -> str:
        """Print a command and its output, and return the output. Raise DemoError if the command fails."""
        echo(command)
        asked = self.quietly(command)
        print(asked.stdout, end="", flush=True)
        if asked.returncode != 0:
            raise DemoError(f"`dataflow {shlex.join(command)}` failed: {asked.stderr.strip()}")
        return asked.stdout

    def quietly(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a dataflow command and keep its output."""
        return subprocess.run(
            [DATAFLOW, *command], env=self.environ, capture_output=True, encoding="utf-8", check=False
        )


def named_command(output: str, job: str, month: str) -> list[str]:
    """Return the arguments of the `dataflow resubmit` command that an output names for a job's chunk."""
    pattern = rf"dataflow\s+(resubmit\s+{re.escape(job)}\s+{re.escape(month)})(?!\S*\w)"
    found = re.search(pattern, output)
    if found is None:
        raise DemoError(f"`dataflow why {job} {month}` names no command to go on with; its output is above")
    return found[1].split()


@contextmanager
def started(command: Sequence[str | Path], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a running process. After Ctrl-C, which the process receives too, wait until it has ended its runs."""
    with subprocess.Popen(command, env=environ) as running:
        try:
            yield running
        except KeyboardInterrupt:
            try:
                running.wait(INTERRUPT_SECONDS)
            except subprocess.TimeoutExpired:
                running.terminate()
                running.wait()
            raise


def wait(process: subprocess.Popen[bytes]) -> int | None:
    """Wait a moment for a process to end. Return its exit code, or None while it runs."""
    try:
        return process.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def require_programs() -> None:
    """Raise DemoError if a part of the installation is missing."""
    if importlib.util.find_spec("pyspark") is None or not DATAFLOW.exists():
        raise DemoError("the demo's packages are not installed: run `pip install -e '.[demo]'` and try again")


def require_java() -> None:
    """Raise DemoError unless the Java that Spark will start is new enough. It is JAVA_HOME's or the PATH's."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    version = java_version(java)
    if version is None or version < OLDEST_JAVA:
        where = f" in JAVA_HOME ({home})" if home else ""
        found = f"Java {version} was found" if version else "was not found"
        raise DemoError(
            f"Java {OLDEST_JAVA} or later is needed by Spark and {found}{where}: install it (Debian, Ubuntu: "
            "apt install default-jre-headless; macOS: brew install openjdk@17) and run make demo again"
        )


def java_version(java: str) -> int | None:
    """Return the feature release of a Java program, such as 17. Return None if it does not run."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, encoding="utf-8", check=False)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
    return int(found[1]) if asked.returncode == 0 and found else None


@contextmanager
def fresh_home(home: Path) -> Iterator[Path]:
    """Yield an empty state folder for the demo. Its content stays after the demo.

    The files of an earlier demo are removed, and its Postgres is stopped. Raise DemoError if another demo is running,
    or if the folder is not a demo's.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError("another `make demo` is running on this machine; wait for its end") from None
        if home.exists():
            if not (home / MARKER).exists():
                raise DemoError(f"{home} is not the folder of an earlier demo; move it away and run make demo again")
            stop_postgres(home)
            empty(home, but=MARKER)
        home.mkdir(exist_ok=True)
        home.chmod(0o711)  # if root runs the demo, Postgres runs as another user, who has to enter
        (home / MARKER).touch()
        yield home


def empty(folder: Path, but: str) -> None:
    """Remove everything in a folder except one file, so that an interrupted removal can be detected and repeated."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != but:
            path.unlink()


def stop_postgres(home: Path) -> None:
    """Stop the Postgres of an interrupted demo. Raise DemoError if another process uses it."""
    postgres = Settings(dsn=None, home=home).postgres_home
    running = postgres / "data" / "postmaster.pid"
    if running.exists():
        with EmbeddedPostgres(postgres):
            pass  # the last one to leave stops it
    if running.exists():
        raise DemoError(f"another dataflow command works in {home}; wait for its end and run make demo again")


def reported_flights(carriers: Path) -> int:
    """Return the number of flights in a month's report."""
    with carriers.open(encoding="utf-8", newline="") as file:
        return sum(int(row["flights"]) for row in csv.DictReader(file))


def shown(path: Path) -> str:
    """Return a path relative to the current folder, if it is inside."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def print_text(text: str) -> None:
    """Print a text after an empty line."""
    print(f"\n{text}", flush=True)


def echo(command: Sequence[str]) -> None:
    """Print a command as the user would type it."""
    print(f"\n$ dataflow {shlex.join(command)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
