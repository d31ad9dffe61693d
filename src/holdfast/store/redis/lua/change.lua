-- CHANGE: an operator's change of one job, made only if state and fence are still those that were seen.
-- Each is {id, state, fence, patch, task (where it must be this one)}; no patch deletes. A patch has the letters of a life, with `drop` for letters to
-- clear, and state, delay, keep (false: for ever), key_keep, waits (false: for nothing), meta, fingerprint, tell, and
-- the indexes of result, progress, extra, payload (as MessagePack) and checkpoint (0: none). Answers with one 1 or 0
-- each.

local PLAIN = { 'a', 'l', 'p', 'd', 'c', 'e', 'b', 'y' }
local BESIDE = { r = 'result', o = 'progress', E = 'extra' }

local function patch_life(life, patch)
  life.C = now
  for _, letter in ipairs(PLAIN) do
    if patch[letter] ~= nil then
      life[letter] = patch[letter]
    end
  end
  for _, letter in ipairs(patch.drop or {}) do
    life[letter] = nil
  end
  for letter, name in pairs(BESIDE) do
    if patch[name] then
      life[letter] = ARGV[patch[name]]
    end
  end
  if patch.meta then
    merge_meta(life, patch.meta)
  end
  if patch.delay then
    life.u = now + patch.delay
    life.v = life.v and life.u
  end
  if not patch.state then
    if patch.keep ~= nil and TERMINAL[life.s] then
      life.x = patch.keep and now + patch.keep or nil
    end
    return
  end
  life.s = patch.state
  if TERMINAL[life.s] then
    life.z, life.x = now, patch.keep and now + patch.keep or nil
  else
    life.z, life.x, life.h, life.g, life.i = nil, nil, nil, nil, nil
  end
  life.v, life.L = nil, nil
end

-- What is kept beside the life: the payload, and what its key stands for; the checkpoint.
local function patch_beside(id, seq, key, body, life, patch, its_key)
  if patch.payload then
    local from, to = payload_of(body)
    gather('HSET', key, seq, string.sub(body, 1, from - 1) .. ARGV[patch.payload] .. string.sub(body, to))
    local known = its_key and call('HGET', P .. 'keys', its_key)
    if known then
      local its_id, _, made_at = unpack_key(known)
      if its_id and its_id == id then
        gather('HSET', P .. 'keys', its_key, pack_key(id, patch.fingerprint or '', made_at))
      end
    end
  end
  if patch.checkpoint == 0 then
    life.k = nil
    gather('HDEL', key, seq .. '^')
  elseif patch.checkpoint then
    life.k = 1
    gather('HSET', key, seq .. '^', ARGV[patch.checkpoint])
  end
end

-- Returns 1 or 0, the lane that the job has left, its queue, and whether its end is to be told.
local function change_one(id, seen_state, seen_fence, patch, seen_task)
  local seq = seq_of(id)
  if not seq then
    return 0
  end
  local key = chunk_of(seq)
  local kept = call('HMGET', key, seq, seq .. '~')
  local body = kept[1]
  if not body then
    return 0
  end
  local life = kept[2] and life_of(kept[2]) or {}
  local state = state_of(seq, body, life)
  if ((state == 'h' or state == 'D') and 'b' or state) ~= seen_state or (life.f or 0) ~= seen_fence then
    return 0
  end
  local _, queue, task, _, its_key = words(body)
  if seen_task and seen_task ~= task then
    return 0
  end
  local lane = lane_of(body)
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
    return 1, lane, queue
  end
  local stays_held = state == 'h' and not patch.state and patch.waits == nil
  if not stays_held then
    life.s = (state == 'h' or state == 'D') and 'b' or state
  end
  patch_life(life, patch)
  life.q = queue
  if patch.state then
    tell(id, life.s)
  end
  local over = TERMINAL[life.s]
  local left = patch.state and (state == 'q' or state == 'r') and lane
  local tells = over and patch.tell
  if its_key and not (over and TERMINAL[state]) then
    mind_key(its_key, id, over and now + (patch.key_keep or 0) or nil)
  end
  if over then
    if not TERMINAL[state] and life.x and life.x <= now then
      forget(seq, id, queue, life)
      ended[#ended + 1] = id
      return 1, left, queue, tells
    end
    enter_ended(seq, life, queue, id)
  elseif life.s == 'r' then
    count('r', queue, 1)
    gather('SADD', P .. 'held:' .. life.h, seq)
    if lane then
      run(name_of(lane), 1)
    end
  else
    enter_waiting(seq, body, life, stays_held and 'h' or life.s, queue)
  end
  if patch.waits ~= nil or patch.state then
    wait_for(life, seq, patch.waits or nil)
  end
  patch_beside(id, seq, key, body, life, patch, its_key)
  gather('HSET', key, seq .. '~', cmsgpack.pack(life))
  return 1, left, queue, tells
end

local function change(changes)
  local answers = {}
  for place, wanted in ipairs(changes) do
    local answer, lane, queue, tells = change_one(wanted[1], wanted[2], wanted[3], wanted[4], wanted[5])
    answers[place] = answer
    flush()
    if lane then
      make_room({ name_of(lane) }, queue)
    end
    if tells then
      put_ended(wanted[1])
    end
  end
  return answers
end
