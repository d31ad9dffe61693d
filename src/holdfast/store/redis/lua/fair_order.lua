-- TURN: where new jobs of limit keys with a weight stand in their queue, by the rules of core/limiter.py. What a batch has to
-- know for that is read once, and what it has changed is written as it ends.

local finish -- by limit key, the turn after that of its last job; nil until the batch has a job of a limit key
local given = {} -- the same, where this batch has changed it
local names, steps = {}, {} -- of the limit keys with a weight, by their texts
local ends = {} -- by priority and queue, the first and the last turn of what is ready

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
  for at, known in ipairs(each_of('ZMSCORE', P .. 'limit_key-turn', new)) do
    finish[new[at]] = tonumber(known)
  end
end

local function read_ends(queue, priority)
  local ready = P .. 'ready:' .. queue
  local first = call('ZRANGEBYSCORE', ready, priority, priority, 'LIMIT', 0, 1)[1]
  local last = call('ZREVRANGEBYSCORE', ready, priority, priority, 'LIMIT', 0, 1)[1]
  local turns = { math.huge, -math.huge }
  if first then
    turns = { tonumber(string.sub(first, 1, 16)), tonumber(string.sub(last, 1, 16)) }
  end
  ends[priority .. queue] = turns
  return turns
end

-- One more of the batch is ready, with this turn.
local function take_turn(queue, priority, turn)
  local turns = ends[priority .. queue]
  if turns then
    turns.first, turns.last = math.min(turns.first, turn), math.max(turns.last, turn)
  end
end

-- One step behind the last job of the limit key, but never before the head of its queue and priority nor far behind its
-- tail, and not too far back; nil where the limit key takes no turns. `places` is what the batch has yet to write: a turn is among all there are.
local function turn_of(limit_key, queue, priority, places)
  local name, step, turn = names[limit_key], steps[limit_key], now
  if not name then
    return nil
  end
  local turns = ends[priority .. queue]
  if not turns then
    write_places(places)
    turns = read_ends(queue, priority)
  end
  if turns.last > 0 then
    turn = math.min(math.max(turns.first, given[name] or finish[name] or 0), turns.last + step)
    turn = math.max(turn, now - LAG)
  end
  given[name] = turn + step
  return turn
end

local function write_turns()
  local list = {}
  for limit_key, turn in pairs(given) do
    list[#list + 1], list[#list + 2] = text(turn), limit_key
  end
  many('ZADD', P .. 'limit_key-turn', list)
end
