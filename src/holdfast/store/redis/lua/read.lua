-- Adds a job to an answer as a JobRow.

local function add_row(answer, seq, state, kept, mutable)
  local size = #answer
  answer[size + ROW.seq], answer[size + ROW.state] = seq, state
  answer[size + ROW.body], answer[size + ROW.mutable] = kept.body, kept.mutable
  answer[size + ROW.checkpoint] = mutable and mutable.checkpoint and call('HGET', chunk_of(seq), seq .. '^') or false
end

local function add_job(answer, seq)
  local kept = call('HMGET', chunk_of(seq), seq, seq .. '~')
  if not kept.body then
    return false
  end
  local mutable = kept.mutable and mutable_of(kept.mutable)
  add_row(answer, seq, state_of(seq, kept.body, mutable), kept, mutable)
  return true
end
