#!/bin/sh
# Make a virtual environment with pinned packages and this project in it, or say what is missing.
# usage: tools/venv.sh PYTHON DIRECTORY REQUIREMENTS
set -eu
python=$1 directory=$2 requirements=$3

if ! command -v "$python" >/dev/null 2>&1; then
  echo "takeback needs Python 3.11 or newer, and '$python' is not here. On Debian: apt-get install python3 python3-venv" >&2
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "takeback needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1). Try: make PYTHON=python3.12 ..." >&2
  exit 1
fi
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
  echo "'$python' cannot make virtual environments. On Debian: apt-get install python3-venv" >&2
  exit 1
fi
echo "setting up $directory (once; a minute or less)"
rm -rf "$directory"
"$python" -m venv "$directory"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
touch "$directory/.ready"
