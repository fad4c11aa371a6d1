"""What users write about a data set: `DataSet`. It never holds a plain password."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from opendataflow.model.fields.field_types import (
    Id,
    Metadata,
    NamespaceName,
    NonEmpty,
    Options,
    SecretKey,
    Text,
    Url,
    Written,
)
from opendataflow.model.fields.rules import Place, Rule, exactly_one, unchangeable
from opendataflow.model.resources.chunk_source import Bounds, ChunkSource


class Location(Written):
    """Where the data is. Each part that is written reaches the runs; none is needed."""

    kind: Text | None = Field(default=None, description="What the data set is: table, directory, topic ...")
    hostname: Text | None = Field(default=None, description="The host of the database or service.")
    database: Text | None = Field(default=None, description="The database.")
    schemaname: Text | None = Field(default=None, description="The schema of the table.")
    tablename: Text | None = Field(default=None, description="The table.")
    username: Text | None = Field(default=None, description="The user to connect as.")
    url: Url | None = Field(default=None, description="A URL or JDBC URL, without any password.")
    format: Text | None = Field(default=None, description="The format of files, such as parquet or csv.")
    options: Options = Field(default_factory=dict, description="Options for reading and writing, without any password.")


class Credentials(Written):
    """How a run proves who it is: exactly one of a ciphertext and a Secret. Never a plain password."""

    rules: ClassVar = (
        exactly_one("encryptedPassword", "secretRef"),
        Rule(
            "there is no ciphertext for this passkey; write encryptedPassword, or leave it out",
            lambda it: it.passkey_secret_ref is None or it.encrypted_password is not None,
            "!has(self.passkeySecretRef) || has(self.encryptedPassword)",
            at="passkeySecretRef",
        ),
        Rule(
            "on a cluster the passkey comes from a Secret; write passkeySecretRef",
            lambda it: it.encrypted_password is None or it.passkey_secret_ref is not None,
            "!has(self.encryptedPassword) || has(self.passkeySecretRef)",
            place=Place.CLUSTER,
        ),
    )

    encrypted_password: NonEmpty | None = Field(
        default=None, description="The password, encrypted with the user's passkey (made by `dataflow crypt new`)."
    )
    passkey_secret_ref: SecretKey | None = Field(
        default=None,
        description="The Secret with the passkey that opens encryptedPassword in run pods, whose jobs must say "
        "their command. Needed on a cluster, not used on one machine.",
    )
    secret_ref: SecretKey | None = Field(
        default=None, description="The Secret with the password itself. Only for a cluster, not used on one machine."
    )


class Partitioning(Written):
    """How the destination is partitioned."""

    column: NonEmpty = Field(description="The column that the partitions are made by.")
    type: Literal["date", "range", "list", "hash"] = Field(description="The kind of partitioning.")


class DataSetSpec(Written):
    """What the data set is and where it lives."""

    rules: ClassVar = (unchangeable("id", "the id of a data set can't be changed; make another DataSet"),)

    id: Id | None = Field(default=None, description="The id in the database; the default is the name.")
    share_with: Annotated[tuple[NamespaceName, ...], Field(max_length=100)] = Field(
        default=(),
        description="Other namespaces whose jobs may use it; its own always may. Not used on one machine.",
    )
    location: Location = Field(default_factory=Location, description="Where the data is.")
    credentials: Credentials | None = Field(default=None, description="How runs get in.")
    chunk_source: ChunkSource | None = Field(
        default=None, description="The chunks known beforehand; without it they come as they are published."
    )
    partitioning: Partitioning | None = Field(default=None, description="How the destination is partitioned.")


class DataSet(Written):
    """A table, directory or topic that is processed in chunks."""

    api_version: Literal["opendataflow.io/v1alpha1"] = Field(description="The version of this format.")
    kind: Literal["DataSet"] = Field(description="The kind of the resource.")
    metadata: Metadata = Field(description="The name of the data set.")
    spec: DataSetSpec = Field(default_factory=DataSetSpec, description="What it is and where it lives.")

    @property
    def id(self) -> str:
        """The id in the database."""
        return self.spec.id or self.metadata.name

    def chunks(self) -> Iterator[tuple[str, Bounds | None]]:
        """Yield (data id, bounds) of each chunk that is known beforehand."""
        if self.spec.chunk_source is not None:
            yield from self.spec.chunk_source.chunks()
