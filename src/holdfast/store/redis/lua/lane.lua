-- A lane is a text, "running,interval,burst,weight,name": each job carries its numbers, and all of one name share
--   lane-held:<name>   the jobs that wait for it, in their order
--   lane-runs:<name>   the jobs that run in it
--   lane-opens         by lane, when to look at what it holds
--   lane-pace          by lane, the theoretical arrival time of the next start (as in GCRA)
--   lane-rest          by lane, until when no job of it starts
--   lane-turn          by lane, the turn after that of its last job

local function name_of(lane)
  return string.match(lane, '^%d+,%d+,%d+,%d+,(.*)$')
end

-- `held` or `runs` of a lane.
local function lane_key(kind, lane)
  return P .. 'lane-' .. kind .. ':' .. name_of(lane)
end
