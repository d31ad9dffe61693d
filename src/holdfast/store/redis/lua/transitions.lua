-- TRANSITIONS: the transitions since a cursor; extends the time for which they are kept. ARGV is TransitionsArguments.
-- Answers with a TransitionsHead, then time and transitions of each entry.

local watch = call('HMGET', P .. 'watch', 'until', 'upto')
local upto = tonumber(watch.upto) or 0
local keep = text(now + tonumber(ARGV[TRANSITIONS.watch]))
local since = tonumber(ARGV[TRANSITIONS.since])
if (tonumber(watch.ends) or 0) <= now then
  upto = text(math.max(now, upto))
  call('DEL', P .. 'transitions')
  call('HSET', P .. 'watch', 'until', keep, 'upto', upto)
  return { since and 1 or 0, upto }
end
call('HSET', P .. 'watch', 'until', keep)
if not since then
  return { 0, text(upto) }
end
local entry = call('XRANGE', P .. 'transitions', '-', '+', 'COUNT', 1)[1]
local from = entry and tonumber(string.match(entry.id, '^%d+')) - tonumber(entry.fields[TRANSITION.number]) or upto
if since < from or since > upto then
  return { 1, text(upto) }
end
local answer, found, limit = { 0, text(since) }, 0, tonumber(ARGV[TRANSITIONS.limit])
while found < limit do
  entry = call('XRANGE', P .. 'transitions', '(' .. answer[TRANSITIONS_HEAD.cursor] .. '-0', '+', 'COUNT', 1)[1]
  if not entry then
    break
  end
  local size = #answer
  answer[TRANSITIONS_HEAD.cursor] = string.match(entry.id, '^%d+')
  answer[size + 1], answer[size + 2] = entry.fields[TRANSITION.at], entry.fields[TRANSITION.moved]
  found = found + tonumber(entry.fields[TRANSITION.number])
end
return answer
