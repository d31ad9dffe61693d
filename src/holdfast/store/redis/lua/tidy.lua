-- TIDY: remove a limited number each of expired jobs, expired keys, and expired holders without jobs; and old minute
-- stats, unwatched transitions, and old limiter state. ARGV is TidyArguments. Answers the numbers of the first three.

local limit = ARGV[TIDY.limit]
local jobs = call('ZRANGEBYSCORE', P .. 'ended', '-inf', NOW, 'LIMIT', 0, limit)
for _, seq in ipairs(jobs) do
  local kept = call('HMGET', chunk_of(seq), seq, seq .. '~')
  gather('ZREM', P .. 'ended', seq)
  if kept.body and kept.mutable then
    local id, queue = words(kept.body)
    local mutable = mutable_of(kept.mutable)
    exit(seq, kept.body, mutable, mutable.state, queue)
    forget(seq, id, queue, mutable)
  end
end
local keys = call('ZRANGEBYSCORE', P .. 'key-ends', '-inf', NOW, 'LIMIT', 0, limit)
for _, key in ipairs(keys) do
  gather('ZREM', P .. 'key-ends', key)
  gather('HDEL', P .. 'keys', key)
end
local gone = 0
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'holders', '-inf', NOW)) do
  if gone < tonumber(limit) and call('EXISTS', P .. 'held:' .. id) == 0 then
    gather('ZREM', P .. 'holders', id)
    call('DEL', P .. 'holder:' .. id)
    gone = gone + 1
  end
end
local old = text(math.floor((now - tonumber(ARGV[TIDY.minutes])) / HOUR))
for _, hour in ipairs(call('ZRANGEBYSCORE', P .. 'hours', '-inf', '(' .. old)) do
  gather('ZREM', P .. 'hours', hour)
  call('DEL', P .. 'minutes:' .. hour)
end
local watched = call('HGET', P .. 'watch', 'until')
if watched and tonumber(watched) <= now then
  call('DEL', P .. 'watch', P .. 'transitions')
end
call('ZREMRANGEBYSCORE', P .. 'gone', '-inf', text(now - GONE_KEPT))
local unused = text(now - tonumber(ARGV[TIDY.limit_keys]))
for _, set in ipairs({ 'limit_key-tat', 'limit_key-rest', 'limit_key-position' }) do
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. set, '-inf', unused, 'LIMIT', 0, limit)) do
    gather('ZREM', P .. set, name)
  end
end
for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'limit_key-opens', '-inf', NOW, 'LIMIT', 0, limit)) do
  if call('EXISTS', P .. 'limit_key-deferred:' .. name) == 0 then
    gather('ZREM', P .. 'limit_key-opens', name)
  end
end
flush()
return { #jobs, #keys, gone }
