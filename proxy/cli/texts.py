"""What the help of each command says."""

from __future__ import annotations

from proxy.config.settings import ADMIN_URL

EPILOG = (
    "Each --flag is also an environment variable: PLIMSOLL_ and its name in capitals (--admin-port is "
    "PLIMSOLL_ADMIN_PORT); for --llm-..., --context-... and --...-proxy the name without the prefix."
)
RUN_HELP = "run a program with a proxy before the APIs that it asks, such as: plimsoll run -- claude"
REPLAY_HELP = "show what the proxy would have done with recorded requests, without sending them"
REPLAY_FILES = "recordings, logs, exports or session files of other programs, or folders of them"
NO_REQUEST = "Nothing to inspect: no API takes it: it has no messages, and no input or prompt of text."
INSPECT_HELP = "show the plan for a request's body, without sending it"
MODELS_HELP = "show the limits of models and their sources"
CHECK_HELP = "list the problems of a folder of rules, or of the settings"
CALLER_HELP = "print the hash of a caller's key, for callers.toml"
CALLER_EPILOG = "The key is read from standard input, one a line. The hash depends on PLIMSOLL_SECRET."
PAGE_HELP = "open the page of a running proxy: what it does, live"
TOP_HELP = "show a running proxy's figures and last requests, live"
FORGET_HELP = "make a running proxy forget what it learned about models"
ADMIN_DEFAULT = f"default: {ADMIN_URL}, else the admin port of the settings"
URL_DEFAULT = f"default: {ADMIN_URL}, else the admin port or port of the settings"
DEMO_HELP = "send an overlong conversation directly and through the proxy"
COMPLETION_HELP = "print a script that completes commands and flags in a shell"
COMPLETION_EPILOG = 'For this shell alone: eval "$(plimsoll completion bash)". The script says where it is kept.'
SIMULATE_HELP = "serve a simulated upstream, as strict as the real ones"
SIMULATED = """\
It serves the APIs of OpenAI (chat completions, completions, embeddings, Responses; also on Azure's
paths), Anthropic (Messages), Ollama and Gemini. It runs no model; it counts, refuses and bills as
the real ones.

providers (--provider), whose words a refusal has:
  openai openai-old azure anthropic mistral deepseek gemini gemini-openai xai groq cerebras cohere
  bedrock copilot openrouter zai vllm vllm-2026 sglang tgi llamacpp ollama lmstudio
  and for embeddings: tei voyage

models, by a part of the name:
  sim-tools            calls the first tool of a request
  sim-tools-parallel   calls two tools at once
  sim-tools-loop       calls a tool after every result, until one has "That was all."

request headers, for one request:
  x-sim-provider NAME         as --provider
  x-sim-window TOKENS         as --window
  x-sim-in-stream 1           refuses a stream in the stream
  x-sim-refusal-status N      the status of its refusals
  x-sim-refusal-event NAME    the event of a refusal in a stream of Responses
  x-sim-truncates 1           cuts what is too long without a word
  x-sim-status N              answers with this error
  x-sim-text TEXT             the reply
  x-sim-cached TOKENS         reports so many as read from its prompt cache
  x-sim-delay SECONDS         before the answer
  x-sim-chunk-delay SECONDS   between the chunks of a stream
  x-sim-fail N                a stream ends with an error after N events
  x-sim-abort N               it hangs up after N chunks
"""
