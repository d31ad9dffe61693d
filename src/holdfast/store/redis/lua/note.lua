-- NOTE: what a running job says of itself, under its fence.
-- Each is {seq, fence, token, index of progress, index of checkpoint, pid, meta}. Answers with one 1 or 0 each.

local function note(notes)
  local answers = {}
  for place, said in ipairs(notes) do
    local seq = said[1]
    local key = chunk_of(seq)
    local kept = call('HGET', key, seq .. '~')
    local life = kept and cmsgpack.unpack(kept)
    if not life or life.s ~= 'r' or life.f ~= said[2] or life.t ~= said[3] then
      answers[place] = 0
    else
      answers[place] = 1
      if said[4] then
        life.o = ARGV[said[4]]
      end
      if said[5] then
        life.k, life.d = 1, nil
        call('HSET', key, seq .. '^', ARGV[said[5]])
      end
      life.i = said[6] or life.i
      if said[7] then
        merge_meta(life, said[7])
      end
      call('HSET', key, seq .. '~', cmsgpack.pack(life))
    end
  end
  return answers
end
