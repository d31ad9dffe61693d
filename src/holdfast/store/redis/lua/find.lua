-- FIND: one bounded step towards a page of jobs, newest first.
-- ARGV[1] is a FindMessage. Answers with a FoundHead, then a JobRow of each job found.

local LOOK = 2000 -- jobs, or chunks of jobs, that one step reads
local LOT = 32 -- members of a sorted set that are read at once: a page may need only the first
local BYTES = 4 * 1024 * 1024 -- of bodies that one step reads
local FEW = 5000 -- up to so many are sorted at once; more are found by reading backwards from the newest

local want = cmsgpack.unpack(ARGV[1])
local before, limit, states = want.before or math.huge, want.limit, nil
if want.states then
  states = {}
  for _, state in ipairs(want.states) do
    states[state] = true
  end
end

local answer, found, bytes = { false, 0 }, 0, 0

local function has_tag(tags)
  local ok, list = pcall(cjson.decode, tags or '[]')
  for _, tag in ipairs(ok and type(list) == 'table' and list or {}) do
    if tag == want.tag then
      return true
    end
  end
  return false
end

-- Add a job if it matches.
local function look_at(seq)
  local kept = call('HMGET', chunk_of(seq), seq, seq .. '~')
  local body = kept.body
  if not body then
    return
  end
  bytes = bytes + #body
  if want.queue or want.task or want.tag then
    local _, queue, task, tags = words(body)
    if (want.queue and queue ~= want.queue) or (want.task and task ~= want.task) or (want.tag and not has_tag(tags)) then
      return
    end
  end
  local mutable = kept.mutable and mutable_of(kept.mutable)
  if want.finished_before and not (mutable and mutable.finished_at and mutable.finished_at < want.finished_before) then
    return
  end
  local state = state_of(seq, body, mutable)
  if want.limit_key and not (state == STATE.deferred and name_of(limit_key_of(body)) == want.limit_key) then
    return
  end
  if states and not states[(state == STATE.deferred or state == STATE.unreadable) and STATE.blocked or state] then
    return
  end
  add_row(answer, seq, state, kept, mutable)
  found = found + 1
end

-- The sets with the deferred jobs of a limit key, or the jobs in these states, each a KnownSet; nil if there are none.
local function known_sets()
  if want.limit_key then
    return { { P .. 'limit_key-deferred:' .. want.limit_key, 'time' } }
  end
  if not states or states[STATE.succeeded] then
    return nil
  end
  for state in pairs(UNTIMED) do
    if states[state] then
      return nil
    end
  end
  local sets = {}
  local function add(key, begins)
    sets[#sets + 1] = { P .. key, begins }
  end
  if states[STATE.running] then
    for _, holder in ipairs(call('ZRANGE', P .. 'holders', 0, -1)) do
      add('held:' .. holder, 'number')
    end
  end
  for state in pairs(TERMINAL) do
    if states[state] then -- not succeeded: see above
      add(UNSUCCESSFUL, 'number')
      break
    end
  end
  local queues = want.queue and { want.queue } or {}
  if not want.queue then
    for _, field in ipairs(call('HKEYS', P .. 'counts')) do
      if string.sub(field, 1, 2) == TOTAL .. ':' then
        queues[#queues + 1] = string.sub(field, 3)
      end
    end
  end
  for _, queue in ipairs(queues) do
    if states[STATE.queued] then
      add('ready:' .. queue, 'time')
      add('quarantined:' .. queue, 'time')
    end
    if states[STATE.scheduled] then
      add('later:' .. queue, 'number')
    end
    if states[STATE.failed] then
      add('retry:' .. queue, 'number')
    end
  end
  return sets
end

-- The seqs in these sets, newest first, if they are few; else nil.
local function few_of(sets)
  local seqs, total = {}, 0
  for _, set in ipairs(sets) do
    local held = string.find(set.key, P .. 'held:', 1, true) == 1
    total = total + call(held and 'SCARD' or 'ZCARD', set.key)
    if total > FEW then
      return nil
    end
    for _, member in ipairs(held and call('SMEMBERS', set.key) or call('ZRANGE', set.key, 0, -1)) do
      local seq = tonumber(set.begins == 'time' and seq_of_ready(member) or string.match(member, '^%l?(%d+)'))
      if seq and seq < before then
        seqs[#seqs + 1] = seq
      end
    end
  end
  table.sort(seqs, function(one, other) return one > other end)
  return seqs
end

-- The seqs of one chunk below `before`, newest first.
local function seqs_of(chunk)
  local seqs = {}
  for _, field in ipairs(call('HKEYS', P .. 'jobs:' .. chunk)) do
    local seq = tonumber(field)
    if seq and seq < before then
      seqs[#seqs + 1] = seq
    end
  end
  table.sort(seqs, function(one, other) return one > other end)
  return seqs
end

-- Check each job; returns whether the step ended before all were checked.
local looked = 0
local function look_through(seqs)
  for _, seq in ipairs(seqs) do
    if looked >= LOOK or bytes >= BYTES then
      answer[FOUND.before] = text(before)
      return true
    end
    before = tonumber(seq)
    look_at(text(before))
    looked = looked + 1
    answer[FOUND.looked] = looked
    if found >= limit then
      return true
    end
  end
  return false
end

local function below(per)
  return before == math.huge and '+inf' or text(math.floor((before - 1) / per))
end

-- The sorted set by number that has every job that can match; nil if there is none.
local function set_by_number()
  if want.waiting_for then
    return P .. 'waiting_for:' .. want.waiting_for
  end
  for state in pairs(states or { [STATE.succeeded] = true }) do
    if not TERMINAL[state] or state == STATE.succeeded then
      return nil
    end
  end
  return P .. UNSUCCESSFUL .. (want.queue and ':' .. want.queue or '')
end

-- Look through the jobs of a sorted set's members, each a number, from the highest that is not above `top`.
local function descend(set, top, jobs_of)
  local read = 0
  repeat
    local lot = call('ZREVRANGEBYSCORE', set, top, '-inf', 'LIMIT', 0, LOT)
    for _, member in ipairs(lot) do
      if look_through(jobs_of(member)) then
        return
      end
      top = '(' .. member
    end
    read = read + #lot
  until #lot < LOT or read >= LOOK
  if read >= LOOK then
    answer[FOUND.before] = text(before)
  end
end

local by_number = set_by_number()
if by_number then
  descend(by_number, below(1), function(seq) return { seq } end)
  return answer
end
local sets = known_sets()
local few = sets and few_of(sets)
if few then
  look_through(few)
  return answer
end
descend(P .. 'chunks', below(PER_CHUNK), seqs_of)
return answer
