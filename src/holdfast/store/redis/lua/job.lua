-- How a job is read. It is up to three fields of one hash, {prefix}:jobs:<seq / 256>:
--   <seq>    what never changes: a MessagePack array whose first 22 bytes have fixed places
--            (created_at, run_at, priority), then id, queue, task, tags, key, codec, max_attempts, timeout, retry,
--            meta, payload (which an operator may replace), and the lane, where it has one
--   <seq>~   its life so far, a MessagePack map; missing until it says more than the body. Its letters: s state,
--            u run_at, a attempt, l life, f fence, t token, h holder, i pid, p suspect, d deaths, c cancel,
--            g started_at, z finished_at, x expires_at, n nonce of the last settlement, r result, o progress,
--            k has a checkpoint, w has printed, e error, b traceback, m meta (JSON by name), y history (JSON lines),
--            W what it waits for, E the core's own words, S number of its checkpoint, C changed_at, q queue; and while
--            it runs v run_at and L the lane's name (a settlement does not read what never changes)
--   <seq>^   its last checkpoint

local TERMINAL = { s = true, d = true, c = true }

-- Any stored byte can be invalid, and must harm this job alone: what is read of a body is 0 or '' where it cannot be,
-- and a life that cannot be read is `{ s = 'D', D = <its bytes> }`: the state of a job that is shown as blocked, and
-- whose bytes are kept until it is deleted.
local KINDS = {
  s = 'string', u = 'number', a = 'number', l = 'number', f = 'number', t = 'string', h = 'string', i = 'number',
  d = 'number', g = 'number', z = 'number', x = 'number', n = 'string', r = 'string', o = 'string', k = 'number',
  w = 'number', e = 'string', b = 'string', m = 'table', y = 'table', W = 'string', E = 'string', S = 'number',
  q = 'string', v = 'number', L = 'string', C = 'number', D = 'string',
}
local STATES = { q = true, w = true, f = true, r = true, s = true, d = true, c = true, b = true }

local function life_of(kept)
  local ok, life = pcall(cmsgpack.unpack, kept)
  local sound = ok and type(life) == 'table' and (life.s == nil or STATES[life.s])
  if sound then
    for letter, value in pairs(life) do
      sound = sound and (not KINDS[letter] or type(value) == KINDS[letter])
    end
    if life.s == 'r' then
      sound = sound and life.a and life.f and life.t and life.h and life.g and life.q
    end
  end
  return sound and life or { s = 'D', D = kept }
end

-- The number of a job by its id; a job whose own id cannot be read is called by its number.
local function seq_of(id)
  local kept = call('HGET', P .. 'ids', id)
  return kept and string.match(kept, '^%d+') or string.match(id, '^damaged%-(%d+)$')
end

local function created_at(body)
  return #body >= 22 and struct.unpack('>I8', body, 3) or 0
end

local function first_run_at(body)
  return #body >= 22 and struct.unpack('>I8', body, 12) or 0
end

-- The same as it stands there, a number of MessagePack.
local function packed_run_at(body)
  return string.byte(body, 11) == 0xcf and #body >= 22 and string.sub(body, 11, 19) or '\207' .. string.rep('\0', 8)
end

local function priority_of(body)
  return #body >= 22 and struct.unpack('>i2', body, 21) or 0
end

-- The text or bytes (or nil) at a place of a MessagePack array, and the place behind it.
local function word_at(body, at)
  local head = string.byte(body, at)
  if head == 0xc0 or not head or head < 0xa0 then
    return nil, at + 1
  end
  local size, from
  if head < 0xc0 then
    size, from = head - 0xa0, at + 1
  elseif head == 0xd9 or head == 0xc4 then
    size, from = string.byte(body, at + 1) or 0, at + 2
  elseif head == 0xda or head == 0xc5 then
    size, from = #body > at + 1 and struct.unpack('>I2', body, at + 1) or 0, at + 3
  else
    size, from = #body > at + 3 and struct.unpack('>I4', body, at + 1) or 0, at + 5
  end
  return string.sub(body, from, from + size - 1), from + size
end

-- A text of MessagePack.
local function word(value)
  local size = #value
  if size < 32 then
    return string.char(0xa0 + size) .. value
  elseif size < 256 then
    return '\217' .. string.char(size) .. value
  elseif size < 65536 then
    return '\218' .. struct.pack('>I2', size) .. value
  end
  return '\219' .. struct.pack('>I4', size) .. value
end

-- id, queue, task, tags (JSON or nil), key (or nil)
local function words(body)
  local id, queue, task, tags, key, at
  id, at = word_at(body, 23)
  queue, at = word_at(body, at)
  task, at = word_at(body, at)
  tags, at = word_at(body, at)
  key = word_at(body, at)
  return id or '', queue or '', task or '', tags, key
end

-- Where the payload begins, and where it has ended.
local function payload_of(body)
  local ok, last = pcall(cmsgpack.unpack_limit, body, 13, 1)
  local from = (ok and type(last) == 'number' and last >= 0 and last or #body) + 1
  local _, to = word_at(body, from)
  return from, to
end

-- The lane as a text, "running,interval,burst,weight,name"; nil where there is none.
local function lane_of(body)
  if string.byte(body) == 0x9f then
    local _, at = payload_of(body)
    local lane = word_at(body, at)
    return lane and name_of(lane) and lane or nil
  end
end

local function run_at_of(body, life)
  return life and life.u or first_run_at(body)
end

-- The number of a job from where it stands, and its lane, where it has one.
local function seq_of_ready(member)
  local colon = string.find(member, ':', 18, true)
  if colon then
    return string.sub(member, 18, colon - 1), string.sub(member, colon + 1)
  end
  return string.sub(member, 18)
end

-- The state as it is kept. A job that a claim made queued, or set aside, has only changed its sorted set: one that its
-- lane holds is `h` here, and blocked to everybody else.
local function state_of(seq, body, life)
  local state, lane = life and life.s, lane_of(body)
  if state == 'D' then
    return state
  end
  if not state then
    state = first_run_at(body) == created_at(body) and 'q' or 'w'
  end
  if state == 'w' or state == 'f' then
    local _, queue = words(body)
    local set = state == 'w' and 'later:' or 'retry:'
    if not call('ZSCORE', P .. set .. queue, later_member(seq, priority_of(body), life and life.p, lane)) then
      state = 'q'
    end
  end
  if lane and state == 'q' then
    local member = ready_member(run_at_of(body, life), seq, lane)
    return call('ZSCORE', held_key(name_of(lane)), member) and 'h' or 'q'
  end
  return state
end
