#!/bin/sh
# Client -> Plimsoll (port 8080) -> LiteLLM (port 4000) -> provider.
export PLIMSOLL_UPSTREAM="${PLIMSOLL_UPSTREAM:-http://127.0.0.1:4000/v1}"
export PLIMSOLL_ADMIN_PORT="${PLIMSOLL_ADMIN_PORT:-8081}"
exec plimsoll serve
