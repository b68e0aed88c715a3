# For the shell in which the clients start:  . ollama/client.sh
export OLLAMA_HOST=http://127.0.0.1:8080
export OPENAI_BASE_URL=http://127.0.0.1:8080/v1
