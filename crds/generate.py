"""Generates crds/*.yaml and the chart's copies of them from the models: `make crds`.

A test compares the files. This module writes these files only.
"""

from pathlib import Path

from opendataflow.model.resources.crd import crd_files

FOLDER = Path(__file__).parent
CHART = FOLDER.parent / "helm" / "opendataflow" / "files" / "crds"
KEEP = {"helm.sh/resource-policy": "keep"}
"""With this annotation, helm keeps the definitions at an uninstall. Without it, all resources would be deleted too."""


def files() -> dict[Path, str]:
    """Return path -> text of every file."""
    own = {FOLDER / name: text for name, text in crd_files().items()}
    return own | {CHART / name: text for name, text in crd_files(KEEP).items()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
