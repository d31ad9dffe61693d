-- FENCES: which fences this server may give. A server that lost the last writes of another one (a promoted replica, a
-- restarted server) does not know which fences were given there: its own begin above all of them.
-- ARGV[1] names the server by run id and replication id; empty if they are unknown. Stores and answers the text that
-- claims must present: "<fences begin above this>:<time of the first server, in microseconds>:<name of the server>".

local ROOM = 1048576 -- fences per job that are reserved for one server

local kept = call('GET', P .. 'server')
local above, since, name = string.match(kept or '', '^(%d+):(%d+):(.*)$')
if name and (name == ARGV[1] or ARGV[1] == '') then
  return kept
end
if above then
  -- Also by the time: the record of the last server may be lost too.
  above = math.max(tonumber(above) + ROOM, math.floor((now - tonumber(since)) / MICROS) * ROOM)
end
local value = text(above or 0) .. ':' .. (since or NOW) .. ':' .. ARGV[1]
call('DEL', P .. 'server') -- a script that begins by removing something may write where memory is full
call('SET', P .. 'server', value)
return value
