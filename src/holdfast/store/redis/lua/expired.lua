-- EXPIRED: claims whose holder's lease has ended, or all claims of one holder. ARGV is limit, and the holder if one is
-- meant. Answers a heartbeat number, then a JobRow, for each job.

-- Drop the claim of an unreadable job.
local function drop_claim(holder, seq, body)
  call('SREM', P .. 'held:' .. holder, seq)
  local _, queue = words(body)
  local limit_key = limit_key_of(body)
  raise(P .. 'counts', STATE.running .. ':' .. queue, -1)
  if limit_key and (tonumber(call('GET', runs_key(name_of(limit_key)))) or 0) > 0 then
    call('DECR', runs_key(name_of(limit_key)))
  end
end

local limit, answer = tonumber(ARGV[1]), {}
local holders = ARGV[2] and { ARGV[2] } or call('ZRANGEBYSCORE', P .. 'holders', '-inf', NOW)
for _, id in ipairs(holders) do
  local heartbeat = text(heartbeats_of(id))
  for _, seq in ipairs(call('SMEMBERS', P .. 'held:' .. id)) do
    if #answer >= (1 + ROW_SIZE) * limit then
      return answer
    end
    answer[#answer + 1] = heartbeat
    if not add_job(answer, seq) then
      answer[#answer] = nil
      call('SREM', P .. 'held:' .. id, seq)
    elseif answer[#answer - ROW_SIZE + ROW.state] == STATE.unreadable then
      -- It cannot be settled: drop its claim, and keep the job as it is.
      drop_claim(id, seq, answer[#answer - ROW_SIZE + ROW.body])
      for _ = 0, ROW_SIZE do
        answer[#answer] = nil
      end
    end
  end
end
return answer
