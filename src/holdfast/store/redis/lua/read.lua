-- How a job is answered: seq, state, body, life, checkpoint.

local function add_job(answer, seq)
  local key = chunk_of(seq)
  local kept = call('HMGET', key, seq, seq .. '~')
  if not kept[1] then
    return false
  end
  local life = kept[2] and life_of(kept[2])
  local size = #answer
  answer[size + 1], answer[size + 2], answer[size + 3] = seq, state_of(seq, kept[1], life), kept[1]
  answer[size + 4], answer[size + 5] = kept[2], life and life.k and call('HGET', key, seq .. '^') or false
  return true
end
