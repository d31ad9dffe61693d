-- The indexes of a job: every change of state removes it from one and adds it to another.

-- A job that ended unsuccessfully is in the set of all of them and in that of its queue, so that a page of either
-- reads no other job. Few jobs end so.
local function exit_unsuccessful(seq, queue)
  gather('ZREM', P .. UNSUCCESSFUL, seq)
  gather('ZREM', P .. UNSUCCESSFUL .. ':' .. queue, seq)
end

local function exit(seq, body, mutable, state, queue)
  if state == STATE.unreadable then -- its index is unknown: a member that still points at it is ignored
    gather('ZREM', P .. 'ended', seq)
    exit_unsuccessful(seq, queue)
    return
  end
  local priority, limit_key = priority_of(body), limit_key_of(body)
  local quarantined = mutable and mutable.quarantined
  if state == STATE.queued then
    gather('ZREM', P .. (quarantined and 'quarantined:' or 'ready:') .. queue, ready_member(run_at_of(body, mutable), seq, limit_key))
  elseif state == STATE.scheduled or state == STATE.failed then
    local set = state == STATE.scheduled and 'later:' or 'retry:'
    gather('ZREM', P .. set .. queue, later_member(seq, priority, quarantined, limit_key))
  elseif state == STATE.deferred then
    count(STATE.blocked, queue, -1)
    gather('ZREM', deferred_key(name_of(limit_key)), ready_member(run_at_of(body, mutable), seq, limit_key))
  else
    count(state, queue, -1)
    if state == STATE.running then
      gather('SREM', P .. 'held:' .. mutable.holder, seq)
      if limit_key then
        run(name_of(limit_key), -1)
      end
    elseif TERMINAL[state] then
      gather('ZREM', P .. 'ended', seq)
      if state ~= STATE.succeeded then
        exit_unsuccessful(seq, queue)
      end
    end
  end
end

local function enter_waiting(seq, body, mutable, state, queue)
  local priority, run_at, limit_key = priority_of(body), run_at_of(body, mutable), limit_key_of(body)
  if state == STATE.queued then
    gather('ZADD', P .. (mutable.quarantined and 'quarantined:' or 'ready:') .. queue, priority, ready_member(run_at, seq, limit_key))
  elseif UNTIMED[state] then
    count(state, queue, 1)
  elseif state == STATE.deferred then
    count(STATE.blocked, queue, 1)
    gather('ZADD', deferred_key(name_of(limit_key)), priority, ready_member(run_at, seq, limit_key))
  else
    local set = state == STATE.scheduled and 'later:' or 'retry:'
    gather('ZADD', P .. set .. queue, text(run_at), later_member(seq, priority, mutable.quarantined, limit_key))
  end
  notified['queue/' .. queue] = true
end

local function enter_ended(seq, mutable, queue, id)
  count(mutable.state, queue, 1)
  if mutable.expires_at then
    gather('ZADD', P .. 'ended', text(mutable.expires_at), seq)
  end
  if mutable.state ~= STATE.succeeded then
    gather('ZADD', P .. UNSUCCESSFUL, seq, seq)
    gather('ZADD', P .. UNSUCCESSFUL .. ':' .. queue, seq, seq)
  end
  ended[#ended + 1] = id
end

-- Delete a job that is in no index any more.
local function forget(seq, id, queue, mutable)
  local chunk = text(math.floor(seq / PER_CHUNK))
  local key = P .. 'jobs:' .. chunk
  gather('HDEL', key, seq, seq .. '~')
  gather('HDEL', key, seq .. '^')
  gather('HDEL', P .. 'ids', id)
  if mutable and mutable.printed then
    call('DEL', P .. 'output:' .. seq, P .. 'stream:' .. seq)
  end
  if mutable and mutable.waiting_for then
    wait_for(mutable, seq, nil)
  end
  count(TOTAL, queue, -1)
  shrunk[chunk] = true
end

-- Jobs of a queue left the ready or running ones: deferred jobs of their limit keys (by name) may start now.
local function free_capacity(limit_keys, queue)
  for first = 1, #limit_keys, MANY do
    local keys, opens = {}, {}
    for at = first, math.min(first + MANY - 1, #limit_keys) do
      keys[#keys + 1] = deferred_key(limit_keys[at])
    end
    -- Usually none of them has deferred jobs, or all of them do.
    local holding = call('EXISTS', unpack(keys))
    for at = 1, holding > 0 and #keys or 0 do
      if holding == #keys or call('EXISTS', keys[at]) == 1 then
        opens[#opens + 1], opens[#opens + 2] = NOW, limit_keys[first + at - 1]
      end
    end
    if opens[1] then
      many('ZADD', P .. 'limit_key-opens', opens)
      notified['queue/' .. queue] = true
    end
  end
end

-- Record the end of a job.
local function put_ended(id)
  call('HSET', P .. 'records:ended', id, text(call('INCR', P .. 'record-version')) .. ':{}')
end

-- The end was handled: remove its record, unless something was added to it.
local function remove_ended(id)
  local kept = call('HGET', P .. 'records:ended', id)
  if kept and string.find(kept, '^%d+:{}$') then
    call('HDEL', P .. 'records:ended', id)
  end
end

-- Keep the unique key of an ended job until `ends`, or without a limit where the job has not ended.
local function set_key_expiry(key, id, ends)
  local known = call('HGET', P .. 'keys', key)
  if not known or unpack_key(known) ~= id then
    return
  end
  if ends then
    gather('ZADD', P .. 'key-ends', text(ends), key)
  else
    gather('ZREM', P .. 'key-ends', key)
  end
end

-- Merge meta by name; the values are JSON and are not decoded.
local function merge_meta(mutable, words)
  local meta = mutable.meta or {}
  for name, value in pairs(words) do
    meta[name] = value
  end
  mutable.meta = next(meta) and meta or nil
end
