#!/bin/sh
# From a fresh clone to a first answer: sh deploy/quickstart.sh installs into .venv, makes a configuration and a token
# in .ssegate, starts the gateway, lists /var/log through it, shows how to go on, and serves until Ctrl-C.
# A port other than 9091: SSEGATE_LISTEN_PORT=9292 sh deploy/quickstart.sh
set -eu
cd "$(dirname "$0")/.."
. deploy/venv.sh
command -v curl >/dev/null || { say "curl is needed - install it: apt-get install curl"; exit 1; }
install ''

config=$PWD/.ssegate
user=$(id -un 2>/dev/null || echo me)
mkdir -p "$config"
(umask 077; .venv/bin/ssegate token create "$user" --config-dir "$config" >"$config/token")

.venv/bin/ssegate serve --config-dir "$config" >"$config/ready" &
gateway=$!
stop() { trap - EXIT INT TERM; kill -TERM $gateway 2>/dev/null || :; wait $gateway || :; exit "$1"; }
trap 'stop $?' EXIT
trap 'stop 0' INT TERM
until grep -q '^ready ' "$config/ready"; do
  kill -0 $gateway 2>/dev/null || { trap - EXIT; wait $gateway; }
  sleep 0.1
done
server=https://localhost:$(sed -n 's/^ready [^ ]*:\([0-9]*\) .*/\1/p' "$config/ready")

MCP_TOKEN=$(cat "$config/token") MCP_CA_CERT=$config/tls/mcpd.crt MCP_SERVER=$server
export MCP_TOKEN MCP_CA_CERT MCP_SERVER
say "files/list /var/log, by deploy/two-step.sh:"
sh deploy/two-step.sh files/list '{"path":"/var/log"}' |
  .venv/bin/python -c 'import json, sys; sys.stdout.write(json.load(sys.stdin)["result"]["content"][0]["text"])'

cat <<END

The gateway serves on $server. In another terminal:

export MCP_TOKEN="\$(cat '$config/token')" MCP_CA_CERT='$config/tls/mcpd.crt' MCP_SERVER='$server'

# 1. open the stream; its first event names the endpoint
curl -N -s --cacert "\$MCP_CA_CERT" -H "Authorization: Bearer \$MCP_TOKEN" "\$MCP_SERVER/sse" &

# 2. post a call there; the answer arrives on the stream
curl -s --cacert "\$MCP_CA_CERT" -H "Authorization: Bearer \$MCP_TOKEN" "\$MCP_SERVER/message?session_id=ID-FROM-STEP-1" \\
  -d '{"jsonrpc": "2.0", "id": "1", "method": "tools/call", "params": {"name": "files/list", "arguments": {"path": "/var/log", "human_readable": true}}}'

# or both steps at once
sh '$PWD/deploy/two-step.sh' files/list '{"path": "/var/log"}'

Ctrl-C here ends it.
END
wait $gateway
