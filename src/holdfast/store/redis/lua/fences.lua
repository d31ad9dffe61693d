-- FENCES: which fences this server may give. A server that lost the end of what another one wrote (a replica that was
-- promoted, one that was restarted) does not know which fences were given there: its own begin above all of them.
-- ARGV[1] names the server by its run and its history; it is empty where that is not known. Answers with the text that claims have to bring, and that is
-- kept: "<fences begin above this>:<when the first server came, in microseconds>:<name of the server>".

local ROOM = 1048576 -- fences that one server has for a job before they reach those of the next

local kept = call('GET', P .. 'server')
local above, since, name = string.match(kept or '', '^(%d+):(%d+):(.*)$')
if name and (name == ARGV[1] or ARGV[1] == '') then
  return kept
end
if above then
  -- By the time as well: that the last server came may be part of what was lost.
  above = math.max(tonumber(above) + ROOM, math.floor((now - tonumber(since)) / MICROS) * ROOM)
end
local said = text(above or 0) .. ':' .. (since or NOW) .. ':' .. ARGV[1]
call('DEL', P .. 'server') -- a script that begins by removing something may write where memory is full
call('SET', P .. 'server', said)
return said
