"""What users write: `DataSet` and `DataFlowJob`, as typed, frozen models with every rule of their own.

The one source of the field names, defaults and limits; the custom resource definitions and the reference are
made from it. It knows nothing of files, folders or the database, and it never holds a plain password.

Fields that shadow a word of Python have another name here than in YAML (`from` is `start`). The types are
those that a structural schema can say: no unions beyond None; durations are text with a property for seconds.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from opendataflow.names import is_shell_name

Bounds = dict[str, str | int]
"""What one chunk covers: `from` is inside, `to` is not. Dates are text, numbers are numbers."""

MAX_CHUNKS = 1_000_000
"""The most chunks that one chunk source may make; more is a mistake in its step."""

_LARGEST_INTEGER = 2**31 - 1
_LARGEST_BIGINT = 2**63 - 1
_AMOUNT = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_DURATION = re.compile(rf"(?:{_AMOUNT}h)?(?:{_AMOUNT}m)?(?:{_AMOUNT}s)?")
_DURATION_WANTED = 'a duration is hours, minutes and seconds like "90s", "5m" or "1h30m"'
_PASSWORD_IN_URL = re.compile(
    r"//[^/?#@\s]*:[^/?#\s]+@"  # scheme://user:password@host
    r"|(?:^|[?&;\s])[a-z_.]*(?:password|passwd|pwd)\s*=\s*[^&;\s]"  # jdbc:…?user=u&password=p
    r"|^jdbc:oracle:[a-z0-9]+:[^/@\s]+/[^@\s]+@",  # jdbc:oracle:thin:user/password@host
    re.IGNORECASE,
)


def refused(sentence: str, field: str | None = None) -> PydanticCustomError:
    """Return the error of a rule. `field`: the key or index below the place where the rule is checked."""
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence, "field": field})


def duration_seconds(text: str) -> float:
    """Return the seconds of "90s", "5m", "1h30m" or "1.5s"; raise ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f'a duration is hours, minutes and seconds like "90s", "5m" or "1h30m", not "{text}"')
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def holds_password(text: str) -> bool:
    """Say whether a URL or connection string carries a password in plain text."""
    return _PASSWORD_IN_URL.search(text) is not None


def _checked_text(text: str) -> str:
    if "\0" in text:
        raise refused("text can't hold the character NUL")
    return text


def _checked_id(text: str) -> str:
    if text != text.strip():
        raise refused("an id can't begin or end with a blank")
    if any(unicodedata.category(letter) == "Cc" for letter in text):
        raise refused("an id can't hold control characters")
    return text


def _checked_duration(text: str) -> str:
    try:
        duration_seconds(text)
    except ValueError:
        raise refused(_DURATION_WANTED) from None
    return text


def _checked_date(text: str) -> str:
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise refused('a date is written like "2013-01-31"')


def _checked_memory(text: str) -> str:
    if re.fullmatch(r"[1-9][0-9]*[kmgt]", text, re.IGNORECASE):
        return text
    raise refused('memory is a whole number with k, m, g or t like "512m" or "4g"')


def _checked_location(text: str) -> str:
    if holds_password(text):
        raise refused(
            "a password in a URL would be stored in plain text; take it out and write "
            "spec.credentials.encryptedPassword (made by `dataflow crypt new`)"
        )
    return text


def _without_password(written: Any) -> Any:
    """Refuse a key `password`, whatever its value is, before anything could show the value."""
    return _without_keys(written, lambda key: key == "password")


def _without_any_password(written: Any) -> Any:
    """Refuse keys that end in `password`: connectors have options like `sfPassword`."""
    return _without_keys(written, lambda key: key.endswith("password"))


def _without_keys(written: Any, forbidden: Callable[[str], bool]) -> Any:
    for key in written if isinstance(written, dict) else ():
        if isinstance(key, str) and forbidden(key.casefold()):
            raise refused(
                "a password is never written in plain text; write spec.credentials.encryptedPassword of the "
                "data set instead (made by `dataflow crypt new`)",
                key,
            )
    return written


def _with_shell_names(env: dict[str, str]) -> dict[str, str]:
    for name in env:
        if not is_shell_name(name):
            raise refused("the name of a variable has only letters, digits and _ and does not begin with a digit", name)
    return env


def _unique(ids: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for index, name in enumerate(ids):
        if name in seen:
            raise refused(f"{name} is written twice", f"[{index}]")
        seen.add(name)
    return ids


Text = Annotated[str, Strict(), AfterValidator(_checked_text)]
NonEmpty = Annotated[str, StringConstraints(strict=True, min_length=1), AfterValidator(_checked_text)]
Id = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=253),
    AfterValidator(_checked_text),
    AfterValidator(_checked_id),
]
Duration = Annotated[str, Strict(), AfterValidator(_checked_duration)]
Day = Annotated[str, Strict(), AfterValidator(_checked_date)]
Memory = Annotated[str, Strict(), AfterValidator(_checked_memory)]
Url = Annotated[Text, AfterValidator(_checked_location)]
Flag = Annotated[bool, Strict()]
Integer = Annotated[int, Strict(), Field(ge=-_LARGEST_INTEGER, le=_LARGEST_INTEGER)]
Count = Annotated[int, Strict(), Field(ge=0, le=_LARGEST_INTEGER)]
TextMap = Annotated[dict[Text, Text], BeforeValidator(_without_password)]
Options = Annotated[dict[Text, Url], BeforeValidator(_without_any_password)]
Env = Annotated[dict[Text, Text], BeforeValidator(_without_password), AfterValidator(_with_shell_names)]
Ids = Annotated[tuple[Id, ...], AfterValidator(_unique)]
DataIds = Annotated[tuple[Id, ...], Field(min_length=1, max_length=1000), AfterValidator(_unique)]


class Written(BaseModel):
    """The base of everything that users write: frozen, strict about fields, camel case in YAML."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,  # an error must not carry a secret into a log
    )

    @model_validator(mode="before")
    @classmethod
    def _never_a_password(cls, written: Any) -> Any:
        return _without_password(written)

    def _one_of(self, *names: str) -> None:
        """Require that exactly one of the fields is set; the names are those of Python."""
        given = [_spelling(type(self), name) for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(_spelling(type(self), name) for name in names)
            found = " and ".join(given) or "none"
            raise refused(f"exactly one of {known} is wanted, found {found}")


def _spelling(model: type[BaseModel], name: str) -> str:
    return model.model_fields[name].alias or name


class Metadata(Written):
    """What the resource is called."""

    name: Id = Field(description="The name of the resource; also its id where spec.id is not written.")
    namespace: Id | None = Field(default=None, description="The Kubernetes namespace of the resource.")
    labels: TextMap | None = Field(default=None, description="Labels for selecting resources.")
    annotations: TextMap | None = Field(default=None, description="Notes of tools and people.")


# Data sets -----------------------------------------------------------------------------------------------


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
    """How a run proves who it is. Only encrypted here."""

    encrypted_password: NonEmpty = Field(
        description="The password, encrypted with the user's passkey (made by `dataflow crypt new`)."
    )


class Partitioning(Written):
    """How the destination is partitioned."""

    column: NonEmpty = Field(description="The column that the partitions are made by.")
    type: Literal["date", "range", "list", "hash"] = Field(description="The kind of partitioning.")


class DateRange(Written):
    """One chunk for each day or month. `to` is outside."""

    start: Day = Field(alias="from", description="The first day, such as 2013-01-01.")
    end: Day = Field(alias="to", description="The day after the last one; it is not included.")
    step: Literal["day", "month"] = Field(
        description="One chunk a day (data id 2013-01-31) or a month (data id 2013-01)."
    )

    @model_validator(mode="after")
    def _makes_whole_chunks(self) -> Self:
        if self.end <= self.start:
            raise refused("`to` is not included, so it must be later than `from`")
        if self.step == "month" and not self.start.endswith("-01"):
            raise refused("with step month it is the first day of a month", "from")
        if self.step == "month" and not self.end.endswith("-01"):
            raise refused("with step month it is the first day of the month after the last one", "to")
        return self

    def chunks(self) -> Iterator[tuple[str, Bounds]]:
        """Yield (data id, bounds) in order."""
        day, end = date.fromisoformat(self.start), date.fromisoformat(self.end)
        while day < end:
            following = _next_month(day) if self.step == "month" else day + timedelta(days=1)
            name = day.isoformat()[:7] if self.step == "month" else day.isoformat()
            yield name, {"from": day.isoformat(), "to": following.isoformat()}
            day = following


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


class IntegerRange(Written):
    """One chunk for each block of `step` integers. `to` is outside."""

    start: Annotated[int, Strict(), Field(ge=-_LARGEST_BIGINT, le=_LARGEST_BIGINT)] = Field(
        alias="from", description="The first integer."
    )
    end: Annotated[int, Strict(), Field(ge=-_LARGEST_BIGINT, le=_LARGEST_BIGINT)] = Field(
        alias="to", description="The integer after the last one; it is not included."
    )
    step: Annotated[int, Strict(), Field(ge=1, le=_LARGEST_BIGINT)] = Field(
        description="How many integers a chunk has; the last chunk may have fewer."
    )

    @model_validator(mode="after")
    def _makes_chunks(self) -> Self:
        if self.end <= self.start:
            raise refused("`to` is not included, so it must be greater than `from`")
        count = -(-(self.end - self.start) // self.step)
        if count > MAX_CHUNKS:
            raise refused(f"this makes {count} chunks and {MAX_CHUNKS} are allowed; use a larger step")
        return self

    def chunks(self) -> Iterator[tuple[str, Bounds]]:
        """Yield (data id, bounds) in order; the data id names the first and the last integer: "0-999"."""
        for first in range(self.start, self.end, self.step):
            following = min(first + self.step, self.end)
            yield f"{first}-{following - 1}", {"from": first, "to": following}


class ChunkSource(Written):
    """Which chunks the data set has: exactly one of the three."""

    ids: DataIds | None = Field(default=None, alias="list", description="The data ids, at most 1000.")
    date_range: DateRange | None = Field(default=None, description="A chunk for each day or month.")
    integers: IntegerRange | None = Field(
        default=None, alias="range", description="A chunk for each block of integers."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        self._one_of("ids", "date_range", "integers")
        return self

    def chunks(self) -> Iterator[tuple[str, Bounds | None]]:
        """Yield (data id, bounds) of each chunk in the order written; a list knows no bounds."""
        if self.ids is not None:
            for data_id in self.ids:
                yield data_id, None
        ranges = self.date_range or self.integers
        if ranges is not None:
            yield from ranges.chunks()


class DataSetSpec(Written):
    """What the data set is and where it lives."""

    id: Id | None = Field(default=None, description="The id in the database; the default is the name.")
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


# Jobs ----------------------------------------------------------------------------------------------------


class Script(Written):
    """Any program, started as it is and never through a shell."""

    command: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(description="The program and its arguments.")
    working_directory: Text | None = Field(
        default=None, description="Where it starts; relative to the folder of the file, which is the default."
    )

    @model_validator(mode="after")
    def _has_program(self) -> Self:
        if not self.command[0].strip():
            raise refused("the program is empty", "command[0]")
        return self


class Spark(Written):
    """A PySpark program."""

    main: NonEmpty = Field(description="The Python file; relative to the folder of the file.")
    args: tuple[Text, ...] = Field(default=(), description="The arguments of the program.")
    conf: TextMap = Field(default_factory=dict, description="Spark's properties.")
    cores: Annotated[int, Strict(), Field(ge=1, le=_LARGEST_INTEGER)] = Field(
        default=1, description="How many tasks a run works on at a time."
    )
    memory: Memory = Field(default="1g", description="The memory of the driver, such as 512m or 4g.")


class Runtime(Written):
    """What a run executes: exactly one of the two."""

    script: Script | None = Field(default=None, description="Any program.")
    spark: Spark | None = Field(default=None, description="A PySpark program.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        self._one_of("script", "spark")
        return self


class Chunks(Written):
    """A part of the data ids, in the natural order of data ids. Both ends are inside."""

    start: Id | None = Field(default=None, alias="from", description="The first data id to work on.")
    end: Id | None = Field(default=None, alias="to", description="The last data id to work on.")


class Backoff(Written):
    """How long the wait before a retry is: initial, then each time `factor` as long, at most `max`."""

    initial: Duration = Field(default="10s", description="The wait after the first failure.")
    factor: Annotated[float, Strict(), Field(ge=1, allow_inf_nan=False)] = Field(
        default=2.0, description="How many times longer each wait is than the one before."
    )
    maximum: Duration = Field(default="10m", alias="max", description="The longest wait.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.initial_seconds > self.maximum_seconds:
            raise refused(f"initial ({self.initial}) is longer than max ({self.maximum}); write a longer max")
        return self

    @property
    def initial_seconds(self) -> float:
        """The wait after the first failure, in seconds."""
        return duration_seconds(self.initial)

    @property
    def maximum_seconds(self) -> float:
        """The longest wait, in seconds."""
        return duration_seconds(self.maximum)


class Retry(Written):
    """How often a chunk is tried again by itself."""

    limit: Count = Field(default=2, description="Retries after the first attempt failed.")
    infrastructure_limit: Count = Field(
        default=5, description="Retries after failures that were not the program's: a lost node or process."
    )
    backoff: Backoff = Field(default_factory=Backoff, description="The waits between them.")


class DataFlowJobSpec(Written):
    """What the job reads, makes and executes."""

    id: Id | None = Field(default=None, description="The id in the database; the default is the name.")
    inputs: Ids = Field(default=(), description="The data sets whose chunks must be ready; `today` is built in.")
    outputs: Ids = Field(default=(), description="The data sets that the job makes.")
    runtime: Runtime = Field(description="What a run executes.")
    parallelism: Count = Field(default=1, description="The most runs at a time; 0 starts none.")
    suspend: Flag = Field(default=False, description="True: no new runs start; those that run go on.")
    order: Literal["ascending", "descending"] = Field(default="ascending", description="Which data ids come first.")
    priority: Integer = Field(default=0, description="The job with the higher number gets free slots first.")
    chunks: Chunks | None = Field(default=None, description="Work only on a part of the data ids.")
    retry: Retry = Field(default_factory=Retry, description="How often a chunk is tried again.")
    run_deadline: Duration | None = Field(default=None, description="How long a run may take, such as 2h.")
    env: Env = Field(default_factory=dict, description="Variables for the runs, beside the standard ones.")

    @model_validator(mode="after")
    def _reads_or_makes(self) -> Self:
        if not self.inputs and not self.outputs:
            raise refused("a job needs at least one data set in inputs or outputs")
        both = [name for name in self.outputs if name in self.inputs]
        if both:
            raise refused(f"{both[0]} is in inputs and in outputs; a job can't make what it reads", "outputs")
        if self.run_deadline is not None and duration_seconds(self.run_deadline) == 0:
            raise refused("a run needs more than no time; leave it out for no deadline", "runDeadline")
        return self

    @property
    def run_deadline_seconds(self) -> float | None:
        """How long a run may take, in seconds; None for no limit."""
        return None if self.run_deadline is None else duration_seconds(self.run_deadline)


class DataFlowJob(Written):
    """A job: for each chunk that is ready in its inputs it makes the chunk of its outputs."""

    api_version: Literal["opendataflow.io/v1alpha1"] = Field(description="The version of this format.")
    kind: Literal["DataFlowJob"] = Field(description="The kind of the resource.")
    metadata: Metadata = Field(description="The name of the job.")
    spec: DataFlowJobSpec = Field(description="What it reads, makes and executes.")

    @property
    def id(self) -> str:
        """The id in the database."""
        return self.spec.id or self.metadata.name
