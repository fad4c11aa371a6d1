"""Looks into an image: its settings and files from the archive, and commands run in it as in a pod.

Commands run as the image's own user, on a file system that is read-only but for the folders that pods mount.
"""

import json
import shlex
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True)
class Archive:
    """An archive of one image, in the format of `docker save`."""

    file: Path

    @property
    def config(self) -> dict[str, Any]:
        """What containers of it start with: `User`, `Env`, `Labels`, `Entrypoint`."""
        return cast("dict[str, Any]", self._json(self._manifest["Config"])["config"])

    @property
    def layers(self) -> list[str]:
        """The digests of its layers' content, the lowest first."""
        return cast("list[str]", self._json(self._manifest["Config"])["rootfs"]["diff_ids"])

    def files(self) -> Iterator[tarfile.TarInfo]:
        """Everything in any of its layers, also what a later one takes away."""
        with tarfile.open(self.file) as archive:
            for layer in self._manifest["Layers"]:
                with tarfile.open(fileobj=archive.extractfile(layer), mode="r|*") as unpacked:
                    yield from unpacked

    @property
    def _manifest(self) -> dict[str, Any]:
        (image,) = self._json("manifest.json")
        return cast("dict[str, Any]", image)

    def _json(self, name: str) -> Any:
        with tarfile.open(self.file) as archive:
            return json.load(cast("Any", archive.extractfile(name)))


@dataclass(frozen=True)
class Root:
    """The files of an image, mounted; where commands run in it."""

    folder: Path
    archive: Archive
    writable: tuple[str, ...]

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the image; it has the machine's network."""
        config = self.archive.config
        variables = [*config["Env"], *(f"{name}={value}" for name, value in environ.items())]
        root = shlex.quote(str(self.folder))
        mounts = [f"mount --bind {root} {root}", f"mount -o remount,bind,ro {root}", f"mount -t proc proc {root}/proc"]
        mounts += [f"mount -t tmpfs -o mode=1777 tmpfs {root}{folder}" for folder in self.writable]
        mounts += [f"mount --bind /dev {root}/dev"]
        inside = f"cd {shlex.quote(config.get('WorkingDir') or '/')} && exec {shlex.join(command)}"
        enter = [
            "chroot",
            f"--userspec={config['User']}",
            str(self.folder),
            "env",
            "-i",
            *variables,
            "/bin/sh",
            "-c",
            inside,
        ]
        script = " && ".join([*mounts, f"exec {shlex.join([*enter, '/bin/sh', '-c', inside])}"])
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "/bin/sh", "-c", script], capture_output=True, text=True
        )


@contextmanager
def mounted(archive: Archive, *writable: str) -> Iterator[Root]:
    """Unpack an image by buildah, and take it away afterwards."""
    with ExitStack() as stack:
        made = _buildah("from", f"docker-archive:{archive.file}")
        stack.callback(_buildah, "rm", made)
        folder = Path(_buildah("mount", made))
        (folder / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")  # as a kubelet writes it
        yield Root(folder, archive, writable)


def _buildah(*arguments: str) -> str:
    return subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=True).stdout.strip()
