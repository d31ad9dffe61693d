-- A limit key is a text, "concurrency,interval,burst,weight,name": each job stores it whole; jobs of one name share
--   limit_key-deferred:<name>  the deferred jobs, in their order
--   limit_key-runs:<name>      the number of running jobs; none: 0
--   limit_key-opens            by limit key, when to check its deferred jobs
--   limit_key-tat              by limit key, the theoretical arrival time of the next start (as in GCRA)
--   limit_key-rest             by limit key, until when no job of it starts (a reported rate limit)
--   limit_key-position         by limit key, the next position in the fair order

local function name_of(limit_key)
  return string.match(limit_key, '^%d+,%d+,%d+,%d+,(.*)$')
end

local function deferred_key(name)
  return P .. 'limit_key-deferred:' .. name
end

local function runs_key(name)
  return P .. 'limit_key-runs:' .. name
end
