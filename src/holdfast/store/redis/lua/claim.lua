-- CLAIM: make due jobs ready, take the lowest (priority, run_at, seq) per queue, count the attempt, raise the fence.
-- An ask is {holder, lease, about, queues, limit, token, tasks, busy}. Answers {suspect waiting, due in, now,
-- then seq, body, life, checkpoint of each job}. Finding nothing writes nothing.

local PROMOTE = 1000

local function promote(queue)
  local some = false
  for _, set in ipairs({ 'later:', 'retry:' }) do
    local due = call('ZRANGEBYSCORE', P .. set .. queue, '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, PROMOTE)
    some = some or #due > 0
    for at = 1, #due, 2 do
      local seq, priority, suspect = string.match(due[at], '^%l(%d+):(%-?%d+)(.*)$')
      gather('ZREM', P .. set .. queue, due[at])
      local ready = suspect == '' and 'ready:' or 'suspect:'
      gather('ZADD', P .. ready .. queue, priority, ready_member(tonumber(due[at + 1]), seq))
    end
  end
  if some then
    flush()
  end
end

-- {member, priority, ...} of the first jobs of a queue, of certain tasks only where they are given.
local function first_of(set, limit, tasks)
  if not tasks then
    return call('ZRANGE', set, 0, limit - 1, 'WITHSCORES')
  end
  local found, from = {}, 0
  while #found < 2 * limit do
    local some = call('ZRANGE', set, from, from + 199, 'WITHSCORES')
    for at = 1, #some, 2 do
      local seq = seq_of_ready(some[at])
      local body = call('HGET', chunk_of(seq), seq)
      if body then
        local _, _, task = words(body)
        if tasks[task] and #found < 2 * limit then
          found[#found + 1], found[#found + 2] = some[at], some[at + 1]
        end
      end
    end
    if #some < 400 then
      break
    end
    from = from + 200
  end
  return found
end

local function before(priority, member, other_priority, other_member)
  priority, other_priority = tonumber(priority), tonumber(other_priority)
  return priority < other_priority or (priority == other_priority and member < other_member)
end

-- The jobs to take from one queue as seqs, and whether a suspect whose turn it was had to be passed over.
local function pick(queue, ask, limit, some, tasks)
  if limit <= 0 then
    return {}, false, false
  end
  local ready = P .. 'ready:' .. queue
  local suspect = first_of(P .. 'suspect:' .. queue, 1, tasks)
  local sound
  if not suspect[1] and not tasks then
    sound = call('ZPOPMIN', ready, limit)
  else
    sound = first_of(ready, limit, tasks)
    local last = #sound - 1
    if suspect[1] and not ask[8] and not some
      and (not sound[1] or before(suspect[2], suspect[1], sound[2], sound[1])) then
      call('ZREM', P .. 'suspect:' .. queue, suspect[1])
      return { seq_of_ready(suspect[1]) }, false, true
    end
    for at = 1, #sound, 2 do
      gather('ZREM', ready, sound[at])
    end
    flush()
    if suspect[1] and (#sound < 2 * limit or before(suspect[2], suspect[1], sound[last + 1], sound[last])) then
      suspect.passed = true
    end
  end
  local seqs = {}
  for at = 1, #sound, 2 do
    seqs[#seqs + 1] = seq_of_ready(sound[at])
  end
  return seqs, suspect.passed or false, false
end

-- Renew the holder's lease where half of it is spent.
local function renew(holder, lease, about)
  local expires = call('ZSCORE', P .. 'holders', holder)
  if not expires or tonumber(expires) - now < math.floor(lease / 2) then
    call('HINCRBY', P .. 'holder:' .. holder, 'beat', 1)
    call('HSET', P .. 'holder:' .. holder, 'at', NOW)
    if not expires then
      call('HSET', P .. 'holder:' .. holder, 'about', about)
    end
    call('ZADD', P .. 'holders', text(now + lease), holder)
  end
end

-- Hand the jobs of one queue to the holder: seq, body, life and checkpoint of each are added to `answer`.
local function hand_over(queue, seqs, ask, answer)
  local held, fresh, rest = bucket('SADD', P .. 'held:' .. ask[1]), nil, nil
  local at, last, handed = 1, #seqs, 0
  while at <= last do
    -- Neighbours mostly stand in one hash: read them together.
    local key, fields, size = chunk_of(seqs[at]), {}, 0
    repeat
      fields[size + 1], fields[size + 2] = seqs[at], seqs[at] .. '~'
      size, at = size + 2, at + 1
    until at > last or size >= MANY or chunk_of(seqs[at]) ~= key
    local kept = call('HMGET', key, unpack(fields))
    local lives = bucket('HSET', key)
    local written, answered = #lives, #answer
    for n = 1, size, 2 do
      local body, life = kept[n], kept[n + 1]
      if body then
        local checkpoint, kept_life = false, nil
        if not life then
          -- Jobs that were never claimed have the same life from now on, but for `v`, which stands in front.
          fresh = fresh or cmsgpack.pack({ s = 'r', a = 1, f = 1, t = ask[6], h = ask[1], g = now, q = queue })
          rest = rest or string.sub(fresh, 2)
          life, kept_life = fresh, '\136\161v' .. packed_run_at(body) .. rest
        else
          life = cmsgpack.unpack(life)
          life.s, life.h, life.t, life.g, life.i, life.q = 'r', ask[1], ask[6], now, nil, queue
          life.a, life.f, life.v = (life.a or 0) + 1, (life.f or 0) + 1, run_at_of(body, life)
          checkpoint = life.k and call('HGET', key, fields[n] .. '^') or false
          life = cmsgpack.pack(life)
          kept_life = life
        end
        if somebody_watches() then
          tell((words(body)), 'r')
        end
        lives[written + 1], lives[written + 2] = fields[n + 1], kept_life
        written, handed = written + 2, handed + 1
        held[#held + 1] = fields[n]
        answer[answered + 1], answer[answered + 2] = fields[n], body
        answer[answered + 3], answer[answered + 4] = life, checkpoint
        answered = answered + 4
      end
    end
  end
  count('r', queue, handed)
end

local function next_due(queues, paused)
  local soonest
  for at, queue in ipairs(queues) do
    for _, set in ipairs({ 'later:', 'retry:' }) do
      local first = not paused[at] and call('ZRANGE', P .. set .. queue, 0, 0, 'WITHSCORES')[2]
      if first and (not soonest or tonumber(first) < soonest) then
        soonest = tonumber(first)
      end
    end
  end
  return soonest and math.max(0, soonest - now) or -1
end

local function claim(ask)
  local queues, limit, tasks = ask[4], ask[5], nil
  if ask[7] then
    tasks = {}
    for _, task in ipairs(ask[7]) do
      tasks[task] = true
    end
  end
  local answer, waiting, taken = { 0, -1, NOW }, false, 0
  if not queues[1] then
    return answer
  end
  local paused = call('HMGET', P .. 'records:pause', unpack(queues))
  local hands = {}
  for at, queue in ipairs(queues) do
    if not paused[at] then
      promote(queue)
      local seqs, passed, alone = pick(queue, ask, limit - taken, taken > 0, tasks)
      waiting = waiting or passed
      if #seqs > 0 then
        hands[#hands + 1] = { queue, seqs }
        taken = taken + #seqs
      end
      if alone or taken >= limit then
        break
      end
    end
  end
  answer[1] = waiting and 1 or 0
  if taken == 0 then
    answer[2] = next_due(queues, paused)
    return answer
  end
  renew(ask[1], ask[2], ask[3])
  for _, hand in ipairs(hands) do
    hand_over(hand[1], hand[2], ask, answer)
  end
  flush()
  return answer
end
