-- WRITE: one batch, kind by kind. ARGV[1] is a BatchMessage with the kinds that this script was built for. The last of
-- ARGV is the answer of fences.lua.

if claim and call('GET', P .. 'server') ~= ARGV[#ARGV] then
  return redis.error_reply('NEWSERVER this server has not assigned fences yet') -- fences.lua
end
local batch = cmsgpack.unpack(ARGV[1])
local answers = { false, false, false, false, false }
if enqueue and batch.inserts then
  answers[BATCH.inserts] = enqueue(batch.inserts)
end
if note and batch.notes then
  answers[BATCH.notes] = note(batch.notes)
end
if settle and batch.settles then
  answers[BATCH.settles] = settle(batch.settles)
end
if change and batch.changes then
  answers[BATCH.changes] = change(batch.changes)
end
if claim and batch.asks then
  local claims = {}
  for place, ask in ipairs(batch.asks) do
    claims[place] = claim(ask)
  end
  answers[BATCH.asks] = claims
end
write_transitions()
publish()
return answers
