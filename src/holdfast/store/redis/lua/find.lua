-- FIND: one bounded step towards a page of jobs, newest first.
-- ARGV[1] is {before, limit, states, queue, task, tag, finished_before, waits, lane}: absent parts match everything;
-- `lane` is the name of the one that holds the job.
-- Answers {where the next step begins or nothing, then five values for each job found}.

local LOOK = 2000 -- jobs that one step looks at
local BYTES = 4 * 1024 * 1024 -- of bodies that one step reads
local FEW = 5000 -- so many are sorted at once; more are found by walking back from the newest

local want = cmsgpack.unpack(ARGV[1])
local before, limit, states = want[1] or math.huge, want[2], nil
if want[3] then
  states = {}
  for _, state in ipairs(want[3]) do
    states[state] = true
  end
end

local answer, found, bytes = { false }, 0, 0

local function has_tag(tags)
  local ok, list = pcall(cjson.decode, tags or '[]')
  for _, tag in ipairs(ok and type(list) == 'table' and list or {}) do
    if tag == want[6] then
      return true
    end
  end
  return false
end

-- Add a job if it matches.
local function look_at(seq)
  local kept = call('HMGET', chunk_of(seq), seq, seq .. '~')
  local body = kept[1]
  if not body then
    return
  end
  bytes = bytes + #body
  local _, queue, task, tags = words(body)
  if (want[4] and queue ~= want[4]) or (want[5] and task ~= want[5]) or (want[6] and not has_tag(tags)) then
    return
  end
  if states or want[7] or want[9] then
    local life = kept[2] and life_of(kept[2])
    local state = (states or want[9]) and state_of(seq, body, life)
    if want[9] and not (state == 'h' and name_of(lane_of(body)) == want[9]) then
      return
    end
    if states and not states[(state == 'h' or state == 'D') and 'b' or state] then
      return
    end
    if want[7] and not (life and life.z and life.z < want[7]) then
      return
    end
  end
  if add_job(answer, seq) then
    found = found + 1
  end
end

-- The sets that know the jobs that a lane holds, or those in these states: {key, how its members begin}; nil where
-- there are none.
local function known_sets()
  if want[9] then
    return { { P .. 'lane-held:' .. want[9], 'time' } }
  end
  if not states or states.s or states.b then
    return nil
  end
  local sets = {}
  local function add(key, begins)
    sets[#sets + 1] = { P .. key, begins }
  end
  if states.r then
    for _, holder in ipairs(call('ZRANGE', P .. 'holders', 0, -1)) do
      add('held:' .. holder, 'number')
    end
  end
  if states.d or states.c then
    add('parked', 'number')
  end
  local queues = want[4] and { want[4] } or {}
  if not want[4] then
    for _, field in ipairs(call('HKEYS', P .. 'counts')) do
      if string.sub(field, 1, 2) == 't:' then
        queues[#queues + 1] = string.sub(field, 3)
      end
    end
  end
  for _, queue in ipairs(queues) do
    if states.q then
      add('ready:' .. queue, 'time')
      add('suspect:' .. queue, 'time')
    end
    if states.w then
      add('later:' .. queue, 'number')
    end
    if states.f then
      add('retry:' .. queue, 'number')
    end
  end
  return sets
end

-- The seqs that these sets know, newest first, where they are few; else nil.
local function few_of(sets)
  local seqs, total = {}, 0
  for _, set in ipairs(sets) do
    local held = string.find(set[1], P .. 'held:', 1, true) == 1
    total = total + call(held and 'SCARD' or 'ZCARD', set[1])
    if total > FEW then
      return nil
    end
    for _, member in ipairs(held and call('SMEMBERS', set[1]) or call('ZRANGE', set[1], 0, -1)) do
      local seq = tonumber(set[2] == 'time' and seq_of_ready(member) or string.match(member, '^%l?(%d+)'))
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

-- Look at each; whether the step is over before all were seen.
local function look_through(seqs, looked)
  for _, seq in ipairs(seqs) do
    if looked[1] >= LOOK or bytes >= BYTES then
      answer[1] = text(before)
      return true
    end
    before = tonumber(seq)
    look_at(text(before))
    looked[1] = looked[1] + 1
    if found >= limit then
      return true
    end
  end
  return false
end

local looked = { 0 }
local function below(per)
  return before == math.huge and '+inf' or text(math.floor((before - 1) / per))
end
if want[8] then
  local some = call('ZREVRANGEBYSCORE', P .. 'waits:' .. want[8], below(1), '-inf', 'LIMIT', 0, LOOK)
  if not look_through(some, looked) and #some == LOOK then
    answer[1] = text(before)
  end
  return answer
end
local sets = known_sets()
local few = sets and few_of(sets)
if few then
  look_through(few, looked)
  return answer
end
local chunks = call('ZREVRANGEBYSCORE', P .. 'chunks', below(PER_CHUNK), '-inf', 'LIMIT', 0, LOOK)
for _, chunk in ipairs(chunks) do
  if look_through(seqs_of(chunk), looked) then
    return answer
  end
end
if #chunks == LOOK then
  answer[1] = text(before)
end
return answer
