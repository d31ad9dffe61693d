-- RECORDS: the small shared records of the kinds in ARGV: for each kind its names and values in turn. Writes nothing.

local answer = {}
for at, kind in ipairs(ARGV) do
  answer[at] = call('HGETALL', P .. 'records:' .. kind)
end
return answer
