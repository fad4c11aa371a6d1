"""The host, boot and process id namespace of this process. Reads /proc; never writes anything."""

import os
from pathlib import Path

from opendataflow.errors import Refused
from opendataflow.model.records.run import Host

PROC = Path("/proc")


def this_host(proc: Path = PROC) -> Host:
    """Return the host of this process; `boot` is `<kernel boot id>/<process id namespace>`.

    Raises Refused if /proc is missing or shows another process id namespace: processes could not be inspected.
    """
    try:
        own = int((proc / "self" / "stat").read_bytes().split()[0])
        boot = (proc / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
        namespace = (proc / "self" / "ns" / "pid").readlink().name
    except (OSError, ValueError, IndexError) as error:
        raise Refused(
            f"local runs need Linux with /proc mounted, and {proc} can't be read here ({error}): "
            "mount it, or run on a Linux machine"
        ) from error
    if own != os.getpid():
        raise Refused(
            f"{proc} shows the processes of another process id namespace than this program's: "
            "mount /proc inside the container that runs it"
        )
    return Host(name=os.uname().nodename, boot=f"{boot}/{namespace}")


def boot_and_namespace(host: Host) -> tuple[str, str]:
    """Return the two parts of `host.boot`."""
    boot, _, namespace = host.boot.partition("/")
    return boot, namespace
