"""Restores the variables that a shell can't pass on, then executes the command. The shim runs it as a script:

    python -I -S restore.py FILE COMMAND...

A shell drops variables with names that it can't assign (`BASH_FUNC_module%%`, `spark.master`), and sets some itself
(`IFS`, `PWD`). If a run has such variables, the launcher writes them to FILE, as NAME=value with a trailing NUL. This
script reads and deletes FILE. It imports nothing of the project, because every import delays the run.
"""

import errno
import os
import sys


def find(program: str) -> str:
    """Return the path of `program` as a shell finds it in PATH; `program` itself if there is none."""
    if "/" not in program:
        for folder in os.get_exec_path():
            path = os.path.join(folder, program)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return program


def main(file: str, command: list[str]) -> None:
    """Read and delete `file`, then exec `command`. As in a shell, sh runs a script without `#!`."""
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
