-- How a job is answered: a JobRow.

local function add_job(answer, seq)
  local key = chunk_of(seq)
  local kept = call('HMGET', key, seq, seq .. '~')
  if not kept[1] then
    return false
  end
  local life = kept[2] and life_of(kept[2])
  local size = #answer
  answer[size + ROW.seq], answer[size + ROW.state] = seq, state_of(seq, kept[1], life)
  answer[size + ROW.body], answer[size + ROW.life] = kept[1], kept[2]
  answer[size + ROW.checkpoint] = life and life.checkpoint and call('HGET', key, seq .. '^') or false
  return true
end
