-- `waiting_for:<what>` has the jobs that wait for something other than a time, by number.

local function wait_for(mutable, seq, what)
  if mutable.waiting_for then
    gather('ZREM', P .. 'waiting_for:' .. mutable.waiting_for, seq)
  end
  mutable.waiting_for = what
  if what then
    gather('ZADD', P .. 'waiting_for:' .. what, seq, seq)
  end
end
