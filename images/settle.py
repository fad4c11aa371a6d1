"""Sets one time for all files in an image of docker. podman and buildah do this during a build.

Equal sources then result in equal layers. This module reads and writes archives of `docker save`, and needs the
standard library only.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

_KEPT = ("architecture", "config", "history", "os", "rootfs", "variant")
"""Fields of an image's description that are kept. The others describe the build itself."""
_TIMES = ("mtime", "atime", "ctime")
"""Headers with the times of a file, to fractions of a second."""


def settle(saved: Path, settled: Path, epoch: int) -> None:
    """Copy an archive of one image, with all times set to `epoch` (seconds since 1970)."""
    with tarfile.open(saved) as old, tarfile.open(settled, "w") as new:
        (image,) = json.load(_content(old, "manifest.json"))
        described = json.load(_content(old, image["Config"]))
        config: dict[str, Any] = {name: described[name] for name in _KEPT if name in described}
        config["created"] = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        config["history"] = [{**step, "created": config["created"]} for step in config.get("history", ())]
        layers = []
        for name in image["Layers"]:
            with tempfile.TemporaryFile() as layer:
                _settle_layer(_content(old, name), layer, epoch)
                layers.append(_add(new, layer))
        config["rootfs"]["diff_ids"] = [f"sha256:{name.removesuffix('.tar')}" for name in layers]
        text = json.dumps(config, sort_keys=True).encode()
        named = f"{hashlib.sha256(text).hexdigest()}.json"
        _add(new, io.BytesIO(text), named)
        manifest = [{"Config": named, "RepoTags": image["RepoTags"], "Layers": layers}]
        _add(new, io.BytesIO(json.dumps(manifest).encode()), "manifest.json")


def _settle_layer(content: IO[bytes], written: IO[bytes], epoch: int) -> None:
    with tarfile.open(fileobj=content, mode="r|*") as old, tarfile.open(fileobj=written, mode="w") as new:
        for entry in old:
            entry.mtime = epoch
            entry.pax_headers = {name: value for name, value in entry.pax_headers.items() if name not in _TIMES}
            new.addfile(entry, old.extractfile(entry) if entry.isreg() else None)


def _content(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found, f"{name} of the archive is no file"
    return found


def _add(archive: tarfile.TarFile, content: IO[bytes], name: str = "") -> str:
    """Add a file and return its name. Without a name, it is named after the hash of its content."""
    content.seek(0)
    name = name or f"{hashlib.file_digest(content, 'sha256').hexdigest()}.tar"  # type: ignore[arg-type]
    entry = tarfile.TarInfo(name)
    entry.size = content.seek(0, io.SEEK_END)
    content.seek(0)
    archive.addfile(entry, content)
    return name
