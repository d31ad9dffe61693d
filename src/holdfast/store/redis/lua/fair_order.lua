-- FAIR ORDER: the positions of new jobs of weighted limit keys in their queue, by the rules of core/limiter.py. A batch
-- reads what it needs once, and writes its changes at its end.

local finish -- by limit key, its next position; nil until the batch has a job with a limit key
local given = {} -- the same, where this batch has changed it
local names, steps = {}, {} -- of the limit keys with a weight, by their texts
local ends = {} -- by priority and queue, the first and the last position of what is ready

local function read_limit_keys(jobs)
  local new = {}
  for at = 1, #jobs do
    local limit_key = jobs[at][NEW.limit_key]
    if limit_key and names[limit_key] == nil then
      local weight, name = string.match(limit_key, '^%d+,%d+,%d+,(%d+),(.*)$')
      names[limit_key] = weight ~= '0' and name
      if names[limit_key] then
        steps[limit_key] = math.max(1, math.floor(STEP / weight))
        new[#new + 1] = name
      end
    end
  end
  finish = {}
  for at, known in ipairs(each_of('ZMSCORE', P .. 'limit_key-position', new)) do
    finish[new[at]] = tonumber(known)
  end
end

local function read_ends(queue, priority)
  local ready = P .. 'ready:' .. queue
  local first = call('ZRANGEBYSCORE', ready, priority, priority, 'LIMIT', 0, 1)[1]
  local last = call('ZREVRANGEBYSCORE', ready, priority, priority, 'LIMIT', 0, 1)[1]
  local positions = { math.huge, -math.huge }
  if first then
    positions = { tonumber(string.sub(first, 1, 16)), tonumber(string.sub(last, 1, 16)) }
  end
  ends[priority .. queue] = positions
  return positions
end

-- Another job of the batch is ready, at this position.
local function add_position(queue, priority, position)
  local positions = ends[priority .. queue]
  if positions then
    positions.first, positions.last = math.min(positions.first, position), math.max(positions.last, position)
  end
end

-- One step behind the last job of the limit key, but never before the head of its queue and priority, nor far behind
-- its tail, and at most LAG in the past; nil where the limit key has no weight. `places`, which the batch has yet to
-- write, is written first.
local function position_of(limit_key, queue, priority, places)
  local name, step, position = names[limit_key], steps[limit_key], now
  if not name then
    return nil
  end
  local positions = ends[priority .. queue]
  if not positions then
    write_places(places)
    positions = read_ends(queue, priority)
  end
  if positions.last > 0 then
    position = math.min(math.max(positions.first, given[name] or finish[name] or 0), positions.last + step)
    position = math.max(position, now - LAG)
  end
  given[name] = position + step
  return position
end

local function write_positions()
  local list = {}
  for limit_key, position in pairs(given) do
    list[#list + 1], list[#list + 2] = text(position), limit_key
  end
  many('ZADD', P .. 'limit_key-position', list)
end
