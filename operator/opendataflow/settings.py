"""Settings from the environment: the address of Postgres, the folder of local state, the targets of notifications.

Only entry points read them; every other module gets values as arguments. This module never opens a file.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opendataflow import __version__
from opendataflow.errors import InvalidInput
from opendataflow.names import PodProfile

PROPERTIES = Path("dataflow.properties")
"""The default file with the address of the database, in the current folder."""


@dataclass(frozen=True)
class Notifications:
    """Targets of notifications, unparsed. The values may hold tokens. None: no target of this kind."""

    command: str | None = field(default=None, repr=False)
    webhook: str | None = field(default=None, repr=False)
    smtp: str | None = field(default=None, repr=False)
    smtp_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Settings:
    """Settings of the command line.

    `dsn`: the address of the database. `dsn_file`: a file with the address, read for every connection. `properties`: a
    file of the old framework with the address, if there is neither. If all are None, the file in the current folder
    counts, else the embedded Postgres under `home`. `home`: the folder of local state.
    `kube`: commands go through a cluster. `kubeconfig`: the variable KUBECONFIG is set.
    """

    dsn: str | None
    home: Path
    properties: Path | None = None
    notifications: Notifications = Notifications()
    kube: bool = False
    kubeconfig: bool = False
    dsn_file: Path | None = None

    @property
    def postgres_home(self) -> Path:
        """Return the folder of the embedded Postgres."""
        return self.home / "postgres"

    @property
    def clones_home(self) -> Path:
        """Return the folder of fetched pipeline projects."""
        return self.home / "projects"

    @property
    def all_runs(self) -> Path:
        """Return the folder of the local runs of all databases that share the home."""
        return self.home / "runs"

    def runs_home(self, identity: str) -> Path:
        """Return the folder of one database's local runs. Each run has a folder there: log, context, process record.

        `identity`: of the database. Databases number their runs from 1, so their runs need separate folders.
        """
        return self.all_runs / identity


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of the operator.

    `parallelism`: how many runs of all jobs together may be active. `namespace_parallelism`: how many runs of the jobs
    of one namespace; None for no limit. `namespaces`: the operator ignores resources of other namespaces; empty means
    all namespaces. `port`: serves probes and metrics. `image`: the operator's own image, which decrypts passwords in
    pods. `spark_image`, `spark_account`: image and service account of Spark drivers, if a job names none. `pod_policy`:
    what the pods of jobs may ask for. `allowed_accounts`: the service accounts that they may run with, besides
    `spark_account` and `default`. `chunks_per_namespace`, `jobs_per_namespace`, `data_sets_per_namespace`: what one
    namespace may declare. `rows_per_change`: how many chunks and tasks one change may write at once. None for no limit.
    `name`, `namespace`: of this pod; the namespace is empty outside of a cluster.
    """

    parallelism: int = 1000
    namespace_parallelism: int | None = None
    namespaces: tuple[str, ...] = ()
    port: int = 8080
    image: str = f"opendataflow/operator:{__version__}"
    spark_image: str = f"opendataflow/spark:{__version__}"
    spark_account: str = "opendataflow-spark"
    pod_policy: PodProfile = PodProfile.RESTRICTED
    allowed_accounts: tuple[str, ...] = ()
    chunks_per_namespace: int | None = None
    jobs_per_namespace: int | None = None
    data_sets_per_namespace: int | None = None
    rows_per_change: int | None = None
    name: str = "operator"
    namespace: str = ""

    @property
    def closed_namespace(self) -> str:
        """The operator's own namespace, in which no job runs; empty if `namespaces` lists it."""
        return "" if self.namespace in self.namespaces else self.namespace


def read_operator_settings(environ: Mapping[str, str] = os.environ) -> OperatorSettings:
    """Read the settings of the operator: DATAFLOW_PARALLELISM, DATAFLOW_NAMESPACES (separated by commas), and others.

    The others are DATAFLOW_MAX_RUNS_PER_NAMESPACE, DATAFLOW_MAX_CHUNKS_PER_NAMESPACE, DATAFLOW_MAX_JOBS_PER_NAMESPACE,
    DATAFLOW_MAX_DATA_SETS_PER_NAMESPACE and DATAFLOW_MAX_ROWS_PER_CHANGE (0 for no limit), DATAFLOW_PORT,
    DATAFLOW_IMAGE, DATAFLOW_SPARK_IMAGE, DATAFLOW_SPARK_SERVICE_ACCOUNT, DATAFLOW_POD_POLICY,
    DATAFLOW_ALLOWED_SERVICE_ACCOUNTS (separated by commas), POD_NAME and POD_NAMESPACE. Raises InvalidInput for an
    unknown policy, and for a number that is none or is too small.
    """
    default = OperatorSettings()
    return OperatorSettings(
        parallelism=_number(environ, "DATAFLOW_PARALLELISM", default.parallelism, least=1),
        namespace_parallelism=_number(environ, "DATAFLOW_MAX_RUNS_PER_NAMESPACE", 0, least=0) or None,
        namespaces=_list(environ, "DATAFLOW_NAMESPACES"),
        port=_number(environ, "DATAFLOW_PORT", default.port, least=0),
        image=environ.get("DATAFLOW_IMAGE") or default.image,
        spark_image=environ.get("DATAFLOW_SPARK_IMAGE") or default.spark_image,
        spark_account=environ.get("DATAFLOW_SPARK_SERVICE_ACCOUNT") or default.spark_account,
        pod_policy=_profile(environ.get("DATAFLOW_POD_POLICY") or default.pod_policy),
        allowed_accounts=_list(environ, "DATAFLOW_ALLOWED_SERVICE_ACCOUNTS"),
        chunks_per_namespace=_number(environ, "DATAFLOW_MAX_CHUNKS_PER_NAMESPACE", 0, least=0) or None,
        jobs_per_namespace=_number(environ, "DATAFLOW_MAX_JOBS_PER_NAMESPACE", 0, least=0) or None,
        data_sets_per_namespace=_number(environ, "DATAFLOW_MAX_DATA_SETS_PER_NAMESPACE", 0, least=0) or None,
        rows_per_change=_number(environ, "DATAFLOW_MAX_ROWS_PER_CHANGE", 0, least=0) or None,
        name=environ.get("POD_NAME") or socket.gethostname(),
        namespace=environ.get("POD_NAMESPACE", ""),
    )


def _list(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in environ.get(name, "").split(",") if item.strip())


def _profile(text: str) -> PodProfile:
    if text not in list(PodProfile):
        raise InvalidInput(f"DATAFLOW_POD_POLICY is one of {', '.join(PodProfile)}, not {text!r}")
    return PodProfile(text)


def _number(environ: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal() or int(text) < least:
        raise InvalidInput(f"{name} is a whole number of at least {least}, not {text!r}")
    return int(text)


def has_named_database(settings: Settings) -> bool:
    """Return whether the user has named a database, by DATAFLOW_DSN, DATAFLOW_DSN_FILE or a properties file."""
    named = (settings.dsn, settings.dsn_file, settings.properties)
    return any(one is not None for one in named) or PROPERTIES.is_file()


def read_settings(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Settings:
    """Read DATAFLOW_DSN, _DSN_FILE, _PROPERTIES, _HOME, _KUBE and _NOTIFY_*, and KUBECONFIG.

    Without DATAFLOW_HOME the home is `~/.local/state/opendataflow` (or under XDG_STATE_HOME). For root it is
    `/var/lib/opendataflow`: root's embedded Postgres runs as an unprivileged user, who can't enter /root.
    """
    root = (os.getuid() if uid is None else uid) == 0
    given = environ.get("DATAFLOW_HOME")
    if given:
        home = Path(given)
    elif root:
        home = Path("/var/lib/opendataflow")
    else:
        state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        home = Path(state) / "opendataflow"
    named = environ.get("DATAFLOW_PROPERTIES")
    dsn, dsn_file = environ.get("DATAFLOW_DSN"), environ.get("DATAFLOW_DSN_FILE")
    if dsn and dsn_file:
        raise InvalidInput("DATAFLOW_DSN and DATAFLOW_DSN_FILE are both set: keep the one with the right address")
    return Settings(
        dsn=dsn or None,
        dsn_file=Path(dsn_file).absolute() if dsn_file else None,
        home=home.absolute(),
        properties=Path(named) if named else None,
        notifications=_notifications(environ),
        kube=environ.get("DATAFLOW_KUBE", "") not in ("", "0"),
        kubeconfig=bool(environ.get("KUBECONFIG")),
    )


def _notifications(environ: Mapping[str, str]) -> Notifications:
    def given(name: str) -> str | None:
        return environ.get(f"DATAFLOW_NOTIFY_{name}") or None

    return Notifications(given("COMMAND"), given("WEBHOOK"), given("SMTP"), given("SMTP_PASSWORD"))
