-- RECORD: set a small shared record, only if its version is as expected.
-- ARGV is RecordArguments. Answers 1 or 0.

local kind, name, expected = ARGV[RECORD.kind], ARGV[RECORD.name], ARGV[RECORD.expected]
local key = P .. 'records:' .. kind
local kept = call('HGET', key, name)
local version = kept and tonumber(string.match(kept, '^%d+')) or 0
if expected ~= '' and tonumber(expected) ~= version then
  return 0
end
if ARGV[RECORD.put] == '1' then
  call('HSET', key, name, text(call('INCR', P .. 'record-version')) .. ':' .. ARGV[RECORD.value])
elseif kept then
  call('HDEL', key, name)
end
if ARGV[RECORD.topic] ~= '' then
  call('SPUBLISH', P .. ARGV[RECORD.topic], '')
end
return 1
