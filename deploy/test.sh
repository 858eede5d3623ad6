#!/bin/sh
# Everything that must hold, from a fresh clone: sh deploy/test.sh checks format, lint, types and import contracts and
# runs the tests. Arguments go to pytest: sh deploy/test.sh -k outbox
set -eu
cd "$(dirname "$0")/.."
. deploy/venv.sh

missing=
for need in git:git curl:curl openssl:openssl; do
  command -v "${need%:*}" >/dev/null || missing="$missing ${need#*:}"
done
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
if [ -n "$missing" ]; then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    say "installing from apt:$missing"
    apt-get update -qq
    # shellcheck disable=SC2086 # one word a package
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing
  else
    say "the tests need:$missing - install them first"
    exit 1
  fi
fi
install '[test]'

export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
mypy
lint-imports
exec pytest --cov --cov-report=term:skip-covered -ra "$@"
