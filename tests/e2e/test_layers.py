"""What is kept of builds of the tests' images, and what is not."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from images.build import Impossible
from tests.e2e.layers import forget_layers, kept_for, nothing_forgotten, own_storage

BASE = "localhost/base:1"
DOCKERFILE = f"FROM {BASE} AS below\nCOPY below /\nFROM {BASE}\nCOPY --from=below /below /copied\nCOPY above /\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, with a base image in it."""
    if not (os.getuid() == 0 and shutil.which("buildah")):
        if os.environ.get("CI"):
            pytest.fail("layers can't be looked at: root and buildah are needed, and CI has to have them")
        pytest.skip("LAYERS WERE NOT TESTED: root and buildah are needed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "opendataflow"
    cache.mkdir()
    (cache / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    with own_storage():
        buildah("build", f"--tag={BASE}", str(cache))
    return cache


def buildah(*arguments: str) -> str:
    return subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=True).stdout


def build(folder: Path, below: str, above: str) -> int:
    """Build an image for a folder of archives; return how many of its steps were there already."""
    folder.mkdir(exist_ok=True)
    for name, text in {"Dockerfile": DOCKERFILE, "below": below, "above": above}.items():
        (folder / name).write_text(text)
    with own_storage(), kept_for(folder) as (logged,):
        buildah("build", "--layers", logged, "--tag=localhost/made:test", str(folder))
        return Path(logged.partition("=")[2]).read_text().count("Using cache")


def test_layers_stay_as_long_as_an_archive_that_they_went_into(cache: Path) -> None:
    older, newer = cache / "images-older", cache / "images-newer"
    assert build(older, "same", "old") == 0
    assert build(newer, "same", "new") == 2
    shutil.rmtree(older)
    with own_storage():
        buildah("from", BASE)  # as a build leaves it that is killed
        forget_layers(BASE)
        assert buildah("containers", "--quiet") == ""
        left = json.loads(buildah("images", "--all", "--json"))
    names = [name.partition(":")[0] for image in left for name in image["names"]]
    assert sorted(names) == ["localhost/base", *["localhost/kept/images-newer"] * 3]
    assert build(newer, "same", "new") == 3


@pytest.mark.usefixtures("cache")
def test_nothing_is_forgotten_while_somebody_looks_into_an_image() -> None:
    with own_storage(), nothing_forgotten():
        made = buildah("from", BASE).strip()
        forget_layers()
        assert buildah("containers", "--format={{.ContainerName}}").split() == [made]
        assert BASE.partition(":")[0] in buildah("images")


def test_a_build_that_fails_says_what_it_was_doing(cache: Path) -> None:
    (cache / "Dockerfile").write_text(f"FROM {BASE}\nCOPY nothing /\n")

    def build_it() -> None:
        with own_storage(), kept_for(cache) as (logged,):
            subprocess.run(["buildah", "build", logged, str(cache)], capture_output=True, check=False)
            raise Impossible("it has failed")

    with pytest.raises(Impossible, match=r"(?s)it has failed: .*COPY nothing"):
        build_it()
