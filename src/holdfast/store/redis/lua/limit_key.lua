-- A limit key is a text, "concurrency,interval,burst,weight,name": each job carries its numbers, and all of one name share
--   lane-held:<name>   the jobs that wait for it, in their order
--   lane-runs:<name>   how many jobs run in it; none: 0
--   lane-opens         by limit key, when to look at what it holds
--   lane-pace          by limit key, the theoretical arrival time of the next start (as in GCRA)
--   lane-rest          by limit key, until when no job of it starts
--   lane-turn          by limit key, the turn after that of its last job

local function name_of(limit_key)
  return string.match(limit_key, '^%d+,%d+,%d+,%d+,(.*)$')
end

local function held_key(name)
  return P .. 'limit_key-held:' .. name
end

local function runs_key(name)
  return P .. 'limit_key-runs:' .. name
end
