"""Writes crds/*.yaml out of the models: `make crds`. A test compares the two. It says nothing of its own."""

from pathlib import Path

from opendataflow.model.crd import crd_files

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    for name, text in crd_files().items():
        (FOLDER / name).write_text(text, "utf-8")
