-- ENQUEUE ONE: a single job that is due now, without key or depth: a faster special case of enqueue.lua.
-- ARGV is OneArguments. Answers 1 if the job is stored, 0 if another job has its id.

local id, queue, priority, nonce = ARGV[ONE.id], ARGV[ONE.queue], ARGV[ONE.priority], ARGV[ONE.nonce]
local seq = call('INCR', KEYS[1])
local name = text(seq)
if call('HSETNX', P .. 'ids', id, nonce == '' and name or name .. ':' .. nonce) == 0 then
  local its_nonce = string.match(call('HGET', P .. 'ids', id), ':(.*)$') or ''
  return its_nonce == nonce and 1 or 0
end
local stamp = struct.pack('>I8', now)
local head = PACKED.body .. MP_CHAR.uint64 .. stamp .. MP_CHAR.uint64 .. stamp
  .. MP_CHAR.int16 .. struct.pack('>i2', priority)
local chunk = text(math.floor(seq / PER_CHUNK))
call('HSET', P .. 'jobs:' .. chunk, name, head .. ARGV[ONE.body])
call('ZADD', P .. 'chunks', chunk, chunk)
call('ZADD', P .. 'ready:' .. queue, priority, NOW .. string.char(96 + #name) .. name)
raise(P .. 'counts', TOTAL .. ':' .. queue, 1)
call('SPUBLISH', P .. 'queue/' .. queue, '')
record_transition(id, STATE.queued)
write_transitions()
return 1
