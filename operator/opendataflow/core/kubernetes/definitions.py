"""Check whether the custom resource definitions of a cluster have all fields of this program's definitions. Pure.

The check uses the OpenAPI schemas that the API server publishes, because everybody may read them. Only administrators
may read the definitions themselves. Additional fields in the cluster are not reported.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from opendataflow.model.resources.crd import KINDS, definition
from opendataflow.names import GROUP, VERSION

REMEDY = "`kubectl apply --server-side --force-conflicts -f crds/` of this version brings it up to date"
_MOST_NAMED = 3
"""The number of missing fields that a sentence names."""


def outdated_sentences(published: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each kind whose definition lacks fields. `published`: OpenAPI 3 of the group."""
    schemas = ((published.get("components") or {}).get("schemas") or {}).values()
    theirs = {one["kind"]: schema for schema in schemas for one in schema.get("x-kubernetes-group-version-kind", ())}
    return [
        f"the definition of {kind} in this cluster is older than this operator, it lacks {_named(lacking)}: {REMEDY}"
        for kind, ours in _ours().items()
        if kind in theirs and (lacking := list(_lacking(ours, theirs[kind])))
    ]


def unknown_kind_sentence(plural: str) -> str:
    """Return the sentence for a kind that the cluster does not know."""
    return (
        f"the cluster does not know {plural}.{GROUP} {VERSION}: `kubectl apply --server-side -f crds/` of this version "
        "makes it known"
    )


@cache
def _ours() -> Mapping[str, Mapping[str, Any]]:
    """Return the schemas of this program by kind."""
    return {kind.name: definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}


def _lacking(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of fields that only this program has. A missing field is yielded without its own fields."""
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, schema in ours.get("properties", {}).items():
        other = theirs.get("properties", {}).get(name)
        place = f"{path}.{name}".removeprefix(".")
        if other is None:
            yield place
        elif place != "metadata":
            yield from _lacking(schema, other, place)
    for name in ("items", "additionalProperties"):
        if isinstance(ours.get(name), dict) and isinstance(theirs.get(name), dict):
            yield from _lacking(ours[name], theirs[name], f"{path}[]")


def _named(fields: list[str]) -> str:
    shown = ", ".join(fields[:_MOST_NAMED])
    return f"{shown} and {len(fields) - _MOST_NAMED} more" if len(fields) > _MOST_NAMED else shown
