-- CLAIM: make due jobs ready, take the lowest (priority, run_at, seq) per queue, count the attempt, raise the fence.
-- Defers jobs whose limit keys do not let them start.
-- A request is an AskMessage. Answers with a ClaimHead, then a ClaimedRow of each job. An empty claim writes nothing.

local DUE = { 'later:', 'retry:' }
local above = tonumber(string.match(ARGV[#ARGV], '^%d*')) or 0 -- fences given here are above this

local function make_ready(key, queue)
  local due = call('ZRANGEBYSCORE', key, '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, PROMOTE_LIMIT)
  for at = 1, #due, 2 do
    local seq, priority, quarantined, limit_key = string.match(due[at], '^%l(%d+):(%-?%d+):?(s?):?(.*)$')
    gather('ZREM', key, due[at])
    local ready = quarantined == '' and 'ready:' or 'quarantined:'
    gather('ZADD', P .. ready .. queue, priority, ready_member(tonumber(due[at + 1]), seq, limit_key ~= '' and limit_key))
  end
  flush()
end

-- Make due jobs ready, unless `looks` is set. Returns the earlier of `soonest` and the time of the next due one.
local function promote(queue, looks, soonest)
  for at = 1, 2 do
    local key = P .. DUE[at] .. queue
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[SCORED.score]
    if first and tonumber(first) <= now and not looks then
      make_ready(key, queue)
      first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[SCORED.score]
    end
    first = tonumber(first)
    if first and not (soonest and soonest < first) then
      soonest = first
    end
  end
  return soonest
end

-- {member, priority, ...} of the first jobs of a queue, of certain tasks only where they are given.
local function first_of(set, limit, tasks)
  if not tasks then
    return call('ZRANGE', set, 0, limit - 1, 'WITHSCORES')
  end
  local found, from = {}, 0
  while #found < 2 * limit do
    local some = call('ZRANGE', set, from, from + 199, 'WITHSCORES')
    for at = 1, #some, 2 do
      local seq = seq_of_ready(some[at])
      local body = call('HGET', chunk_of(seq), seq)
      if body then
        local _, _, task = words(body)
        if tasks[task] and #found < 2 * limit then
          found[#found + 1], found[#found + 2] = some[at], some[at + 1]
        end
      end
    end
    if #some < 400 then
      break
    end
    from = from + 200
  end
  return found
end

local function before(priority, member, other_priority, other_member)
  priority, other_priority = tonumber(priority), tonumber(other_priority)
  return priority < other_priority or (priority == other_priority and member < other_member)
end

-- Choose from {member, priority, ...} taken out of a queue, up to a limit: jobs that may start. Defers the others.
-- Returns the number of values that were read, and the place of the last chosen job.
local function choose(some, limit, queue, picking)
  local seqs, limited, limiters = picking.seqs, picking.limited, picking.limiters
  local size, last = #some / 2, nil
  local met, bounds, limit_keys
  local n, deferred, spare = 1, {}, picking.spare
  while n <= size and limit > 0 and spare > 0 do
    local limit_key, seq = limit_keys and limit_keys[n], nil
    if limit_key then
      seq = met[n]
    else
      seq, limit_key = seq_of_ready(some[2 * n - 1])
      if limit_key then
        met, bounds, limit_keys = meet(some, limiters)
        limit_key = limit_keys[n]
      end
    end
    if limit_key and starts(limit_key, bounds[n], limiters) <= limiters.chosen[limit_key] then
      limiters.opens_at[limit_key] = next_look(limit_key, bounds[n], limiters)
      deferred[#deferred + 1], spare = n, spare - 1
    else
      if limit_key then
        limited[seq] = limit_key
        limiters.chosen[limit_key] = limiters.chosen[limit_key] + 1
        if bounds[n].interval > 0 then
          limiters.used[limit_key] = (limiters.used[limit_key] or 0) + bounds[n].interval
        end
      end
      seqs[#seqs + 1] = seq
      last, limit = 2 * n - 1, limit - 1
    end
    n = n + 1
  end
  if deferred[1] then
    defer(queue, deferred, some, met, limit_keys)
    picking.spare = spare
  end
  return 2 * (n - 1), last
end

-- Take jobs from the front of a queue without quarantined jobs, whatever their task.
local function pick_any(queue, picking)
  local ready = P .. 'ready:' .. queue
  local room = picking.limit
  repeat
    local wanted = math.min(room, picking.spare)
    local some = call('ZPOPMIN', ready, wanted)
    choose(some, wanted, queue, picking)
    room = picking.limit - #picking.seqs
  until #some < 2 * wanted or room <= 0 or picking.spare <= 0
end

-- Take jobs of a queue that are not quarantined, of certain tasks only where they are given. Returns {member, priority} of the last one.
local function pick_sound(queue, picking, tasks)
  local ready, found = P .. 'ready:' .. queue, {}
  local wanted = picking.limit
  repeat
    local some = first_of(ready, wanted, tasks)
    local seen, last = choose(some, picking.limit - #picking.seqs, queue, picking)
    for at = 1, seen, 2 do
      gather('ZREM', ready, some[at])
    end
    flush()
    if last then
      found = { some[last], some[last + 1] }
    end
    local all = #some < 2 * wanted
    wanted = 200 -- some were deferred: read more
  until all or #picking.seqs >= picking.limit or picking.spare <= 0
  return found
end

local function crashes_of(member)
  local seq = seq_of_ready(member)
  local mutable = call('HGET', chunk_of(seq), seq .. '~')
  return mutable and mutable_of(mutable)[MUTABLE.crashes] or 0
end

-- Take the first quarantined jobs that may run together: jobs with as many crashes as the first; up to the limit at -2,
-- COHORT at -1, one otherwise. Stops before the next one that comes after a job that is not quarantined (`sound`),
-- or that its limit key defers.
local function pick_quarantined(queue, picking, tasks, sound)
  local quarantine = P .. 'quarantined:' .. queue
  local some = first_of(quarantine, PROMOTE_LIMIT, tasks)
  local crashes = crashes_of(some[1])
  local room = crashes <= -2 and picking.limit or crashes == -1 and math.min(picking.limit, COHORT) or 1
  for at = 1, #some, 2 do
    if sound.member and not before(some[at + 1], some[at], sound.score, sound.member) then
      break
    end
    if crashes_of(some[at]) == crashes then
      local chosen = #picking.seqs
      choose({ some[at], some[at + 1] }, 1, queue, picking)
      gather('ZREM', quarantine, some[at])
      if #picking.seqs == chosen or #picking.seqs >= room then
        break
      end
    end
  end
  flush()
end

-- Choose jobs of one queue: sets `seqs`, and by number the limit keys of jobs that have one (`limited`). `waiting`: a
-- quarantined job was first and could not be taken; `apart`: quarantined jobs were chosen.
local function pick(queue, picking, tasks, free)
  local quarantine = P .. 'quarantined:' .. queue
  picking.seqs = {}
  while picking.limit > 0 and picking.spare > 0 do
    local quarantined = first_of(quarantine, 1, tasks)
    if not quarantined.member and not tasks then
      return pick_any(queue, picking)
    end
    local sound = quarantined.member and free and first_of(P .. 'ready:' .. queue, 1, tasks) or {}
    if quarantined.member and free and (not sound.member or before(quarantined.score, quarantined.member, sound.score, sound.member)) then
      pick_quarantined(queue, picking, tasks, sound)
      if picking.seqs[1] then
        picking.apart = true
        return
      end
    else
      local picked = pick_sound(queue, picking, tasks)
      if picked.member or not quarantined.member or not free then
        local short = #picking.seqs < picking.limit
        picking.waiting = picking.waiting
          or (quarantined.member and (short or before(quarantined.score, quarantined.member, picked.score, picked.member)))
        return
      end
    end
  end
end

-- Renew the holder's lease if half of it has passed.
local function renew(holder, lease, about)
  local expires = call('ZSCORE', P .. 'holders', holder)
  if not expires or tonumber(expires) - now < math.floor(lease / 2) then
    raise(P .. 'holder:' .. holder, 'heartbeat', 1)
    call('HSET', P .. 'holder:' .. holder, 'at', NOW)
    if not expires then
      call('HSET', P .. 'holder:' .. holder, 'about', about)
    end
    call('ZADD', P .. 'holders', text(now + lease), holder)
  end
end

-- Assign the jobs of one queue to the holder: adds seq, body, mutable and checkpoint of each to `answer`.
local function hand_over(queue, seqs, limited, ask, answer)
  local held, fresh, rest, with_due, with_limit_key = bucket('SADD', P .. 'held:' .. ask.holder), nil, nil, nil, nil
  local at, last, handed = 1, #seqs, 0
  while at <= last do
    -- Neighbours are usually in one hash: read them together.
    local key, fields, size = chunk_of(seqs[at]), {}, 0
    repeat
      fields[size + 1], fields[size + 2] = seqs[at], seqs[at] .. '~'
      size, at = size + 2, at + 1
    until at > last or size >= MANY or chunk_of(seqs[at]) ~= key
    local kept = call('HMGET', key, unpack(fields))
    local mutables = bucket('HSET', key)
    local written, answered = #mutables, #answer
    for n = 1, size, 2 do
      local body, mutable = kept[n], kept[n + 1]
      if body then
        local checkpoint, kept_mutable, limit_key = false, nil, limited[fields[n]]
        if not mutable then
          -- Jobs that were never claimed get the same mutable, except for due and limit key, which come first.
          if not fresh then
            fresh = cmsgpack.pack({
              [MUTABLE.state] = STATE.running, [MUTABLE.attempt] = 1, [MUTABLE.fence] = above + 1, [MUTABLE.token] = ask.token,
              [MUTABLE.holder] = ask.holder, [MUTABLE.started_at] = now, [MUTABLE.queue] = queue,
            })
            rest = string.sub(fresh, 2)
            with_due = string.char(string.byte(fresh) + 1) .. PACKED.due
            with_limit_key = string.char(string.byte(fresh) + 2) .. PACKED.due
          end
          mutable = fresh
          if limit_key then
            kept_mutable = with_limit_key .. packed_run_at(body) .. PACKED.limit_key .. word(limit_key) .. rest
          else
            kept_mutable = with_due .. packed_run_at(body) .. rest
          end
        else
          mutable = mutable_of(mutable)
          mutable.state, mutable.holder, mutable.token = STATE.running, ask.holder, ask.token
          mutable.started_at, mutable.pid, mutable.queue, mutable.limit_key = now, nil, queue, limit_key
          mutable.attempt, mutable.fence = (mutable.attempt or 0) + 1, math.max(mutable.fence or 0, above) + 1
          mutable.due = run_at_of(body, mutable)
          checkpoint = mutable.checkpoint and call('HGET', key, fields[n] .. '^') or false
          if mutable.waiting_for then
            wait_for(mutable, fields[n], nil)
          end
          if last == 1 and mutable.crashes and mutable.crashes < 0 then
            mutable.crashes = nil -- it runs alone: a crash now is its own
          end
          mutable = cmsgpack.pack(mutable)
          kept_mutable = mutable
        end
        if is_watched() then
          record_transition((words(body)), STATE.running)
        end
        mutables[written + 1], mutables[written + 2] = fields[n + 1], kept_mutable
        written, handed = written + 2, handed + 1
        held[#held + 1] = fields[n]
        answer[answered + CLAIMED.seq], answer[answered + CLAIMED.body] = fields[n], body
        answer[answered + CLAIMED.mutable], answer[answered + CLAIMED.checkpoint] = mutable, checkpoint
        answered = answered + CLAIMED.checkpoint
      end
    end
  end
  count(STATE.running, queue, handed)
end

local function claim(ask)
  local queues, limit, tasks = ask.queues, ask.limit, nil
  if ask.tasks then
    tasks = {}
    for _, task in ipairs(ask.tasks) do
      tasks[task] = true
    end
  end
  local answer, hands, taken = { 0, -1, NOW }, {}, 0
  local picking = { spare = DEFER_LIMIT, limited = {}, limiters = new_limiters(queues, limit) }
  local opening = next_opening()
  if opening and opening <= now then
    reopen(picking.limiters)
  end
  local paused = queues[1] and call('HMGET', P .. 'records:pause', unpack(queues))
  local over, soonest = false, nil
  for at, queue in ipairs(queues) do
    if not paused[at] then
      soonest = promote(queue, over, soonest)
      if not over then
        picking.limit = limit - taken
        pick(queue, picking, tasks, not ask.busy and taken == 0)
        if picking.seqs[1] then
          hands[#hands + 1] = { queue, picking.seqs }
          taken = taken + #picking.seqs
        end
        over = picking.apart or taken >= limit or picking.spare <= 0
      end
      if over and taken > 0 then
        break
      end
    end
  end
  answer[CLAIM.waiting] = picking.waiting and 1 or 0
  if taken > 0 then
    renew(ask.holder, ask.lease, ask.about)
    for _, hand in ipairs(hands) do
      hand_over(hand.queue, hand.seqs, picking.limited, ask, answer)
    end
  end
  close(picking.limiters)
  flush()
  if taken == 0 then
    soonest = math.min(soonest or math.huge, next_opening() or math.huge)
    answer[CLAIM.due_in] = picking.spare <= 0 and 0 or soonest < math.huge and math.max(0, soonest - now) or -1
  end
  return answer
end
