"""Addresses of Postgres: JDBC URLs, URIs, and the parameters of libpq with the same meaning. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode

from opendataflow.errors import InvalidInput

_LIBPQ_NAMES = {
    "applicationname": "application_name",
    "connecttimeout": "connect_timeout",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "user": "user",
    "password": "password",
}
_CLIENT_OPTIONS = frozenset(
    """
    assumeminserverversion batchsize binarytransfer createtablecolumntypes createtableoptions
    defaultrowfetchsize driver fetchsize isolationlevel loggerlevel logintimeout logunclosedconnections
    numpartitions preparedstatementcachequeries preparedstatementcachesizemib preparethreshold
    rewritebatchedinserts sockettimeout stringtype truncate
    """.split()  # noqa: SIM905 # a line for each would be half of the module
)
"""Options of Java and Spark that do not affect how to connect."""

_JDBC_URL = re.compile(
    r"jdbc:postgresql:(?://(?P<hosts>[^/?]*+)(?P<slash>/)?+)?(?P<database>[^?]*)(?:\?(?P<parameters>.*))?"
)
_HOST = re.compile(r"(?P<name>\[[^\]]+\]|[^:]*)(?::(?P<port>[0-9]+))?")
DEFAULT_HOST, DEFAULT_PORT = "localhost", "5432"


@dataclass(frozen=True)
class JdbcUrl:
    """A parsed JDBC URL of Postgres.

    `hosts`: (name, port) of each host; empty if the URL names no host. `database`: may be empty. `is_strict`: the URL
    has a slash after the hosts, and no other one in the name of the database.
    """

    hosts: tuple[tuple[str, str], ...]
    database: str
    parameters: Mapping[str, str]
    is_strict: bool


def parse_jdbc_url(url: str) -> JdbcUrl | None:
    """Parse a JDBC URL. Return None if the URL is not one of Postgres. Raises InvalidInput for an invalid host."""
    found = _JDBC_URL.fullmatch(url)
    if found is None:
        return None
    hosts = [_HOST.fullmatch(host) for host in found["hosts"].split(",")] if found["hosts"] else []
    if not all(hosts):
        raise InvalidInput("url has a host that is not like host:5432")
    return JdbcUrl(
        tuple((host["name"].strip("[]") or DEFAULT_HOST, host["port"] or DEFAULT_PORT) for host in hosts if host),
        unquote(found["database"]),
        dict(parse_qsl(found["parameters"] or "", keep_blank_values=True)),
        (found["hosts"] is None or found["slash"] is not None) and "/" not in found["database"],
    )


def host_parameters(hosts: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return libpq's parameters for hosts and ports."""
    return {"host": ",".join(name for name, _ in hosts), "port": ",".join(port for _, port in hosts)}


def libpq_parameters(url: str, options: Mapping[str, str]) -> dict[str, str] | None:
    """Return libpq's parameters for a JDBC URL, or None if an option has no known equivalent.

    `options`: override the parameters of the URL.
    """
    try:
        parsed = parse_jdbc_url(url)
    except InvalidInput:
        return None
    if parsed is None:
        return None
    # Java's driver supports no Unix sockets, no GSS encryption, and only UTF-8.
    found = {"host": DEFAULT_HOST, "gssencmode": "disable", "client_encoding": "UTF8"}
    if parsed.hosts:
        found |= host_parameters(parsed.hosts)
    if parsed.database:
        found["dbname"] = parsed.database
    for name, value in {**parsed.parameters, **options}.items():
        known = _LIBPQ_NAMES.get(name.lower())
        if known is not None:
            found[known] = value
        elif name.lower() not in _CLIENT_OPTIONS:
            return None
    return found


def libpq_uri(url: str) -> str | None:
    """Return the libpq URI for a URL of Postgres, with or without `jdbc:`. Return None for other databases."""
    uri = url.removeprefix("jdbc:")
    return uri if re.match(r"postgres(ql)?://", uri) else None


def to_uri(parameters: Mapping[str, str]) -> str:
    """Return the libpq URI for parameters. Several hosts and folders of sockets follow the `?`, like all the rest."""
    rest = dict(parameters)
    user, database = quote(rest.pop("user", ""), safe=""), quote(rest.pop("dbname", ""), safe="")
    host = ""
    if re.fullmatch(r"[\w.:-]+", rest.get("host", "")) and rest.get("port", "").isdecimal():
        name = rest.pop("host")
        host = f"[{name}]:{rest.pop('port')}" if ":" in name else f"{name}:{rest.pop('port')}"
    return f"postgresql://{user}@{host}/{database}" + (f"?{urlencode(rest, quote_via=quote)}" if rest else "")


def split_host(text: str) -> dict[str, str]:
    """Return libpq's parameters for `host` or `host:port`."""
    host, _, port = text.partition(":")
    return {"host": host} | ({"port": port} if port else {})


def display_address(parameters: Mapping[str, object]) -> str:
    """Return "host:port/database" for libpq's parameters, without the password."""
    return (
        f"{parameters.get('host', DEFAULT_HOST)}:{parameters.get('port', DEFAULT_PORT)}/{parameters.get('dbname', '')}"
    )
