"""The shim: a small shell program that records its process, then executes the command of the run.

    sh -c SHIM dataflow RECORD DRAFT HEADING LN COMMAND...

It is a shell program because a shell starts in about a millisecond, and Python in 20. It writes a draft of the record
and links the draft to its place. If that fails, it ends with exit code 125 and does not run the command. `exec` keeps
the process id and the start time, so the record stays valid. The part in brackets is a subshell: its variables can't
replace those of the run, and `$$` is still the id of the shell itself. `ln` is its only other program. It is called by
its full path, because the PATH of the run may be anything.

`restore` handles the variables that a shell can't pass on unchanged.
"""

import shutil

from opendataflow.errors import Refused

REFUSED = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127

SHELL = "/bin/sh"

SHIM = r"""
(
    IFS= read -r stat <"/proc/$$/stat" || exit
    printf '%s\nstat %s\nend\n' "$3" "$stat" >"$2" || exit
    exec "$4" "$2" "$1"
) || exit 125
shift 4
case $1 in
*/*)
    if [ ! -e "$1" ]; then
        printf 'dataflow: %s: there is no such program (started in %s)\n' "$1" "$PWD"
        exit 127
    elif [ -d "$1" ]; then
        printf 'dataflow: %s is a folder, not a program\n' "$1"
        exit 126
    elif [ ! -x "$1" ]; then
        printf 'dataflow: %s is not executable: chmod +x makes it so\n' "$1"
        exit 126
    fi
    ;;
*)
    if ! command -v "$1" >/dev/null; then
        printf 'dataflow: %s: there is no such program in PATH (%s)\n' "$1" "$PATH"
        exit 127
    fi
    ;;
esac
exec "$@"
"""


def find_ln() -> str:
    """Return the full path of `ln`. Raises Refused if there is none."""
    found = shutil.which("ln") or shutil.which("ln", path="/usr/bin:/bin")
    if found is None:
        raise Refused("local runs need the program `ln` (coreutils), and PATH has none: install it")
    return found
