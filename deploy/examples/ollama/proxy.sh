#!/bin/sh
# Plimsoll before an Ollama on this machine: what Ollama would cut without a word is made to fit, and reported.
# Both of its APIs go through: its own (/api/chat) and OpenAI's (/v1/chat/completions).
export PLIMSOLL_UPSTREAM="${PLIMSOLL_UPSTREAM:-http://127.0.0.1:11434/v1}"
export PLIMSOLL_ADMIN_PORT="${PLIMSOLL_ADMIN_PORT:-8081}"
exec plimsoll serve
