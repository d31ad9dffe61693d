-- NOTE: what a running job says of itself, under its fence.
-- Each is {seq, fence, token, index of progress, checkpoint, pid, meta, output, rest}; a checkpoint is {number,
-- index}, output is {at, index, keep}, rest is microseconds for which no job of its lane is to start.
-- Answers with one 1 or 0 each.

-- Output is a sorted set of pieces by position; each begins with position, fence and at.
local PIECE = '>I8I8I8'

-- Append a piece behind the last one, unless it is there already, and let the oldest go that `keep` does not need.
local function print_behind(seq, fence, output)
  local key, at, data = P .. 'output:' .. seq, output[1], ARGV[output[2]]
  local position = at
  local last = call('ZREVRANGE', key, 0, 0)[1]
  if last then
    local its_position, its_fence, its_at = struct.unpack(PIECE, last)
    local its_size = #last - 24
    if its_fence ~= fence then
      position = its_position + its_size + at
    elseif at >= its_at + its_size then
      position = its_position + at - its_at
    else
      return
    end
  end
  call('ZADD', key, text(position), struct.pack(PIECE, position, fence, at) .. data)
  local first = position + #data - output[3]
  local oldest = call('ZRANGE', key, 0, 0)[1]
  while oldest and struct.unpack(PIECE, oldest) + #oldest - 24 <= first do
    call('ZREM', key, oldest)
    oldest = call('ZRANGE', key, 0, 0)[1]
  end
end

local function note(notes)
  local answers = {}
  for place, said in ipairs(notes) do
    local seq = said[1]
    local key = chunk_of(seq)
    local kept = call('HGET', key, seq .. '~')
    local life = kept and life_of(kept)
    if not life or life.s ~= 'r' or life.f ~= said[2] or life.t ~= said[3] then
      answers[place] = 0
    else
      answers[place] = 1
      if said[4] then
        life.o = ARGV[said[4]]
      end
      if said[5] and said[5][1] > (life.S or 0) then
        life.k, life.S = 1, said[5][1]
        life.d = life.d and life.d < 0 and life.d or nil
        call('HSET', key, seq .. '^', ARGV[said[5][2]])
      end
      life.i = said[6] or life.i
      if said[4] or said[5] or said[6] or said[7] then
        life.C = now
      end
      if said[7] then
        merge_meta(life, said[7])
      end
      if said[8] then
        life.w = 1
        print_behind(seq, life.f, said[8])
      end
      if said[9] and life.L then
        call('ZADD', P .. 'lane-rest', 'GT', text(now + said[9]), life.L)
      end
      call('HSET', key, seq .. '~', cmsgpack.pack(life))
    end
  end
  return answers
end
