-- NOTE: progress, checkpoint, output and meta of a running job, guarded by its fence.
-- Each is a NoteMessage. Answers with one 1 or 0 each.

-- Output, and the stream, is a sorted set of pieces by position; each begins with position, fence and at.

-- Append a piece of output, unless it is stored already, and remove the oldest pieces beyond `keep` bytes.
local function print_behind(seq, fence, output)
  local key, at, data = P .. (output.stream and 'stream:' or 'output:') .. seq, output.at, ARGV[output.data]
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
  for place, noted in ipairs(notes) do
    local seq = noted.seq
    local key = chunk_of(seq)
    local kept = call('HGET', key, seq .. '~')
    local mutable = kept and mutable_of(kept)
    if not mutable or mutable.state ~= STATE.running or mutable.fence ~= noted.fence or mutable.token ~= noted.token then
      answers[place] = 0
    else
      answers[place] = 1
      if noted.progress then
        mutable.progress = ARGV[noted.progress]
      end
      local checkpoint = noted.checkpoint
      if checkpoint and checkpoint.number > (mutable.saves or 0) then
        mutable.checkpoint, mutable.saves = 1, checkpoint.number
        mutable.crashes = mutable.crashes and mutable.crashes < 0 and mutable.crashes or nil
        call('HSET', key, seq .. '^', ARGV[checkpoint.data])
      end
      mutable.pid = noted.pid or mutable.pid
      if noted.progress or checkpoint or noted.pid or noted.meta then
        mutable.changed_at = now
      end
      if noted.meta then
        merge_meta(mutable, noted.meta)
      end
      if noted.output then
        mutable.printed = 1
        print_behind(seq, mutable.fence, noted.output)
      end
      if noted.notify then
        notified['note/' .. noted.notify] = true
      end
      if noted.rest and mutable.limit_key then
        call('ZADD', P .. 'limit_key-rest', 'GT', text(now + noted.rest), mutable.limit_key)
      end
      call('HSET', key, seq .. '~', cmsgpack.pack(mutable))
    end
  end
  return answers
end
