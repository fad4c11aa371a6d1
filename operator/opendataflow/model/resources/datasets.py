"""The model of a DataSet. It never contains a plain password."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from opendataflow.model.fields.field_types import (
    InputModel,
    Key,
    Metadata,
    NamespaceName,
    NonEmpty,
    ObjectId,
    Options,
    SecretKey,
    Text,
    Url,
)
from opendataflow.model.fields.partitioning import Partitioning
from opendataflow.model.fields.rules import Place, Rule, exactly_one, immutable, keys_without, without
from opendataflow.model.resources.allow import Allow
from opendataflow.model.resources.chunk_source import Bounds, ChunkSource

_LOADERS = (  # of Postgres, Redshift, MySQL, MariaDB, SQL Server, H2, Db2 and Derby
    r"[a-z_.]*(?:factory(?:arg|class|constructorarg)?|interceptors|transform|plugin(?:s|_name)?|verifier"
    r"|callback(?:class)?|infile(?:inpath)?|handler|provider|manager(?:class|constructorarg)|classname|jndiname)"
    r"|autodeserialize|init|logger(?:file|level)?|tracefile"
)
_LOADER = re.compile(rf"(?i)[?&;(,][ \t-\r]*({_LOADERS})[ \t-\r]*=")
_LOADS = "loads code or files on the machine of a run; leave it out, or write it in the program or project of the job"


def _name_loader(text: str) -> str:
    found = _LOADER.search(text)
    return f"{found[1] if found else 'a parameter'} {_LOADS}"


_NO_LOADER = replace(without(_LOADER.pattern, f"a parameter of the driver {_LOADS}"), detailed=_name_loader)
LocationUrl = Annotated[Url, _NO_LOADER]
LocationOptions = Annotated[
    dict[Key, Annotated[Url, replace(_NO_LOADER, cel=None)]],  # an API server's budget has no room for maps of these
    *get_args(Options)[1:],
    replace(keys_without(rf"(?i)(?:{_LOADERS})", f"this option of a driver {_LOADS}"), cel=None),
]


class Location(InputModel):
    """The location of the data. All fields are optional. Runs get each field that is written."""

    kind: Text | None = Field(default=None, description="The kind of the data set: table, directory, topic ...")
    hostname: Text | None = Field(default=None, description="The host of the database or service.")
    database: Text | None = Field(default=None, description="The database.")
    schemaname: Text | None = Field(default=None, description="The schema of the table.")
    tablename: Text | None = Field(default=None, description="The table.")
    username: Text | None = Field(default=None, description="The user name of the connection.")
    url: LocationUrl | None = Field(default=None, description="A URL or JDBC URL, without a password.")
    format: Text | None = Field(default=None, description="The format of files, such as parquet or csv.")
    options: LocationOptions = Field(
        default_factory=dict, description="Options for reading and writing, without a password."
    )


class Credentials(InputModel):
    """The password of the data set: exactly one of a ciphertext and a Secret. Never a plain password."""

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
        default=None,
        description="The password, encrypted with the user's passkey. `dataflow crypt new` creates the ciphertext.",
    )
    passkey_secret_ref: SecretKey | None = Field(
        default=None,
        description="The Secret with the passkey that decrypts encryptedPassword in run pods. A job with a script must "
        "then have a command. Needed on a cluster, not used on one machine.",
    )
    secret_ref: SecretKey | None = Field(
        default=None, description="The Secret with the plain password. Only on a cluster, not used on one machine."
    )


class DataSetSpec(InputModel):
    """The specification of a data set."""

    rules: ClassVar = (immutable("id", "the id of a data set can't be changed; make another DataSet"),)

    id: ObjectId | None = Field(default=None, description="The id in its namespace. The default is the name.")
    share_with: Annotated[tuple[NamespaceName, ...], Field(max_length=100)] = Field(
        default=(),
        description="Other namespaces whose jobs may read the data set. Only jobs of its own namespace may write it. "
        "Not used on one machine.",
    )
    location: Location = Field(default_factory=Location, description="The location of the data.")
    credentials: Credentials | None = Field(default=None, description="The password for runs.")
    chunk_source: ChunkSource | None = Field(
        default=None,
        description="Creates chunks in advance. Without it, chunks are created when they are published.",
    )
    partitioning: Partitioning | None = Field(default=None, description="The partitioning of the table.")
    allow: Allow | None = Field(
        default=None,
        description="Allow a change that affects finished tasks. Not used on one machine: `dataflow apply` has "
        "options.",
    )


class DataSet(InputModel):
    """A table, directory or topic that is processed in chunks."""

    api_version: Literal["opendataflow.io/v1alpha1"] = Field(description="The API version.")
    kind: Literal["DataSet"] = Field(description="The kind of the resource.")
    metadata: Metadata = Field(description="The name of the data set.")
    spec: DataSetSpec = Field(default_factory=DataSetSpec, description="The specification of the data set.")

    @property
    def id(self) -> str:
        """The id in the database."""
        return self.spec.id or self.metadata.name

    def chunks(self) -> Iterator[tuple[str, Bounds | None]]:
        """Yield (data id, bounds) of each chunk of the chunk source."""
        if self.spec.chunk_source is not None:
            yield from self.spec.chunk_source.chunks()
