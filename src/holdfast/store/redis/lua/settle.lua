-- SETTLE: end claims. Written only while fence and token are those of the claim; one sent again is recognised.
-- Each is an EndMessage, or, where it is a plain success, a PlainEndMessage. Answers with one 1 or 0 each.

local function json(value)
  return value and cjson.encode(value) or 'null'
end

-- One line of history, as JSON: numbers beyond 14 digits are not for cjson.
local function line(life, outcome, err)
  return '[' .. text(life.attempt or 0) .. ',' .. text(life.fence) .. ',' .. text(life.life or 1) .. ','
    .. json(life.holder) .. ',' .. (life.started_at and text(life.started_at) or 'null') .. ',' .. NOW .. ','
    .. json(outcome) .. ',' .. json(err) .. ']'
end

-- The lives of these jobs by field, and the hash that each is in by its place.
local function read_lives(ends)
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

-- What is written once all claims have ended: the ends to tell of; and by queue the limit keys that jobs have left.
local told_of, left = {}, {}

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

-- Jobs of one claim that succeeded have lives that differ in run_at, limit key, nonce and result only: the rest is packed
-- once.
local alike = {}

local function plainly_succeeded(e)
  return e.state == STATE.succeeded and not e.outcome and e.keep and e.keep > 0
end

-- The life of such a job after its end, from its life before; nil where it is not one of them.
local function succeeded_life(kept, e)
  local entries, one, two, three = string.byte(kept, 1, 4)
  if one ~= FRONT.letter or two ~= FRONT.due or three ~= MP.uint64 or entries > MP.fixmap_last then
    return nil -- when it was due does not stand in front
  end
  local from, limit_key = FRONT.size + 1, nil
  local four, five = string.byte(kept, FRONT.size + 1, FRONT.size + 2)
  if five == FRONT.limit_key and four == FRONT.letter then
    limit_key, from = word_at(kept, FRONT.size + 3)
  end
  local rest = string.sub(kept, from)
  local known = alike[rest]
  if not known then
    local life = life_of(string.char(entries - (limit_key and 2 or 1)) .. rest)
    known = { life = life, held = bucket('SREM', P .. 'held:' .. (life.holder or '')), ends = 0, waited = 0 }
    known.fits = life.state == STATE.running and not (life.cancel or life.result or life.nonce or life.error)
      and not (life.traceback or life.crashes or life.quarantined or life.waiting_for or life.limit_key)
    alike[rest] = known
  end
  local life = known.life
  if not known.fits or life.fence ~= e.fence or life.token ~= e.token then
    return nil
  end
  if known.attempt ~= e.attempt or known.keep ~= e.keep then
    local after = {}
    for letter, value in pairs(life) do
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
  known.ends = known.ends + 1
  known.waited = known.waited + math.max(0, life.started_at - struct.unpack('>I8', kept, FRONT.due_number))
  known.held[#known.held + 1] = e.seq
  if limit_key then
    leave(limit_key, life.queue)
  end
  if e.result then
    return known.with_result .. word(e.nonce) .. PACKED.result .. word(ARGV[e.result]), known.expires
  end
  return known.without .. word(e.nonce), known.expires
end

-- End one claim in whatever way; the life of the job afterwards, or false where the job is gone.
local function settle_one(e, life)
  local seq, id, nonce = e.seq, e.id, e.nonce
  local state, outcome, keep, queue = e.state, e.outcome, e.keep, life.queue
  if life.cancel and not TERMINAL[state] then
    state, outcome, keep = STATE.cancelled, 'cancelled', e.cancelled_keep
  end
  gather('SREM', P .. 'held:' .. life.holder, seq)
  if life.limit_key then
    leave(life.limit_key, queue)
  end
  count(STATE.running, queue, -1)
  local waited = math.max(0, life.started_at - (life.due or life.started_at))
  tell_ends(queue, outcome or 'succeeded', 1, waited, math.max(0, now - life.started_at))
  life.due, life.limit_key = nil, nil
  life.attempt, life.quarantined, life.crashes, life.cancel, life.nonce = e.attempt, e.quarantined, e.crashes, nil, nonce
  life.result, life.error, life.traceback = e.result and ARGV[e.result], e.error, e.traceback
  if TERMINAL[state] then
    life.state, life.finished_at, life.expires_at = state, now, keep and now + keep
    tell(id, state)
    if e.tell then
      told_of[#told_of + 1] = id
    end
    if e.key then
      mind_key(e.key, id, now + e.key_keep)
    end
    if keep and keep <= 0 then
      forget(seq, id, queue, life)
      gather('ZADD', P .. 'gone', NOW, nonce)
      call('ZREMRANGEBYSCORE', P .. 'gone', '-inf', text(now - GONE_KEPT))
      ended[#ended + 1] = id
      return false
    end
    wait_for(life, seq, nil)
    enter_ended(seq, life, queue, id)
    return cmsgpack.pack(life)
  end
  local body = call('HGET', chunk_of(seq), seq)
  local history = life.history or {}
  history[#history + 1] = line(life, outcome, e.error)
  if #history > HISTORY_LIMIT then
    table.remove(history, 1)
  end
  life.history = history
  if e.delay then
    life.run_at = now + e.delay
  end
  life.state = (state == STATE.blocked or run_at_of(body, life) > now) and state or STATE.queued
  life.holder, life.started_at, life.pid = nil, nil, nil
  tell(id, life.state)
  wait_for(life, seq, e.waiting_for)
  enter_waiting(seq, body, life, life.state, queue)
  if e.key then
    mind_key(e.key, id, nil)
  end
  return cmsgpack.pack(life)
end

-- Whether this settlement was written before: by the job's last nonce, or, where it was removed as it ended, by what is
-- remembered of that.
local function sent_again(e, life)
  if life then
    return life.nonce == e.nonce
  end
  return call('HEXISTS', P .. 'ids', e.id) == 0 and call('ZSCORE', P .. 'gone', e.nonce)
end

local function settle(ends)
  local lives, chunks = read_lives(ends)
  local answers, expiry = {}, nil
  for place = 1, #ends do
    local e = ends[place]
    local seq = e.seq
    local field = seq .. '~'
    local kept = lives[field]
    local after, expires
    if kept and plainly_succeeded(e) then
      after, expires = succeeded_life(kept, e)
    end
    if after then
      tell(e.id, STATE.succeeded)
      expiry = expiry or bucket('ZADD', P .. 'ended')
      local size = #expiry
      expiry[size + 1], expiry[size + 2] = expires, seq
      ended[#ended + 1] = e.id
    else
      local life = kept and life_of(kept)
      local holds = life and life.state == STATE.running and life.fence == e.fence and life.token == e.token
      if not holds then
        answers[place] = sent_again(e, life) and 1 or 0
      elseif e.expected_heartbeat and heartbeats_of(life.holder) ~= e.expected_heartbeat then
        answers[place] = 0
      else
        after = settle_one(e, life)
      end
    end
    if after ~= nil then
      answers[place] = 1
      lives[field] = after
      if after then
        local list = bucket('HSET', chunks[place])
        local size = #list
        list[size + 1], list[size + 2] = field, after
      end
    end
  end
  for _, known in pairs(alike) do
    if known.ends > 0 then
      count(STATE.running, known.life.queue, -known.ends)
      count(STATE.succeeded, known.life.queue, known.ends)
      local ran = math.max(0, now - known.life.started_at)
      tell_ends(known.life.queue, 'succeeded', known.ends, known.waited, known.ends * ran)
    end
  end
  flush()
  for queue, limit_keys in pairs(left) do
    make_room(limit_keys, queue)
  end
  for _, id in ipairs(told_of) do
    put_ended(id)
  end
  return answers
end
