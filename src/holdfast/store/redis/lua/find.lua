-- FIND: one bounded step towards a page of jobs, newest first.
-- ARGV[1] is {before, limit, states, queue, task, tag, finished_before}: absent parts match everything.
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
  for _, tag in ipairs(tags and cjson.decode(tags) or {}) do
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
  if states or want[7] then
    local life = kept[2] and cmsgpack.unpack(kept[2])
    if states and not states[state_of(seq, body, life)] then
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

-- The seqs of all jobs in these states where sets know them and they are few; else nil.
local function known_few()
  if not states or states.s or states.b then
    return nil
  end
  local sets, total = {}, 0
  local function add(key, command, of)
    local size = call(of, key)
    total = total + size
    if size > 0 then
      sets[#sets + 1] = { key, command }
    end
  end
  if states.r then
    for _, holder in ipairs(call('ZRANGE', P .. 'holders', 0, -1)) do
      add(P .. 'held:' .. holder, 'SMEMBERS', 'SCARD')
    end
  end
  if states.d or states.c then
    add(P .. 'parked', 'ZRANGE', 'ZCARD')
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
      add(P .. 'ready:' .. queue, 'ZRANGE', 'ZCARD')
      add(P .. 'suspect:' .. queue, 'ZRANGE', 'ZCARD')
    end
    if states.w then
      add(P .. 'later:' .. queue, 'ZRANGE', 'ZCARD')
    end
    if states.f then
      add(P .. 'retry:' .. queue, 'ZRANGE', 'ZCARD')
    end
    if total > FEW then
      return nil
    end
  end
  local seqs = {}
  for _, set in ipairs(sets) do
    local members = set[2] == 'ZRANGE' and call('ZRANGE', set[1], 0, -1) or call('SMEMBERS', set[1])
    local ready = string.find(set[1], P .. 'ready:', 1, true) == 1 or string.find(set[1], P .. 'suspect:', 1, true) == 1
    for _, member in ipairs(members) do
      local seq = tonumber(ready and seq_of_ready(member) or string.match(member, '^%l?(%d+)'))
      if seq < before then
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
    look_at(text(seq))
    looked[1] = looked[1] + 1
    before = seq
    if found >= limit then
      return true
    end
  end
  return false
end

local looked = { 0 }
local few = known_few()
if few then
  look_through(few, looked)
  return answer
end
local top = before == math.huge and '+inf' or text(math.floor((before - 1) / PER_CHUNK))
local chunks = call('ZREVRANGEBYSCORE', P .. 'chunks', top, '-inf', 'LIMIT', 0, LOOK)
for _, chunk in ipairs(chunks) do
  if look_through(seqs_of(chunk), looked) then
    return answer
  end
end
if #chunks == LOOK then
  answer[1] = text(before)
end
return answer
