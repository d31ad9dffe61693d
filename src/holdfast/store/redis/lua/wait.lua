-- What a job waits for besides its time has its waiters by number.

local function wait_for(life, seq, what)
  if life.waiting_for then
    gather('ZREM', P .. 'waiting_for:' .. life.waiting_for, seq)
  end
  life.waiting_for = what
  if what then
    gather('ZADD', P .. 'waiting_for:' .. what, seq, seq)
  end
end
