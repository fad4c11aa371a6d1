"""Put back the environment that a shell can't pass on, then become the command: a script for the shim.

    python -I -S restore.py FILE COMMAND...

A shell drops variables whose names it could not write (`BASH_FUNC_module%%`, `spark.master`) and sets some
of its own (`IFS`, `PWD`). Where a run has such variables, the launcher puts them into FILE, as NAME=value,
each ended by a NUL; this script reads and deletes it. It never imports anything of the project: every import
costs the run time.
"""

import errno
import os
import sys


def find(program: str) -> str:
    """Return the path of `program` as a shell would find it, or itself."""
    if "/" not in program:
        for folder in os.get_exec_path():
            path = os.path.join(folder, program)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return program


def main(file: str, command: list[str]) -> None:
    """Read and delete `file`, then exec `command`; a script without `#!` is given to sh, as a shell does."""
    with open(file, "rb") as content:
        for item in content.read().split(b"\0")[:-1]:
            name, _, value = item.partition(b"=")
            os.environb[name] = value
    os.unlink(file)
    program = find(command[0])
    try:
        os.execv(program, command)
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            os.execv("/bin/sh", ["sh", program, *command[1:]])
        print(f"dataflow: {command[0]} can't be started: {error.strerror}", flush=True)
        sys.exit(127 if error.errno == errno.ENOENT else 126)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
