"""What buildah keeps of the tests' images: layers that were built before, as long as an archive that they went into.

They lie in `containers/` beside the folders of archives. Each step of a build is given the name `kept/FOLDER:ID`, and
`forget_layers` takes away those without a folder. Whoever builds or forgets holds the lock of `images.only_one`.
"""

import fcntl
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from images.build import Impossible
from tests.kube.cluster.building import cache_folder

_STEP = re.compile(r"^--> ([0-9a-f]{11,})$", re.MULTILINE)
"""What buildah says at the end of each step, also of one that it has found."""
_KEPT = "localhost/kept/"


@contextmanager
def own_storage() -> Iterator[None]:
    """Let buildah keep its layers with the other things of this project that can be made again."""
    home = cache_folder() / "containers"
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "storage.conf"
    settings.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{home}/graph"\nrunroot = "{home}/run"\n')
    before = dict(os.environ)
    os.environ["CONTAINERS_STORAGE_CONF"] = str(settings)
    if os.getuid() == 0:
        os.environ.setdefault("BUILDAH_ISOLATION", "chroot")  # needs no rights that a container on CI has not
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def kept_for(folder: Path) -> Iterator[list[str]]:
    """Keep what is built meanwhile as long as a folder of archives; gives options for `buildah build`.

    They let it write what it does to a file, whose end goes into the Impossible that a failure raises.
    """
    with tempfile.NamedTemporaryFile("r", prefix="opendataflow-build-") as log:
        try:
            yield [f"--logfile={log.name}"]
        except Impossible as failed:
            raise Impossible(f"{failed}: {log.read()[-2000:].strip()}") from failed
        steps = dict.fromkeys(_STEP.findall(log.read()))
    for step in steps:
        _buildah("tag", step, f"{_KEPT}{folder.name}:{step}")


@contextmanager
def nothing_forgotten() -> Iterator[None]:
    """For whoever looks into an image: what it stands on stays meanwhile."""
    with _looking(fcntl.LOCK_SH):
        yield


def forget_layers(*others: str) -> None:
    """Take away what has no folder, and what killed builds have left; `others` are names that stay.

    Where somebody looks into an image nothing is taken away: the next build does it.
    """
    with suppress(BlockingIOError), _looking(fcntl.LOCK_EX | fcntl.LOCK_NB):
        _buildah("rm", "--all")
        images = json.loads(_buildah("images", "--all", "--json")) or ()
        names = [name for image in images for name in image["names"] or ()]
        if gone := [name for name in names if name not in others and not _is_kept(name)]:
            _buildah("rmi", "--force", *gone)
        _buildah("rmi", "--prune", "--force")


@contextmanager
def _looking(how: int) -> Iterator[None]:
    with (cache_folder() / "looking.lock").open("w") as lock:
        fcntl.flock(lock, how)
        yield


def _is_kept(name: str) -> bool:
    folder = name.removeprefix(_KEPT).partition(":")[0]
    return name.startswith(_KEPT) and (cache_folder() / folder).is_dir()


def _buildah(*arguments: str) -> str:
    done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Impossible(f"`buildah {arguments[0]}` has failed: {done.stderr[-500:].strip()}")
    return done.stdout
