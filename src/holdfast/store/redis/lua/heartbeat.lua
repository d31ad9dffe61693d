-- HEARTBEAT: renew the leases of holders (creating them if needed) and list the claims of each.
-- ARGV are id, about and lease of each. Answers {heartbeat, 1 if workers have requests, then id, seq, fence, token,
-- cancel of each claim} for each.

local answer = {}
for at = 1, #ARGV, 3 do
  local id, about, lease = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  -- A script that begins with a removal may write even if memory is full: running jobs must be able to end.
  call('ZREM', P .. 'holders', id)
  local held = { raise(P .. 'holder:' .. id, 'heartbeat', 1), call('EXISTS', P .. 'records:control') }
  call('HSET', P .. 'holder:' .. id, 'about', about, 'at', NOW)
  call('ZADD', P .. 'holders', text(now + lease), id)
  for _, seq in ipairs(call('SMEMBERS', P .. 'held:' .. id)) do
    local kept = call('HMGET', chunk_of(seq), seq, seq .. '~')
    if kept.body and kept.mutable then
      local mutable = mutable_of(kept.mutable)
      local size = #held
      held[size + 1], held[size + 2], held[size + 3] = (words(kept.body)), seq, mutable.fence or 0
      held[size + 4], held[size + 5] = mutable.token or '0', mutable.cancel and 1 or 0
    end
  end
  answer[#answer + 1] = held
end
return answer
