"""Coding agents as people use them: installed from npm once, configured by their own files, and run without a person.

Each runs with an environment of its own, an empty home, a key that is none, and a model on loopback. Where one cannot
be installed, the test that asks for it is skipped, with a line at the end of the run that says so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import _unproven

INSTALLED = Path(__file__).parents[2] / ".venv" / "npm"
NODE = 20  # its major version; the newest that one of the programs needs
INSTALL_SECONDS, RUN_SECONDS = 120, 60
PROMPT = "What do you know of it?"
Json = dict[str, Any]


class Start(NamedTuple):
    """How a program is started: what follows its name, and its environment."""

    arguments: list[str]
    env: dict[str, str]


class Program(NamedTuple):
    """A program: its package on npm, what it puts before the name of a tool, and how it is configured.

    ``setup`` is the package's own script that ends its installation. ``configure`` takes the home, the address of the
    model, and our server as most programs write it. ``reads_data`` says which of the two forms of an answer its model
    gets: the data, or the text.
    """

    name: str
    package: str
    version: str
    setup: str
    prefix: str
    reads_data: bool
    configure: Callable[[Path, str, Json], Start]


class Ran(NamedTuple):
    """What came of a process."""

    code: int
    out: str
    err: str


# ---------------------------------------------------------------------- their configuration


def _claude(home: Path, model: str, server: Json) -> Start:
    _write(home / ".claude.json", {"mcpServers": {"takeback": server}})
    _write(home / ".claude" / "settings.json", {"permissions": {"allow": ["mcp__takeback"]}})
    env = {
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "none",
        "MCP_CONNECTION_NONBLOCKING": "0",  # the first request waits for the server
        "MCP_CONNECT_TIMEOUT_MS": "30000",
        "ENABLE_TOOL_SEARCH": "false",  # the model gets the tools, not only their names
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return Start(["-p", PROMPT], env)


def _codex(home: Path, model: str, server: Json) -> Start:
    env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in server["env"].items())
    lines = (
        'model = "gpt-5.1"',
        'model_provider = "scripted"',
        "[model_providers.scripted]",
        'name = "scripted"',
        f'base_url = "{model}/v1"',
        'env_key = "SCRIPTED_KEY"',
        'wire_api = "responses"',
        "[mcp_servers.takeback]",
        f"command = {json.dumps(server['command'])}",
        f"args = {json.dumps(server['args'])}",
        f"env = {{ {env} }}",
        "required = true",
        "startup_timeout_sec = 30",
        'default_tools_approval_mode = "writes"',
    )
    _write(home / ".codex" / "config.toml", "\n".join(lines))
    return Start(["exec", "--skip-git-repo-check", PROMPT], {"SCRIPTED_KEY": "none"})


def _gemini(home: Path, model: str, server: Json) -> Start:
    settings = {
        "mcpServers": {"takeback": {**server, "trust": True}},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    _write(home / ".gemini" / "settings.json", settings)
    env = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model}
    return Start(["--skip-trust", "-m", "gemini-2.5-pro", "-p", PROMPT], env)


def _opencode(home: Path, model: str, server: Json) -> Start:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{model}/v1", "apiKey": "none"},
        "models": {"scripted": {"limit": {"context": 200_000, "output": 8_000}}},
    }
    entry = {
        "type": "local",
        "command": [server["command"], *server["args"]],
        "environment": server["env"],
        "enabled": True,
        "timeout": 30_000,
    }
    config = {
        "autoupdate": False,
        "model": "scripted/scripted",
        "provider": {"scripted": provider},
        "mcp": {"takeback": entry},
    }
    _write(home / ".config" / "opencode" / "opencode.json", config)
    env = {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "npm_config_offline": "true",  # it would install what plugins need
    }
    return Start(["run", PROMPT], env)


def _write(path: Path, content: Json | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))


CLAUDE = Program("claude", "@anthropic-ai/claude-code", "2.1.197", "install.cjs", "mcp__takeback__", True, _claude)
CODEX = Program("codex", "@openai/codex", "0.169.0", "", "mcp__takeback.", True, _codex)
GEMINI = Program("gemini", "@google/gemini-cli", "0.61.0", "", "mcp_takeback_", False, _gemini)
OPENCODE = Program("opencode", "opencode-ai", "1.18.33", "postinstall.mjs", "takeback_", False, _opencode)


# ---------------------------------------------------------------------- their installation


def command(program: Program) -> str:
    """Return a program's command, and install it if nobody has; where that fails the test that asks is skipped."""
    if reason := _missing(program):
        pytest.skip(f"{program.package} {_unproven.NOT_PROVEN}: {reason}")
    return str(_command_in(_home_of(program), program))


@cache
def _missing(program: Program) -> str | None:
    """Install a program if it is not there yet, and say why that failed if it did."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return "npm is not installed"
    said = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    version = re.match(r"v(\d+)\.", said)
    if version is None or int(version[1]) < NODE:
        return f"it needs Node.js {NODE} or newer, and here is {said or 'none that works'}"
    return None if _home_of(program).exists() else _install(program, npm, node)


def _install(program: Program, npm: str, node: str) -> str | None:
    """Install a program as a whole or not at all; no script of another package is run."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=INSTALLED) as name:
        made, package = Path(name, "made"), f"{program.package}@{program.version}"
        made.mkdir()
        flags = [f"--no-{each}" for each in ("audit", "fund", "update-notifier")]
        flags += ["--ignore-scripts", "--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
        install = [npm, "install", "--prefix", str(made), "--cache", f"{name}/cache", *flags, package]
        steps = [(install, dict(os.environ))]  # npm's own settings say where packages come from
        if program.setup:
            steps.append(([node, str(made / "node_modules" / program.package / program.setup)], _env(Path(name))))
        steps.append(([str(_command_in(made, program)), "--version"], _env(Path(name))))
        end = time.monotonic() + INSTALL_SECONDS
        for step, env in steps:
            ran = run(step, env, made, end - time.monotonic())
            if ran.code:
                return f"{' '.join(step[:2])} ended with {ran.code}: {' '.join(ran.err.split())[:200]}"
        _keep(made, _home_of(program))
    return None


def _keep(made: Path, home: Path) -> None:
    try:
        made.rename(home)
    except OSError:
        if not home.exists():  # nobody else was faster
            raise


def _home_of(program: Program) -> Path:
    return INSTALLED / f"{program.name}-{program.version}"


def _command_in(place: Path, program: Program) -> Path:
    return place / "node_modules" / ".bin" / program.name


# ---------------------------------------------------------------------- their runs


def ask(program: Program, place: Path, model: str, server: Json) -> Ran:
    """Let a program answer one prompt in an empty project, with our server in its configuration."""
    home, project = place / "home", place / "project"
    home.mkdir()
    project.mkdir()
    start = program.configure(home, model, server)
    closed = {"HTTPS_PROXY": model, "NO_PROXY": "127.0.0.1"}  # the model passes nothing on to the outside
    return run([command(program), *start.arguments], _env(home) | closed | start.env, project, RUN_SECONDS)


def _env(home: Path) -> dict[str, str]:
    """Return an environment that knows nothing of the person who runs the tests."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8"}


def run(command: list[str], env: Mapping[str, str], place: Path, seconds: float) -> Ran:
    """Run a command in a process group of its own, which is ended with it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        env=env,
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end_group(process.pid)
            out, err = process.communicate()
            err += f"\nended after {seconds:.0f} seconds"
        finally:
            _end_group(process.pid)
    return Ran(process.returncode, out, err)


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
