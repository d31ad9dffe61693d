-- HOLDERS: every holder: {id, about, heartbeat, microseconds since it, alive, then ids of its jobs}.

local answer = {}
local flat = call('ZRANGE', P .. 'holders', 0, -1, 'WITHSCORES')
for at = 1, #flat, 2 do
  local id = flat[at]
  local known_holder = call('HMGET', P .. 'holder:' .. id, 'about', 'heartbeat', 'at')
  local renewed = tonumber(known_holder.at) or now
  local age = renewed > 0 and renewed < now and now - renewed or 0 -- 0 where that cannot be: nan is neither
  local about, heartbeat = known_holder.about or '', known_holder.heartbeat or '0'
  local row = { id, about, heartbeat, text(age), tonumber(flat[at + 1]) > now and 1 or 0 }
  for _, seq in ipairs(call('SMEMBERS', P .. 'held:' .. id)) do
    local body = call('HGET', chunk_of(seq), seq)
    if body then
      row[#row + 1] = (words(body))
    end
  end
  answer[#answer + 1] = row
end
return answer
