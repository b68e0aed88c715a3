#!/bin/sh
# Plimsoll for Codex, on this machine. The key in OPENAI_API_KEY goes to OpenAI as before.
# What was cut is on the page, http://127.0.0.1:8081/, and in a line for each request here.
export PLIMSOLL_UPSTREAM="${PLIMSOLL_UPSTREAM:-https://api.openai.com/v1}"
export PLIMSOLL_ADMIN_PORT="${PLIMSOLL_ADMIN_PORT:-8081}"
exec plimsoll serve
