"""Builds the project's images with docker, podman or buildah. `make images` calls it.

The builder gets only files that git knows, all with the same time, so that equal sources result in equal layers. For
each image it writes a list of its contents (SPDX), if `syft` or `go` is installed. It needs the standard library only,
and never pushes an image.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from images.settle import settle

ROOT = Path(__file__).parents[1]
IMAGES = ("operator", "spark")
BUILDERS = ("docker", "podman", "buildah")
SOURCES = ("LICENSE", "README.md", "pyproject.toml", "operator", "sql", "images", "requirements")
NOT_NEEDED = (":!images/*.py", ":!requirements/dev.txt", ":!requirements/bench.txt")
"""Git pathspecs of the files for the builder, and of exceptions."""

BASE_IMAGE = "python:3.12-slim-bookworm"
REPOSITORY = "opendataflow"
"""Default for the first part of the images' names. The chart uses the same names."""

ANSWER_SECONDS = 60

SYFT = "github.com/anchore/syft/cmd/syft@v1.57.1"


class Impossible(Exception):
    """The images can't be built on this machine. The text is the reason, in one sentence."""


@dataclass(frozen=True)
class Order:
    """The parameters of a build.

    `name`: an image name with `{}` for operator or spark. A registry is optional. `archives`: the folder for archives.
    None: write none. `authorities`: a file with certificate authorities that the build must trust.
    """

    name: str
    base_image: str
    version: str
    revision: str
    source: str
    epoch: int
    extras: str = ""
    archives: Path | None = None
    authorities: Path | None = None
    options: Sequence[str] = field(default=())
    """More arguments for the builder."""


def sources() -> list[Path]:
    """Return the files for the builder, relative to the project's root: those that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *SOURCES, *NOT_NEEDED]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Impossible("images are built from a git work tree: git says which files are part of one") from error
    return sorted(Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file())


@contextmanager
def context(order: Order) -> Iterator[Path]:
    """Yield a folder with copies of the sources, all with the same time and one of two modes."""
    with tempfile.TemporaryDirectory(prefix="opendataflow-images-") as name:
        folder = Path(name)
        for path in sources():
            copy = folder / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, copy)
            copy.chmod(0o755 if os.access(ROOT / path, os.X_OK) else 0o644)
        if order.authorities is not None:
            shutil.copyfile(order.authorities, folder / "build-ca.crt")
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (order.epoch, order.epoch))
            if path.is_dir():
                path.chmod(0o755)
        yield folder


def find_builder(wanted: Sequence[str] = BUILDERS) -> str:
    """Return the first builder that works here. An installed builder may lack its daemon or its rights."""
    reasons = []
    for name in wanted:
        why_not = _why_not(name)
        if why_not is None:
            return name
        reasons.append(f"{name} {why_not}")
    raise Impossible(f"nothing here builds images: {'; '.join(reasons)}")


def _why_not(builder: str) -> str | None:
    if not shutil.which(builder):
        return "is not installed"
    try:
        done = subprocess.run([builder, "info"], capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return f"has not answered within {ANSWER_SECONDS} s"
    return f"does not work ({_last_line(done.stderr)})" if done.returncode else None


def whole_name(name: str) -> str:
    """Add the default registry to an image name. Docker and Kubernetes assume it, podman and buildah do not."""
    first, slash, _ = name.partition("/")
    if slash and (re.search("[.:]", first) or first == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def get_base(name: str, builder: str) -> str:
    """Pull the base image unless it is present. Return its name for the builder."""
    look = ["inspect", "--type=image"] if builder == "buildah" else ["image", "inspect"]
    if _ask(builder, *look, name).returncode == 0:
        return name
    print(f"pulling {name}", file=sys.stderr, flush=True)
    pulled = _ask(builder, "pull", "--quiet", whole_name(name))
    if pulled.returncode:
        raise Impossible(
            f"{builder} has no image {name} and can't pull it ({_last_line(pulled.stderr)}): "
            "name one that it has or can pull: make images BASE_IMAGE=NAME"
        )
    return whole_name(name)


def build(image: str, order: Order, builder: str) -> str:
    """Build one image and return its full name."""
    name = whole_name(order.name.format(image))
    arguments = {
        "BASE_IMAGE": order.base_image,
        "VERSION": order.version,
        "REVISION": order.revision,
        "SOURCE": order.source,
        **({"EXTRAS": order.extras, "SOURCE_DATE_EPOCH": str(order.epoch)} if image == "spark" else {}),
    }
    command = [builder, "build", "--tag", name, *order.options]
    if builder != "docker":
        command += ["--format=oci", "--layers", f"--timestamp={order.epoch}"]
    for key, value in arguments.items():
        command += ["--build-arg", f"{key}={value}"]
    with context(order) as folder:
        command += ["--file", str(folder / "images" / image / "Dockerfile"), str(folder)]
        _run(command, {**os.environ, "SOURCE_DATE_EPOCH": str(order.epoch)})
    if builder == "docker":
        _settle(name, order.epoch)
    return name


def _settle(name: str, epoch: int) -> None:
    """Replace a built image by a copy in which all files have the same time."""
    before = _ask("docker", "image", "inspect", "--format={{.Id}}", name).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="opendataflow-settled-") as folder:
        saved, settled = Path(folder, "saved.tar"), Path(folder, "settled.tar")
        archive(name, saved, "docker")
        settle(saved, settled, epoch)
        _run(["docker", "load", "--quiet", "--input", str(settled)])
    if before != _ask("docker", "image", "inspect", "--format={{.Id}}", name).stdout.strip():
        _ask("docker", "image", "rm", "--no-prune", before)  # but keep the layers in the cache for the next build


def archive(name: str, file: Path, builder: str) -> None:
    """Write a built image to a file, in the format of `docker save`. The file appears when it is complete."""
    draft = file.with_suffix(".unfinished")
    draft.unlink(missing_ok=True)
    if builder == "buildah":
        # An OCI archive has compressed layers, which take minutes to write and longer to read.
        _run(["buildah", "push", "--quiet", name, f"docker-archive:{draft}:{name}"])
    else:
        _run([builder, "save", "--output", str(draft), name])
    draft.rename(file)


def known_extras(wanted: str) -> str:
    """Return the requested extras. Raise Impossible for one that images/spark/ivy.xml does not define."""
    named = re.findall(r'<conf name="(.+?)"', (ROOT / "images/spark/ivy.xml").read_text())
    known = sorted(set(named) - {"default"})
    if unknown := sorted(set(wanted.split()) - set(known)):
        raise Impossible(f"there are no extras {', '.join(unknown)}: the image for Spark knows {', '.join(known)}")
    return wanted


def find_syft() -> Path | None:
    """Return an installed `syft`, or build it with `go`. Return None if neither is installed."""
    if found := shutil.which("syft"):
        return Path(found)
    if not shutil.which("go"):
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opendataflow"
    folder = cache / f"syft-{SYFT.rpartition('@')[2]}"
    if not (folder / "syft").exists():
        print(f"building {SYFT}, once: some minutes", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        _run(["go", "install", "-ldflags=-s -w", SYFT], {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"})
    return folder / "syft"


def list_contents(syft: Path, archived: Path, name: str, file: Path) -> None:
    """Write a list of the packages in an archived image, as SPDX in JSON."""
    scan = [
        str(syft),
        "scan",
        "--quiet",
        f"docker-archive:{archived}",
        f"--source-name={name}",
        f"--output=spdx-json={file}",
    ]
    _run(scan, {**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false"})


def make(order: Order, images: Sequence[str], contents: Path | None, builder: str) -> None:
    """Build images, archive them on request, and write lists of their packages to the folder `contents`."""
    syft = find_syft() if contents else None
    if contents and not syft:
        print("no list of contents is written: install syft, or Go to build it", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="opendataflow-archives-") as temporary:
        for image in images:
            began = time.monotonic()
            name = build(image, order, builder)
            short = order.name.format(image)
            print(f"{short}: built by {builder} in {time.monotonic() - began:.0f} s", flush=True)
            file = (order.archives or Path(temporary)) / f"{image}.tar"
            if order.archives or syft:
                archive(name, file, builder)
            if contents and syft:
                contents.mkdir(parents=True, exist_ok=True)
                listed = contents / f"opendataflow-{image}-{name.rpartition(':')[2]}.spdx.json"
                list_contents(syft, file, name, listed)
                print(listed)


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it does not say why"])[-1].strip()


def _run(command: list[str], environ: Mapping[str, str] = os.environ) -> None:
    try:
        subprocess.run(command, env=environ, check=True, stdout=sys.stderr)
    except subprocess.CalledProcessError as error:
        raise Impossible(f"`{' '.join(command[:2])}` has failed; what it said is above") from error


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def version() -> str:
    """Return the version of the project."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def authorities(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file in SSL_CERT_FILE, or None."""
    named = environ.get("SSL_CERT_FILE")
    return Path(named) if named and Path(named).is_file() else None


def main(arguments: Sequence[str]) -> None:
    """Parse the arguments and build the images."""
    parser = argparse.ArgumentParser(
        "python3 -m images.build", description="Builds the images of OpenDataFlow with docker, podman or buildah."
    )
    parser.add_argument("--builder", choices=BUILDERS, help="default: the first of them that works here")
    parser.add_argument("--base-image", default=BASE_IMAGE, help="what both images are built on")
    parser.add_argument("--repository", default=REPOSITORY, help="the first part of the images' names")
    parser.add_argument("--tag", default=version(), help="default: the version of the project")
    parser.add_argument("--source", default="unknown", help="the address of the sources, for a label")
    parser.add_argument("--extras", default="", help="connectors in the image for Spark: s3, gcs, or both")
    parser.add_argument("--only", choices=IMAGES, help="build this image only")
    parser.add_argument("--archives", type=Path, help="a folder for the images as archives, as of `docker save`")
    parser.add_argument("--contents", default="dist", help="a folder for the lists of contents; '': write none")
    parser.add_argument("options", nargs="*", metavar="OPTION", help="after `--`: more arguments for the builder")
    given = parser.parse_args(arguments)
    extras = known_extras(given.extras)
    builder = find_builder([given.builder] if given.builder else BUILDERS)
    order = Order(
        name=f"{given.repository}/{{}}:{given.tag}",
        base_image=get_base(given.base_image, builder),
        version=version(),
        revision=_git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or "unknown",
        source=given.source,
        epoch=int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or 0),
        extras=extras,
        archives=given.archives,
        authorities=authorities(),
        options=given.options,
    )
    make(
        order,
        [given.only] if given.only else IMAGES,
        ROOT / given.contents if given.contents else None,
        builder,
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Impossible as reason:
        sys.exit(f"error: {reason}")
