-- A key knows the id and the fingerprint that it stands for.

local function pack_key(id, fingerprint)
  return #fingerprint .. ':' .. fingerprint .. id
end

local function unpack_key(known)
  local colon = string.find(known, ':', 1, true)
  local size = tonumber(string.sub(known, 1, colon - 1))
  return string.sub(known, colon + 1 + size), string.sub(known, colon + 1, colon + size)
end
