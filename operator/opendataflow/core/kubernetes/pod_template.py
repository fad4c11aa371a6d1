"""Merge the `podTemplate` of a job into the pod that the framework makes. Pure.

The rules are those of Kubernetes' strategic merge, as in `kubectl patch`. Objects are merged field by field. Lists of
containers, variables, volumes and the like are merged by a key of their items. Any other list is replaced. A null
removes a field. Fields that the framework sets are refused; the errors of `check_template` name the alternative.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from opendataflow import names
from opendataflow.errors import InvalidInput

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""The lists that are merged, with the field that identifies an item."""

_INSTEAD_IN_SPEC = {
    "activeDeadlineSeconds": "write the job's runDeadline",
    "ephemeralContainers": "they are for debugging a pod that runs",
    "restartPolicy": "a run pod never restarts its containers",
}
_INSTEAD_IN_SCRIPTS = {
    "args": "write runtime.script.args",
    "command": "write runtime.script.command",
    "image": "write runtime.script.image",
    "imagePullPolicy": "write runtime.script.imagePullPolicy",
    "workingDir": "write runtime.script.workingDirectory",
}
_INSTEAD_IN_SPARK = {
    "args": "write runtime.spark.arguments",
    "command": "the framework starts the driver",
    "image": "write runtime.spark.image",
    "imagePullPolicy": "write runtime.spark.imagePullPolicy",
}
_INSTEAD_IN_PIPELINES = {
    "args": "the framework starts the driver",
    "command": "the framework starts the driver",
    "image": "write runtime.pipeline.image",
    "imagePullPolicy": "write runtime.pipeline.imagePullPolicy",
}
_INSTEAD: Mapping[str, Mapping[str, str]] = {
    "script": _INSTEAD_IN_SCRIPTS,
    "spark": _INSTEAD_IN_SPARK,
    "pipeline": _INSTEAD_IN_PIPELINES,
}
_VOLUMES = (names.DATA_VOLUME, names.CONTEXT_VOLUME, names.SCRATCH_VOLUME, names.PROJECT_VOLUME)
_FOLDERS = (names.DATA_FOLDER, names.CONTEXT_FOLDER, names.PROJECT_FOLDER)
_CONTAINERS = (names.OPENER_CONTAINER, names.FETCH_CONTAINER, names.MAIN_CONTAINER)

_INSTEAD_IN_MAIN = {
    "envFrom": "its variables can't be distinguished from those of the framework: name each in env",
    "lifecycle": "a hook can't be judged: do it in the command",
    "restartPolicy": "a run pod never restarts its containers",
    "terminationMessagePath": "runs report at /dev/termination-log",
    "terminationMessagePolicy": "a status must not show a log",
}


def merged(base: Any, written: Any, field: str = "") -> Any:
    """Return `base` with `written` merged into it; neither argument is changed. `field`: the name of their field."""
    if isinstance(base, Mapping) and isinstance(written, Mapping):
        kept = {name: value for name, value in base.items() if name not in written}
        added = {name: merged(base.get(name), value, name) for name, value in written.items() if value is not None}
        order = [*base, *(name for name in written if name not in base)]
        both = kept | added
        return {name: both[name] for name in order if name in both}
    if isinstance(base, list) and isinstance(written, list) and field in MERGE_KEYS:
        return _merged_items(base, written, MERGE_KEYS[field])
    return _without_nulls(written)


def _merged_items(base: list[Any], written: list[Any], key: str) -> list[Any]:
    by_key = {item[key]: item for item in written}
    known = [item[key] for item in base]
    return [
        *(merged(item, by_key[item[key]]) if item[key] in by_key else item for item in base),
        *(_without_nulls(item) for item in written if item[key] not in known),
    ]


def _without_nulls(written: Any) -> Any:
    if isinstance(written, Mapping):
        return {name: _without_nulls(value) for name, value in written.items() if value is not None}
    return [_without_nulls(item) for item in written] if isinstance(written, list) else written


def check_template(
    template: Mapping[str, Any],
    taken: Mapping[str, str],
    runtime: Literal["script", "spark", "pipeline"] = "script",
) -> None:
    """Raise InvalidInput, with the place and a remedy, if a template can't be merged or sets fields of the framework.

    `taken`: the names of the run's variables with their origins.
    """
    _check_metadata(_object(template, "metadata", "podTemplate"))
    spec = _object(template, "spec", "podTemplate")
    check_tree(spec, "podTemplate.spec")
    if "containers" in spec and spec["containers"] is None:
        raise InvalidInput("podTemplate.spec.containers can't be null; leave it out")
    for field, instead in _INSTEAD_IN_SPEC.items():
        if field in spec:
            raise InvalidInput(f"podTemplate.spec.{field} can't be set: {instead}")
    for volume in spec.get("volumes") or []:
        if volume["name"] in _VOLUMES:
            raise InvalidInput(f"podTemplate.spec.volumes: {volume['name']} is the framework's; choose another name")
    for container in spec.get("initContainers") or []:
        if container["name"] in _CONTAINERS:
            raise InvalidInput(
                f"podTemplate.spec.initContainers: {container['name']} is the framework's; choose another name"
            )
    for container in spec.get("containers") or []:
        if container["name"] == names.MAIN_CONTAINER:
            _check_main(container, taken, runtime)


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    for field, value in metadata.items():
        if field not in ("labels", "annotations"):
            raise InvalidInput(f"podTemplate.metadata.{field} can't be set; labels and annotations can")
        for name, text in (value or {}).items() if isinstance(value, Mapping | None) else [("", None)]:
            if name.partition("/")[0] == names.GROUP:
                raise InvalidInput(f"podTemplate.metadata.{field}: {name} is the framework's; choose another name")
            if not isinstance(text, str):
                raise InvalidInput(f"podTemplate.metadata.{field} has to be texts by name; quote {name or 'them'}")


def _check_main(main: Mapping[str, Any], taken: Mapping[str, str], runtime: str) -> None:
    place = f"podTemplate.spec.containers[{names.MAIN_CONTAINER}]"
    for field, instead in {**_INSTEAD_IN_MAIN, **_INSTEAD[runtime]}.items():
        if field in main:
            raise InvalidInput(f"{place}.{field} can't be set: {instead}")
    for item in main.get("env") or []:
        if item["name"] in taken or item["name"].startswith(names.RESERVED_PREFIX):
            origin = taken.get(item["name"], "the framework")
            raise InvalidInput(f"{place}.env: {origin} sets the variable {item['name']} already; rename it")
    for mount in main.get("volumeMounts") or []:
        if any(is_within(folder, mount["mountPath"]) for folder in _FOLDERS):
            raise InvalidInput(f"{place}.volumeMounts: {mount['mountPath']} is the framework's; choose another path")


def is_within(folder: str, path: str) -> bool:
    """Return whether a path is the folder or inside of it."""
    return f"{path.rstrip('/')}/".startswith(f"{folder}/")


def check_tree(value: Any, place: str) -> None:
    """Raise InvalidInput if a tree can't be merged: it has directives, or items without a key or with the same key."""
    if not isinstance(value, Mapping):
        return
    for field, inner in value.items():
        if not isinstance(field, str) or field.startswith("$"):
            raise InvalidInput(f"{place}.{field} can't be set: directives of patches are not supported here")
        here = f"{place}.{field}"
        if isinstance(inner, list):
            if field in MERGE_KEYS:
                _check_items(inner, MERGE_KEYS[field], here)
            for number, item in enumerate(inner):
                check_tree(item, f"{here}[{number}]")
        elif field in MERGE_KEYS and inner is not None:
            raise InvalidInput(f"{here} has to be a list")
        else:
            check_tree(inner, here)


def _check_items(items: list[Any], key: str, place: str) -> None:
    seen = set()
    for number, item in enumerate(items):
        if not isinstance(item, Mapping) or not isinstance(item.get(key), str | int):
            raise InvalidInput(f"{place}[{number}] has no {key}; it identifies the item")
        if key != "containerPort" and not isinstance(item[key], str):
            raise InvalidInput(f"{place}[{number}].{key} has to be a text; quote it")
        if item[key] in seen:
            raise InvalidInput(f"{place}: {item[key]} is there twice")
        seen.add(item[key])


def _object(of: Mapping[str, Any], field: str, place: str) -> Mapping[str, Any]:
    value = of.get(field)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInput(f"{place}.{field} has to be an object")
    return value or {}


def containers_of(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all containers of a pod's spec, init containers first."""
    yield from spec.get("initContainers") or []
    yield from spec.get("containers") or []
