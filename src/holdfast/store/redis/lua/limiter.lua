-- LIMITER: whether jobs of a limit key may start; defers jobs that may not, and releases them later. core/limiter.py has
-- the rules. A deferred job has only changed its sorted set, like one that becomes due.

local AT_ONCE = 100 -- limit keys that are checked together

-- concurrency, interval, burst by the text of these numbers: most limit keys share them.
local bounds_of = {}

local function parse_bounds(numbers)
  local concurrency, interval, burst = string.match(numbers, '^(%d+),(%d+),(%d+)')
  local bounds = { concurrency = tonumber(concurrency), interval = tonumber(interval), burst = tonumber(burst) }
  bounds_of[numbers] = bounds
  return bounds
end

-- The limit keys that a claim has read: their `names`, and the `keys` of their running counts; by name, the running
-- count, the times of its limiter, the jobs that the claim has chosen, and the intervals that they use; and, if the
-- claim has checked its deferred jobs, when to check again (false: when a job leaves).
local function new_limiters(queues, room)
  local asked = {}
  for _, queue in ipairs(queues) do
    asked[queue] = true
  end
  return {
    names = {}, keys = {}, running = {}, tat = {}, rest_until = {}, chosen = {}, used = {}, opens_at = {},
    asked = asked, room = room,
  }
end

-- Read one of these values for many limit keys.
local function learn(values, limit_keys, command, key, list)
  local known = each_of(command, key, list)
  for at = 1, #limit_keys do
    values[limit_keys[at]] = tonumber(known[at]) or 0
  end
end

local function any_resting()
  local last = call('ZREVRANGE', P .. 'limit_key-rest', 0, 0, 'WITHSCORES')[SCORED.score]
  return last and tonumber(last) > now
end

-- Read the limit keys of {member, priority, ...}. Returns seqs, bounds and limit keys of the jobs; false for each job
-- without a limit key.
local function meet(some, limiters)
  local seqs, bounds, limit_keys = {}, {}, {}
  local chosen, tat = limiters.chosen, limiters.tat
  local new, keys, with_rate = {}, {}, {}
  for n = 1, #some / 2 do
    local seq, numbers, limit_key = string.match(some[2 * n - 1], '^(%d+):(%d+,%d+,%d+,%d+),(.*)$', 18)
    local its = seq and (bounds_of[numbers] or parse_bounds(numbers))
    if its and not chosen[limit_key] then
      chosen[limit_key] = 0
      local size = #new + 1
      new[size], keys[size] = limit_key, runs_key(limit_key)
    end
    if its and its.interval > 0 and not tat[limit_key] then
      tat[limit_key] = 0
      with_rate[#with_rate + 1] = limit_key
    end
    seqs[n], bounds[n], limit_keys[n] = seq or false, its or false, limit_key or false
  end
  learn(limiters.running, new, 'MGET', nil, keys)
  learn(tat, with_rate, 'ZMSCORE', P .. 'limit_key-tat', with_rate)
  if new[1] and any_resting() then
    learn(limiters.rest_until, new, 'ZMSCORE', P .. 'limit_key-rest', new)
  end
  for at = 1, #new do
    local size = #limiters.names + 1
    limiters.names[size], limiters.keys[size] = new[at], keys[at]
  end
  return seqs, bounds, limit_keys
end

-- How many jobs of a limit key may start now.
local function starts(limit_key, bounds, limiters)
  if (limiters.rest_until[limit_key] or 0) > now then
    return 0
  end
  local many = bounds.concurrency > 0 and bounds.concurrency - limiters.running[limit_key] or math.huge
  local interval, tat = bounds.interval, limiters.tat[limit_key]
  if interval > 0 then
    local spare = (bounds.burst - 1) * interval - (tat > now and tat - now or 0)
    many = math.min(many, (spare - spare % interval) / interval + 1)
  end
  return many > 0 and many or 0
end

-- When to check the remaining deferred jobs of a limit key, after a release; false: when a job of it leaves.
local function next_look(limit_key, bounds, limiters)
  if bounds.concurrency > 0 and limiters.running[limit_key] + limiters.chosen[limit_key] >= bounds.concurrency then
    return false
  end
  local when = limiters.rest_until[limit_key] or 0
  if bounds.interval > 0 then
    when = math.max(when, limiters.tat[limit_key] - (bounds.burst - 1) * bounds.interval)
  end
  return when > now and when or now + (bounds.interval > 0 and bounds.interval or LOOK_AGAIN)
end

-- Write the changes of a claim to the limiters that it has read.
local function close(limiters)
  local runs, size = {}, 0
  for at = 1, #limiters.names do
    local limit_key = limiters.names[at]
    local number = limiters.chosen[limit_key]
    if number > 0 then
      runs[size + 1], runs[size + 2] = limiters.keys[at], limiters.running[limit_key] + number
      size = size + 2
    end
  end
  many('MSET', nil, runs)
  for limit_key, used in pairs(limiters.used) do
    gather('ZADD', P .. 'limit_key-tat', text(math.max(limiters.tat[limit_key], now) + used), limit_key)
  end
  for limit_key, when in pairs(limiters.opens_at) do
    if when then
      gather('ZADD', P .. 'limit_key-opens', text(when), limit_key)
    else
      gather('ZREM', P .. 'limit_key-opens', limit_key)
    end
  end
end

-- Defer the jobs at these places of {member, priority, ...}, which were taken out of their queue.
local function defer(queue, places, some, seqs, limit_keys)
  local wanted = {}
  for _, n in ipairs(places) do
    gather('ZADD', deferred_key(limit_keys[n]), some[2 * n], some[2 * n - 1])
    add(wanted, chunk_of(seqs[n]), seqs[n] .. '~')
  end
  count(STATE.blocked, queue, #places)
  for field, kept in pairs(read_fields(wanted)) do
    local mutable = kept and mutable_of(kept)
    if mutable and mutable.waiting_for then
      local seq = string.sub(field, 1, -2)
      wait_for(mutable, seq, nil)
      gather('HSET', chunk_of(seq), field, cmsgpack.pack(mutable))
    end
  end
end

-- Put deferred jobs, {member, priority, ...}, back into their queues. Notify the workers that can take what this claim
-- leaves.
local function requeue(some, limiters)
  local wanted, seqs = {}, {}
  for at = 1, #some, 2 do
    local seq = seq_of_ready(some[at])
    seqs[at] = seq
    add(wanted, chunk_of(seq), seq, seq .. '~')
  end
  local kept = read_fields(wanted)
  for at = 1, #some, 2 do
    local body, mutable = kept[seqs[at]], kept[seqs[at] .. '~']
    if body then
      local _, queue = words(body)
      local quarantined = mutable and mutable_of(mutable)[MUTABLE.quarantined]
      count(STATE.blocked, queue, -1)
      gather('ZADD', P .. (quarantined and 'quarantined:' or 'ready:') .. queue, some[at + 1], some[at])
      limiters.room = limiters.room - 1
      if limiters.room < 0 or not limiters.asked[queue] then
        notified['queue/' .. queue] = true
      end
    end
  end
end

-- Release deferred jobs of limit keys, as many as may start; returns their number.
local function release(names, limiters)
  local first, more = {}, {}
  for _, name in ipairs(names) do
    local front = call('ZRANGE', deferred_key(name), 0, 1, 'WITHSCORES')
    if front.member and not string.match(front.member, '^%d+%l%d+:%d+,%d+,%d+,%d+,') then
      gather('ZREM', deferred_key(name), front.member) -- not the member of a job
    elseif front.member then
      first[#first + 1], first[#first + 2] = front.member, front.score
      more[#first / 2] = front.following
    else
      gather('ZREM', P .. 'limit_key-opens', name)
    end
  end
  local going = {}
  local _, bounds, limit_keys = meet(first, limiters)
  for at, limit_key in ipairs(limit_keys) do
    local key, free = deferred_key(limit_key), math.min(PROMOTE_LIMIT, starts(limit_key, bounds[at], limiters))
    local some, left = { first[2 * at - 1], first[2 * at] }, more[at]
    if free > 1 and left then
      some = call('ZRANGE', key, 0, free, 'WITHSCORES')
      left = some[2 * free + 1]
    end
    for n = 1, 2 * math.min(free, #some / 2), 2 do
      gather('ZREM', key, some[n])
      going[#going + 1], going[#going + 2] = some[n], some[n + 1]
    end
    limiters.opens_at[limit_key] = false
    if free == 0 or left then
      limiters.opens_at[limit_key] = free == PROMOTE_LIMIT and now or next_look(limit_key, bounds[at], limiters)
    end
  end
  requeue(going, limiters)
  return #going / 2
end

-- When to check the first limit key; nil where no time is set.
local function next_opening()
  return tonumber(call('ZRANGE', P .. 'limit_key-opens', 0, 0, 'WITHSCORES')[SCORED.score])
end

-- Check the limit keys whose time has come. If they release many jobs, the next claim checks the rest.
local function reopen(limiters)
  local names = call('ZRANGEBYSCORE', P .. 'limit_key-opens', '-inf', NOW, 'LIMIT', 0, DEFER_LIMIT)
  local first, number = 1, 0
  while names[first] and number < PROMOTE_LIMIT do
    number = number + release({ unpack(names, first, first + AT_ONCE - 1) }, limiters)
    first = first + AT_ONCE
  end
  flush()
end
