-- A unique key stores the id and the fingerprint of its job, and when the job was created.

local function pack_key(id, fingerprint, made_at)
  return struct.pack('>I8', made_at) .. #fingerprint .. ':' .. fingerprint .. id
end

-- nil where it cannot be read: then no job has the key.
local function unpack_key(known)
  local colon = string.find(known, ':', 9, true)
  local size = colon and tonumber(string.sub(known, 9, colon - 1))
  if not size then
    return nil
  end
  return string.sub(known, colon + 1 + size), string.sub(known, colon + 1, colon + size), struct.unpack('>I8', known)
end
