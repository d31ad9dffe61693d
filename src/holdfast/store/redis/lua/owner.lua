-- OWNER: whether the job that has a key has not ended; or, where `waiting_for` says so, has not even begun.

local function lives(id, waiting_for)
  local known = call('HGET', P .. 'ids', id)
  if not known then
    return false
  end
  local seq = string.match(known, '^%d+')
  local kept = call('HGET', chunk_of(seq), seq .. '~')
  local ok, life = pcall(cmsgpack.unpack, kept or '')
  local state = ok and type(life) == 'table' and life.state
  local over = state == STATE.succeeded or state == STATE.dead or state == STATE.cancelled
  return not (over or (waiting_for and state == STATE.running))
end
