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

-- Count claims that ended; times are sums in microseconds.
local function record_ends(queue, outcome, number, waited, ran)
  local place = outcome .. ':' .. queue
  local sums = end_sums[place]
  if not sums then
    end_sums[place] = { number, waited, ran }
  else
    sums.number, sums.waited, sums.ran = sums.number + number, sums.waited + waited, sums.ran + ran
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
      local field = ':' .. minute .. ':' .. place
      if raise(key, MINUTE_OF.count .. field, sums.number) == sums.number then
        call('ZADD', P .. 'hours', hour, hour)
      end
      raise(key, MINUTE_OF.waited .. field, text(sums.waited))
      raise(key, MINUTE_OF.ran .. field, text(sums.ran))
    end
  end
end
