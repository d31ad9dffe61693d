-- LEAVE: the holders of ARGV are gone: forget them, or, where they still hold jobs, end their leases now.

for _, id in ipairs(ARGV) do
  if call('EXISTS', P .. 'held:' .. id) == 0 then
    call('ZREM', P .. 'holders', id)
    call('DEL', P .. 'holder:' .. id)
  else
    call('ZADD', P .. 'holders', 'XX', NOW, id)
  end
end
return 1
