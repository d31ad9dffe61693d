-- What a job waits for besides its time has its waiters by number.

local function wait_for(life, seq, what)
  if life.W then
    gather('ZREM', P .. 'waits:' .. life.W, seq)
  end
  life.W = what
  if what then
    gather('ZADD', P .. 'waits:' .. what, seq, seq)
  end
end
