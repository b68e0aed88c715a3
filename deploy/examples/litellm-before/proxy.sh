#!/bin/sh
# Client -> LiteLLM (port 4000) -> Plimsoll (port 8080) -> provider.
export PLIMSOLL_UPSTREAM="${PLIMSOLL_UPSTREAM:-https://api.openai.com/v1}"
export PLIMSOLL_ADMIN_PORT="${PLIMSOLL_ADMIN_PORT:-8081}"
exec plimsoll serve
