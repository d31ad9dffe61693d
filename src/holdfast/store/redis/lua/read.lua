-- How a job is answered: a JobRow.

local function add_job(answer, seq)
  local key = chunk_of(seq)
  local kept = call('HMGET', key, seq, seq .. '~')
  if not kept.body then
    return false
  end
  local life = kept.life and life_of(kept.life)
  local size = #answer
  answer[size + ROW.seq], answer[size + ROW.state] = seq, state_of(seq, kept.body, life)
  answer[size + ROW.body], answer[size + ROW.life] = kept.body, kept.life
  answer[size + ROW.checkpoint] = life and life.checkpoint and call('HGET', key, seq .. '^') or false
  return true
end
