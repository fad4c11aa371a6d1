"""The images for tests on a real cluster: `python -m tests.e2e.images build` prints the archives' paths.

    ~/.cache/opendataflow/
    ├── images-<digest of all that goes in>/{operator,spark}.tar    archives; one that is there is whole
    ├── postgres-<digest>/postgres.tar                              a Postgres for the chart, see tests/e2e/postgres
    └── containers/                                                 see `tests.e2e.layers`

The base image is DATAFLOW_TEST_BASE_IMAGE; without it, root with `debootstrap` makes a stand-in of the same kind from
Debian's packages, and everybody else takes the Dockerfiles' default. Nothing here needs a cluster. After a build, older
archives are taken away, and layers that went into none of those that stay.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from images.build import (
    BASE_IMAGE,
    IMAGES,
    Impossible,
    Order,
    archive,
    find_builder,
    get_base,
    make,
    sources,
    whole_name,
)
from images.build import ROOT as PROJECT
from images.build import authorities as authorities_of_machine
from tests.e2e.layers import forget_layers, kept_for, own_storage
from tests.kube.cluster.building import cache_folder

OPERATOR = "local/opendataflow-operator:test"
SPARK = "local/opendataflow-spark:test"
POSTGRES = "local/postgres:test"
"""What pods call the images, with `imagePullPolicy: IfNotPresent`."""

EPOCH = 1577836800
"""The time of everything in the images; any will do that stays the same."""

_POSTGRES = Path(__file__).parent / "postgres"
_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
_STAND_IN = f"docker.io/local/opendataflow-base:{_SUITE}"
_NOT_IN_SLIM = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/locale", "usr/share/man", "usr/share/info")
_FORMAT = "docker-archive"
_KEPT = 3
_KEPT_SECONDS = 24 * 3600
"""Folders of archives that stay: so many, as branches of one project are built in turn, and used within so long."""


def build() -> dict[str, Path]:
    """Return the archives of the images as the sources are now, by image; build those that are not there."""
    folder = cache_folder() / f"images-{digest()}"
    archives = {image: folder / f"{image}.tar" for image in IMAGES}
    if all(path.exists() for path in archives.values()):
        folder.touch()
        return archives
    with only_one():
        missing = [image for image in IMAGES if not archives[image].exists()]
        if missing:
            _build(missing, folder)
            _forget(folder)
    return archives


def order(
    base_image: str, archives: Path, name: str = "local/opendataflow-{}:test", options: Sequence[str] = ()
) -> Order:
    """What the tests' images are built from. Nothing in it changes with a commit, so that layers are found again."""
    return Order(
        name=name,
        base_image=base_image,
        version="0.0.0",
        revision="test",
        source="unknown",
        epoch=EPOCH,
        archives=archives,
        authorities=authorities_of_machine(),
        options=options,
    )


def postgres() -> Path:
    """Return the archive of a Postgres that the chart can have as its own; build it unless it is there."""
    files = [*sorted(_POSTGRES.iterdir()), PROJECT / "images" / "trust-build-ca"]
    hashed = hashlib.sha256(
        b"\0".join([_FORMAT.encode(), _base().encode(), *(path.read_bytes() for path in files)])
    ).hexdigest()
    folder = cache_folder() / f"postgres-{hashed[:12]}"
    file = folder / "postgres.tar"
    with only_one():
        if not file.exists():
            _build_postgres(files, file)
            _forget(folder)
    folder.touch()
    return file


def _build_postgres(files: list[Path], file: Path) -> None:
    tool, name = builder(), whole_name(POSTGRES)
    with own_storage(), tempfile.TemporaryDirectory(prefix="opendataflow-postgres-") as context:
        for path in files:
            shutil.copy(path, context)
        if (authorities := authorities_of_machine()) is not None:
            shutil.copy(authorities, Path(context) / "build-ca.crt")
        network = ["--network=host"] if tool != "docker" else []
        base = f"--build-arg=BASE_IMAGE={base_image()}"
        file.parent.mkdir(parents=True, exist_ok=True)
        with _kept(file.parent) as options:
            _run([tool, "build", *network, *options, base, f"--tag={name}", context])
        archive(name, file, tool)


def build_on(below: Path, context: Path, name: str, file: Path) -> None:
    """Build a thin layer upon an archived image, whose name the Dockerfile has as its argument OPERATOR; archive it."""
    tool, whole = builder(), whole_name(name)
    with only_one(), own_storage():
        if tool == "buildah":
            base = f"docker-archive:{below}"
        else:
            _run([tool, "load", "--input", str(below)])
            base = whole_name(OPERATOR)
        oci = [] if tool == "docker" else ["--format=oci"]
        _run([tool, "build", *oci, f"--build-arg=OPERATOR={base}", f"--tag={whole}", str(context)])
        archive(whole, file, tool)


def digest() -> str:
    """Return a short name for all that goes into the images."""
    hashed = hashlib.sha256(f"{EPOCH} {_FORMAT} {_base()}".encode())
    for path in sources():
        hashed.update(f"\0{path}\0".encode() + (PROJECT / path).read_bytes())
    return hashed.hexdigest()[:12]


def base_image() -> str:
    """Return the name of the image to build on; make the stand-in where that is it, and it is not there."""
    name = _base()
    if name != _STAND_IN:
        return get_base(name, builder())
    if subprocess.run(["buildah", "inspect", "--type=image", name], capture_output=True).returncode:
        _make_stand_in()
    return name


def _build(images: list[str], folder: Path) -> None:
    with own_storage():
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        base = base_image()
        _say(f"base image {base}: {time.monotonic() - began:.0f} s")
        for image in images:
            began = time.monotonic()
            with _kept(folder) as options:
                make(order(base, folder, options=options), [image], contents=None, builder=builder())
            file = folder / f"{image}.tar"
            _say(f"{file}: {file.stat().st_size / 1e6:.0f} MB, {time.monotonic() - began:.0f} s")


def builder() -> str:
    """What builds the tests' images: buildah where it is, which needs no service and no rights to one."""
    return "buildah" if shutil.which("buildah") else find_builder()


def _base() -> str:
    if named := os.environ.get("DATAFLOW_TEST_BASE_IMAGE"):
        return named
    can_make = os.getuid() == 0 and shutil.which("debootstrap") and shutil.which("buildah")
    return _STAND_IN if can_make else BASE_IMAGE


def _make_stand_in() -> None:
    """Debian with Python and nothing else, without what the slim images leave out."""
    _say(f"making {_STAND_IN} from Debian's packages: two to three minutes")
    listed = subprocess.run(["apt-get", "indextargets", "--format=$(SITE)"], capture_output=True, text=True, check=True)
    mirror = sorted(set(listed.stdout.split()))[0]
    with tempfile.TemporaryDirectory(prefix="opendataflow-base-") as name:
        root = Path(name) / "root"
        _run(["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root), mirror])
        for path in _NOT_IN_SLIM:
            shutil.rmtree(root / path)
            (root / path).mkdir()
        for entry in (root / "usr/share/doc").rglob("*"):
            if not entry.is_dir() and entry.name != "copyright":
                entry.unlink()
        _run(["tar", "-C", str(root), "--one-file-system", "-cf", f"{name}/base.tar", "."])
        (Path(name) / "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["/usr/bin/python3"]\n')
        shutil.rmtree(root)
        _run(["buildah", "build", "--quiet", "--tag", _STAND_IN, name])


@contextmanager
def _kept(folder: Path) -> Iterator[list[str]]:
    """Options for a build whose layers stay as long as a folder; only buildah's are ours to care for."""
    if builder() != "buildah":
        yield []
        return
    with kept_for(folder) as options:
        yield options


def _forget(current: Path) -> None:
    """Take away archives of this kind that nobody has used for long, and all layers that went into none of the rest."""
    kind = current.name.partition("-")[0]
    others = [path for path in cache_folder().glob(f"{kind}-*") if path.is_dir() and path != current]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    long_ago = time.time() - _KEPT_SECONDS
    for place, path in enumerate(others, start=1):
        if place >= _KEPT or path.stat().st_mtime < long_ago:
            shutil.rmtree(path, ignore_errors=True)
    if builder() == "buildah":
        with own_storage():
            forget_layers(_STAND_IN)


@contextmanager
def only_one() -> Iterator[None]:
    """Let nobody else build or forget meanwhile."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Impossible(f"`{command[0]}` has failed: {done.stdout[-500:].strip()}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit("usage: python -m tests.e2e.images build")
    try:
        for path in (*build().values(), postgres()):
            print(path)
    except Impossible as reason:
        sys.exit(f"error: {reason}")
