#!/bin/sh
# Plimsoll for Claude Code, on this machine. Claude Code's key or login goes to Anthropic as before.
# What was cut is on the page, http://127.0.0.1:8081/, and in a line for each request here.
export PLIMSOLL_UPSTREAM="${PLIMSOLL_UPSTREAM:-https://api.anthropic.com/v1}"
export PLIMSOLL_ADMIN_PORT="${PLIMSOLL_ADMIN_PORT:-8081}"
exec plimsoll serve
