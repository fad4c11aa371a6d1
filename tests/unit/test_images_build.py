"""What `make images` builds with and how it names what it builds; the images themselves: tests/e2e/test_images.py."""

import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml

from images import build
from images.settle import settle


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_builder_whose_daemon_does_not_run_is_passed_over(programs: Path) -> None:
    program(programs / "docker", "echo 'Cannot connect to the Docker daemon.' >&2; exit 1")
    program(programs / "buildah", "exit 0")
    assert build.find_builder() == "buildah"


def test_the_first_builder_that_works_is_taken(programs: Path) -> None:
    for name in build.BUILDERS:
        program(programs / name, "exit 0")
    assert build.find_builder() == "docker"
    assert build.find_builder(["podman"]) == "podman"


def test_where_nothing_builds_each_builder_s_reason_is_reported(programs: Path) -> None:
    program(programs / "docker", "echo 'Cannot connect to the Docker daemon.' >&2; exit 1")
    with pytest.raises(build.Impossible) as raised:
        build.find_builder()
    assert str(raised.value) == (
        "nothing here builds images: docker does not work (Cannot connect to the Docker daemon.); "
        "podman is not installed; buildah is not installed"
    )


@pytest.mark.parametrize("builder", build.BUILDERS)
def test_a_base_image_that_is_not_there_and_can_not_be_pulled_says_what_to_do(programs: Path, builder: str) -> None:
    program(programs / builder, "echo begins >&2; echo 'no such host' >&2; exit 1")
    with pytest.raises(build.Impossible) as raised:
        build.get_base("python:3.12", builder)
    assert str(raised.value) == (
        f"{builder} has no image python:3.12 and can't pull it (no such host): "
        "name one that it has or can pull: make images BASE_IMAGE=NAME"
    )


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("python:3.12", "docker.io/library/python:3.12"),
        ("opendataflow/operator:1", "docker.io/opendataflow/operator:1"),
        ("localhost/base", "localhost/base"),
        ("registry.example.org/a/b:1", "registry.example.org/a/b:1"),
        ("registry:5000/a", "registry:5000/a"),
    ],
)
def test_every_builder_means_the_same_image_by_a_name(name: str, whole: str) -> None:
    assert build.whole_name(name) == whole


def test_the_images_have_the_names_that_the_chart_gives_to_pods() -> None:
    chart = build.ROOT / "helm" / "opendataflow"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    named = {values["image"]["repository"], values["spark"]["image"]["repository"]}
    assert named == {f"{build.REPOSITORY}/{image}" for image in build.IMAGES}
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"] == build.version()


def test_extras_that_nobody_knows_are_refused() -> None:
    assert build.known_extras("s3 gcs") == "s3 gcs"
    with pytest.raises(build.Impossible, match=r"^there are no extras s4: the image for Spark knows gcs, s3$"):
        build.known_extras("s3 s4")


def saved(path: Path, when: int) -> Path:
    """An image as `docker save` gives it, built at a time."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for name, inside in (("etc", None), ("etc/it", b"content")):
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.DIRTYPE if inside is None else tarfile.REGTYPE
            entry.mode, entry.uid, entry.mtime, entry.size = 0o750, 185, when, len(inside or b"")
            entry.pax_headers = {"mtime": f"{when}.5", "SCHILY.xattr.user.kept": "yes"}
            archive.addfile(entry, io.BytesIO(inside or b""))
    config = {
        "created": f"{when}",
        "container": f"{when}",
        "config": {"User": "185"},
        "history": [{"created": f"{when}", "created_by": "COPY"}],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{when}"]},
    }
    manifest = [{"Config": "c.json", "RepoTags": ["it:1"], "Layers": ["1/layer.tar"]}]
    described = {"c.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(path, "w") as archive:
        for name, content in {"1/layer.tar": layer.getvalue(), **described}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def test_an_image_of_docker_depends_on_what_is_in_it_and_not_on_when_it_was_built(tmp_path: Path) -> None:
    made = []
    for when in (1000, 2000):
        made.append(tmp_path / f"{when}-settled.tar")
        settle(saved(tmp_path / f"{when}.tar", when), made[-1], 500)
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as archive:
        (image,) = json.load(archive.extractfile("manifest.json") or io.BytesIO())
        assert image["RepoTags"] == ["it:1"]
        assert json.load(archive.extractfile(image["Config"]) or io.BytesIO())["config"] == {"User": "185"}
        with tarfile.open(fileobj=archive.extractfile(image["Layers"][0])) as layer:
            entry = layer.getmember("etc/it")
            assert (entry.mode, entry.uid, entry.mtime) == (0o750, 185, 500)
            assert entry.pax_headers == {"SCHILY.xattr.user.kept": "yes"}
            assert (layer.extractfile(entry) or io.BytesIO()).read() == b"content"
