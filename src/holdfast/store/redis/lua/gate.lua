-- GATE: whether jobs of a lane may start, what is set aside until they may, and what is let go again. The rules are
-- those of core/limiter.py. A job that is set aside has only changed its sorted set, as one that becomes due.

local AT_ONCE = 100 -- lanes that are looked into together

-- running, interval, burst by the text of these numbers: few lanes have numbers of their own.
local bounds_of = {}

local function parse_bounds(numbers)
  local running, interval, burst = string.match(numbers, '^(%d+),(%d+),(%d+)')
  local bounds = { running = tonumber(running), interval = tonumber(interval), burst = tonumber(burst) }
  bounds_of[numbers] = bounds
  return bounds
end

-- What a claim knows of the lanes that it has met: their `names` and where it is kept how many of each run (`keys`);
-- by name, how many that are, the times of its gate, how many of its jobs the claim has chosen, and the intervals that
-- they use up; and, where the claim has looked at what is held, when to look again (false: when a job leaves).
local function new_gates()
  return {
    names = {}, keys = {}, running = {}, tat = {}, rest_until = {}, chosen = {}, used = {}, opens_at = {},
  }
end

-- Read one of these of many lanes.
local function learn(values, lanes, command, key, list)
  local known = each_of(command, key, list)
  for at = 1, #lanes do
    values[lanes[at]] = tonumber(known[at]) or 0
  end
end

local function somebody_rests()
  local last = call('ZREVRANGE', P .. 'lane-rest', 0, 0, 'WITHSCORES')[SCORED.score]
  return last and tonumber(last) > now
end

-- Meet the lanes of {member, priority, ...}. Returns numbers, bounds and lanes of the jobs; false for each that has no
-- lane.
local function meet(some, gates)
  local seqs, bounds, lanes = {}, {}, {}
  local chosen, tat = gates.chosen, gates.tat
  local new, keys, paced = {}, {}, {}
  for n = 1, #some / 2 do
    local seq, numbers, lane = string.match(some[2 * n - 1], '^(%d+):(%d+,%d+,%d+,%d+),(.*)$', 18)
    local its = seq and (bounds_of[numbers] or parse_bounds(numbers))
    if its and not chosen[lane] then
      chosen[lane] = 0
      local size = #new + 1
      new[size], keys[size] = lane, runs_key(lane)
    end
    if its and its.interval > 0 and not tat[lane] then
      tat[lane] = 0
      paced[#paced + 1] = lane
    end
    seqs[n], bounds[n], lanes[n] = seq or false, its or false, lane or false
  end
  learn(gates.running, new, 'MGET', nil, keys)
  learn(tat, paced, 'ZMSCORE', P .. 'lane-pace', paced)
  if new[1] and somebody_rests() then
    learn(gates.rest_until, new, 'ZMSCORE', P .. 'lane-rest', new)
  end
  for at = 1, #new do
    local size = #gates.names + 1
    gates.names[size], gates.keys[size] = new[at], keys[at]
  end
  return seqs, bounds, lanes
end

-- How many jobs of a lane may start now.
local function starts(lane, bounds, gates)
  if (gates.rest_until[lane] or 0) > now then
    return 0
  end
  local many = bounds.running > 0 and bounds.running - gates.running[lane] or math.huge
  local interval, tat = bounds.interval, gates.tat[lane]
  if interval > 0 then
    local spare = (bounds.burst - 1) * interval - (tat > now and tat - now or 0)
    many = math.min(many, (spare - spare % interval) / interval + 1)
  end
  return many > 0 and many or 0
end

-- When to look again at what is still held, once as many as could were let go; false: when a job of it leaves.
local function next_look(lane, bounds, gates)
  if bounds.running > 0 and gates.running[lane] + gates.chosen[lane] >= bounds.running then
    return false
  end
  local when = gates.rest_until[lane] or 0
  if bounds.interval > 0 then
    when = math.max(when, gates.tat[lane] - (bounds.burst - 1) * bounds.interval)
  end
  return when > now and when or now + (bounds.interval > 0 and bounds.interval or LOOK_AGAIN)
end

-- Write what a claim has made of the gates that it met.
local function close(gates)
  local runs, size = {}, 0
  for at = 1, #gates.names do
    local lane = gates.names[at]
    local number = gates.chosen[lane]
    if number > 0 then
      runs[size + 1], runs[size + 2] = gates.keys[at], gates.running[lane] + number
      size = size + 2
    end
  end
  many('MSET', nil, runs)
  for lane, used in pairs(gates.used) do
    gather('ZADD', P .. 'lane-pace', text(math.max(gates.tat[lane], now) + used), lane)
  end
  for lane, when in pairs(gates.opens_at) do
    if when then
      gather('ZADD', P .. 'lane-opens', text(when), lane)
    else
      gather('ZREM', P .. 'lane-opens', lane)
    end
  end
end

-- Have those of {member, priority, ...} that stand at these places wait for their lanes; they have left their queue.
local function hold(queue, places, some, seqs, lanes)
  local wanted = {}
  for _, n in ipairs(places) do
    gather('ZADD', held_key(lanes[n]), some[2 * n], some[2 * n - 1])
    add(wanted, chunk_of(seqs[n]), seqs[n] .. '~')
  end
  count(STATE.blocked, queue, #places)
  for field, kept in pairs(read_fields(wanted)) do
    local life = kept and life_of(kept)
    if life and life.waits then
      local seq = string.sub(field, 1, -2)
      wait_for(life, seq, nil)
      gather('HSET', chunk_of(seq), field, cmsgpack.pack(life))
    end
  end
end

-- Put held jobs back into their queues: {member, priority, ...}.
local function put_back(some)
  local wanted, seqs = {}, {}
  for at = 1, #some, 2 do
    local seq = seq_of_ready(some[at])
    seqs[at] = seq
    add(wanted, chunk_of(seq), seq, seq .. '~')
  end
  local kept = read_fields(wanted)
  for at = 1, #some, 2 do
    local body, life = kept[seqs[at]], kept[seqs[at] .. '~']
    if body then
      local _, queue = words(body)
      local suspect = life and life_of(life)[LIFE.suspect]
      count(STATE.blocked, queue, -1)
      gather('ZADD', P .. (suspect and 'suspect:' or 'ready:') .. queue, some[at + 1], some[at])
    end
  end
end

-- Make held jobs of lanes ready, as many as may start; returns how many they are.
local function let_go(names, gates)
  local first, more = {}, {}
  for _, name in ipairs(names) do
    local front = call('ZRANGE', held_key(name), 0, 1, 'WITHSCORES')
    if front.member and not string.match(front.member, '^%d+%l%d+:%d+,%d+,%d+,%d+,') then
      gather('ZREM', held_key(name), front.member) -- no job stands like that
    elseif front.member then
      first[#first + 1], first[#first + 2] = front.member, front.score
      more[#first / 2] = front.following
    else
      gather('ZREM', P .. 'lane-opens', name)
    end
  end
  local going = {}
  local _, bounds, lanes = meet(first, gates)
  for at, lane in ipairs(lanes) do
    local key, free = held_key(lane), math.min(PROMOTE_LIMIT, starts(lane, bounds[at], gates))
    local some, left = { first[2 * at - 1], first[2 * at] }, more[at]
    if free > 1 and left then
      some = call('ZRANGE', key, 0, free, 'WITHSCORES')
      left = some[2 * free + 1]
    end
    for n = 1, 2 * math.min(free, #some / 2), 2 do
      gather('ZREM', key, some[n])
      going[#going + 1], going[#going + 2] = some[n], some[n + 1]
    end
    gates.opens_at[lane] = false
    if free == 0 or left then
      gates.opens_at[lane] = free == PROMOTE_LIMIT and now or next_look(lane, bounds[at], gates)
    end
  end
  put_back(going)
  return #going / 2
end

-- When the first gate opens; nil where none does by the clock.
local function next_opening()
  return tonumber(call('ZRANGE', P .. 'lane-opens', 0, 0, 'WITHSCORES')[SCORED.score])
end

-- Look into the lanes whose time has come. Where they let many go at once, the rest of them are for the next claim.
local function reopen(gates)
  local names = call('ZRANGEBYSCORE', P .. 'lane-opens', '-inf', NOW, 'LIMIT', 0, HELD_LIMIT)
  local first, number = 1, 0
  while names[first] and number < PROMOTE_LIMIT do
    number = number + let_go({ unpack(names, first, first + AT_ONCE - 1) }, gates)
    first = first + AT_ONCE
  end
  flush()
end
