-- Writes gather, so that a batch makes few calls; what takes away goes first, which even a full server allows.

local gathered = { SREM = {}, ZREM = {}, HDEL = {}, SADD = {}, ZADD = {}, HSET = {} }
local ORDER = { 'SREM', 'ZREM', 'HDEL', 'SADD', 'ZADD', 'HSET' }
local counted = {}
local shrunk = {} -- chunks that lost a job

-- What is gathered for one command and key, to be added to.
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
  for field, by in pairs(counted) do
    if by ~= 0 and call('HINCRBY', P .. 'counts', field, by) <= 0 then
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
