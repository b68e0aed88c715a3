"""Validation of what a request of the Responses API says of a provider's own store: reasoning and what it led to,
references, and what is encrypted. In OpenAI's wording, one check per function."""

from __future__ import annotations

from hashlib import blake2b

from proxy.simulator.check import ApiError, Body, invalid
from proxy.simulator.openai_responses.items import OUTPUTS, items_of, resolved, stem_of, type_of

SEALED = "gAAAA"  # the beginning of everything that OpenAI encrypts
OWN = SEALED + "sim"  # of what the simulator encrypts: digests of its owner and of its item follow
DIGEST = 16  # characters
UNREADABLE = "Encrypted content could not be decrypted or parsed."
OF_ANOTHER = "Encrypted content item_id did not match the target item id."


def seal(ident: str, owner: str, size: int) -> str:
    """Encrypted content of `size` characters, which only this item of this owner (an organisation) may carry."""
    return f"{OWN}{_digest(owner)}{_digest(ident)}".ljust(size, "r")


def secrets_are_its_own(body: Body, owner: str) -> ApiError | None:
    """Encrypted content is bound to its owner and to its item. An item without an id may carry any of its owner's."""
    for _, _, item in items_of(body):
        secret = str(item.get("encrypted_content") or "")
        reason = _unsealed(secret, str(item.get("id") or ""), owner) if secret else ""
        if reason:
            text = f"The encrypted content {secret[:4]}...{secret[-4:]} could not be verified. Reason: {reason}"
            return ApiError(400, text, code="invalid_encrypted_content")
    return None


def _unsealed(secret: str, ident: str, owner: str) -> str:
    """Why encrypted content cannot be read; empty if it can."""
    if not secret.startswith(SEALED):
        return UNREADABLE
    if not secret.startswith(OWN):
        return ""
    start = len(OWN)
    if secret[start : start + DIGEST] != _digest(owner):
        return UNREADABLE
    mine = not ident or secret[start + DIGEST : start + 2 * DIGEST] == _digest(ident)
    return "" if mine else OF_ANOTHER


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=DIGEST // 2).hexdigest()


def reasoning_is_complete(body: Body, provider: str) -> ApiError | None:
    """Of stored responses, reasoning and what it led to come together; Azure asks for it of others, too."""
    if body.get("store") is False and provider != "azure":
        return None
    items = resolved(body)
    reasoned = {stem for _, kind, item in items if kind == "reasoning" and (stem := stem_of(item))}
    for place, kind, item in items:
        if kind == "reasoning" and item.get("id"):
            after = next((other for _, _, other in items[place + 1 :] if type_of(other) != "reasoning"), None)
            if after is None or type_of(after) in OUTPUTS or after.get("role") not in (None, "assistant"):
                text = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
                return invalid(text, "", "input")
        elif (stem := stem_of(item)) and stem not in reasoned:
            text = f"Item '{item['id']}' of type '{kind}' was provided without its required 'reasoning' item: "
            return invalid(text + f"'rs_{stem}_0'.", "", "input")
    return None


def references_are_stored(body: Body) -> ApiError | None:
    """Where nothing is stored, an id names nothing: neither that of a reference nor that of reasoning which brings
    neither its content nor an encrypted one."""
    if body.get("store") is not False:
        return None
    for _, kind, item in items_of(body):
        empty = kind == "reasoning" and item.get("id") and not (item.get("encrypted_content") or item.get("content"))
        if kind == "item_reference" or empty:
            return ApiError(
                404,
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. Try "
                "again with `store` set to true, or remove this item from your input.",
                param="input",
            )
    return None


def takes_no_reasoning(body: Body) -> ApiError | None:
    """Copilot's rule."""
    place = next((place for place, kind, _ in items_of(body) if kind == "reasoning"), None)
    if place is None:
        return None
    return invalid(f'input[{place}].type "reasoning" is not a valid input item type', "", f"input[{place}].type")
