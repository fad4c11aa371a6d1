"""How Postgres is got into without Java: what a JDBC URL and its options say, in the words of libpq. Pure."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

_NAMES = {
    "applicationname": "application_name",
    "connecttimeout": "connect_timeout",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "user": "user",
    "password": "password",
}
_JAVAS_OWN = frozenset(
    """
    assumeminserverversion batchsize binarytransfer createtablecolumntypes createtableoptions
    defaultrowfetchsize driver fetchsize isolationlevel loggerlevel logintimeout logunclosedconnections
    numpartitions preparedstatementcachequeries preparedstatementcachesizemib preparethreshold
    rewritebatchedinserts sockettimeout stringtype truncate
    """.split()  # noqa: SIM905 # a line for each would be half of the module
)
"""What says how Java and Spark work, and nothing of how to get in."""

_URL = re.compile(r"jdbc:postgresql:(?://(?P<hosts>[^/?]*)/?)?(?P<database>[^?]*)(?:\?(?P<more>.*))?")


def connection_words(url: str, options: Mapping[str, str]) -> dict[str, str] | None:
    """Return libpq's parameters; None where the URL or an option says something that is not known here to be the same.
    `options` overrule the URL."""
    found = _URL.fullmatch(url)
    if found is None:
        return None
    # Java does not know sockets of Unix, passwords of Kerberos or the encoding of a server.
    words = {"host": "localhost", "gssencmode": "disable", "client_encoding": "UTF8"}
    if found["hosts"]:
        hosts = [re.fullmatch(r"(\[[^\]]+\]|[^:]*)(?::(\d+))?", host) for host in found["hosts"].split(",")]
        words["host"] = ",".join(host[1].strip("[]") or "localhost" for host in hosts if host)
        words["port"] = ",".join(host[2] or "5432" for host in hosts if host)
        if not all(hosts):
            return None
    if found["database"]:
        words["dbname"] = unquote(found["database"])
    given = {**dict(parse_qsl(found["more"] or "", keep_blank_values=True)), **options}
    for name, value in given.items():
        known = _NAMES.get(name.lower())
        if known is not None:
            words[known] = value
        elif name.lower() not in _JAVAS_OWN:
            return None
    return words
