-- A lane is a text, "running,interval,burst,weight,name": each job carries its numbers, and all of one name share
--   lane-held:<name>   the jobs that wait for it, in their order
--   lane-runs:<name>   how many jobs run in it; none: 0
--   lane-opens         by lane, when to look at what it holds
--   lane-pace          by lane, the theoretical arrival time of the next start (as in GCRA)
--   lane-rest          by lane, until when no job of it starts
--   lane-turn          by lane, the turn after that of its last job

local function name_of(lane)
  return string.match(lane, '^%d+,%d+,%d+,%d+,(.*)$')
end

local function held_key(name)
  return P .. 'lane-held:' .. name
end

local function runs_key(name)
  return P .. 'lane-runs:' .. name
end
