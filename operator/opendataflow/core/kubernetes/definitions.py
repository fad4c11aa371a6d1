"""Whether the custom resource definitions of a cluster have everything that this program's have. Pure.

It compares what the API server publishes of them, which everybody may read; the definitions themselves are for
administrators. A cluster may have more than this program knows, and nothing is said of that.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from opendataflow.model.resources.crd import KINDS, definition
from opendataflow.names import GROUP, VERSION

REMEDY = "`kubectl apply --server-side --force-conflicts -f crds/` of this version brings it up to date"
_MOST = 3


def outdated(published: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each kind whose definition lacks something. `published`: OpenAPI 3 of the group."""
    schemas = ((published.get("components") or {}).get("schemas") or {}).values()
    theirs = {one["kind"]: schema for schema in schemas for one in schema.get("x-kubernetes-group-version-kind", ())}
    return [
        f"the definition of {kind} in this cluster is older than this operator, it lacks {_named(lacking)}: {REMEDY}"
        for kind, ours in _ours().items()
        if kind in theirs and (lacking := list(_lacking(ours, theirs[kind])))
    ]


def not_there(plural: str) -> str:
    """Say that a kind is not known to the cluster."""
    return (
        f"the cluster does not know {plural}.{GROUP} {VERSION}: `kubectl apply --server-side -f crds/` of this version "
        "makes it known"
    )


@cache
def _ours() -> Mapping[str, Mapping[str, Any]]:
    """The schemas of this program, by kind."""
    return {kind.name: definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}


def _lacking(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Fields that are declared here and not there; of one that is not there, not those in it."""
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, schema in ours.get("properties", {}).items():
        there = theirs.get("properties", {}).get(name)
        place = f"{path}.{name}".removeprefix(".")
        if there is None:
            yield place
        elif place != "metadata":
            yield from _lacking(schema, there, place)
    for name in ("items", "additionalProperties"):
        if isinstance(ours.get(name), dict) and isinstance(theirs.get(name), dict):
            yield from _lacking(ours[name], theirs[name], f"{path}[]")


def _named(fields: list[str]) -> str:
    shown = ", ".join(fields[:_MOST])
    return f"{shown} and {len(fields) - _MOST} more" if len(fields) > _MOST else shown
