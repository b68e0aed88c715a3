"""The script that keeps an account of a budget in Redis: one hash, whose fields one atomic command reads and writes.

Theory of operation
-------------------

Each worker has fields of its own: what it spent in the period, what it holds for requests under way, and until when
that is believed. It always writes the whole of it, never a difference: a command that is repeated, since nobody knows
whether it arrived, so counts nothing twice. The script adds the difference to the sums, and decides on what the worker
asks for.

* The clock is that of Redis: replicas whose clocks differ are in the same period, and none goes back to an earlier one.
  When another period begins, what was spent is forgotten, and the stage; what is held stays. A worker whose own figures
  began anew has a new field for them: none sinks in a period.
* A worker that has died holds what it held until its lease ends.
* Something else under the name, or in a field, or a period that is yet to come, counts as an account that is lost.
* A Redis that has lost its data is told by each worker what was known before. What the sum lacks then is kept in
  `base`, and given back as soon as another worker writes its own part of it again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEASE_MS = 60_000
KEEP_MS = 86_400_000  # a session after its last request
GRANTED, HELD, USED_UP = 1, 2, 0  # there is room; there will be once requests under way end; there is not

SCRIPT = """
local k, w = KEYS[1], ARGV[1]
local period, mine, spent, held = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local confirmed, known, known_stage = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local limit, lease, keep = tonumber(ARGV[9]), tonumber(ARGV[13]), tonumber(ARGV[14])
local own = 's:' .. w .. ':' .. ARGV[15]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local f = redis.pcall('HMGET', k, 'index', 'spent', 'held', 'base', 'stage', 'sweep', own, 'h:' .. w)
local n, sound, index = {}, not f.err, 0
for i = 1, 8 do
  n[i] = tonumber(f[i] or 0)
  sound = sound and n[i] and n[i] >= 0 and n[i] <= 9007199254740992
end
if period > 0 then index = math.floor(now / period) end
if not sound or n[1] > index + 1 then
  redis.call('DEL', k)
  f, n = {}, {0, 0, 0, 0, 0, 0, 0, 0}
end
if n[1] > index then index = n[1] end
if f[1] and n[1] ~= index then
  local all = redis.call('HGETALL', k)
  redis.call('DEL', k)
  for i = 1, #all, 2 do
    local kind = string.sub(all[i], 1, 2)
    if kind == 'h:' or kind == 'e:' then redis.call('HSET', k, all[i], all[i + 1]) end
  end
  f[7], n = nil, {index, 0, 0, 0, 0, 0, 0, n[8]}
end
local total, others, base, stage, sweep = n[2], n[3], n[4], n[5], n[6]
if mine == index then
  if not f[7] and confirmed > 0 then
    local back = math.min(base, confirmed)
    base = base - back
    total = total - back
  end
  total = math.max(0, total + spent - n[7])
  local lost = known + spent - confirmed - total
  if lost > 0 then
    base = base + lost
    total = total + lost
  end
  if known_stage > stage then stage = known_stage end
  redis.call('HSET', k, own, spent)
end
others = math.max(0, others - n[8])
if now >= sweep then
  others = 0
  local all = redis.call('HGETALL', k)
  local fields = {}
  for i = 1, #all, 2 do fields[all[i]] = all[i + 1] end
  for name, value in pairs(fields) do
    if string.sub(name, 1, 2) == 'h:' and name ~= 'h:' .. w then
      local ends = tonumber(fields['e:' .. string.sub(name, 3)] or 0)
      if ends > now then others = others + math.max(0, tonumber(value) or 0)
      else redis.call('HDEL', k, name, 'e:' .. string.sub(name, 3)) end
    end
  end
  sweep = now + math.floor(lease / 2)
end
local answer = {index, 0, 0, 0, 0}
for i = 16, #ARGV do
  local ask = tonumber(ARGV[i])
  if total + others + held + ask <= limit then
    held = held + ask
    answer[#answer + 1] = 1
  elseif total + ask <= limit and others + held > 0 then answer[#answer + 1] = 2
  else answer[#answer + 1] = 0 end
end
for i = 1, 3 do
  if total >= tonumber(ARGV[9 + i]) and stage < i then stage = i end
end
redis.call('HSET', k, 'index', index, 'spent', total, 'held', others + held, 'base', base, 'stage', stage,
  'sweep', sweep)
if held > 0 then redis.call('HSET', k, 'h:' .. w, held, 'e:' .. w, now + lease)
else redis.call('HDEL', k, 'h:' .. w, 'e:' .. w) end
local left = -1
if period > 0 then left = (index + 1) * period - now end
redis.call('PEXPIRE', k, period > 0 and math.max(left, 0) + lease or keep)
answer[2], answer[3], answer[4], answer[5] = total, others + held, stage, left
return answer
"""


class Write(msgspec.Struct, frozen=True):
    """What a worker tells of an account, and asks for.

    `period`: in seconds, 0 if it is not renewed; `index`: the number of the one that all figures belong to. `spent`,
    `held`: all of this worker's own. `confirmed`: what of `spent` the script has confirmed; `known`, `stage`: the sum
    and the stage that it answered last. `limit`: over which nothing is granted. `marks`: where the stages begin.
    `number`: of these figures of the worker, which has new ones whenever they begin anew. `asks`: amounts to hold.
    """

    worker: str
    period: int
    index: int
    spent: int
    held: int
    confirmed: int
    known: int
    stage: int
    limit: int
    marks: Sequence[int]
    number: int = 0
    asks: Sequence[int] = ()

    @property
    def arguments(self) -> list[str | int]:
        """The arguments of the script."""
        own = (
            self.worker,
            self.period * 1000,
            self.index,
            self.spent,
            self.held,
            self.confirmed,
            self.known,
            self.stage,
        )
        return [*own, self.limit, *self.marks, LEASE_MS, KEEP_MS, self.number, *self.asks]


class Found(msgspec.Struct, frozen=True):
    """What the script answers: the period, what all spent in it, what all hold, the stage, how many seconds are left of
    the period (less than 0: it does not end), and what became of each amount that was asked for."""

    index: int
    spent: int
    held: int
    stage: int
    left: float
    asked: Sequence[int] = ()


def found(answer: object, asks: int) -> Found | None:
    """The answer of the script to so many asks; None if it is none."""
    if not isinstance(answer, list) or len(answer) != 5 + asks or not all(isinstance(one, int) for one in answer):
        return None
    index, spent, held, stage, left = answer[:5]
    return Found(index, max(0, spent), max(0, held), stage, left / 1000, answer[5:])
