"""What a person is told where a file system of Hadoop can't be used: the jars it lacks, where its keys are. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST = 300


@dataclass(frozen=True)
class _Connector:
    """What brings a scheme. `extra`: of the image for Spark that has it. `keys`: where it looks for them."""

    package: str
    keys: str
    extra: str | None = None


_S3 = _Connector(
    "hadoop-aws",
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or spark.hadoop.fs.s3a.aws.credentials.provider",
    "s3",
)
_GCS = _Connector("hadoop-gcp", "set spark.hadoop.fs.gs.auth.type and what belongs to it", "gcs")
_AZURE = _Connector("hadoop-azure", "set spark.hadoop.fs.azure.account.auth.type and what belongs to it")
_KNOWN = {"s3a": _S3, "gs": _GCS, **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _AZURE)}
_MEANT = {"s3": "s3a", "s3n": "s3a", "gcs": "gs", "adl": "abfss"}

_NO_CLASS = re.compile(r"ClassNotFound|NoClassDefFound|No FileSystem for scheme")
_NO_KEYS = re.compile(r"NoAuthWithAWS|No AWS Credentials|ComputeEngineCredentials|Unable to load credentials")
_NO_BUCKET = re.compile(r"UnknownStoreException|NoSuchBucket|bucket does not exist", re.IGNORECASE)
_CLASSES = re.compile(r"(?:[a-z]\w*\.)+[A-Z][\w$]*(?:\([\w.$]+\))?: ")
_STACK = re.compile(r"\s+at (?:[a-z]\w*\.)+[A-Z].*", re.DOTALL)
"""Of an exception in another program, as of HDFS."""


def why_not(where: str, texts: Sequence[str], hadoop: str) -> str:
    """Return one sentence. `where`: the path. `texts`: what an error and its causes say, the outermost first.
    `hadoop`: the version that the connectors have to be of."""
    scheme, _, rest = where.partition("://")
    connector = _KNOWN.get(scheme)
    said = " ".join(texts)
    if _NO_CLASS.search(said):
        return f"{where}: {_no_connector(scheme, connector, hadoop)}"
    if connector is not None and _NO_KEYS.search(said):
        return f"{where}: there are no keys for {scheme}://: {connector.keys} in spark-defaults.conf"
    if _NO_BUCKET.search(said):
        return f"{where}: there is no bucket {rest.partition('/')[0]}"
    return f"{where}: {_shortest(texts)}"


def _no_connector(scheme: str, connector: _Connector | None, hadoop: str) -> str:
    if connector is None:
        meant = _MEANT.get(scheme)
        return f"Spark knows no {scheme}://" + (
            f"; write {meant}://" if meant else "; put the jars of its connector into Spark's folder `jars`"
        )
    image = f", or take an image for Spark that is built with EXTRAS={connector.extra}" if connector.extra else ""
    return (
        f"the jars for {scheme}:// are not there: write spark.jars.packages "
        f"org.apache.hadoop:{connector.package}:{hadoop} into spark-defaults.conf{image}"
    )


def _shortest(texts: Sequence[str]) -> str:
    """The cause that lies deepest, without names of Java's classes."""
    told = [" ".join(_CLASSES.sub("", _STACK.sub("", text)).split()) for text in texts if text.strip()]
    return told[-1][:_LONGEST] if told else "it can't be used"
