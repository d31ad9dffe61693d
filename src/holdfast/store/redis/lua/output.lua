-- OUTPUT: the output or the stream of a job. ARGV is OutputArguments. Answers with pieces, each with position, fence and at in
-- front of its data.

local seq = call('HGET', P .. 'ids', ARGV[PRINTED.id])
if not seq then
  return {}
end
local key = P .. ARGV[PRINTED.kind] .. ':' .. string.match(seq, '^%d+')
local position, limit = tonumber(ARGV[PRINTED.position]), tonumber(ARGV[PRINTED.limit])
local answer, size = {}, 0
local from = '-inf'
local earlier = call('ZREVRANGEBYSCORE', key, ARGV[PRINTED.position], '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
if earlier.member then
  from = '(' .. earlier.score
  if tonumber(earlier.score) + #earlier.member - PIECE_HEAD > position then
    answer[1], size = earlier.member, #earlier.member - PIECE_HEAD
  end
end
while size < limit or #answer == 0 do
  local piece = call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not piece.member then
    break
  end
  answer[#answer + 1] = piece.member
  size, from = size + #piece.member - PIECE_HEAD, '(' .. piece.score
end
return answer
