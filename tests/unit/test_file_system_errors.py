"""Messages about unusable file systems of Hadoop. The texts are those of Hadoop 3.5."""

import pytest

from opendataflow.core.pipelines.file_system_errors import explain_file_system_error

NO_CLASS = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
NO_KEYS = (
    "java.nio.file.AccessDeniedException: s3a://b/x: org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS "
    "Credentials provided by TemporaryAWSCredentialsProvider SimpleAWSCredentialsProvider"
)
NO_BUCKET = (
    "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://b/x': getFileStatus on s3a://b/x: software.amazon.awssdk."
    "services.s3.model.NoSuchBucketException: The specified bucket does not exist (Service: S3, Status Code: 404)"
)
NOT_ALLOWED = (
    "org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.security.AccessControlException): Permission denied: "
    "user=etl, access=WRITE, inode=/x at org.apache.hadoop.hdfs.server.namenode.FSPermissionChecker.check("
    "FSPermissionChecker.java:663) at org.apache.hadoop.ipc.Server"
)


S3_JARS = (
    "s3a://b/x: the jars for s3a:// are not there: write spark.jars.packages org.apache.hadoop:hadoop-aws:3.5.0 into "
    "spark-defaults.conf, or take an image for Spark that is built with EXTRAS=s3"
)
AZURE_JARS = (
    "abfss://c@a/x: the jars for abfss:// are not there: write spark.jars.packages "
    "org.apache.hadoop:hadoop-azure:3.5.0 into spark-defaults.conf"
)
OTHER_JARS = "foo://b/x: Spark knows no foo://; put the jars of its connector into Spark's folder `jars`"
S3_KEYS = (
    "s3a://b/x: there are no keys for s3a://: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "spark.hadoop.fs.s3a.aws.credentials.provider in spark-defaults.conf"
)
GCS_KEYS = (
    "gs://b/x: there are no keys for gs://: set spark.hadoop.fs.gs.auth.type and what belongs to it in "
    "spark-defaults.conf"
)


@pytest.mark.parametrize(
    ("where", "text", "sentence"),
    [
        ("s3a://b/x", NO_CLASS, S3_JARS),
        ("abfss://c@a/x", NO_CLASS, AZURE_JARS),
        ("s3://b/x", 'No FileSystem for scheme "s3"', "s3://b/x: Spark knows no s3://; write s3a://"),
        ("foo://b/x", 'No FileSystem for scheme "foo"', OTHER_JARS),
        ("s3a://b/x", NO_KEYS, S3_KEYS),
        ("gs://b/x", "ComputeEngineCredentials cannot find the metadata server.", GCS_KEYS),
        ("s3a://b/x", NO_BUCKET, "s3a://b/x: there is no bucket b"),
        ("hdfs://n/x", NOT_ALLOWED, "hdfs://n/x: Permission denied: user=etl, access=WRITE, inode=/x"),
    ],
)
def test_an_error_of_a_file_system_names_the_remedy(where: str, text: str, sentence: str) -> None:
    assert explain_file_system_error(where, [text], "3.5.0") == sentence
