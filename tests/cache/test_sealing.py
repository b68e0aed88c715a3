from __future__ import annotations

import random
from binascii import crc_hqx

import pytest

from proxy.cache.sealing import CLUSTER_SLOTS, MAX_VALUE_BYTES, PREFIX, PREFIXES, SLOTS, Sealer, former_name

SEALER = Sealer(b"secret")
OTHER = Sealer(b"other secret")
CONTENT = b"what they talked about"


def test_a_name_is_the_same_for_all_who_know_the_secret_and_for_nobody_else() -> None:
    assert SEALER.name("count", CONTENT) == Sealer(b"secret").name("count", CONTENT)
    assert SEALER.name("count", CONTENT) != OTHER.name("count", CONTENT)


def test_a_name_tells_its_kind_and_nothing_of_what_it_names() -> None:
    name = SEALER.name("count:1.0", CONTENT)
    assert name.startswith(PREFIX + b"count:1.0:")
    assert CONTENT not in name
    assert len(name) == len(SEALER.name("count:1.0", CONTENT * 1000))


def test_parts_do_not_run_into_one_another() -> None:
    assert SEALER.name("x", b"ab", b"c") != SEALER.name("x", b"a", b"bc")
    assert SEALER.name("x", b"a") != SEALER.name("y", b"a")
    assert SEALER.name("x", b"a", b"") != SEALER.name("x", b"a")


def test_what_was_wrapped_is_unwrapped_under_its_own_name_alone() -> None:
    value = SEALER.sign(b"name", b"payload")
    assert SEALER.verify(b"name", value) == b"payload"
    assert SEALER.verify(b"nam", b"e" + value) is None
    assert SEALER.verify(b"other", value) is None
    assert OTHER.verify(b"name", value) is None


def test_a_value_of_another_version_or_size_is_none() -> None:
    value = SEALER.sign(b"name", b"payload")
    assert SEALER.verify(b"name", b"\x07" + value[1:]) is None
    assert SEALER.verify(b"name", value[:10]) is None
    assert SEALER.verify(b"name", b"") is None
    assert SEALER.verify(b"name", SEALER.sign(b"name", bytes(MAX_VALUE_BYTES))) is None


@pytest.mark.parametrize("seed", range(50))
def test_a_changed_or_random_value_is_none(seed: int) -> None:
    chance = random.Random(seed)
    value = bytearray(SEALER.sign(b"name", b"payload"))
    value[chance.randrange(len(value))] ^= 1 << chance.randrange(8)
    assert SEALER.verify(b"name", bytes(value)) is None
    assert SEALER.verify(b"name", b"\x01" + chance.randbytes(40)) is None


def test_sealed_content_is_its_callers_alone() -> None:
    value = SEALER.seal(b"name", b"alice", CONTENT)
    assert SEALER.unseal(b"name", b"alice", value) == CONTENT
    assert SEALER.unseal(b"name", b"bob", value) is None
    assert SEALER.unseal(b"other", b"alice", value) is None
    assert OTHER.unseal(b"name", b"alice", value) is None


def test_sealed_content_cannot_be_read_and_is_never_sealed_the_same_way_twice() -> None:
    value = SEALER.seal(b"name", b"alice", CONTENT)
    assert CONTENT not in value
    assert value != SEALER.seal(b"name", b"alice", CONTENT)


@pytest.mark.parametrize(
    "value", [b"", *(b"\x02" + bytes(size) for size in (0, 40, MAX_VALUE_BYTES)), b"\x01" + bytes(40)]
)
def test_what_was_not_sealed_is_none(value: bytes) -> None:
    assert SEALER.unseal(b"name", b"alice", value) is None


def test_a_wrapped_value_is_no_sealed_one() -> None:
    assert SEALER.unseal(b"name", b"alice", SEALER.sign(b"name", CONTENT)) is None
    assert SEALER.verify(b"name", SEALER.seal(b"name", b"alice", CONTENT)) is None


def test_a_secret_may_be_of_any_length() -> None:
    names = {Sealer(secret).name("x", b"a") for secret in (b"", b"s", b"s" * 1000)}
    assert len(names) == 3


def test_what_belongs_to_one_tenant_has_one_slot_and_what_is_common_has_another() -> None:
    slots = {SEALER.name(kind, b"%d" % n, whose=b"alice").partition(b"}")[0] for kind in "ab" for n in range(9)}
    assert len(slots) == 1 and PREFIX.partition(b"}")[0] not in slots
    assert SEALER.name("a", b"1").startswith(PREFIX)


def test_tenants_are_spread_over_all_slots_and_only_who_knows_the_secret_knows_which_is_whose() -> None:
    tenants = [random.Random(number).randbytes(16) for number in range(4_000)]
    names = [SEALER.name("a", tenant, whose=tenant) for tenant in tenants]
    counted = [sum(name.startswith(prefix) for name in names) for prefix in PREFIXES]
    assert len(PREFIXES) == SLOTS and min(counted) > 0.5 * len(tenants) / SLOTS
    other = [OTHER.name("a", tenant, whose=tenant) for tenant in tenants]
    same = sum(one.partition(b"}")[0] == two.partition(b"}")[0] for one, two in zip(names, other, strict=True))
    assert same < 3 * len(tenants) / SLOTS


def test_the_slots_are_spread_evenly_over_those_of_a_cluster() -> None:
    slots = sorted(
        crc_hqx(prefix[prefix.index(b"{") + 1 : prefix.index(b"}")], 0) % CLUSTER_SLOTS for prefix in PREFIXES
    )
    share = CLUSTER_SLOTS // SLOTS
    assert [slot // share for slot in slots] == list(range(SLOTS))


def test_the_former_name_of_a_value_is_that_of_what_is_common() -> None:
    assert former_name(SEALER.name("a", b"1", whose=b"alice")) == SEALER.name("a", b"1")
