-- Adds a job to an answer as a JobRow.

local function add_job(answer, seq)
  local key = chunk_of(seq)
  local kept = call('HMGET', key, seq, seq .. '~')
  if not kept.body then
    return false
  end
  local mutable = kept.mutable and mutable_of(kept.mutable)
  local size = #answer
  answer[size + ROW.seq], answer[size + ROW.state] = seq, state_of(seq, kept.body, mutable)
  answer[size + ROW.body], answer[size + ROW.mutable] = kept.body, kept.mutable
  answer[size + ROW.checkpoint] = mutable and mutable.checkpoint and call('HGET', key, seq .. '^') or false
  return true
end
