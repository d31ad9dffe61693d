-- Collects writes, so that a batch makes few calls; removals come first, which even a full server allows.

local gathered = { SREM = {}, ZREM = {}, HDEL = {}, SADD = {}, ZADD = {}, HSET = {} }
local ORDER = { 'SREM', 'ZREM', 'HDEL', 'SADD', 'ZADD', 'HSET' }
local counted = {}
local ran = {} -- by limit key, the change of its running count
local shrunk = {} -- chunks that lost a job

-- The collected arguments of one command and key, to append to.
local function bucket(command, key)
  local list = gathered[command][key]
  if not list then
    list = {}
    gathered[command][key] = list
  end
  return list
end

local function gather(command, key, one, two)
  local list = bucket(command, key)
  list[#list + 1] = one
  if two then
    list[#list + 1] = two
  end
end

-- Jobs per queue: t in all, and the states that no sorted set counts (r running, s, d, c, b).
local function count(kind, queue, by)
  local field = kind .. ':' .. queue
  counted[field] = (counted[field] or 0) + by
end

-- Jobs of a limit key began to run (by > 0) or ended (by < 0).
local function run(limit_key, by)
  ran[limit_key] = (ran[limit_key] or 0) + by
end

local function count_runs()
  local limit_keys, keys, gone, rest = {}, {}, {}, {}
  for limit_key in pairs(ran) do
    limit_keys[#limit_keys + 1], keys[#keys + 1] = limit_key, runs_key(limit_key)
  end
  local before = each_of('MGET', nil, keys)
  for at = 1, #limit_keys do
    local number = (tonumber(before[at]) or 0) + ran[limit_keys[at]]
    if number > 0 then
      rest[#rest + 1], rest[#rest + 2] = keys[at], number
    else
      gone[#gone + 1] = keys[at]
    end
  end
  many('DEL', nil, gone)
  many('MSET', nil, rest)
  ran = {}
end

local function flush()
  for at = 1, #ORDER do
    local command = ORDER[at]
    local keys = gathered[command]
    if next(keys) then
      for key, list in pairs(keys) do
        many(command, key, list)
      end
      gathered[command] = {}
    end
  end
  if next(ran) then
    count_runs()
  end
  for field, by in pairs(counted) do
    if by ~= 0 and raise(P .. 'counts', field, by) <= 0 then
      call('HDEL', P .. 'counts', field)
    end
    counted[field] = nil
  end
  for chunk in pairs(shrunk) do
    if call('EXISTS', P .. 'jobs:' .. chunk) == 0 then
      call('ZREM', P .. 'chunks', chunk)
    end
    shrunk[chunk] = nil
  end
end
