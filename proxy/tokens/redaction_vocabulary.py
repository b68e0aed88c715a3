"""Words of APIs that a redacted body keeps: names of fields, and values from fixed lists. All others are a client's.

A word that is missing here costs nothing but readability: it is replaced like any other.
"""

from __future__ import annotations

# Names of fields, of JSON schemas too. Any other name is replaced.
FIELDS = frozenset(
    # of requests
    "model messages input prompt suffix instructions system stream stream_options include_usage include max_tokens "
    "max_completion_tokens max_output_tokens n best_of echo logprobs top_logprobs logit_bias temperature top_p top_k "
    "min_p seed stop stop_sequences presence_penalty frequency_penalty repetition_penalty user metadata store "
    "service_tier reasoning reasoning_effort effort summary generate_summary thinking budget_tokens verbosity "
    "modalities audio voice prediction response_format json_schema text truncation previous_response_id conversation "
    "background parallel_tool_calls tool_choice tools tool functions function_call max_tool_calls prompt_cache_key "
    "prompt_cache_retention safety_identifier web_search_options context_management edits trigger keep clear_at_least "
    "clear_tool_inputs exclude_tools mcp_servers container betas inference_geo output_config output_format dimensions "
    "encoding_format options num_ctx num_predict format keep_alive think raw template images variables plimsoll pin "
    # of messages and their parts
    "role content name type id call_id tool_call_id tool_use_id tool_calls function arguments parameters refusal "
    "image_url url detail input_audio data file file_data file_id filename file_url image_file source media_type "
    "cache_control ttl citations enabled title context is_error thinking signature encrypted_content status output "
    "action annotations results queries query caller reasoning_content thought_signature phase index allowed_callers "
    "server_label server_url server_name authorization authorization_token headers require_approval allowed_tools "
    "connector_id environment display_width display_height display_width_px display_height_px display_number "
    "user_location country region city timezone approximate search_context_size max_uses vector_store_ids "
    "max_num_results ranking_options score_threshold filters allowed_domains blocked_domains custom grammar syntax "
    "definition execution namespace defer_loading mode partial_images size quality input_image_mask "
    "moderation compression "
    # of schemas
    "schema strict description properties required items additionalProperties enum const default anyOf oneOf allOf not "
    "$ref $defs definitions $schema $id minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength "
    "maxLength pattern minItems maxItems uniqueItems prefixItems minProperties maxProperties nullable examples "
    "patternProperties propertyNames readOnly deprecated input_schema".split()
)

# Fields whose value is one of a fixed list; the values of all lists together.
CHOICES = frozenset(
    "role type status effort reasoning_effort summary verbosity detail format encoding_format service_tier truncation "
    "tool_choice media_type mode ttl phase stop_reason syntax response_format modalities include $schema "
    "prompt_cache_retention require_approval search_context_size quality display execution context".split()
)
VALUES = frozenset(
    "system developer user assistant tool function ipython message text image image_url input_text output_text refusal "
    "summary_text reasoning_text input_image input_file input_audio audio file document tool_use tool_result "
    "server_tool_use web_search_tool_result web_search_result thinking redacted_thinking reasoning compaction "
    "function_call function_call_output custom custom_tool_call custom_tool_call_output item_reference web_search "
    "web_search_preview web_search_call file_search file_search_call code_interpreter code_interpreter_call "
    "computer_use_preview computer_call computer_call_output image_generation image_generation_call mcp mcp_call "
    "mcp_list_tools mcp_approval_request mcp_approval_response local_shell local_shell_call local_shell_call_output "
    "shell apply_patch web_fetch code_execution memory advisor computer text_editor bash tool_search "
    "tool_search_call tool_search_output mcp_toolset "
    "object array string number integer boolean null base64 url content ephemeral enabled disabled adaptive any none "
    "auto required low medium high minimal xhigh concise detailed original float json_object json_schema json regex "
    "lark grammar default flex priority standard standard_only scale completed in_progress incomplete failed searching "
    "image/png image/jpeg image/gif image/webp application/pdf text/plain clear_tool_uses clear_thinking compact "
    "input_tokens tool_uses all allowed_tools 5m 1h 24h in_memory always never pro "
    "direct client server all_turns commentary final_answer "
    "reasoning.encrypted_content message.output_text.logprobs hd omitted summarized date-time date time email uri uuid "
    "http://json-schema.org/draft-07/schema# https://json-schema.org/draft/2020-12/schema "
    "http://json-schema.org/draft-04/schema#".split()
)

# Fields whose numbers are settings, or say how long something is.
NUMBERS = frozenset(
    "max_tokens max_completion_tokens max_output_tokens n best_of logprobs top_logprobs temperature top_p top_k min_p "
    "presence_penalty frequency_penalty repetition_penalty budget_tokens max_tool_calls dimensions num_ctx num_predict "
    "keep_alive value display_width display_height display_width_px display_height_px max_uses max_num_results "
    "minLength maxLength minItems maxItems minProperties maxProperties keep clear_at_least trigger".split()
)

# Fields that name things, which other fields refer to.
IDS = frozenset(
    "id call_id tool_call_id tool_use_id previous_response_id conversation container file_id user user_id "
    "prompt_cache_key safety_identifier vector_store_ids connector_id item_id response_id".split()
)
ID_PREFIXES = ("call_", "toolu_", "srvtoolu_", "resp_", "conv_", "fc_", "msg_", "rs_", "ctc_", "ws_", "file-")

# Fields of encrypted or binary data: what counts is its length, and of an image its size.
DATA = frozenset("data file_data encrypted_content signature b64_json thought_signature".split())
MEDIA_TYPES = frozenset(value for value in VALUES if value.count("/") == 1)

DESCRIPTIONS = frozenset(("description", "title"))  # texts that the model reads behind a space
