-- NOTE: what a running job says of itself, under its fence.
-- Each is a NoteMessage. Answers with one 1 or 0 each.

-- Output is a sorted set of pieces by position; each begins with position, fence and at.

-- Append a piece behind the last one, unless it is there already, and let the oldest go that `keep` does not need.
local function print_behind(seq, fence, output)
  local key, at, data = P .. 'output:' .. seq, output.at, ARGV[output.data]
  local position = at
  local last = call('ZREVRANGE', key, 0, 0)[1]
  if last then
    local its_position, its_fence, its_at = struct.unpack(PIECE, last)
    local its_size = #last - PIECE_HEAD
    if its_fence ~= fence then
      position = its_position + its_size + at
    elseif at >= its_at + its_size then
      position = its_position + at - its_at
    else
      return
    end
  end
  call('ZADD', key, text(position), struct.pack(PIECE, position, fence, at) .. data)
  local first = position + #data - output.keep
  local oldest = call('ZRANGE', key, 0, 0)[1]
  while oldest and struct.unpack(PIECE, oldest) + #oldest - PIECE_HEAD <= first do
    call('ZREM', key, oldest)
    oldest = call('ZRANGE', key, 0, 0)[1]
  end
end

local function note(notes)
  local answers = {}
  for place, said in ipairs(notes) do
    local seq = said.seq
    local key = chunk_of(seq)
    local kept = call('HGET', key, seq .. '~')
    local life = kept and life_of(kept)
    if not life or life.state ~= STATE.running or life.fence ~= said.fence or life.token ~= said.token then
      answers[place] = 0
    else
      answers[place] = 1
      if said.progress then
        life.progress = ARGV[said.progress]
      end
      local checkpoint = said.checkpoint
      if checkpoint and checkpoint.number > (life.saves or 0) then
        life.checkpoint, life.saves = 1, checkpoint.number
        life.crashes = life.crashes and life.crashes < 0 and life.crashes or nil
        call('HSET', key, seq .. '^', ARGV[checkpoint.data])
      end
      life.pid = said.pid or life.pid
      if said.progress or checkpoint or said.pid or said.meta then
        life.changed_at = now
      end
      if said.meta then
        merge_meta(life, said.meta)
      end
      if said.output then
        life.printed = 1
        print_behind(seq, life.fence, said.output)
      end
      if said.rest and life.limit_key then
        call('ZADD', P .. 'limit_key-rest', 'GT', text(now + said.rest), life.limit_key)
      end
      call('HSET', key, seq .. '~', cmsgpack.pack(life))
    end
  end
  return answers
end
