-- CHANGE: an operator's change of one job, made only if state and fence are as expected.
-- Each is a ChangeMessage. A patch has letters of a mutable, `drop` with letters to clear, and state, delay, keep (false:
-- for ever), key_keep, waiting_for (false: nothing), meta, fingerprint, record_end, handled, queue, priority, and the
-- indexes of result, progress, extra, payload and task (both as MessagePack) and checkpoint (0: none). Answers with one
-- 1 or 0 each.

local PLAIN = {
  MUTABLE.attempt, MUTABLE.reset_count, MUTABLE.quarantined, MUTABLE.crashes, MUTABLE.cancel, MUTABLE.error, MUTABLE.traceback, MUTABLE.history,
}
local BESIDE = { [MUTABLE.result] = 'result', [MUTABLE.progress] = 'progress', [MUTABLE.extra] = 'extra' }

local function patch_mutable(mutable, patch)
  mutable.changed_at = now
  for _, letter in ipairs(PLAIN) do
    if patch[letter] ~= nil then
      mutable[letter] = patch[letter]
    end
  end
  for _, letter in ipairs(patch.drop or {}) do
    mutable[letter] = nil
  end
  for letter, name in pairs(BESIDE) do
    if patch[name] then
      mutable[letter] = ARGV[patch[name]]
    end
  end
  if patch.meta then
    merge_meta(mutable, patch.meta)
  end
  if patch.delay then
    mutable.run_at = now + patch.delay
    mutable.due = mutable.due and mutable.run_at
  end
  if not patch.state then
    if patch.keep ~= nil and TERMINAL[mutable.state] then
      mutable.expires_at = patch.keep and now + patch.keep or nil
    end
    return
  end
  mutable.state = patch.state
  if TERMINAL[mutable.state] then
    mutable.finished_at, mutable.expires_at = now, patch.keep and now + patch.keep or nil
  else
    mutable.finished_at, mutable.expires_at, mutable.holder, mutable.started_at, mutable.pid = nil, nil, nil, nil, nil
  end
  mutable.due, mutable.limit_key = nil, nil
end

-- What is stored outside the mutable: the task, the payload with the fingerprint of its key, and the checkpoint.
local function patch_beside(id, seq, key, body, mutable, patch, its_key)
  if patch.task then
    body = with_task(body, ARGV[patch.task])
    gather('HSET', key, seq, body)
  end
  if patch.payload then
    local from, to = payload_of(body)
    gather('HSET', key, seq, string.sub(body, 1, from - 1) .. ARGV[patch.payload] .. string.sub(body, to))
    local known = its_key and patch.fingerprint and call('HGET', P .. 'keys', its_key)
    if known then
      local its_id, _, made_at = unpack_key(known)
      if its_id and its_id == id then
        gather('HSET', P .. 'keys', its_key, pack_key(id, patch.fingerprint, made_at))
      end
    end
  end
  if patch.checkpoint == 0 then
    mutable.checkpoint = nil
    gather('HDEL', key, seq .. '^')
  elseif patch.checkpoint then
    mutable.checkpoint = 1
    gather('HSET', key, seq .. '^', ARGV[patch.checkpoint])
  end
end

-- Returns 1 or 0, the limit key that the job has left, its queue, and whether its end is to be recorded.
local function change_one(wanted)
  local id, patch = wanted.id, wanted.patch
  local seq = seq_of(id)
  if not seq or (wanted.seq and wanted.seq ~= seq) then
    return 0
  end
  local key = chunk_of(seq)
  local kept = call('HMGET', key, seq, seq .. '~')
  local body = kept.body
  if not body then
    return 0
  end
  local mutable = kept.mutable and mutable_of(kept.mutable) or {}
  local state = state_of(seq, body, mutable)
  local shown = (state == STATE.deferred or state == STATE.unreadable) and STATE.blocked or state
  if shown ~= wanted.state or (mutable.fence or 0) ~= wanted.fence then
    return 0
  end
  if wanted.reset_count and (mutable.reset_count or 0) ~= wanted.reset_count then
    return 0
  end
  if wanted.waiting_for and mutable.waiting_for ~= wanted.waiting_for then
    return 0
  end
  local _, queue, task, _, its_key = words(body)
  if wanted.task and wanted.task ~= task then
    return 0
  end
  if wanted.only_handled then
    return 1
  end
  local limit_key = limit_key_of(body)
  exit(seq, body, mutable, state, queue)
  if not patch then
    if its_key and not TERMINAL[state] then
      local known = call('HGET', P .. 'keys', its_key)
      if known and unpack_key(known) == id then
        gather('HDEL', P .. 'keys', its_key)
        gather('ZREM', P .. 'key-ends', its_key)
      end
    end
    forget(seq, id, queue, mutable)
    record_transition(id, STATE.deleted)
    return 1, limit_key, queue
  end
  if patch.queue or patch.priority then
    body = with_place(body, patch.queue, patch.priority)
    gather('HSET', key, seq, body)
    count(TOTAL, queue, -1)
    queue = patch.queue or queue
    count(TOTAL, queue, 1)
  end
  local stays_deferred = state == STATE.deferred and not patch.state and patch.waiting_for == nil
  if not stays_deferred then
    mutable.state = shown
  end
  patch_mutable(mutable, patch)
  mutable.queue = queue
  if patch.state then
    record_transition(id, mutable.state)
  end
  local over = TERMINAL[mutable.state]
  local left = patch.state and (state == STATE.queued or state == STATE.running) and limit_key
  local records_end = over and patch.record_end
  if its_key and not (over and TERMINAL[state]) then
    set_key_expiry(its_key, id, over and now + (patch.key_keep or 0) or nil)
  end
  if over then
    if not TERMINAL[state] and mutable.expires_at and mutable.expires_at <= now then
      forget(seq, id, queue, mutable)
      ended[#ended + 1] = id
      return 1, left, queue, records_end
    end
    enter_ended(seq, mutable, queue, id)
  elseif mutable.state == STATE.running then
    count(STATE.running, queue, 1)
    gather('SADD', P .. 'held:' .. mutable.holder, seq)
    if limit_key then
      run(name_of(limit_key), 1)
    end
    if patch[MUTABLE.cancel] then
      notified['holder/' .. mutable.holder] = true
    end
  else
    enter_waiting(seq, body, mutable, stays_deferred and STATE.deferred or mutable.state, queue)
  end
  if patch.waiting_for ~= nil or patch.state then
    wait_for(mutable, seq, patch.waiting_for or nil)
  end
  patch_beside(id, seq, key, body, mutable, patch, its_key)
  gather('HSET', key, seq .. '~', cmsgpack.pack(mutable))
  return 1, left, queue, records_end
end

local function change(changes)
  local answers = {}
  for place, wanted in ipairs(changes) do
    local answer, limit_key, queue, records_end = change_one(wanted)
    answers[place] = answer
    flush()
    if limit_key then
      free_capacity({ name_of(limit_key) }, queue)
    end
    if answer == 1 and wanted.patch and wanted.patch.handled then
      remove_ended(wanted.id)
    end
    if records_end then
      put_ended(wanted.id)
    end
  end
  return answers
end
