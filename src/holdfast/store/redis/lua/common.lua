-- What steps share: where a job is kept and where it waits, and hints.

local PER_CHUNK = 256
local MANY = 1000 -- arguments of one variadic call; Lua's stack ends at 8000

-- The hash that a job is in. Neighbours ask for the same one again and again.
local chunk_names = {}
local function chunk_of(seq)
  local number = seq / PER_CHUNK
  number = number - number % 1
  local name = chunk_names[number]
  if not name then
    name = P .. 'jobs:' .. text(number)
    chunk_names[number] = name
  end
  return name
end

-- A number that sorts as text: its length as a letter, then its digits.
local function sortable(seq)
  return string.char(96 + #seq) .. seq
end

-- Where a waiting job stands: in `ready:` (and `suspect:`, and `lane-held:`) by priority, then by this text; in
-- `later:` (scheduled) and `retry:` (failed) by the time it is due. Its lane stands behind it, so that a claim moves it
-- from one to another without reading it.

local function ready_member(run_at, seq, lane)
  return string.format('%016.0f', run_at) .. sortable(seq) .. (lane and ':' .. lane or '')
end

local function later_member(seq, priority, suspect, lane)
  return sortable(seq) .. ':' .. priority .. (suspect and ':s' or lane and ':' or '') .. (lane and ':' .. lane or '')
end

local function many(command, key, list)
  local size = #list
  if size <= MANY then
    return size > 0 and call(command, key, unpack(list))
  end
  for first = 1, size, MANY do
    call(command, key, unpack(list, first, math.min(first + MANY - 1, size)))
  end
end

-- Hints go out last, when everything is in its place. Who waits for the end of any job listens on `job` too: where
-- nobody does, a batch of ends needs one call.
local rung, ended = {}, {}

local function publish()
  for topic in pairs(rung) do
    call('SPUBLISH', P .. topic, '')
  end
  if ended[1] and call('SPUBLISH', P .. 'job', '') > 0 then
    for _, id in ipairs(ended) do
      call('SPUBLISH', P .. 'job/' .. id, '')
    end
  end
end
