"""Images of a single static program, written without any tool: the pod's pause, and a busybox for tests.

An archive is in the format of `docker save`, which containerd and Docker both read, and has the same bytes each time.
"""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.e2e.cluster.building import installed, programs
from tests.kube.cluster.providers import Unavailable

PAUSE = "docker.io/local/pause:1"
BUSYBOX = "docker.io/local/busybox:test"
_HEADER = 4096
"""A program that needs a loader names it there."""


def pause(folder: Path, say: Callable[[str], None]) -> Path:
    """Write the archive of what holds a pod's network."""
    program = programs(["pause"], say)["pause"].read_bytes()
    config = {"Entrypoint": ["/pause"], "User": "65535:65535"}
    return _write(folder / "pause.tar", PAUSE, _layer({"pause": program}, {}), config)


def busybox(folder: Path) -> Path:
    """Write the archive of a busybox with all its commands, which runs as a user that is not root."""
    program = installed(["busybox"], "the image of the tests' own pods")["busybox"]
    if b"ld-linux" in program.read_bytes()[:_HEADER]:
        raise Unavailable("the image of the tests' own pods needs a static busybox: apt-get install busybox-static")
    commands = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{command}": "busybox" for command in commands if command != "busybox"}
    config = {"Env": ["PATH=/bin"], "Cmd": ["sh"], "User": "65532:65532"}
    return _write(folder / "busybox.tar", BUSYBOX, _layer({"bin/busybox": program.read_bytes()}, links), config)


def _layer(files: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for path in ("bin", "tmp"):
            folder = tarfile.TarInfo(path)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
            archive.addfile(folder)
        for path, content in files.items():
            _add(archive, path, content, 0o755)
        for path, target in links.items():
            link = tarfile.TarInfo(path)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return written.getvalue()


def _add(archive: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _write(path: Path, reference: str, layer: bytes, config: Mapping[str, object]) -> Path:
    described = json.dumps(
        {
            "architecture": _architecture(),
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with tarfile.open(fresh, mode="w") as archive:
        _add(archive, name, described)
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", manifest)
    return fresh.replace(path)


def _architecture() -> str:
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
