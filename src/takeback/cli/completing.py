"""What shells complete: click's own way for zsh and fish, and ours for bash.

Bash cuts a line into words at colons too, so that it would ask about ``fixed`` where ``fix-retry:fixed`` is meant. Ours
hands over the line as it was typed, and takes off each answer what bash keeps of the word. Names with blanks in them
are quoted.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    add_completion_class,
    get_completion_class,
    shell_complete,
    split_arg_string,
)

from .quick import COMPLETE
from .settings import Settings

_BASH = r"""%(complete_func)s() {
    local IFS=$'\n' kind value typed=${COMP_LINE:0:COMP_POINT}
    local word=${typed##*[[:space:]]} keeps=''
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && keeps=${word%%"${word##*:}"}
    COMPREPLY=()
    while IFS=',' read -r kind value; do
        if [[ $kind == 'dir' ]]; then
            compopt -o dirnames
        elif [[ $kind == 'file' ]]; then
            compopt -o default
        elif [[ $kind == 'plain' ]]; then
            [[ $word == [\'\"]* ]] || printf -v value '%%q' "$value"
            COMPREPLY+=("${value#"$keeps"}")
        fi
    done < <(COMP_LINE="$typed" %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completion for bash."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Give the words before the one that is typed, and that."""
        typed = os.environ["COMP_LINE"]
        words = split_arg_string(typed)
        incomplete = words.pop() if typed and not typed[-1].isspace() else ""
        return words[1:], incomplete


add_completion_class(Bash)


def complete(app: click.Command, instruction: str, chosen: Settings) -> int:
    """Write what a shell asks for."""
    return shell_complete(app, {"obj": chosen}, "takeback", COMPLETE, instruction)


def script(app: click.Command, shell: str) -> str:
    """Give the script that a shell loads."""
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(app, {}, "takeback", COMPLETE).source()
