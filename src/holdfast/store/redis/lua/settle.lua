-- SETTLE: end claims. Written only if fence and token match the claim; a repeated settlement is recognised.
-- Each is an EndMessage, or, where it is a plain success, a PlainEndMessage. Answers with one 1 or 0 each.

local function json(value)
  return value and cjson.encode(value) or 'null'
end

-- One line of history, as JSON: numbers beyond 14 digits are not for cjson.
local function line(mutable, outcome, err)
  return '[' .. text(mutable.attempt or 0) .. ',' .. text(mutable.fence) .. ',' .. text(mutable.reset_count or 0) .. ','
    .. json(mutable.holder) .. ',' .. (mutable.started_at and text(mutable.started_at) or 'null') .. ',' .. NOW .. ','
    .. json(outcome) .. ',' .. json(err) .. ']'
end

-- The mutable parts of these jobs by field, and the hash that each is in by its place.
local function read_mutables(ends)
  local wanted, chunks = {}, {}
  for at = 1, #ends do
    local key = chunk_of(ends[at][END.seq])
    chunks[at] = key
    local list = wanted[key]
    if not list then
      list = {}
      wanted[key] = list
    end
    list[#list + 1] = ends[at][END.seq] .. '~'
  end
  return read_fields(wanted), chunks
end

-- Written after all claims have ended: the ends to record, and by queue the limit keys that jobs have left.
local ends_to_record, left = {}, {}

local function leave(limit_key, queue)
  run(limit_key, -1)
  local limit_keys = left[queue]
  if not limit_keys then
    limit_keys = {}
    left[queue] = limit_keys
  end
  if not limit_keys[limit_key] then
    limit_keys[limit_key], limit_keys[#limit_keys + 1] = true, limit_key
  end
end

-- Mutables of succeeded jobs of one claim differ only in run_at, limit key, nonce and result: pack the rest once.
local alike = {}

local function plainly_succeeded(e)
  return e.state == STATE.succeeded and not e.outcome and e.keep and e.keep > 0
end

-- The mutable of such a job after its end, from its mutable before; nil where the job is not one of them.
local function succeeded_mutable(kept, e)
  local entries, one, two, three = string.byte(kept, 1, 4)
  if one ~= FRONT.letter or two ~= FRONT.due or three ~= MP.uint64 or entries > MP.fixmap_last then
    return nil -- it does not begin with `due`
  end
  local from, limit_key = FRONT.size + 1, nil
  local four, five = string.byte(kept, FRONT.size + 1, FRONT.size + 2)
  if five == FRONT.limit_key and four == FRONT.letter then
    limit_key, from = word_at(kept, FRONT.size + 3)
  end
  local rest = string.sub(kept, from)
  local known = alike[rest]
  if not known then
    local mutable = mutable_of(string.char(entries - (limit_key and 2 or 1)) .. rest)
    known = { mutable = mutable, held = bucket('SREM', P .. 'held:' .. (mutable.holder or '')), ends = 0, sums = {} }
    known.fits = mutable.state == STATE.running and not (mutable.cancel or mutable.result or mutable.nonce or mutable.error)
      and not (mutable.traceback or mutable.crashes or mutable.quarantined or mutable.waiting_for or mutable.limit_key)
    alike[rest] = known
  end
  local mutable = known.mutable
  if not known.fits or mutable.fence ~= e.fence or mutable.token ~= e.token then
    return nil
  end
  if known.attempt ~= e.attempt or known.keep ~= e.keep then
    local after = {}
    for letter, value in pairs(mutable) do
      after[letter] = value
    end
    after.state, after.attempt, after.finished_at, after.expires_at = STATE.succeeded, e.attempt, now, now + e.keep
    known.attempt, known.keep, known.expires = e.attempt, e.keep, text(now + e.keep)
    local packed = cmsgpack.pack(after)
    local size = string.byte(packed)
    if size < MP.fixmap or size > MP.fixmap_last - 2 then
      return nil
    end
    known.with_result = string.char(size + 2) .. string.sub(packed, 2) .. PACKED.nonce
    known.without = string.char(size + 1) .. string.sub(packed, 2) .. PACKED.nonce
  end
  if known.ends == 0 then
    known.ran = math.max(0, now - mutable.started_at)
    known.run_bucket = duration_bucket(known.ran)
  end
  known.ends = known.ends + 1
  local sums = known.sums[e.task]
  if not sums then
    sums = end_sums_of(mutable.queue, ARGV[e.task], 'succeeded')
    known.sums[e.task] = sums
  end
  local waited = math.max(0, mutable.started_at - struct.unpack('>I8', kept, FRONT.due_number))
  record_end(sums, waited, known.ran, known.run_bucket)
  known.held[#known.held + 1] = e.seq
  if limit_key then
    leave(limit_key, mutable.queue)
  end
  if e.result then
    return known.with_result .. word(e.nonce) .. PACKED.result .. word(ARGV[e.result]), known.expires
  end
  return known.without .. word(e.nonce), known.expires
end

-- End one claim with any outcome; returns the new mutable of the job, or false where the job was deleted.
local function settle_one(e, mutable)
  local seq, id, nonce = e.seq, e.id, e.nonce
  local state, outcome, keep, queue = e.state, e.outcome, e.keep, mutable.queue
  if mutable.cancel and not TERMINAL[state] then
    state, outcome, keep = STATE.cancelled, 'cancelled', e.cancelled_keep
  end
  gather('SREM', P .. 'held:' .. mutable.holder, seq)
  if mutable.limit_key then
    leave(mutable.limit_key, queue)
  end
  count(STATE.running, queue, -1)
  local waited = math.max(0, mutable.started_at - (mutable.due or mutable.started_at))
  local ran = math.max(0, now - mutable.started_at)
  record_end(end_sums_of(queue, ARGV[e.task], outcome or 'succeeded'), waited, ran, duration_bucket(ran))
  mutable.due, mutable.limit_key = nil, nil
  mutable.attempt, mutable.quarantined, mutable.crashes, mutable.cancel, mutable.nonce = e.attempt, e.quarantined, e.crashes, nil, nonce
  mutable.result, mutable.error, mutable.traceback = e.result and ARGV[e.result], e.error, e.traceback
  if TERMINAL[state] then
    mutable.state, mutable.finished_at, mutable.expires_at = state, now, keep and now + keep
    record_transition(id, state)
    if e.record_end then
      ends_to_record[#ends_to_record + 1] = id
    end
    if e.key then
      set_key_expiry(e.key, id, now + e.key_keep)
    end
    if keep and keep <= 0 then
      forget(seq, id, queue, mutable)
      gather('ZADD', P .. 'gone', NOW, nonce)
      call('ZREMRANGEBYSCORE', P .. 'gone', '-inf', text(now - GONE_KEPT))
      ended[#ended + 1] = id
      return false
    end
    wait_for(mutable, seq, nil)
    enter_ended(seq, mutable, queue, id)
    return cmsgpack.pack(mutable)
  end
  local body = call('HGET', chunk_of(seq), seq)
  local history = mutable.history or {}
  history[#history + 1] = line(mutable, outcome, e.error)
  if #history > HISTORY_LIMIT then
    table.remove(history, 1)
  end
  mutable.history = history
  if e.delay then
    mutable.run_at = now + e.delay
  end
  mutable.state = (UNTIMED[state] or run_at_of(body, mutable) > now) and state or STATE.queued
  mutable.holder, mutable.started_at, mutable.pid = nil, nil, nil
  record_transition(id, mutable.state)
  wait_for(mutable, seq, e.waiting_for)
  enter_waiting(seq, body, mutable, mutable.state, queue)
  if e.key then
    set_key_expiry(e.key, id, nil)
  end
  return cmsgpack.pack(mutable)
end

-- Whether this settlement was written before: by the last nonce of the job, or, if the job was deleted at its end, by
-- the set `gone`.
local function sent_again(e, mutable)
  if mutable then
    return mutable.nonce == e.nonce
  end
  return call('HEXISTS', P .. 'ids', e.id) == 0 and call('ZSCORE', P .. 'gone', e.nonce)
end

local function settle(ends)
  local mutables, chunks = read_mutables(ends)
  local answers, expiry = {}, nil
  for place = 1, #ends do
    local e = ends[place]
    local seq = e.seq
    local field = seq .. '~'
    local kept = mutables[field]
    local after, expires
    if kept and plainly_succeeded(e) then
      after, expires = succeeded_mutable(kept, e)
    end
    if after then
      record_transition(e.id, STATE.succeeded)
      expiry = expiry or bucket('ZADD', P .. 'ended')
      local size = #expiry
      expiry[size + 1], expiry[size + 2] = expires, seq
      ended[#ended + 1] = e.id
    else
      local mutable = kept and mutable_of(kept)
      local holds = mutable and mutable.state == STATE.running and mutable.fence == e.fence and mutable.token == e.token
      if not holds then
        answers[place] = sent_again(e, mutable) and 1 or 0
      elseif e.expected_heartbeat and heartbeats_of(mutable.holder) ~= e.expected_heartbeat then
        answers[place] = 0
      else
        after = settle_one(e, mutable)
      end
    end
    if after ~= nil then
      answers[place] = 1
      mutables[field] = after
      if after then
        local list = bucket('HSET', chunks[place])
        local size = #list
        list[size + 1], list[size + 2] = field, after
      end
    end
  end
  for _, known in pairs(alike) do
    if known.ends > 0 then
      count(STATE.running, known.mutable.queue, -known.ends)
      count(STATE.succeeded, known.mutable.queue, known.ends)
    end
  end
  flush()
  for queue, limit_keys in pairs(left) do
    free_capacity(limit_keys, queue)
  end
  for _, id in ipairs(ends_to_record) do
    put_ended(id)
  end
  return answers
end
