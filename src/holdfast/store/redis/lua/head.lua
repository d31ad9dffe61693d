-- The beginning of every script: the prefix of all keys, and the server's time.
--
-- KEYS[1] is "{prefix}:seq"; all keys of a store have the same hash tag, so one store is one slot of a cluster.
-- KEYS[2] never exists: a node whose slot is being migrated runs no script that declares it (link.py).
-- Arrays of the client are MessagePack (ARGV[1]); bytes are separate arguments, ARGV[index].

local call = redis.call
local P = string.sub(KEYS[1], 1, -4)
local clock = call('TIME')
local now = clock.seconds * MICROS + clock.micros

-- Add to a number in a hash. What is not a number restarts at 0: an error here would leave the script half done.
local function raise(key, field, by)
  local sum = redis.pcall('HINCRBY', key, field, by)
  if type(sum) == 'table' then
    if string.find(sum.err, 'integer') or string.find(sum.err, 'overflow') then
      call('HDEL', key, field)
    end
    sum = call('HINCRBY', key, field, by)
  end
  return sum
end

-- A whole number as a text. `%d` is several times faster, but knows no more than 64 bits.
local function text(number)
  return string.format(number < 9007199254740992 and '%d' or '%.0f', number)
end

local NOW = text(now)
