-- OWNER: whether the job that has a key has not ended; with `waiting`: whether it has not begun either.

local ENDED = TERMINAL_STATES

local function is_unfinished(id, waiting)
  local known = call('HGET', P .. 'ids', id)
  if not known then
    return false
  end
  local seq = string.match(known, '^%d+')
  local kept = call('HGET', chunk_of(seq), seq .. '~')
  local ok, mutable = pcall(cmsgpack.unpack, kept or '')
  local state = ok and type(mutable) == 'table' and mutable.state
  return not (ENDED[state] or (waiting and state == STATE.running))
end
