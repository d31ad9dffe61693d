-- GATE: whether jobs of a lane may start, what is set aside until they may, and what is let go again. The rules are
-- those of store/gate.py. A job that is set aside has only changed its sorted set, as one that becomes due.

local PROMOTE = 1000 -- due or held jobs that one claim makes ready per set
local HELD_LIMIT = 1000 -- jobs that one claim sets aside, and lanes that it looks into

-- What a claim knows of a lane: `gates` has the times and the number of running jobs of each that it has met.
local function gate_of(lane, gates)
  local name = name_of(lane)
  local gate = gates[name]
  if not gate then
    gate = { name = name, started = 0, running = call('SCARD', lane_key('runs', lane)) }
    gate.tat = tonumber(call('ZSCORE', P .. 'lane-pace', name) or 0)
    gate.rest_until = tonumber(call('ZSCORE', P .. 'lane-rest', name) or 0)
    gates[name] = gate
  end
  return gate
end

-- running, interval, burst
local function numbers_of(lane)
  local running, interval, burst = string.match(lane, '^(%d+),(%d+),(%d+)')
  return tonumber(running), tonumber(interval), tonumber(burst)
end

-- How many jobs of a lane may start now.
local function starts(lane, gate)
  if gate.rest_until > now then
    return 0
  end
  local running, interval, burst = numbers_of(lane)
  local many = running > 0 and math.max(0, running - gate.running) or math.huge
  if interval > 0 then
    local spare = (burst - 1) * interval - (math.max(gate.tat, now) - now)
    many = math.min(many, spare < 0 and 0 or math.floor(spare / interval) + 1)
  end
  return many
end

-- When to look again at what is still held, once as many as could were let go; nil: when a job of it leaves.
local function next_look(lane, gate)
  local running, interval, burst = numbers_of(lane)
  local when = gate.rest_until
  if interval > 0 then
    when = math.max(when, gate.tat - (burst - 1) * interval)
  end
  if when > now then
    return when
  elseif interval == 0 or (running > 0 and gate.running >= running) then
    return nil
  end
  return now + interval
end

-- What a claim makes of the gates that it has met: the chosen jobs start (`lanes`, by number), and of lanes that jobs
-- were set aside for it is known when to look again.
local function start(lanes, gates)
  for seq, lane in pairs(lanes) do
    local gate = gates[name_of(lane)]
    local _, interval = numbers_of(lane)
    gather('SADD', lane_key('runs', lane), seq)
    if interval > 0 then
      gate.tat = math.max(gate.tat, now) + interval
      gather('ZADD', P .. 'lane-pace', text(gate.tat), gate.name)
    end
  end
  for name, gate in pairs(gates) do
    if gate.opens_at then
      gather('ZADD', P .. 'lane-opens', text(gate.opens_at), name)
    end
  end
end

-- Set a job aside that was taken out of its queue.
local function hold(queue, member, priority, gate)
  local seq, lane = seq_of_ready(member)
  local key, field = chunk_of(seq), seq .. '~'
  local kept = call('HGET', key, field)
  local life = kept and cmsgpack.unpack(kept)
  if life and life.W then
    wait_for(life, seq, nil)
    gather('HSET', key, field, cmsgpack.pack(life))
  end
  count('b', queue, 1)
  gather('ZADD', lane_key('held', lane), priority, member)
  gather('ZREM', P .. 'lane-opens', gate.name)
  gate.opens_at = next_look(lane, gate)
end

-- Make held jobs of a lane ready, as many as may start; returns how many they are.
local function let_go(name, gates)
  local held = P .. 'lane-held:' .. name
  local first = call('ZRANGE', held, 0, 0)[1]
  gather('ZREM', P .. 'lane-opens', name)
  if not first then
    return 0
  end
  local _, lane = seq_of_ready(first)
  local gate = gate_of(lane, gates)
  local free = math.min(PROMOTE, starts(lane, gate))
  local some = free > 0 and call('ZRANGE', held, 0, free - 1, 'WITHSCORES') or {}
  for at = 1, #some, 2 do
    local seq = seq_of_ready(some[at])
    local kept = call('HMGET', chunk_of(seq), seq, seq .. '~')
    local _, queue = words(kept[1])
    local suspect = kept[2] and cmsgpack.unpack(kept[2]).p
    count('b', queue, -1)
    gather('ZREM', held, some[at])
    gather('ZADD', P .. (suspect and 'suspect:' or 'ready:') .. queue, some[at + 1], some[at])
  end
  local opens_at = free == PROMOTE and now or next_look(lane, gate)
  if opens_at and call('ZCARD', held) > #some / 2 then
    gather('ZADD', P .. 'lane-opens', text(opens_at), name)
  end
  return #some / 2
end

-- When the first gate opens; nil where none does by the clock.
local function next_opening()
  return tonumber(call('ZRANGE', P .. 'lane-opens', 0, 0, 'WITHSCORES')[2])
end

-- Look into the lanes whose time has come. Where they let many go at once, the rest of them are for the next claim.
local function reopen(gates)
  local names = call('ZRANGEBYSCORE', P .. 'lane-opens', '-inf', NOW, 'LIMIT', 0, HELD_LIMIT)
  local at, number = 1, 0
  while names[at] and number < PROMOTE do
    number = number + let_go(names[at], gates)
    at = at + 1
  end
  flush()
end
