#!/bin/sh
# One call in two steps: sh deploy/two-step.sh NAME JSON-ARGUMENTS prints the answer's JSON.
# Needs $MCP_TOKEN and $MCP_CA_CERT (quickstart.sh prints both); $MCP_SERVER names another gateway.
set -eu
: "${1:?NAME of the tool is missing}" "${MCP_TOKEN:?is missing}" "${MCP_CA_CERT:?is missing}"
server=${MCP_SERVER:-https://localhost:9091} dir=$(mktemp -d) stream=
trap 'kill $stream 2>/dev/null || :; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
printf 'Authorization: Bearer %s\n' "$MCP_TOKEN" >"$dir/header" # a file, for every user can read a command line
: >"$dir/events" >"$dir/end"
curl -fsSN --cacert "$MCP_CA_CERT" -H @"$dir/header" -o "$dir/events" -w end "$server/sse" >"$dir/end" & stream=$!
data() { # the data of the Nth whole event: an event ends with an empty line
  until ended=$(cat "$dir/end"); sed -n '/^data: /{s///;h;};/^$/{x;/./p;s/.*//;x;}' "$dir/events" | sed -n "$1p" | grep .
  do [ -z "$ended" ] || { echo "two-step.sh: the stream ended before the answer" >&2; exit 1; }; sleep 0.02; done; }
endpoint=$(data 1)
curl -sS --fail-with-body --cacert "$MCP_CA_CERT" -H @"$dir/header" "$server$endpoint" >&2 -d \
  '{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"'"$1"'","arguments":'"${2:-"{}"}"'}}'
data 2
