-- How a job is read. It is stored in up to three fields of one hash, {prefix}:jobs:<seq / PER_CHUNK>:
--   <seq>    its body, which does not change: a MessagePack array (Body in messages.py)
--   <seq>~   its mutable, the part that changes: a MessagePack map (WholeMutable in messages.py); absent until a change
--   <seq>^   its last checkpoint

local TERMINAL, UNTIMED = TERMINAL_STATES, UNTIMED_STATES

-- Stored bytes can be damaged, which must affect this job only: unreadable values of a body are 0 or ''. An unreadable
-- mutable gets the state `unreadable` and its bytes as damage: the job is shown as blocked, and its bytes are kept until
-- it is deleted.
local KINDS, STATES = MUTABLE_KINDS, KNOWN_STATES

local function mutable_of(kept)
  local ok, mutable = pcall(cmsgpack.unpack, kept)
  local sound = ok and type(mutable) == 'table' and (mutable.state == nil or STATES[mutable.state])
  if sound then
    for letter, value in pairs(mutable) do
      sound = sound and (not KINDS[letter] or type(value) == KINDS[letter])
    end
    if mutable.state == STATE.running then
      sound = sound and mutable.attempt and mutable.fence and mutable.token and mutable.holder and mutable.started_at and mutable.queue
    end
  end
  return sound and mutable or { [MUTABLE.state] = STATE.unreadable, [MUTABLE.damage] = kept }
end

-- The number (seq) of a job by its id; a job with an unreadable id is found by its number.
local function seq_of(id)
  local kept = call('HGET', P .. 'ids', id)
  return kept and string.match(kept, '^%d+') or string.match(id, DAMAGED_ID)
end

local function created_at(body)
  return #body >= BODY.head and struct.unpack('>I8', body, BODY.created_at) or 0
end

local function first_run_at(body)
  return #body >= BODY.head and struct.unpack('>I8', body, BODY.run_at) or 0
end

-- The same, still encoded as MessagePack.
local function packed_run_at(body)
  if string.byte(body, BODY.run_at - 1) == MP.uint64 and #body >= BODY.head then
    return string.sub(body, BODY.run_at - 1, BODY.run_at + 7)
  end
  return MP_CHAR.uint64 .. string.rep('\0', 8)
end

local function priority_of(body)
  return #body >= BODY.head and struct.unpack('>i2', body, BODY.priority) or 0
end

-- The text or bytes (or nil) at an offset of a MessagePack array, and the offset behind it.
local function word_at(body, at)
  local head = string.byte(body, at)
  if head == MP.nothing or not head or head < MP.fixstr then
    return nil, at + 1
  end
  local size, from
  if head < MP.nothing then
    size, from = head - MP.fixstr, at + 1
  elseif head == MP.str8 or head == MP.bin8 then
    size, from = string.byte(body, at + 1) or 0, at + 2
  elseif head == MP.str16 or head == MP.bin16 then
    size, from = #body > at + 1 and struct.unpack('>I2', body, at + 1) or 0, at + 3
  else
    size, from = #body > at + 3 and struct.unpack('>I4', body, at + 1) or 0, at + 5
  end
  return string.sub(body, from, from + size - 1), from + size
end

-- Encode a text as MessagePack.
local function word(value)
  local size = #value
  if size < 32 then
    return string.char(MP.fixstr + size) .. value
  elseif size < 256 then
    return MP_CHAR.str8 .. string.char(size) .. value
  elseif size < 65536 then
    return MP_CHAR.str16 .. struct.pack('>I2', size) .. value
  end
  return MP_CHAR.str32 .. struct.pack('>I4', size) .. value
end

-- id, queue, task, tags (JSON or nil), key (or nil)
local function words(body)
  local id, queue, task, tags, key, at
  id, at = word_at(body, BODY.words)
  queue, at = word_at(body, at)
  task, at = word_at(body, at)
  tags, at = word_at(body, at)
  key = word_at(body, at)
  return id or '', queue or '', task or '', tags, key
end

-- The offsets where the payload begins and ends.
local function payload_of(body)
  local ok, last = pcall(cmsgpack.unpack_limit, body, BODY.before_payload, 1)
  local from = (ok and type(last) == 'number' and last >= 0 and last or #body) + 1
  local _, to = word_at(body, from)
  return from, to
end

-- The body with another task, which is given as MessagePack.
local function with_task(body, task)
  local _, queue = word_at(body, BODY.words)
  local _, from = word_at(body, queue)
  local _, to = word_at(body, from)
  return string.sub(body, 1, from - 1) .. task .. string.sub(body, to)
end

-- The body with another queue or priority; nil: the same.
local function with_place(body, queue, priority)
  if priority then
    body = string.sub(body, 1, BODY.priority - 1) .. struct.pack('>i2', priority) .. string.sub(body, BODY.priority + 2)
  end
  if queue then
    local _, from = word_at(body, BODY.words)
    local _, to = word_at(body, from)
    body = string.sub(body, 1, from - 1) .. word(queue) .. string.sub(body, to)
  end
  return body
end

-- The limit key as a text, "running,interval,burst,weight,name"; nil where there is none.
local function limit_key_of(body)
  if string.byte(body) == BODY.limited then
    local _, at = payload_of(body)
    local limit_key = word_at(body, at)
    return limit_key and name_of(limit_key) and limit_key or nil
  end
end

local function run_at_of(body, mutable)
  return mutable and mutable.run_at or first_run_at(body)
end

-- The number of a job from its member of a sorted set, and its limit key, if it has one.
local function seq_of_ready(member)
  local colon = string.find(member, ':', 18, true)
  if colon then
    return string.sub(member, 18, colon - 1), string.sub(member, colon + 1)
  end
  return string.sub(member, 18)
end

-- The stored state. A job that a claim made ready or deferred has only changed its sorted set: one that its limit key
-- defers is STATE.deferred here, and shown as blocked.
local function state_of(seq, body, mutable)
  local state, limit_key = mutable and mutable.state, limit_key_of(body)
  if state == STATE.unreadable then
    return state
  end
  if not state then
    state = first_run_at(body) == created_at(body) and STATE.queued or STATE.scheduled
  end
  if state == STATE.scheduled or state == STATE.failed then
    local _, queue = words(body)
    local set = state == STATE.scheduled and 'later:' or 'retry:'
    if not call('ZSCORE', P .. set .. queue, later_member(seq, priority_of(body), mutable and mutable.quarantined, limit_key)) then
      state = STATE.queued
    end
  end
  if limit_key and state == STATE.queued then
    local member = ready_member(run_at_of(body, mutable), seq, limit_key)
    return call('ZSCORE', deferred_key(name_of(limit_key)), member) and STATE.deferred or STATE.queued
  end
  return state
end
