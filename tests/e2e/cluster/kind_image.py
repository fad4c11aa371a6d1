"""An image for the nodes of kind, built here: for where no registry answers.

Debian by debootstrap, kind's own files from its pinned module, and the programs that `building` makes. The images of
the control plane lie in its containerd, under the names that kubeadm asks for. In place of kindnetd a small script
connects the nodes; it knows no NetworkPolicy. All that takes two to three minutes.
"""

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.e2e.cluster.building import CONTROL_PLANE, PINS, installed, programs
from tests.e2e.cluster.commands import run, succeeds
from tests.kube.cluster.building import VERSION
from tests.waiting import wait_until

_FILES = Path(__file__).parent / "kind_node"
_PROGRAMS = (*CONTROL_PLANE, "kubectl", "kubelet", "kubeadm", "kube-proxy", "coredns", "pause", "crictl", "kind")
_DEBIAN = "local/debian:bookworm-minbase"
_BASE = "local/kind-base:bookworm"
_NETWORK = "local/kind-network:1"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def built_node_image() -> str:
    """The name of the image, be it there or not: other files or other pins have another name."""
    files = sorted(path for folder in (_FILES, PINS) for path in folder.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]
    return f"local/kind-node:{VERSION}-{digest}"


def build_node_image(say: Callable[[str], None]) -> str:
    """Build it; return its name. Raises Unavailable, or CalledProcessError with the output."""
    installed(("docker", "debootstrap"), "the image of kind's nodes")
    built = programs(_PROGRAMS, say)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dataflow-kind-") as name:
        folder = Path(name)
        if not _there(_DEBIAN):
            _import_debian(folder)
        _build(_NETWORK, folder / "network", {"network.sh": _FILES / "network.sh"}, _FILES / "network.Dockerfile")
        sandbox = _build_base(folder / "base", built)
        references = [_NETWORK, *_build_control_plane(folder, built, sandbox)]
    image = built_node_image()
    _commit(image, references)
    run(["docker", "image", "rm", *references])  # nobody should take them for what their names say
    say(f"built {image} in {time.monotonic() - began:.0f} s")
    return image


def _import_debian(folder: Path) -> None:
    root = folder / "debian"
    sites = run(["apt-get", "indextargets", "--format", "$(SITE)"]).split()
    run(["debootstrap", "--variant=minbase", "bookworm", str(root), sorted(set(sites))[0]])
    unwanted = ("./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*_*")
    packed = folder / "debian.tar"
    run(["tar", "-C", str(root), *(f"--exclude={path}" for path in unwanted), "-cf", str(packed), "."])
    run(["docker", "import", str(packed), _DEBIAN])


def _build_base(folder: Path, built: Mapping[str, Path]) -> str:
    """Build what a node is without the control plane's images; return what its containerd calls the pause image."""
    kind = Path(
        run(["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind"], folder=PINS / "kind").strip()
    )
    shutil.copytree(kind / "images/base/files", folder / "files", copy_function=shutil.copyfile)
    for copied in (folder / "files").rglob("*/"):
        copied.chmod(0o755)  # in the cache of Go nothing may be written, nor removed
    programs_of_node = {f"bin/{name}": built[name] for name in ("kubeadm", "kubelet", "kubectl", "crictl")}
    _build(_BASE, folder, programs_of_node, _FILES / "Dockerfile")
    found = re.search(r'sandbox_image = "(.*)"', (folder / "files/etc/containerd/config.toml").read_text())
    assert found, "kind's containerd names no sandbox image"
    return found[1]


def _build_control_plane(folder: Path, built: Mapping[str, Path], sandbox: str) -> list[str]:
    """Build each image that kubeadm asks for, out of one program; return their names."""
    asked = run([str(built["kubeadm"]), "config", "images", "list", f"--kubernetes-version={VERSION}"]).split()
    references = list(dict.fromkeys((*asked, sandbox)))
    for reference in references:
        program = reference.rpartition("/")[2].partition(":")[0]
        base = _NETWORK if program == "kube-proxy" else "scratch"
        # what is not to start by itself is named in the pods of kubeadm, without a folder
        starts = program in {"coredns", "pause"}
        target = f"/{program}" if starts else f"/usr/local/bin/{program}"
        entry = f'["{target}"]' if starts else "[]"
        text = f"FROM {base}\nENV PATH={_PATH}\nCOPY {program} {target}\nENTRYPOINT {entry}\n"
        context = folder / reference.replace("/", "-")
        context.mkdir()
        (context / "Dockerfile").write_text(text)
        _build(reference, context, {program: built[program]})
    return references


def _build(image: str, context: Path, files: Mapping[str, Path], dockerfile: Path | None = None) -> None:
    for name, path in files.items():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, context / name)
    if dockerfile:
        shutil.copy(dockerfile, context / "Dockerfile")
    # the older builder can do all that is asked here, and comes with every Docker
    older = {"DOCKER_BUILDKIT": "0"}
    run(["docker", "build", "--quiet", "--network=host", f"--tag={image}", context], environ=older)


def _commit(image: str, references: list[str]) -> None:
    """Load images into the containerd of a container of the base, as kind does it; commit that."""
    sleeps = ["--entrypoint=sleep", "--security-opt=seccomp=unconfined", _BASE, "infinity"]
    container = run(["docker", "run", "--detach", *sleeps]).strip()
    try:
        inside = ["docker", "exec", container]
        run([*inside, "sh", "-c", f"mkdir -p /kind/manifests && printf %s {VERSION} > /kind/version"])
        for manifest in ("default-cni.yaml", "default-storage.yaml"):
            run(["docker", "cp", str(_FILES / manifest), f"{container}:/kind/manifests/"])
        run(["docker", "exec", "--detach", container, "containerd"])
        wait_until(lambda: succeeds(*inside, "ctr", "version"), "containerd answers in the container")
        with tempfile.NamedTemporaryFile(prefix="dataflow-kind-", suffix=".tar") as saved:
            run(["docker", "save", f"--output={saved.name}", *references])
            run(["docker", "cp", saved.name, f"{container}:/images.tar"])
        pinned = ("--label=io.cri-containerd.pinned=pinned", "--all-platforms", "--no-unpack", "--digests")
        run([*inside, "ctr", "--namespace=k8s.io", "images", "import", *pinned, "/images.tar"])
        run([*inside, "sh", "-c", "rm /images.tar && kill $(pidof containerd) && sleep 1"])
        start = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
        run(["docker", "commit", f"--change={start}", container, image])
    finally:
        run(["docker", "rm", "--force", container])


def _there(image: str) -> bool:
    return succeeds("docker", "image", "inspect", image)
