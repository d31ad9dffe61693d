-- ENQUEUE: new jobs, each recognised if it is sent again.
-- Each is {id, queue, priority, delay, run_at, index of its body, nonce, key, fingerprint, max_depth}; times in
-- microseconds. Answers with the exceptions only: {place, outcome, id, ...}.

local function depth_of(queue, added)
  local waiting = added[queue] or 0
  for _, set in ipairs({ 'ready:', 'suspect:', 'later:', 'retry:' }) do
    waiting = waiting + call('ZCARD', P .. set .. queue)
  end
  return waiting
end

-- The nonce that an existing job was made with, or nil where there is no such job.
local function nonce_of(id)
  local known = call('HGET', P .. 'ids', id)
  return known and (string.match(known, ':(.*)$') or '')
end

-- The answer for a job whose key or id is known already, or whose queue is full; nil where it may be made.
local function refusal(id, queue, nonce, key, fingerprint, max_depth, added)
  if key then
    local known = call('HGET', P .. 'keys', key)
    local ends = known and call('ZSCORE', P .. 'key-ends', key)
    if known and (not ends or tonumber(ends) > now) then
      local its_id, its_fingerprint = unpack_key(known)
      if its_id == id and (nonce_of(id) or '') == nonce then
        return 'created', id
      end
      return its_fingerprint == fingerprint and 'existing' or 'conflict', its_id
    end
  end
  if max_depth then
    local its_nonce = nonce_of(id)
    if its_nonce then
      return its_nonce == nonce and 'created' or 'exists', id
    end
    if depth_of(queue, added) >= max_depth then
      return 'full', id
    end
  end
end

-- What stands in front of a body: the array's head, created_at, run_at and priority.
local function head_of(created, run_at, priority)
  return '\158\207' .. created .. '\207' .. struct.pack('>I8', run_at) .. '\209' .. struct.pack('>i2', priority)
end

local function add(lists, key, one, two)
  local list = lists[key]
  if not list then
    lists[key] = { one, two }
    return
  end
  local size = #list
  list[size + 1], list[size + 2] = one, two
end

local function enqueue(jobs)
  local ids, exceptions, added, heads = P .. 'ids', {}, {}, {}
  local bodies, places = {}, {}
  -- Numbers of jobs that are not made are left out: only their order counts.
  local seq = call('INCRBY', KEYS[1], #jobs) - #jobs
  local created = struct.pack('>I8', now)
  for place = 1, #jobs do
    local job = jobs[place]
    local id, queue, priority, run_at = job[1], job[2], job[3], job[5]
    local nonce, key = job[7] or '', job[8]
    local outcome, its_id
    if key or job[10] then
      outcome, its_id = refusal(id, queue, nonce, key, job[9] or '', job[10], added)
    end
    seq = seq + 1
    local name = text(seq)
    if not outcome and call('HSETNX', ids, id, nonce == '' and name or name .. ':' .. nonce) == 0 then
      outcome, its_id = nonce_of(id) == nonce and 'created' or 'exists', id
    end
    if not outcome then
      run_at = run_at and math.max(now, run_at) or now + job[4]
      local head
      if run_at > now then
        head = head_of(created, run_at, priority)
        add(places, P .. 'later:' .. queue, text(run_at), later_member(name, priority))
        tell(id, 'w')
      else
        head = heads[priority]
        if not head then
          head = head_of(created, now, priority)
          heads[priority] = head
        end
        add(places, P .. 'ready:' .. queue, priority, NOW .. sortable(name))
        tell(id, 'q')
      end
      add(bodies, chunk_of(seq), name, head .. ARGV[job[6]])
      added[queue] = (added[queue] or 0) + 1
      if key then
        call('HSET', P .. 'keys', key, pack_key(id, job[9] or ''))
        call('ZREM', P .. 'key-ends', key)
      end
    elseif outcome ~= 'created' then
      local at = #exceptions
      exceptions[at + 1], exceptions[at + 2], exceptions[at + 3] = place, outcome, its_id
    end
  end
  for chunk, list in pairs(bodies) do
    many('HSET', chunk, list)
    local number = string.sub(chunk, #P + 6)
    call('ZADD', P .. 'chunks', number, number)
  end
  for key, list in pairs(places) do
    many('ZADD', key, list)
  end
  for queue, number in pairs(added) do
    call('HINCRBY', P .. 'counts', 't:' .. queue, number)
    rung['queue/' .. queue] = true
  end
  return exceptions
end
