-- What a job waits for besides its time has its waiters by number.

local function wait_for(life, seq, what)
  if life.waits then
    gather('ZREM', P .. 'waits:' .. life.waits, seq)
  end
  life.waits = what
  if what then
    gather('ZADD', P .. 'waits:' .. what, seq, seq)
  end
end
