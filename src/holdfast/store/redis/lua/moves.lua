-- MOVES: what moved since a cursor, and that moves are kept for a while from now. ARGV is MovesArguments.
-- Answers {missed, cursor, then at and moved of each step}.

local watch = call('HMGET', P .. 'watch', 'until', 'upto')
local upto = tonumber(watch[2]) or 0
local keep = text(now + tonumber(ARGV[MOVES.watch]))
local since = tonumber(ARGV[MOVES.since])
if (tonumber(watch[1]) or 0) <= now then
  upto = text(math.max(now, upto))
  call('DEL', P .. 'moves')
  call('HSET', P .. 'watch', 'until', keep, 'upto', upto)
  return { since and 1 or 0, upto }
end
call('HSET', P .. 'watch', 'until', keep)
if not since then
  return { 0, text(upto) }
end
local first = call('XRANGE', P .. 'moves', '-', '+', 'COUNT', 1)[1]
local from = first and tonumber(string.match(first[1], '^%d+')) - tonumber(first[2][2]) or upto
if since < from or since > upto then
  return { 1, text(upto) }
end
local answer, told, limit = { 0, text(since) }, 0, tonumber(ARGV[MOVES.limit])
while told < limit do
  local step = call('XRANGE', P .. 'moves', '(' .. answer[2] .. '-0', '+', 'COUNT', 1)[1]
  if not step then
    break
  end
  local size = #answer
  answer[2] = string.match(step[1], '^%d+')
  answer[size + 1], answer[size + 2] = step[2][4], step[2][6]
  told = told + tonumber(step[2][2])
end
return answer
