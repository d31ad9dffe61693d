-- EXPIRED: claims whose holder's lease has ended, or all claims of one holder. ARGV is limit, and the holder if one is
-- meant. Answers {beat, then the five values} for each job.

local limit, answer = tonumber(ARGV[1]), {}
local holders = ARGV[2] and { ARGV[2] } or call('ZRANGEBYSCORE', P .. 'holders', '-inf', NOW)
for _, id in ipairs(holders) do
  local beat = call('HGET', P .. 'holder:' .. id, 'beat') or '0'
  for _, seq in ipairs(call('SMEMBERS', P .. 'held:' .. id)) do
    if #answer >= 6 * limit then
      return answer
    end
    answer[#answer + 1] = beat
    if not add_job(answer, seq) then
      answer[#answer] = nil
    end
  end
end
return answer
