-- What every step shares: names of keys, the server's time, writes that gather, and how a job is read.
--
-- KEYS[1] is "{prefix}:seq"; all keys of a store have the same hash tag, so one store is one slot of a cluster.
-- Arrays that come from the client are MessagePack (ARGV[1]); bytes come beside them, as ARGV[index].
--
-- A job is up to three fields of one hash, {prefix}:jobs:<seq / 256>:
--   <seq>    what never changes: a MessagePack array whose first 22 bytes have fixed places
--            (created_at, run_at, priority), then id, queue, task, tags, key, codec, max_attempts, timeout, retry,
--            meta, payload
--   <seq>~   its life so far, a MessagePack map; missing until the first claim or change
--   <seq>^   its last checkpoint

local call = redis.call
local P = string.sub(KEYS[1], 1, -4)
local PER_CHUNK = 256
local HISTORY_LIMIT = 50
local MANY = 1000 -- arguments of one variadic call; Lua's stack ends at 8000

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function text(number)
  return string.format('%.0f', number)
end

local NOW = text(now)

local TERMINAL = { s = true, d = true, c = true }

local function chunk_of(seq)
  return P .. 'jobs:' .. text(math.floor(seq / PER_CHUNK))
end

-- Writes gather, so that a batch makes few calls; what takes away goes first, which a full server allows.

local gathered = { SREM = {}, ZREM = {}, HDEL = {}, SADD = {}, ZADD = {}, HSET = {} }
local ORDER = { 'SREM', 'ZREM', 'HDEL', 'SADD', 'ZADD', 'HSET' }
local dirty = false
local counted, rung = {}, {}
local shrunk = {} -- chunks that lost a job

local function gather(command, key, one, two)
  local list = gathered[command][key]
  if not list then
    list = {}
    gathered[command][key] = list
    dirty = true
  end
  list[#list + 1] = one
  if two then
    list[#list + 1] = two
  end
end

local function many(command, key, list)
  for first = 1, #list, MANY do
    call(command, key, unpack(list, first, math.min(first + MANY - 1, #list)))
  end
end

-- Jobs per queue: t in all, and the states that no sorted set counts (r running, s, d, c, b).
local function count(kind, queue, by)
  local field = kind .. ':' .. queue
  counted[field] = (counted[field] or 0) + by
end

local function ring(topic)
  rung[topic] = true
end

local function flush()
  if dirty then
    for _, command in ipairs(ORDER) do
      for key, list in pairs(gathered[command]) do
        many(command, key, list)
      end
      gathered[command] = {}
    end
    dirty = false
  end
  for field, by in pairs(counted) do
    if by ~= 0 and call('HINCRBY', P .. 'counts', field, by) <= 0 then
      call('HDEL', P .. 'counts', field)
    end
  end
  counted = {}
  for chunk in pairs(shrunk) do
    if call('EXISTS', P .. 'jobs:' .. chunk) == 0 then
      call('ZREM', P .. 'chunks', chunk)
    end
  end
  shrunk = {}
end

-- Hints go out last, when everything is in its place.
local function publish()
  for topic in pairs(rung) do
    call('SPUBLISH', P .. topic, '')
  end
end

-- The unchanging part: its numbers have fixed places, its first words are read one after another.

local function created_at(body)
  return (struct.unpack('>I8', body, 3))
end

local function first_run_at(body)
  return (struct.unpack('>I8', body, 12))
end

local function priority_of(body)
  return (struct.unpack('>i2', body, 21))
end

local function word_at(body, at)
  local head = string.byte(body, at)
  if head == 0xc0 then
    return nil, at + 1
  end
  local size, from
  if head < 0xc0 then
    size, from = head - 0xa0, at + 1
  elseif head == 0xd9 then
    size, from = string.byte(body, at + 1), at + 2
  elseif head == 0xda then
    size, from = struct.unpack('>I2', body, at + 1), at + 3
  else
    size, from = struct.unpack('>I4', body, at + 1), at + 5
  end
  return string.sub(body, from, from + size - 1), from + size
end

-- id, queue, task, tags (JSON or nil), key (or nil)
local function words(body)
  local id, queue, task, tags, key, at
  id, at = word_at(body, 23)
  queue, at = word_at(body, at)
  task, at = word_at(body, at)
  tags, at = word_at(body, at)
  key = word_at(body, at)
  return id, queue, task, tags, key
end

-- The changing part. Its letters: s state, u run_at, a attempt, l life, f fence, t token, h holder, i pid, p suspect,
-- d deaths, c cancel, g started_at, z finished_at, x expires_at, n nonce of the last settlement, r result,
-- o progress, k has a checkpoint, e error, b traceback, m meta (JSON by name), y history (JSON lines), q queue

local function run_at_of(body, life)
  return life and life.u or first_run_at(body)
end

-- A key knows the id and the fingerprint that it stands for.

local function pack_key(id, fingerprint)
  return #fingerprint .. ':' .. fingerprint .. id
end

local function unpack_key(known)
  local colon = string.find(known, ':', 1, true)
  local size = tonumber(string.sub(known, 1, colon - 1))
  return string.sub(known, colon + 1 + size), string.sub(known, colon + 1, colon + size)
end

-- Where a waiting job stands: in `ready:` by (priority, then this text), in `later:` and `retry:` by time due.

local function ready_member(run_at, seq)
  return string.format('%016.0f', run_at) .. string.char(96 + #seq) .. seq
end

local function seq_of_ready(member)
  return string.sub(member, 18)
end

local function later_member(seq, priority, suspect)
  return seq .. ':' .. priority .. (suspect and ':s' or '')
end

-- The state as it is kept: a job that a claim made queued has only changed its sorted set.
local function state_of(seq, body, life)
  local state = life and life.s
  if not state then
    if first_run_at(body) == created_at(body) then
      return 'q'
    end
    state = 'w'
  end
  if state == 'w' or state == 'f' then
    local _, queue = words(body)
    local set = state == 'w' and 'later:' or 'retry:'
    local member = later_member(seq, priority_of(body), life and life.p)
    if not call('ZSCORE', P .. set .. queue, member) then
      return 'q'
    end
  end
  return state
end
