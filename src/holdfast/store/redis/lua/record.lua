-- RECORD: set a small shared record, only if its version is still the one that was seen.
-- ARGV is kind, name, expected version ('' for any), '1' to set or '0' to remove, value. Answers 1 or 0.

local key, name, expected = P .. 'records:' .. ARGV[1], ARGV[2], ARGV[3]
local kept = call('HGET', key, name)
local version = kept and tonumber(string.match(kept, '^%d+')) or 0
if expected ~= '' and tonumber(expected) ~= version then
  return 0
end
if ARGV[4] == '1' then
  call('HSET', key, name, text(call('INCR', P .. 'record-version')) .. ':' .. ARGV[5])
elseif kept then
  call('HDEL', key, name)
end
if ARGV[1] == 'pause' then
  call('SPUBLISH', P .. 'queue/' .. name, '')
end
return 1
