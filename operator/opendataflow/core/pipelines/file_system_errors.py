"""Explain errors of Hadoop's file systems: missing jars, missing keys, missing buckets. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST = 300


@dataclass(frozen=True)
class _Connector:
    """The connector of a scheme. `keys`: how to set its keys. `extra`: the build extra of the image for Spark."""

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
_CORRECTIONS = {"s3": "s3a", "s3n": "s3a", "gcs": "gs", "adl": "abfss"}

_MISSING_CLASS = re.compile(r"ClassNotFound|NoClassDefFound|No FileSystem for scheme")
_MISSING_KEYS = re.compile(r"NoAuthWithAWS|No AWS Credentials|ComputeEngineCredentials|Unable to load credentials")
_MISSING_BUCKET = re.compile(r"UnknownStoreException|NoSuchBucket|bucket does not exist", re.IGNORECASE)
_CLASSES = re.compile(r"(?:[a-z]\w*\.)+[A-Z][\w$]*(?:\([\w.$]+\))?: ")
_STACK = re.compile(r"(?<!\s)\s+at (?:[a-z]\w*\.)+[A-Z].*", re.DOTALL)
"""Stack trace of an exception in another program, such as HDFS."""


def explain_file_system_error(where: str, texts: Sequence[str], hadoop: str) -> str:
    """Return one sentence about an error.

    `where`: the path. `texts`: the messages of the error and its causes, outermost first. `hadoop`: the version of
    Hadoop, which the connectors have to match.
    """
    scheme, _, rest = where.partition("://")
    connector = _KNOWN.get(scheme)
    text = " ".join(texts)
    if _MISSING_CLASS.search(text):
        return f"{where}: {_explain_missing_connector(scheme, connector, hadoop)}"
    if connector is not None and _MISSING_KEYS.search(text):
        return f"{where}: there are no keys for {scheme}://: {connector.keys} in spark-defaults.conf"
    if _MISSING_BUCKET.search(text):
        return f"{where}: there is no bucket {rest.partition('/')[0]}"
    return f"{where}: {_deepest_cause(texts)}"


def _explain_missing_connector(scheme: str, connector: _Connector | None, hadoop: str) -> str:
    if connector is None:
        correction = _CORRECTIONS.get(scheme)
        return f"Spark knows no {scheme}://" + (
            f"; write {correction}://" if correction else "; put the jars of its connector into Spark's folder `jars`"
        )
    image = f", or take an image for Spark that is built with EXTRAS={connector.extra}" if connector.extra else ""
    return (
        f"the jars for {scheme}:// are not there: write spark.jars.packages "
        f"org.apache.hadoop:{connector.package}:{hadoop} into spark-defaults.conf{image}"
    )


def _deepest_cause(texts: Sequence[str]) -> str:
    """Return the message of the innermost cause, without names of Java's classes."""
    messages = [" ".join(_CLASSES.sub("", _STACK.sub("", text)).split()) for text in texts if text.strip()]
    return messages[-1][:_LONGEST] if messages else "it can't be used"
