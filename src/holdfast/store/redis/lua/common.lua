-- Functions that scripts share: the hash of a job, the members of its sorted sets, and notifications.

local MANY = 1000 -- arguments of one variadic call; Lua's stack ends at 8000

-- The hash that a job is in, cached: neighbours share it.
local chunk_names = {}
local function chunk_of(seq)
  local number = (tonumber(seq) or 0) / PER_CHUNK -- what is not a number names no job
  number = number - number % 1
  local name = chunk_names[number]
  if not name then
    name = P .. 'jobs:' .. text(number)
    chunk_names[number] = name
  end
  return name
end

-- The number of heartbeats of a holder; 0 where that cannot be decoded.
local function heartbeats_of(holder)
  local heartbeat = tonumber(call('HGET', P .. 'holder:' .. holder, 'heartbeat') or 0)
  return heartbeat and heartbeat >= 0 and heartbeat < 2 ^ 53 and heartbeat - heartbeat % 1 or 0
end

-- A number that sorts as text: its length as a letter, then its digits.
local function sortable(seq)
  return string.char(96 + #seq) .. seq
end

-- The member of a waiting job: in `ready:`, `quarantined:` and `limit_key-deferred:` sorted by priority, then by
-- this text; in `later:` (scheduled) and `retry:` (failed) by the time it is due. It ends with the limit key, so that a
-- claim moves it from one set to another without reading the job.
-- (A time has sixteen digits from 2001 to 2286.)
local function ready_member(run_at, seq, limit_key)
  return (run_at == now and NOW or text(run_at)) .. sortable(seq) .. (limit_key and ':' .. limit_key or '')
end

local function later_member(seq, priority, quarantined, limit_key)
  return sortable(seq) .. ':' .. priority .. (quarantined and ':s' or limit_key and ':' or '') .. (limit_key and ':' .. limit_key or '')
end

-- Call a command for a list: of members of one key, or, where there is none, of keys.
local function call_with(command, key, list, first, last)
  if key then
    return call(command, key, unpack(list, first, last))
  end
  return call(command, unpack(list, first, last))
end

local function many(command, key, list)
  local size = #list
  for first = 1, size, MANY do
    call_with(command, key, list, first, math.min(first + MANY - 1, size))
  end
end

-- The same for a command that answers with one value each.
local function each_of(command, key, list)
  local size = #list
  if size <= MANY then
    return size > 0 and call_with(command, key, list, 1, size) or {}
  end
  local answers = {}
  for first = 1, size, MANY do
    for _, answer in ipairs(call_with(command, key, list, first, math.min(first + MANY - 1, size))) do
      answers[#answers + 1] = answer
    end
  end
  return answers
end

-- Add to one of several lists.
local function add(lists, key, one, two)
  local list = lists[key]
  if not list then
    lists[key] = { one, two }
    return
  end
  local size = #list
  list[size + 1], list[size + 2] = one, two
end

local function write_places(places)
  for key, list in pairs(places) do
    many('ZADD', key, list)
    places[key] = nil
  end
end

-- Fields of jobs by name, from lists of them by the hash that they are in.
local function read_fields(wanted)
  local found = {}
  for key, fields in pairs(wanted) do
    local values = each_of('HMGET', key, fields)
    for at = 1, #fields do
      found[fields[at]] = values[at]
    end
  end
  return found
end

-- Notifications are published last, after all writes. Listeners for the end of any job also subscribe to `job`: without
-- one, a batch of ends needs one call.
local notified, ended = {}, {}

local function publish()
  for topic in pairs(notified) do
    call('SPUBLISH', P .. topic, '')
  end
  if ended[1] and call('SPUBLISH', P .. 'job', '') > 0 then
    for _, id in ipairs(ended) do
      call('SPUBLISH', P .. 'job/' .. id, '')
    end
  end
end
