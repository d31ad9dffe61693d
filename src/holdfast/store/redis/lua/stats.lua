-- STATS: for every queue that has jobs or is paused: name, paused, oldest, then alternating states and numbers.

-- When the oldest job of a sorted set of ready jobs was due: the first of each priority is the oldest of it.
local function oldest_of(set, oldest)
  local front = call('ZRANGE', set, 0, 0, 'WITHSCORES')
  while front.member do
    local run_at = tonumber(string.sub(front.member, 1, 16))
    if not oldest or run_at < oldest then
      oldest = run_at
    end
    front = call('ZRANGEBYSCORE', set, '(' .. front.score, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  end
  return oldest
end

local counts, paused, names = {}, {}, {}
local flat = call('HGETALL', P .. 'counts')
for at = 1, #flat, 2 do
  counts[flat[at]] = tonumber(flat[at + 1])
  if string.sub(flat[at], 1, 2) == TOTAL .. ':' then
    names[string.sub(flat[at], 3)] = true
  end
end
for _, name in ipairs(call('HKEYS', P .. 'records:pause')) do
  names[name], paused[name] = true, true
end
local answer = {}
for name in pairs(names) do
  local oldest = oldest_of(P .. 'quarantined:' .. name, oldest_of(P .. 'ready:' .. name, nil))
  local row = { name, paused[name] and 1 or 0, oldest and text(oldest) or false }
  local function add(state, number)
    row[#row + 1], row[#row + 2] = state, number
  end
  add(STATE.queued, call('ZCARD', P .. 'ready:' .. name) + call('ZCARD', P .. 'quarantined:' .. name))
  add(STATE.scheduled, call('ZCARD', P .. 'later:' .. name))
  add(STATE.failed, call('ZCARD', P .. 'retry:' .. name))
  for state in pairs(COUNTED_STATES) do
    add(state, counts[state .. ':' .. name] or 0)
  end
  answer[#answer + 1] = row
end
return answer
