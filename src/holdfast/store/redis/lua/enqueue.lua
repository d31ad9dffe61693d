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

local function enqueue(jobs)
  local ids, chunks, exceptions = P .. 'ids', {}, {}
  local first = tonumber(call('GET', KEYS[1]) or 0)
  local seq, added, heads = first, {}, {}
  local created = struct.pack('>I8', now)
  for place, job in ipairs(jobs) do
    local id, queue, priority, delay, run_at = job[1], job[2], job[3], job[4], job[5]
    local nonce, key = job[7] or '', job[8]
    local outcome, its_id
    if key or job[10] then
      outcome, its_id = refusal(id, queue, nonce, key, job[9] or '', job[10], added)
    end
    local name = text(seq + 1)
    if not outcome and call('HSETNX', ids, id, nonce == '' and name or name .. ':' .. nonce) == 0 then
      outcome, its_id = nonce_of(id) == nonce and 'created' or 'exists', id
    end
    if not outcome then
      seq = seq + 1
      run_at = run_at and math.max(now, run_at) or now + delay
      local head = run_at == now and heads[priority]
      if not head then
        head = '\158\207' .. created .. '\207' .. struct.pack('>I8', run_at) .. '\209' .. struct.pack('>i2', priority)
        if run_at == now then
          heads[priority] = head
        end
      end
      local chunk = math.floor(seq / PER_CHUNK)
      chunks[chunk] = true
      gather('HSET', P .. 'jobs:' .. text(chunk), name, head .. ARGV[job[6]])
      if run_at > now then
        gather('ZADD', P .. 'later:' .. queue, text(run_at), later_member(name, priority))
      else
        gather('ZADD', P .. 'ready:' .. queue, priority, ready_member(now, name))
      end
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
  if seq > first then
    call('SET', KEYS[1], text(seq))
    for chunk in pairs(chunks) do
      gather('ZADD', P .. 'chunks', text(chunk), text(chunk))
    end
    for queue, number in pairs(added) do
      count('t', queue, number)
      ring('queue/' .. queue)
    end
    flush()
  end
  return exceptions
end
