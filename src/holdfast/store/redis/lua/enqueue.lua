-- ENQUEUE: new jobs; a repeated insert is recognised.
-- Each is a NewMessage, or a PlainNewMessage. Answers with the exceptions only: {place, outcome, id, ...}.

-- The number of jobs that are ready, or wait for their time; `places` has the jobs that are yet to be written.
local function depth_of(queue, places)
  local waiting = 0
  for _, set in ipairs({ 'ready:', 'quarantined:', 'later:', 'retry:' }) do
    local key = P .. set .. queue
    waiting = waiting + call('ZCARD', key) + (places[key] and #places[key] / 2 or 0)
  end
  return waiting
end

-- The nonce that an existing job was made with, or nil where there is no such job.
local function nonce_of(id)
  local known = call('HGET', P .. 'ids', id)
  return known and (string.match(known, ':(.*)$') or '')
end

-- Whether the job that has a key since `made_at` prevents a new unique job.
local function is_duplicate(id, made_at, unique, window)
  if unique == 'window' then
    return made_at + window > now
  end
  return is_unfinished(id, unique == 'until_start')
end

-- The answer for a job whose key or id exists, or whose queue is full; nil where it may be created.
local function refusal(job, nonce, places)
  local id, key, unique, max_depth = job.id, job.key, job.unique, job.max_depth
  if unique and nonce_of(id) == nonce then
    return 'created', id -- another may have its key by now
  end
  if key then
    local known = call('HGET', P .. 'keys', key)
    local ends = known and call('ZSCORE', P .. 'key-ends', key)
    if known and (not ends or tonumber(ends) > now) then
      local its_id, its_fingerprint, made_at = unpack_key(known)
      if its_id and (not unique or is_duplicate(its_id, made_at, unique, job.window)) then
        if its_id == id and (nonce_of(id) or '') == nonce then
          return 'created', id
        end
        return its_fingerprint == (job.fingerprint or '') and 'existing' or 'conflict', its_id
      end
    end
  end
  if max_depth then
    local its_nonce = nonce_of(id)
    if its_nonce then
      return its_nonce == nonce and 'created' or 'exists', id
    end
    if depth_of(job.queue, places) >= max_depth then
      return 'full', id
    end
  end
end

-- The beginning of a body: the array's head, created_at, run_at and priority.
local function head_of(created, run_at, priority, limit_key)
  return (limit_key and PACKED.limited_body or PACKED.body) .. MP_CHAR.uint64 .. created
    .. MP_CHAR.uint64 .. struct.pack('>I8', run_at) .. MP_CHAR.int16 .. struct.pack('>i2', priority)
end

-- Place a job that has a limit key, or waits for something other than a time. Returns its state and run_at.
local function place_specially(jobs, job, name, run_at, places, blocked)
  local queue, priority, limit_key, waiting_for = job.queue, job.priority, job.limit_key, job.waiting_for
  if waiting_for then
    blocked[queue] = (blocked[queue] or 0) + 1
    add(places, P .. 'waiting_for:' .. waiting_for, name, name)
    return STATE.blocked, run_at
  end
  if run_at > now then
    add(places, P .. 'later:' .. queue, text(run_at), later_member(name, priority, false, limit_key))
    return STATE.scheduled, run_at
  end
  if not finish then
    read_limit_keys(jobs)
  end
  run_at = position_of(limit_key, queue, priority, places) or run_at
  add_position(queue, priority, run_at)
  add(places, P .. 'ready:' .. queue, priority, ready_member(run_at, name, limit_key))
  return STATE.queued, run_at
end

local function enqueue(jobs)
  local ids, exceptions, added, heads = P .. 'ids', {}, {}, {}
  local bodies, places, blocked = {}, {}, {}
  -- Numbers of jobs that are not created are skipped: only their order matters.
  local seq = call('INCRBY', KEYS[1], #jobs) - #jobs
  local created = struct.pack('>I8', now)
  for place = 1, #jobs do
    local job = jobs[place]
    local id, queue, priority, run_at = job.id, job.queue, job.priority, job.run_at
    local nonce, limit_key, key = job.nonce or '', job.limit_key, job.key
    local outcome, its_id
    if key or job.max_depth then
      outcome, its_id = refusal(job, nonce, places)
    end
    seq = seq + 1
    local name = text(seq)
    if not outcome and call('HSETNX', ids, id, nonce == '' and name or name .. ':' .. nonce) == 0 then
      outcome, its_id = nonce_of(id) == nonce and 'created' or 'exists', id
    end
    if not outcome then
      run_at = run_at and math.max(now, run_at) or now + job.delay
      local head
      if limit_key or job.waiting_for then
        local state
        state, run_at = place_specially(jobs, job, name, run_at, places, blocked)
        head = head_of(created, run_at, priority, limit_key)
        record_transition(id, state)
      elseif run_at > now then
        head = head_of(created, run_at, priority)
        add(places, P .. 'later:' .. queue, text(run_at), later_member(name, priority))
        record_transition(id, STATE.scheduled)
      else
        head = heads[priority]
        if not head then
          head = head_of(created, now, priority)
          heads[priority] = head
        end
        if finish then
          add_position(queue, priority, now)
        end
        add(places, P .. 'ready:' .. queue, priority, NOW .. sortable(name))
        record_transition(id, STATE.queued)
      end
      add(bodies, chunk_of(seq), name, head .. ARGV[job.body])
      if job.waiting_for or job.extra then
        local mutable = {
          [MUTABLE.state] = job.waiting_for and STATE.blocked,
          [MUTABLE.waiting_for] = job.waiting_for,
          [MUTABLE.extra] = job.extra and ARGV[job.extra],
        }
        add(bodies, chunk_of(seq), name .. '~', cmsgpack.pack(mutable))
      end
      added[queue] = (added[queue] or 0) + 1
      if key then
        call('HSET', P .. 'keys', key, pack_key(id, job.fingerprint or '', now))
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
  write_places(places)
  write_positions()
  for queue, number in pairs(blocked) do
    raise(P .. 'counts', STATE.blocked .. ':' .. queue, number)
  end
  for queue, number in pairs(added) do
    raise(P .. 'counts', TOTAL .. ':' .. queue, number)
    notified['queue/' .. queue] = true
  end
  return exceptions
end
