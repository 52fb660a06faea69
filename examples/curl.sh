#!/bin/sh
# A chat answer, a text completion and the models, with curl alone.
# sh examples/curl.sh [URL of the API, by default http://127.0.0.1:8000/v1]
set -eu
API=${1:-http://127.0.0.1:8000/v1}

echo "--- models"
curl -sS --fail-with-body "$API/models"

echo; echo "--- chat, streamed"
curl -sSN --fail-with-body "$API/chat/completions" -H 'Content-Type: application/json' -d '{
  "messages": [{"role": "user", "content": "What is gravity?"}],
  "max_completion_tokens": 32,
  "temperature": 0,
  "stream": true
}'

echo "--- completion"
curl -sS --fail-with-body "$API/completions" -H 'Content-Type: application/json' -d '{
  "prompt": "The capital of France is",
  "max_tokens": 8,
  "temperature": 0
}'
echo
