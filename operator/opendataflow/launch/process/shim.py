"""The small shell program that a run starts as: it records its process, then becomes the command.

    sh -c SHIM dataflow RECORD DRAFT HEADING LN COMMAND...

A shell because it starts in about a millisecond, where Python needs 20. It writes the draft of the record and
links it to its place; where that fails it ends with 125 and runs nothing. `exec` keeps the process id and the
start time, so the record stays true. The part in brackets is a subshell: no variable that it sets can replace
one of the run's environment, and `$$` is still the shell itself. `ln` is its only other program, by its full
path: the run's PATH may be anything.

What a shell can't pass on untouched goes around it: see `restore`.
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
    """Return the full path of `ln`. Raises `Refused` where there is none."""
    found = shutil.which("ln") or shutil.which("ln", path="/usr/bin:/bin")
    if found is None:
        raise Refused("local runs need the program `ln` (coreutils), and PATH has none: install it")
    return found
