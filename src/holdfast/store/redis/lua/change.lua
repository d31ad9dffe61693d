-- CHANGE: an operator's change of one job, made only if state and fence are still those that were seen.
-- Each is {id, state, fence, patch}; no patch deletes. A patch has the letters of a life, with `drop` for letters to
-- clear, and state, delay, keep, key_keep, result and progress (indexes), meta. Answers with one 1 or 0 each.

local PLAIN = { 'a', 'l', 'p', 'd', 'c', 'e', 'b', 'y' }

local function patch_life(life, patch)
  for _, letter in ipairs(PLAIN) do
    if patch[letter] ~= nil then
      life[letter] = patch[letter]
    end
  end
  for _, letter in ipairs(patch.drop or {}) do
    life[letter] = nil
  end
  if patch.result then
    life.r = ARGV[patch.result]
  end
  if patch.progress then
    life.o = ARGV[patch.progress]
  end
  if patch.meta then
    merge_meta(life, patch.meta)
  end
  if patch.delay then
    life.u = now + patch.delay
    life.v = life.v and life.u
  end
  if not patch.state then
    return
  end
  life.s = patch.state
  if TERMINAL[life.s] then
    life.z, life.x = now, patch.keep and now + patch.keep
  else
    life.z, life.x, life.h, life.g, life.i = nil, nil, nil, nil, nil
  end
  life.v = nil
end

local function change_one(id, seen_state, seen_fence, patch)
  local seq = call('HGET', P .. 'ids', id)
  seq = seq and string.match(seq, '^%d+')
  if not seq then
    return 0
  end
  local key = chunk_of(seq)
  local kept = call('HMGET', key, seq, seq .. '~')
  local body = kept[1]
  if not body then
    return 0
  end
  local life = kept[2] and cmsgpack.unpack(kept[2]) or {}
  local state = state_of(seq, body, life)
  if state ~= seen_state or (life.f or 0) ~= seen_fence then
    return 0
  end
  local _, queue, _, _, its_key = words(body)
  exit(seq, body, life, state, queue)
  if not patch then
    if its_key and not TERMINAL[state] then
      local known = call('HGET', P .. 'keys', its_key)
      if known and unpack_key(known) == id then
        gather('HDEL', P .. 'keys', its_key)
        gather('ZREM', P .. 'key-ends', its_key)
      end
    end
    forget(seq, id, queue, life)
    tell(id, 'x')
    return 1
  end
  life.s = state
  patch_life(life, patch)
  life.q = queue
  if patch.state then
    tell(id, life.s)
  end
  local over = TERMINAL[life.s]
  if its_key and not (over and TERMINAL[state]) then
    mind_key(its_key, id, over and now + (patch.key_keep or 0) or nil)
  end
  if over then
    if not TERMINAL[state] and life.x and life.x <= now then
      forget(seq, id, queue, life)
      ended[#ended + 1] = id
      return 1
    end
    enter_ended(seq, life, queue, id)
  elseif life.s == 'r' then
    count('r', queue, 1)
    gather('SADD', P .. 'held:' .. life.h, seq)
  elseif life.s == 'b' then
    count('b', queue, 1)
  else
    enter_waiting(seq, body, life, queue)
  end
  gather('HSET', key, seq .. '~', cmsgpack.pack(life))
  return 1
end

local function change(changes)
  local answers = {}
  for place, wanted in ipairs(changes) do
    answers[place] = change_one(wanted[1], wanted[2], wanted[3], wanted[4])
    flush()
  end
  return answers
end
