"""Looks for texts in all that a cluster keeps and shows: where in the API, in logs, in processes, in Postgres they are.

A text is found as it is, so also escaped for JSON, a URL or a shell where it has letters and digits only, and in base64
at any place; what helm keeps of a release is unpacked first. Nothing here decides where a text may be.
"""

import base64
import gzip
import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.e2e.cluster.real_cluster import RealCluster
from tests.kube.cluster.api import Api, Object, Refused
from tests.kube.cluster.nodes import NODES
from tests.kube.cluster.providers import Unavailable

_PROC = Path("/proc")
_BETWEEN_LOOKS = 0.1
_HELM_RELEASE = "helm.sh/release.v1"


class Finds:
    """Texts to look for, by name, and the places where each has been found. Safe for several threads."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """Take texts of letters and digits, which are too long to occur by chance."""
        assert all(re.fullmatch(r"[A-Za-z0-9]{16,}", text) for text in texts.values())
        self._forms = {name: _forms(text) for name, text in texts.items()}
        self.places: dict[str, set[str]] = defaultdict(set)

    def look(self, place: str, content: bytes) -> None:
        """Remember the place for every text that is in the content."""
        for name, forms in self._forms.items():
            if place not in self.places[name] and any(form in content for form in forms):
                self.places[name].add(place)

    def kinds(self, name: str) -> set[str]:
        """The first words of the places where a text has been found."""
        return {place.split()[0] for place in self.places[name]}


def _forms(text: str) -> list[bytes]:
    plain = text.encode()
    return [plain, *(_inner_base64(b"\0" * before + plain, before) for before in range(3))]


def _inner_base64(content: bytes, before: int) -> bytes:
    """The characters of base64 that depend on nothing but the content, which begins after some bytes."""
    first, last = -(-8 * before // 6), 8 * len(content) // 6
    return base64.b64encode(content)[first:last]


# The API -------------------------------------------------------------------------------------------------------


def look_at_api(finds: Finds, api: Api) -> None:
    """Every object of every kind that can be listed, all of it, with who has managed which field."""
    for path in _lists(api):
        kind = path.rpartition("/")[2]
        try:
            found = api.items(path)
        except Refused as refused:  # a definition that has just been deleted, or a list that nobody may have
            if refused.status not in {403, 404, 405, 503}:
                raise
            continue
        for each in found:
            metadata = each["metadata"]
            place = f"{kind} {metadata.get('namespace', '-')}/{metadata['name']}"
            finds.look(place, json.dumps(each, ensure_ascii=False).encode())
            if each.get("type") == _HELM_RELEASE:
                finds.look(f"helm {metadata['namespace']}/{metadata['name']}", _release(each))


def _lists(api: Api) -> Iterator[str]:
    groups = [group for found in api.get("/apis")["groups"] for group in found["versions"]]
    for version in ["/api/v1", *(f"/apis/{group['groupVersion']}" for group in groups)]:
        with suppress(Refused):  # served by nobody at the moment
            for resource in api.get(version)["resources"]:
                if "list" in resource["verbs"] and "/" not in resource["name"]:
                    yield f"{version}/{resource['name']}"


def _release(secret: Object) -> bytes:
    return gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"])))


# Logs ----------------------------------------------------------------------------------------------------------


def look_at_logs(finds: Finds, api: Api, namespace: str) -> None:
    """What all containers of a namespace have printed, also those that were started again."""
    for pod in api.items(f"/api/v1/namespaces/{namespace}/pods"):
        name, spec = pod["metadata"]["name"], pod["spec"]
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            for previous in ("", "&previous=true"):
                path = f"/api/v1/namespaces/{namespace}/pods/{name}/log?container={container['name']}{previous}"
                with suppress(Refused):  # it has not started yet, or was never started again, or is gone
                    finds.look(f"log {name}/{container['name']}", api.text("GET", path).encode())


def look_at_logs_of_nodes(finds: Finds, cluster: RealCluster) -> None:
    """What the kubelets and the container runtimes have written."""
    for node in cluster.api.items(NODES):
        name = node["metadata"]["name"]
        for program, log in cluster.nodes.logs(name).items():
            finds.look(f"{program} {name}", log.encode())


# Postgres ------------------------------------------------------------------------------------------------------


def look_at_postgres(finds: Finds, api: Api, namespace: str, pod: str) -> None:
    """All tables of all databases of a Postgres, and its users; table by table of what `dataflow` has."""
    inside = ("--namespace", namespace, "exec", pod, "--", "pg_dumpall", "--host=/var/run/postgresql", "-U", "dataflow")
    table = "none"
    for line in api.kubectl(*inside).splitlines():
        if copied := re.match(r"COPY (\S+) ", line):
            table = copied[1]
        finds.look(f"postgres {table}", line.encode())
        if line == "\\.":
            table = "none"


# Processes -----------------------------------------------------------------------------------------------------


def processes_of(uid: str) -> list[Path]:
    """The processes of a pod, in /proc of this machine, on which the node is. Raises Unavailable."""
    parts = {uid, uid.replace("-", "_")}
    found = []
    for process in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if any(part in (process / "cgroup").read_text() for part in parts):
                found.append(process)
    if not found:
        raise Unavailable("the processes of the nodes are not to be seen on this machine")
    return found


def look_into_process(finds: Finds, process: Path, what: str) -> None:
    """Its environment and all of its memory. Raises Unavailable where only root may."""
    try:
        finds.look(f"environment of {what}", (process / "environ").read_bytes())
        with (process / "mem").open("rb", buffering=0) as memory:
            for begin, end in _regions(process):
                with suppress(OSError, ValueError):  # of the kernel, such as [vvar]; or released meanwhile
                    memory.seek(begin)
                    finds.look(f"memory of {what}", memory.read(end - begin))
    except PermissionError:
        raise Unavailable("only root may read the memory of the nodes' processes") from None


def _regions(process: Path) -> Iterator[tuple[int, int]]:
    for line in (process / "maps").read_text().splitlines():
        addresses, rights = line.split()[:2]
        if rights.startswith("r"):
            begin, _, end = addresses.partition("-")
            yield int(begin, 16), int(end, 16)


@contextmanager
def watched_processes(finds: Finds) -> Iterator[None]:
    """Look at the arguments of all processes of this machine, many times a second."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_BETWEEN_LOOKS):
            for process in _PROC.glob("[0-9]*"):
                with suppress(OSError):  # it has ended
                    finds.look("arguments of a process", (process / "cmdline").read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def value_of(secret: Mapping[str, Any], key: str) -> str:
    """What a Secret has under a key."""
    return base64.b64decode(secret["data"][key]).decode()
