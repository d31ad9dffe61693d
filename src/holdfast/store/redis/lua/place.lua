-- Where a job stands: every change of state leaves one index and enters another.

local function exit(seq, body, life, state, queue)
  local priority = priority_of(body)
  local suspect = life and life.p
  if state == 'q' then
    gather('ZREM', P .. (suspect and 'suspect:' or 'ready:') .. queue, ready_member(run_at_of(body, life), seq))
  elseif state == 'w' or state == 'f' then
    gather('ZREM', P .. (state == 'w' and 'later:' or 'retry:') .. queue, later_member(seq, priority, suspect))
  else
    count(state, queue, -1)
    if state == 'r' then
      gather('SREM', P .. 'held:' .. life.h, seq)
    elseif TERMINAL[state] then
      gather('ZREM', P .. 'ended', seq)
      if state ~= 's' then
        gather('ZREM', P .. 'parked', seq)
      end
    end
  end
end

local function enter_waiting(seq, body, life, queue)
  local priority, run_at = priority_of(body), run_at_of(body, life)
  if life.s == 'q' then
    gather('ZADD', P .. (life.p and 'suspect:' or 'ready:') .. queue, priority, ready_member(run_at, seq))
  else
    local set = life.s == 'w' and 'later:' or 'retry:'
    gather('ZADD', P .. set .. queue, text(run_at), later_member(seq, priority, life.p))
  end
  rung['queue/' .. queue] = true
end

local function enter_ended(seq, life, queue, id)
  count(life.s, queue, 1)
  if life.x then
    gather('ZADD', P .. 'ended', text(life.x), seq)
  end
  if life.s ~= 's' then
    gather('ZADD', P .. 'parked', seq, seq)
  end
  ended[#ended + 1] = id
end

-- Take a job away that stands in no index any more.
local function forget(seq, id, queue, life)
  local chunk = text(math.floor(seq / PER_CHUNK))
  local key = P .. 'jobs:' .. chunk
  gather('HDEL', key, seq, seq .. '~')
  gather('HDEL', key, seq .. '^')
  gather('HDEL', P .. 'ids', id)
  if life and life.w then
    call('DEL', P .. 'output:' .. seq)
  end
  count('t', queue, -1)
  shrunk[chunk] = true
end

-- The key of a job that ended (or lives again) is remembered until then (or for as long as it lives).
local function mind_key(key, id, ends)
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

-- Meta is merged name by name; its values are JSON and never looked into.
local function merge_meta(life, words)
  local meta = life.m or {}
  for name, value in pairs(words) do
    meta[name] = value
  end
  life.m = next(meta) and meta or nil
end
