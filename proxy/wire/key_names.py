"""Names under which keys, passwords and tokens stand in bodies, headers, queries and texts; one list for all readers.

Recordings, the log and the page hide what these names name (`wire.keys`). It does not look at values.
"""

from __future__ import annotations

import re
from functools import lru_cache

# A name is compared folded: in lower case, without separators and without digits at its end. So `apiKey`, `api-key`,
# `API_KEY`, `Api Key` and `api_key_2` are one.
_FOLD = {ord(c): ord(c.lower()) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} | dict.fromkeys(map(ord, "-_. "))
DIGITS = "0123456789"

# What every name of a key contains, in one piece, in whatever case. `wire.keys` skips bodies without them.
STEMS = ("key", "token", "secret", "pass", "pwd", "auth", "cookie", "credential", "connection", "header")

ENDINGS = tuple(
    "apikey apikeys apikeyvalue accesskey accesskeys accesskeyid secretkey secretkeys secretaccesskey privatekey "
    "privatekeys privatekeyid signingkey encryptionkey decryptionkey authkey masterkey subscriptionkey virtualkey "
    "accountkey sharedkey sharedaccesskey servicekey sshkey hmackey sessionkey clientkey userkey keyvalue "
    "token accesstokens apitokens authtokens refreshtokens bearertokens tokenvalue "
    "secret secrets secretvalue password passwords passwd passphrase pwd "
    "credential credentials authorization cookie cookies connectionstring "
    "basicauth httpauth proxyauth bearerauth authheader".split()
)
NAMES = frozenset("auth pass xauth".split())  # too short to be the end of other names

# Names with these endings only look like a key's.
HARMLESS = tuple(
    "padtoken eostoken bostoken unktoken septoken clstoken masktoken stoptoken endtoken starttoken firsttoken "
    "lasttoken imagetoken audiotoken texttoken specialtoken pertoken nexttoken pagetoken nextpagetoken synctoken "
    "continuationtoken cancellationtoken cancellationtokensource onetoken eachtoken singletoken inputtoken "
    "outputtoken prompttoken completiontoken reasoningtoken thinkingtoken toptoken timetotoken usesecret issecret "
    "ispassword needpassword haspassword usetoken hastoken istoken forgotpassword secretsanta".split()
)

# Parameters of a query that are a key only there: `key` is Gemini's, `sig` Azure's; and what these names end with.
IN_QUERY = frozenset("key sig signature x-amz-signature x-goog-signature".split())
IN_QUERY_ENDINGS = ("key", "sig", "signature")

# Fields whose values are headers, of MCP servers for example: any name may be a key's, but for these.
HEADERS = "headers"
HARMLESS_HEADERS = frozenset(
    "accept acceptencoding acceptlanguage accesscontrolalloworigin anthropicbeta anthropicversion cachecontrol "
    "connection contentencoding contentlanguage contentlength contenttype date etag expires host ifnonematch "
    "lastmodified mcpprotocolversion openaibeta openaiorganization openaiproject origin pragma range referer "
    "retryafter server transferencoding useragent vary via xrequestid xtitle".split()
)

MAX_NAME = 64  # characters at the end of a name that are looked at
_STEM_AT_END = re.compile(rf"(?:{'|'.join(STEMS)})[A-Za-z0-9_. -]*$", re.ASCII | re.IGNORECASE)


def folded(name: str) -> str:
    """A name in lower case, without separators, and without digits at its end."""
    return name.translate(_FOLD).rstrip(DIGITS)


def is_key(name: str) -> bool:
    """Whether a field, a header or a variable with this name holds a key."""
    return _is_key(name[-MAX_NAME:], len(name) <= MAX_NAME)


@lru_cache(maxsize=4096)
def _is_key(name: str, whole: bool) -> bool:
    if _STEM_AT_END.search(name) is None:
        return False
    plain = folded(name)
    return (plain.endswith(ENDINGS) and not plain.endswith(HARMLESS)) or (whole and plain in NAMES)


def is_key_in_query(name: str) -> bool:
    """Whether a parameter of a query holds a key."""
    return name.lower() in IN_QUERY or is_key(name)


def has_headers(name: str) -> bool:
    """Whether the value of a field are headers."""
    return name[-len(HEADERS) :].lower() == HEADERS


def is_harmless_header(name: str) -> bool:
    """Whether a header's value is no key, whatever it is."""
    return folded(name[-MAX_NAME:]) in HARMLESS_HEADERS
