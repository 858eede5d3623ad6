# Sourced by quickstart.sh and test.sh: makes .venv and installs the project with the extras of `install`.
# shellcheck shell=sh

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

need_python() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    say "Python 3.11 or newer is needed as python3 (found: $(python3 --version 2>&1 || echo none))"
    exit 1
  }
  python3 -c 'import ensurepip, venv' 2>/dev/null || {
    say "Python's venv module is missing - install it: apt-get install python3-venv"
    exit 1
  }
}

install() { # install EXTRAS, such as '' or '[test]'
  need_python
  [ -x .venv/bin/python ] || { say "making .venv"; python3 -m venv .venv; }
  # Installed again only when what it depends on has changed; the code itself is used in place.
  done=".venv/installed$1-$(cksum <pyproject.toml | tr ' ' -)"
  [ -e "$done" ] || { say "installing ssegate$1"; .venv/bin/pip install --quiet --disable-pip-version-check -e ".$1"; : >"$done"; }
}
