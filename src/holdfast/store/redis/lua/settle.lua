-- SETTLE: end claims. Written only while fence and token are those of the claim; one sent again is recognised.
-- Each is {seq, fence, token, nonce, id, state, attempt, keep, index of result}, and, unless it is a plain success,
-- {..., outcome, cancelled_keep, delay, suspect, deaths, key_keep, key, seen_beat, error, traceback, waits, tell};
-- times in microseconds. Answers with one 1 or 0 each.

local HISTORY_LIMIT = 50
local FRESH = 0x88 -- the head of the life of a job that was claimed once, and has no lane
local REMEMBER = 300 * 1000000 -- a job removed as it ends is known by its settlement for five minutes

local function json(value)
  return value and cjson.encode(value) or 'null'
end

-- One line of history, as JSON: numbers beyond 14 digits are not for cjson.
local function line(life, outcome, err)
  return '[' .. text(life.a or 0) .. ',' .. text(life.f) .. ',' .. text(life.l or 1) .. ',' .. json(life.h) .. ','
    .. (life.g and text(life.g) or 'null') .. ',' .. NOW .. ',' .. json(outcome) .. ',' .. json(err) .. ']'
end

-- The lives of these jobs by field, and the hash that each is in by its place.
local function read_lives(ends)
  local wanted, chunks = {}, {}
  for at = 1, #ends do
    local key = chunk_of(ends[at][1])
    chunks[at] = key
    local list = wanted[key]
    if not list then
      list = {}
      wanted[key] = list
    end
    list[#list + 1] = ends[at][1] .. '~'
  end
  return read_fields(wanted), chunks
end

-- What is written once all claims have ended: the ends to tell of; and by queue the lanes that jobs have left.
local told_of, left = {}, {}

local function leave(lane, queue)
  run(lane, -1)
  local lanes = left[queue]
  if not lanes then
    lanes = {}
    left[queue] = lanes
  end
  if not lanes[lane] then
    lanes[lane], lanes[#lanes + 1] = true, lane
  end
end

-- Jobs of one claim that succeeded have lives that differ in run_at, lane, nonce and result only: the rest is packed
-- once.
local alike = {}

local function plainly_succeeded(e)
  return e[6] == 's' and not e[10] and e[8] and e[8] > 0
end

-- The life of such a job after its end, from its life before; nil where it is not one of them.
local function succeeded_life(kept, e)
  local entries, one, two, three = string.byte(kept, 1, 4)
  if one ~= 0xa1 or two ~= 0x76 or three ~= 0xcf or entries > 0x8f then
    return nil -- `v` does not stand in front
  end
  local from, lane = 13, nil
  if entries > FRESH and string.sub(kept, 13, 14) == '\161L' then
    lane, from = word_at(kept, 15)
  end
  local rest = string.sub(kept, from)
  local known = alike[rest]
  if not known then
    local life = life_of(string.char(entries - (lane and 2 or 1)) .. rest)
    known = { life = life, h = bucket('SREM', P .. 'held:' .. (life.h or '')), ends = 0, waited = 0 }
    known.fits = life.s == 'r' and not (life.c or life.r or life.n or life.e or life.b or life.d or life.p)
      and not (life.W or life.L)
    alike[rest] = known
  end
  local life = known.life
  if not known.fits or life.f ~= e[2] or life.t ~= e[3] then
    return nil
  end
  if known.attempt ~= e[7] or known.keep ~= e[8] then
    local after = {}
    for letter, value in pairs(life) do
      after[letter] = value
    end
    after.s, after.a, after.z, after.x = 's', e[7], now, now + e[8]
    known.attempt, known.keep, known.expires = e[7], e[8], text(now + e[8])
    local packed = cmsgpack.pack(after)
    local size = string.byte(packed)
    if size < 0x80 or size > 0x8d then
      return nil
    end
    known.with_result = string.char(size + 2) .. string.sub(packed, 2) .. '\161n'
    known.without = string.char(size + 1) .. string.sub(packed, 2) .. '\161n'
  end
  known.ends = known.ends + 1
  known.waited = known.waited + math.max(0, life.g - struct.unpack('>I8', kept, 5))
  known.h[#known.h + 1] = e[1]
  if lane then
    leave(lane, life.q)
  end
  if e[9] then
    return known.with_result .. word(e[4]) .. '\161r' .. word(ARGV[e[9]]), known.expires
  end
  return known.without .. word(e[4]), known.expires
end

-- End one claim in whatever way; the life of the job afterwards, or false where the job is gone.
local function settle_one(e, life)
  local seq, id, nonce = e[1], e[5], e[4]
  local state, outcome, keep, queue = e[6], e[10], e[8], life.q
  if life.c and not TERMINAL[state] then
    state, outcome, keep = 'c', 'cancelled', e[11]
  end
  gather('SREM', P .. 'held:' .. life.h, seq)
  if life.L then
    leave(life.L, queue)
  end
  count('r', queue, -1)
  tell_ends(queue, outcome or 'succeeded', 1, math.max(0, life.g - (life.v or life.g)), math.max(0, now - life.g))
  life.v, life.L = nil, nil
  life.a, life.p, life.d, life.c, life.n = e[7], e[13], e[14], nil, nonce
  life.r, life.e, life.b = e[9] and ARGV[e[9]], e[18], e[19]
  if TERMINAL[state] then
    life.s, life.z, life.x = state, now, keep and now + keep
    tell(id, state)
    if e[21] then
      told_of[#told_of + 1] = id
    end
    if e[16] then
      mind_key(e[16], id, now + e[15])
    end
    if keep and keep <= 0 then
      forget(seq, id, queue, life)
      gather('ZADD', P .. 'gone', NOW, nonce)
      call('ZREMRANGEBYSCORE', P .. 'gone', '-inf', text(now - REMEMBER))
      ended[#ended + 1] = id
      return false
    end
    wait_for(life, seq, nil)
    enter_ended(seq, life, queue, id)
    return cmsgpack.pack(life)
  end
  local body = call('HGET', chunk_of(seq), seq)
  local history = life.y or {}
  history[#history + 1] = line(life, outcome, e[18])
  if #history > HISTORY_LIMIT then
    table.remove(history, 1)
  end
  life.y = history
  if e[12] then
    life.u = now + e[12]
  end
  life.s = (state == 'b' or run_at_of(body, life) > now) and state or 'q'
  life.h, life.g, life.i = nil, nil, nil
  tell(id, life.s)
  wait_for(life, seq, e[20])
  enter_waiting(seq, body, life, life.s, queue)
  if e[16] then
    mind_key(e[16], id, nil)
  end
  return cmsgpack.pack(life)
end

-- Whether this settlement was written before: by the job's last nonce, or, where it was removed as it ended, by what is
-- remembered of that.
local function sent_again(e, life)
  if life then
    return life.n == e[4]
  end
  return call('HEXISTS', P .. 'ids', e[5]) == 0 and call('ZSCORE', P .. 'gone', e[4])
end

local function settle(ends)
  local lives, chunks = read_lives(ends)
  local answers, expiry = {}, nil
  for place = 1, #ends do
    local e = ends[place]
    local seq = e[1]
    local field = seq .. '~'
    local kept = lives[field]
    local after, expires
    if kept and plainly_succeeded(e) then
      after, expires = succeeded_life(kept, e)
    end
    if after then
      tell(e[5], 's')
      expiry = expiry or bucket('ZADD', P .. 'ended')
      local size = #expiry
      expiry[size + 1], expiry[size + 2] = expires, seq
      ended[#ended + 1] = e[5]
    else
      local life = kept and life_of(kept)
      local holds = life and life.s == 'r' and life.f == e[2] and life.t == e[3]
      if not holds then
        answers[place] = sent_again(e, life) and 1 or 0
      elseif e[17] and beats_of(life.h) ~= e[17] then
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
      count('r', known.life.q, -known.ends)
      count('s', known.life.q, known.ends)
      local ran = math.max(0, now - known.life.g)
      tell_ends(known.life.q, 'succeeded', known.ends, known.waited, known.ends * ran)
    end
  end
  flush()
  for queue, lanes in pairs(left) do
    make_room(lanes, queue)
  end
  for _, id in ipairs(told_of) do
    put_ended(id)
  end
  return answers
end
