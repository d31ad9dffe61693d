-- ENQUEUE ONE: a lone job that is due now, without key or depth: what enqueue.lua does, without what it needs for more.
-- ARGV is id, queue, priority, body, nonce ('' for none). Answers 1 where it is there, 0 where its id is another job's.

local id, queue, priority, nonce = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local seq = call('INCR', KEYS[1])
local name = text(seq)
if call('HSETNX', P .. 'ids', id, nonce == '' and name or name .. ':' .. nonce) == 0 then
  local its_nonce = string.match(call('HGET', P .. 'ids', id), ':(.*)$') or ''
  return its_nonce == nonce and 1 or 0
end
local stamp = struct.pack('>I8', now)
local head = '\158\207' .. stamp .. '\207' .. stamp .. '\209' .. struct.pack('>i2', priority)
local chunk = text(math.floor(seq / 256))
call('HSET', P .. 'jobs:' .. chunk, name, head .. ARGV[4])
call('ZADD', P .. 'chunks', chunk, chunk)
call('ZADD', P .. 'ready:' .. queue, priority, NOW .. string.char(96 + #name) .. name)
raise(P .. 'counts', 't:' .. queue, 1)
call('SPUBLISH', P .. 'queue/' .. queue, '')
tell(id, 'q')
write_down()
return 1
