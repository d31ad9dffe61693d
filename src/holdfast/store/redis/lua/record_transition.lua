-- TOLD: what is told of a step in the same step: what moved, while somebody watches, and how claims ended.
--
-- `watch` says until when moves are kept, and counts them (from the moment at which the watch began, so that no two
-- watches have a number in common). A step's moves are one entry of the stream `transitions`, by the number of its last one.

local moved, ends_told = {}, {}
local watched -- the number of moves so far; false where nobody watches, nil where that is not known yet

local function somebody_watches()
  if watched == nil then
    local watch = call('HMGET', P .. 'watch', 'until', 'upto')
    watched = (tonumber(watch.ends) or 0) > now and tonumber(watch.upto) or false
  end
  return watched
end

-- A job came to this state (STATE.deleted: it was deleted).
local function record_transition(id, state)
  if somebody_watches() then
    local size = #moved
    moved[size + 1], moved[size + 2] = id, state
  end
end

-- So many claims ended; times in microseconds, added up.
local function record_ends(queue, outcome, number, waited, ran)
  local place = outcome .. ':' .. queue
  local sums = ends_told[place]
  if not sums then
    ends_told[place] = { number, waited, ran }
  else
    sums.number, sums.waited, sums.ran = sums.number + number, sums.waited + waited, sums.ran + ran
  end
end

-- The last thing that a step does.
local function write_down()
  if moved[1] then
    local number = #moved / 2
    local upto = text(watched + number)
    call('HSET', P .. 'watch', 'upto', upto)
    call('XADD', P .. 'transitions', 'MINID', '~', text(watched + number - TRANSITIONS_KEPT), upto .. '-0',
      'number', number, 'at', NOW, 'moved', cmsgpack.pack(moved))
  end
  if next(ends_told) then
    local hour, minute = text(math.floor(now / HOUR)), text(math.floor(now % HOUR / MINUTE))
    local key = P .. 'minutes:' .. hour
    for place, sums in pairs(ends_told) do
      local field = ':' .. minute .. ':' .. place
      if raise(key, MINUTE_OF.count .. field, sums.number) == sums.number then
        call('ZADD', P .. 'hours', hour, hour)
      end
      raise(key, MINUTE_OF.waited .. field, text(sums.waited))
      raise(key, MINUTE_OF.ran .. field, text(sums.ran))
    end
  end
end
