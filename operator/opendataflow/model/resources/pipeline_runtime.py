"""The model of a pipeline that a job runs (`runtime.pipeline`), for one machine and for clusters.

The project has a file of its own, see model/projects/project.py.
"""

import re
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from opendataflow.model.fields.field_types import (
    Flag,
    InputModel,
    NonEmpty,
    SecretKey,
    Text,
)
from opendataflow.model.fields.rules import Place, Rule, exactly_one, matching, without
from opendataflow.model.projects.project import FileName
from opendataflow.model.resources.spark import SparkRuntime, Warm

_NOT_LOCAL = "Not used on one machine."

_BY_SSH = "^ssh://|^[^/:@]+@[^/:@]+:"
"""The two forms of git: ssh://git@host/path, and git@host:path."""
_CEL_BY_SSH = f"self.url.matches(r'{_BY_SSH}')"


def is_by_ssh(url: str) -> bool:
    """Return whether the URL of a repository uses ssh."""
    return re.match(_BY_SSH, url) is not None


GitUrl = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=4096),
    without(r"^-|[\x00-\x20]", "it is no url: it begins with - or has blanks"),
    without(
        r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#@:]*:[^/?#@]*@|^https?://[^/?#]*@",
        "a user or password in the url would be shown to everybody; take it out, and write secretRef and username",
    ),
    Rule(
        "on a cluster projects are fetched by https or ssh; write such a url, and secretRef if it needs a token or key",
        lambda text: text.startswith(("https://", "http://")) or is_by_ssh(text),
        f"self.matches(r'^https?://|{_BY_SSH}')",
        place=Place.CLUSTER,
    ),
]
GitRef = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=250),
    matching(
        r"[^\x00-\x20\x7f~^:?*\[\\-][^\x00-\x20\x7f~^:?*\[\\]*",  # the rules of git
        "a ref is a branch, a tag or a whole commit; it has no blanks and does not begin with -",
    ),
]

_PART = r"[^./\\\x00-\x1f][^/\\\x00-\x1f]*"
GitFolder = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=1000),
    matching(
        f"{_PART}(?:/{_PART})*",
        "it is a folder of the repository, such as teams/delays: no slash at its ends, and no name begins with a dot",
    ),
]


KnownHost = Annotated[
    str,
    StringConstraints(strict=True, max_length=2048),
    matching(
        "[^@#\\s]\\S*[ \\t]+[a-z]\\S+[ \\t]+[A-Za-z0-9+/]+=*(?:[ \\t].*)?",
        "it is no key of a server; write a line as ssh-keyscan prints it: the host, the kind of the key, the key",
    ),
]


class GitProject(InputModel):
    """A git repository."""

    rules: ClassVar = (
        Rule(
            "by ssh a pod needs the private key, in a Secret that secretRef names, and the server's key in knownHosts",
            lambda it: not is_by_ssh(it.url) or (it.secret_ref is not None and bool(it.known_hosts)),
            f"!{_CEL_BY_SSH} || (has(self.secretRef) && has(self.knownHosts) && size(self.knownHosts) > 0)",
            at="url",
            place=Place.CLUSTER,
        ),
        Rule(
            "by ssh the user is a part of the url: git@host:path",
            lambda it: it.username is None or not is_by_ssh(it.url),
            f"!has(self.username) || !{_CEL_BY_SSH}",
            at="username",
        ),
        Rule(
            "a token would be sent over http for everybody to read; write an https url",
            lambda it: it.secret_ref is None or not it.url.startswith("http://"),
            "!has(self.secretRef) || !self.url.startsWith('http://')",
            at="url",
        ),
        Rule(
            "a username has no effect without a password or token; write secretRef, or leave it out",
            lambda it: it.username is None or it.secret_ref is not None,
            "!has(self.username) || has(self.secretRef)",
            at="username",
        ),
    )

    url: GitUrl = Field(
        description="The URL of the repository, without a password: https or ssh. On one machine, it can also be a "
        "path, and ssh uses the keys of the user."
    )
    ref: GitRef = Field(
        default="HEAD",
        description="A branch, a tag, or a full commit hash. The default is the repository's default branch. A branch "
        "is resolved again for each run.",
    )
    folder: GitFolder | None = Field(
        default=None,
        description="The folder of `project.yml` in the repository, such as `teams/delays`. The default is the root.",
    )
    username: Annotated[Text, StringConstraints(max_length=250)] | None = Field(
        default=None, description=f"The user name, if the server requires one. {_NOT_LOCAL}"
    )
    secret_ref: SecretKey | None = Field(
        default=None,
        description=f"The Secret with the token or password, or with the private key for ssh. {_NOT_LOCAL}",
    )
    known_hosts: Annotated[tuple[KnownHost, ...], Field(max_length=20)] = Field(
        default=(),
        description="The server's ssh keys, one line of `ssh-keyscan HOST` each. The connection to a server with "
        f"another key is refused. {_NOT_LOCAL}",
    )


class ProjectPlace(InputModel):
    """The location of the project: exactly one of the three fields."""

    rules: ClassVar = (
        exactly_one("git", "path", "configMap"),
        Rule(
            "in an image the path of a project is absolute",
            lambda it: it.path is None or it.path.startswith("/"),
            "!has(self.path) || self.path.startsWith('/')",
            at="path",
            place=Place.CLUSTER,
        ),
        Rule(
            "there are no ConfigMaps on one machine; write the path of the project's folder",
            lambda it: it.config_map is None,
            at="configMap",
            place=Place.MACHINE,
        ),
    )

    git: GitProject | None = Field(default=None, description="A git repository. The commit is recorded for each run.")
    path: Annotated[NonEmpty, StringConstraints(max_length=4096)] | None = Field(
        default=None,
        description="A folder. On one machine, relative to the folder of the job file. On a cluster, in the image or "
        "in a volume of podTemplate.",
    )
    config_map: (
        Annotated[
            str,
            StringConstraints(strict=True, max_length=253),
            matching(
                r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?",
                "the name of a ConfigMap has lower-case letters, digits, - and ., and begins and ends with a letter or "
                "digit",
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="A ConfigMap with project.yml and the modules of this pipeline; the keys are the file names. Only "
        "on a cluster.",
    )


_ZONE = "spark.sql.session.timeZone"


class PipelineRuntime(SparkRuntime):
    """A pipeline of a project. Spark runs it for each chunk."""

    rules: ClassVar = (
        *SparkRuntime.rules,
        Rule(
            f"days and times of pipelines are UTC on every machine; leave {_ZONE} out",
            lambda it: it.spark_conf.get(_ZONE, "UTC") == "UTC",
            f"!has(self.sparkConf) || !('{_ZONE}' in self.sparkConf) || self.sparkConf['{_ZONE}'] == 'UTC'",
            at="sparkConf",
        ),
    )

    project: ProjectPlace = Field(description="The location of the project.")
    pipeline: FileName = Field(description="The slug of the pipeline.")
    output: (
        Annotated[
            NonEmpty,
            StringConstraints(max_length=4096),
            Rule(
                "in a pod it is an absolute path, such as that of a volume of podTemplate, or an address such as "
                "s3a://bucket/data",
                lambda text: text.startswith("/") or "://" in text,
                "self.startsWith('/') || self.contains('://')",
                place=Place.CLUSTER,
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="The folder of relative destinations, or its address such as s3a://bucket/data. On one machine, "
        "the default is the project's folder for a path, and the folder of the job file for git. On a cluster there is "
        "no default, because files inside a pod are deleted with the pod.",
    )
    preflight: Flag = Field(
        default=True,
        description="Look at the locations of the sources and of the destination before the run reads anything. If one "
        "is missing or can't be reached, the run does not start, which consumes no retry.",
    )
    require_tests: Flag = Field(
        default=False,
        description="Run the unit tests of the pipeline's transformations first. If a test fails, the run fails, and "
        "nothing is read or written.",
    )
    warm: Warm | None = Field(
        default=None,
        description="Let one JVM run many chunks, one after another. Each chunk still has a Python process of its own. "
        "On one machine it is the default, unless settings of Spark refer to variables. Not used on a cluster.",
    )

    @property
    def holder(self) -> Warm | None:
        """The limits of a JVM that chunks share; None if each chunk has a JVM of its own."""
        if self.warm is None:
            return None if self.refers_to_variables else Warm()
        return super().holder
