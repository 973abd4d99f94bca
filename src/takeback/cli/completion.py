"""Shell completion: click's own for zsh and fish, ours for bash.

Bash also splits words at colons, so it would ask to complete ``fixed`` instead of ``fix-retry:fixed``. Our script
passes the line as typed and strips from each answer the part of the word that bash keeps. Names with spaces are
quoted.
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

from .app import COMPLETE
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
        """Return the finished words, and the one being typed."""
        typed = os.environ["COMP_LINE"]
        words = split_arg_string(typed)
        incomplete = words.pop() if typed and not typed[-1].isspace() else ""
        return words[1:], incomplete


add_completion_class(Bash)


def complete(app: click.Command, instruction: str, chosen: Settings) -> int:
    """Answer a shell's completion request."""
    return shell_complete(app, {"obj": chosen}, "takeback", COMPLETE, instruction)


def script(app: click.Command, shell: str) -> str:
    """Return the completion script that a shell loads."""
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(app, {}, "takeback", COMPLETE).source()
