-- KEY OWNERS: the jobs that have the keys of ARGV and have not ended: the id of each, or nothing. Writes nothing.

local answer = {}
for at, key in ipairs(ARGV) do
  local known = call('HGET', P .. 'keys', key)
  local id = known and unpack_key(known)
  answer[at] = id and is_unfinished(id) and id or false
end
return answer
