-- OUTPUT: what a job has printed. ARGV is OutputArguments. Answers with pieces, each with position, fence and at in
-- front of its data.

local seq = call('HGET', P .. 'ids', ARGV[PRINTED.id])
if not seq then
  return {}
end
local key = P .. 'output:' .. string.match(seq, '^%d+')
local position, limit = tonumber(ARGV[PRINTED.position]), tonumber(ARGV[PRINTED.limit])
local answer, size = {}, 0
local from = '-inf'
local before = call('ZREVRANGEBYSCORE', key, ARGV[PRINTED.position], '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
if before[1] then
  from = '(' .. before[2]
  if tonumber(before[2]) + #before[1] - PIECE_HEAD > position then
    answer[1], size = before[1], #before[1] - PIECE_HEAD
  end
end
while size < limit or #answer == 0 do
  local piece = call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not piece[1] then
    break
  end
  answer[#answer + 1] = piece[1]
  size, from = size + #piece[1] - PIECE_HEAD, '(' .. piece[2]
end
return answer
