"""Writes crds/*.yaml, and the chart's copies of them, out of the models: `make crds`. A test compares them. It says
nothing of its own.
"""

from pathlib import Path

from opendataflow.model.resources.crd import crd_files

FOLDER = Path(__file__).parent
CHART = FOLDER.parent / "helm" / "opendataflow" / "files" / "crds"
KEEP = {"helm.sh/resource-policy": "keep"}
"""With this, helm leaves them where it uninstalls the chart: with them, all resources would go."""


def files() -> dict[Path, str]:
    """Path -> text of every file."""
    own = {FOLDER / name: text for name, text in crd_files().items()}
    return own | {CHART / name: text for name, text in crd_files(KEEP).items()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
