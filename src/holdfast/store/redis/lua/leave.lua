-- LEAVE: deregister the holders of ARGV; a holder that still has claims stays, with an expired lease.

for _, id in ipairs(ARGV) do
  if call('EXISTS', P .. 'held:' .. id) == 0 then
    call('ZREM', P .. 'holders', id)
    call('DEL', P .. 'holder:' .. id)
  else
    call('ZADD', P .. 'holders', 'XX', NOW, id)
  end
end
return 1
