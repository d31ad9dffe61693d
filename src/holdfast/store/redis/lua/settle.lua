-- SETTLE: end claims. Written only while fence and token are those of the claim; one sent again is recognised.
-- Each is {seq, fence, token, nonce, id, state, outcome, attempt, delay, suspect, deaths, keep, cancelled_keep, key,
-- key_keep, seen_beat, index of result, error, traceback}; times in microseconds. Answers with one 1 or 0 each.

local REMEMBER = 300 * 1000000 -- a job removed as it ends is known by its settlement for five minutes

local function json(value)
  return value and cjson.encode(value) or 'null'
end

-- One line of history, as JSON: numbers beyond 14 digits are not for cjson.
local function line(life, outcome, err)
  return '[' .. text(life.a) .. ',' .. text(life.f) .. ',' .. text(life.l or 1) .. ',' .. json(life.h) .. ','
    .. (life.g and text(life.g) or 'null') .. ',' .. NOW .. ',' .. json(outcome) .. ',' .. json(err) .. ']'
end

local function read_lives(ends)
  local wanted, lives = {}, {}
  for _, e in ipairs(ends) do
    local key = chunk_of(e[1])
    local list = wanted[key] or {}
    wanted[key] = list
    list[#list + 1] = e[1]
  end
  for key, seqs in pairs(wanted) do
    for first = 1, #seqs, MANY do
      local fields = {}
      for at = first, math.min(first + MANY - 1, #seqs) do
        fields[#fields + 1] = seqs[at] .. '~'
      end
      for at, kept in ipairs(call('HMGET', key, unpack(fields))) do
        lives[seqs[first + at - 1]] = kept
      end
    end
  end
  return lives
end

local function settle(ends)
  local lives, answers = read_lives(ends), {}
  local gone = P .. 'gone'
  for place, e in ipairs(ends) do
    local seq, id, nonce = e[1], e[5], e[4]
    local life = lives[seq]
    if type(life) == 'string' then
      life = cmsgpack.unpack(life)
    end
    local holds = life and life.s == 'r' and life.f == e[2] and life.t == e[3]
    if holds and e[16] and tonumber(call('HGET', P .. 'holder:' .. life.h, 'beat') or 0) ~= e[16] then
      answers[place] = 0
    elseif not holds then
      answers[place] = ((life and life.n == nonce) or call('ZSCORE', gone, nonce)) and 1 or 0
    else
      answers[place] = 1
      local state, outcome, keep, queue = e[6], e[7], e[12], life.q
      if life.c and not TERMINAL[state] then
        state, outcome, keep = 'c', 'cancelled', e[13]
      end
      gather('SREM', P .. 'held:' .. life.h, seq)
      count('r', queue, -1)
      life.a, life.p, life.d, life.c, life.n = e[8], e[10], e[11], nil, nonce
      life.r, life.e, life.b = e[17] and ARGV[e[17]], e[18], e[19]
      local key = chunk_of(seq)
      if TERMINAL[state] then
        life.s, life.z, life.x = state, now, keep and now + keep
        if keep and keep <= 0 then
          forget(seq, id, queue)
          gather('ZADD', gone, NOW, nonce)
          call('ZREMRANGEBYSCORE', gone, '-inf', text(now - REMEMBER))
          ring('job/' .. id)
          lives[seq] = false
        else
          enter_ended(seq, life, queue, id)
        end
        if e[14] then
          mind_key(e[14], id, now + e[15])
        end
      else
        local body = call('HGET', key, seq)
        local history = life.y or {}
        history[#history + 1] = line(life, outcome, e[18])
        if #history > HISTORY_LIMIT then
          table.remove(history, 1)
        end
        life.y = history
        if e[9] then
          life.u = now + e[9]
        end
        life.s = run_at_of(body, life) > now and state or 'q'
        life.h, life.g, life.i = nil, nil, nil
        enter_waiting(seq, body, life, queue)
        if e[14] then
          mind_key(e[14], id, nil)
        end
      end
      if lives[seq] then
        local kept = cmsgpack.pack(life)
        lives[seq] = kept
        gather('HSET', key, seq .. '~', kept)
      end
    end
  end
  flush()
  return answers
end
