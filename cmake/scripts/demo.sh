#!/usr/bin/env bash
# Starts a server, asks it one question over gRPC, prints the answer and stops the server: demo.sh BERTH [MODEL]
set -euo pipefail
berth=$1
model=${2:-}
[ -n "$model" ] || model=$(python3 "$(dirname "$0")/fetch_model.py")

folder=$(mktemp -d)
server=
stop() {
  if [ -n "$server" ] && kill -TERM "$server" 2>/dev/null; then wait "$server" || true; fi
  rm -rf "$folder"
}
trap stop EXIT

"$berth" serve --json --model "$model" --grpc 127.0.0.1:0 --ops 127.0.0.1:0 --admin "unix:$folder/admin.sock" --drain-delay 0 \
  >"$folder/started" &
server=$!
for _ in $(seq 600); do  # a minute: a large model has to be packed first
  [ -s "$folder/started" ] && break
  kill -0 "$server" 2>/dev/null || { server=; echo "The server did not start: see the line above." >&2; exit 1; }
  sleep 0.1
done
address=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["grpc"])' "$folder/started")

question='Why does a ship reserve a berth before it enters the harbour?'
echo
echo "> $question"
"$berth" client generate --server "$address" --parse-special --temperature 0 --max-tokens 96 \
  --prompt "<|im_start|>user
$question<|im_end|>
<|im_start|>assistant
"
echo
kill -TERM "$server"
wait "$server"
server=
