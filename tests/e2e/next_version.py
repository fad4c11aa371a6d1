"""The version after this one, made out of this one: its image has one migration more, its chart a higher number.

Older programs can work with the tables after that migration, as docs/decisions.md asks of all that only add something.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path

import yaml

from opendataflow.store.migrations import sql_files
from tests.e2e import images
from tests.helm.chart import CHART
from tests.sql.newer import ADDITION, FUNCTION, NEXT, WORKS_FROM

OPERATOR = "local/opendataflow-operator:next"
_DOCKERFILE = f"""
ARG OPERATOR
FROM ${{OPERATOR}}
USER root
COPY next /next
RUN cp -r /next/. "$(python -c 'import {sql_files.__name__} as files; print(files._folder())')" && rm -r /next
USER 65532:65532
"""


def operator() -> Path:
    """Return the archive of the next operator's image; build it unless it is there."""
    files = {
        f"next/migrations/{NEXT}.sql": f"{WORKS_FROM}\n{ADDITION}\n",
        "next/functions/99_newer.sql": FUNCTION,
        "Dockerfile": _DOCKERFILE,
    }
    now = images.build()["operator"]
    hashed = hashlib.sha256("\0".join([*files, *files.values()]).encode()).hexdigest()
    file = now.with_name(f"next-operator-{hashed[:12]}.tar")
    if not file.exists():
        with tempfile.TemporaryDirectory(prefix="opendataflow-next-") as context:
            for name, text in files.items():
                path = Path(context, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            images.build_on(now, Path(context), OPERATOR, file)
    return file


def chart(folder: Path) -> Path:
    """Write the next chart to a folder; return its path."""
    copy = folder / "opendataflow"
    shutil.copytree(CHART, copy)
    about = yaml.safe_load((copy / "Chart.yaml").read_text())
    major, minor, _ = about["version"].split(".")
    about["version"] = about["appVersion"] = f"{major}.{int(minor) + 1}.0"
    (copy / "Chart.yaml").write_text(yaml.safe_dump(about))
    return copy


if __name__ == "__main__":
    print(operator())
