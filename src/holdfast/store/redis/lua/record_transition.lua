-- TRANSITIONS: written in the same script as the change: transitions of jobs, while they are watched, and end counts.
--
-- `watch` has the time until which transitions are kept, and their count (from the time when the watch began, so that
-- no two watches share a number). The transitions of a script are one entry of the stream, numbered by its last one.

local recorded, end_sums = {}, {}
local watched -- the number of transitions so far; false where they are not watched, nil where that is not read yet

local function is_watched()
  if watched == nil then
    local watch = call('HMGET', P .. 'watch', 'until', 'upto')
    watched = (tonumber(watch.ends) or 0) > now and tonumber(watch.upto) or false
  end
  return watched
end

-- A job has this state now (STATE.deleted: it was deleted).
local function record_transition(id, state)
  if is_watched() then
    local size = #recorded
    recorded[size + 1], recorded[size + 2] = id, state
  end
end

-- The bucket of a duration in microseconds, from 1: one more than in core/histogram.py.
local function duration_bucket(duration)
  local _, bits = math.frexp(duration / MILLISECOND)
  return bits < 1 and 1 or bits < BUCKETS and bits + 1 or BUCKETS
end

-- The sums over the claims of this queue and task that end now with this outcome.
local function end_sums_of(queue, task, outcome)
  local place = outcome .. ':' .. #queue .. ':' .. queue .. task
  local sums = end_sums[place]
  if not sums then
    sums = { 0, 0, 0, {}, {} }
    end_sums[place] = sums
  end
  return sums
end

-- Count a claim that ends.
local function record_end(sums, waited, ran, run_bucket)
  local waits, runs, wait_bucket = sums.waits, sums.runs, duration_bucket(waited)
  sums.number, sums.waited, sums.ran = sums.number + 1, sums.waited + waited, sums.ran + ran
  waits[wait_bucket] = (waits[wait_bucket] or 0) + 1
  runs[run_bucket] = (runs[run_bucket] or 0) + 1
end

local function plus(number, other)
  return type(other) == 'number' and number + other or number
end

-- Add stored sums. What cannot be read counts nothing: an error here would leave the script half done.
local function add_sums(sums, stored)
  local ok, before = pcall(cmsgpack.unpack, stored)
  if not ok or type(before) ~= 'table' then
    return
  end
  sums.number, sums.waited = plus(sums.number, before.number), plus(sums.waited, before.waited)
  sums.ran = plus(sums.ran, before.ran)
  for _, pair in ipairs({ { sums.waits, before.waits or false }, { sums.runs, before.runs or false } }) do
    local counts, others = unpack(pair)
    if type(others) == 'table' then
      for place, number in pairs(others) do
        counts[place] = plus(counts[place] or 0, number)
      end
    end
  end
end

-- Called last by a script.
local function write_transitions()
  if recorded[1] then
    local number = #recorded / 2
    local upto = text(watched + number)
    call('HSET', P .. 'watch', 'upto', upto)
    call('XADD', P .. 'transitions', 'MINID', '~', text(watched + number - TRANSITIONS_KEPT), upto .. '-0',
      'number', number, 'at', NOW, 'moved', cmsgpack.pack(recorded))
  end
  if next(end_sums) then
    local hour, minute = text(math.floor(now / HOUR)), text(math.floor(now % HOUR / MINUTE))
    local key = P .. 'minutes:' .. hour
    for place, sums in pairs(end_sums) do
      local field = minute .. ':' .. place
      local stored = call('HGET', key, field)
      if stored then
        add_sums(sums, stored)
      else
        call('ZADD', P .. 'hours', hour, hour)
      end
      call('HSET', key, field, cmsgpack.pack(sums))
    end
  end
end
