-- WRITE: one batch in one step, kind by kind. ARGV[1] is {inserts, notes, settles, changes, asks}, each only where the
-- script was put together with that kind. The last of ARGV says which fences may be given.

if claim and call('GET', P .. 'server') ~= ARGV[#ARGV] then
  return redis.error_reply('NEWSERVER another server gave fences before') -- fences.lua
end
local batch = cmsgpack.unpack(ARGV[1])
local answers = { false, false, false, false, false }
if enqueue and batch[1] then
  answers[1] = enqueue(batch[1])
end
if note and batch[2] then
  answers[2] = note(batch[2])
end
if settle and batch[3] then
  answers[3] = settle(batch[3])
end
if change and batch[4] then
  answers[4] = change(batch[4])
end
if claim and batch[5] then
  local claims = {}
  for place, ask in ipairs(batch[5]) do
    claims[place] = claim(ask)
  end
  answers[5] = claims
end
write_down()
publish()
return answers
