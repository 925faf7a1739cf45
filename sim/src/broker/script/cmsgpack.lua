-- MessagePack for scripts, as far as scripts of Flota use it: texts, and arrays of them. Bytes are those of the server's
-- library.
local raise = ...
local pack_value

local function big(n, bytes)
  local parts = {}
  for i = bytes, 1, -1 do
    parts[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(parts)
end

local function pack_text(text)
  local n = #text
  if n < 32 then return string.char(0xa0 + n) .. text end
  if n < 256 then return '\217' .. big(n, 1) .. text end
  if n < 65536 then return '\218' .. big(n, 2) .. text end
  return '\219' .. big(n, 4) .. text
end

local function pack_array(t, depth)
  local n, count = #t, 0
  for _ in next, t do count = count + 1 end
  if count ~= n or depth > 16 then raise('this table in MessagePack is not modelled') end
  local parts = { n < 16 and string.char(0x90 + n) or n < 65536 and '\220' .. big(n, 2) or '\221' .. big(n, 4) }
  for i = 1, n do parts[i + 1] = pack_value(rawget(t, i), depth + 1) end
  return table.concat(parts)
end

function pack_value(value, depth)
  if type(value) == 'string' then return pack_text(value) end
  if type(value) == 'table' then return pack_array(value, depth) end
  raise('a ' .. type(value) .. ' in MessagePack is not modelled')
end

local function number(text, at, bytes)
  if at + bytes - 1 > #text then raise('Missing bytes in input.') end
  local n = 0
  for i = at, at + bytes - 1 do n = n * 256 + string.byte(text, i) end
  return n, at + bytes
end

local unpack_value
local function unpack_text(text, at, n)
  if at + n - 1 > #text then raise('Missing bytes in input.') end
  return string.sub(text, at, at + n - 1), at + n
end
local function unpack_array(text, at, n)
  local t = {}
  for i = 1, n do t[i], at = unpack_value(text, at) end
  return t, at
end

function unpack_value(text, at)
  if at > #text then raise('Missing bytes in input.') end
  local kind, n = string.byte(text, at), nil
  at = at + 1
  if kind >= 0xa0 and kind < 0xc0 then return unpack_text(text, at, kind - 0xa0) end
  if kind >= 0x90 and kind < 0xa0 then return unpack_array(text, at, kind - 0x90) end
  if kind >= 0xd9 and kind <= 0xdb then
    n, at = number(text, at, 2 ^ (kind - 0xd9))
    return unpack_text(text, at, n)
  end
  if kind == 0xdc or kind == 0xdd then
    n, at = number(text, at, 2 ^ (kind - 0xdb))
    return unpack_array(text, at, n)
  end
  if kind < 0x80 then return kind, at end
  if kind == 0xc1 then raise('Bad data format in input.') end
  raise('this MessagePack is not modelled')
end

local cmsgpack = {}

function cmsgpack.pack(...)
  if select('#', ...) == 0 then raise("bad argument #0 to 'pack' (MessagePack pack needs input.)") end
  local parts = {}
  for i = 1, select('#', ...) do parts[i] = pack_value((select(i, ...)), 0) end
  return table.concat(parts)
end

function cmsgpack.unpack(text)
  if type(text) ~= 'string' then raise("bad argument #1 to 'unpack' (string expected, got " .. type(text) .. ')') end
  local values, n, at = {}, 0, 1
  while at <= #text do
    n = n + 1
    values[n], at = unpack_value(text, at)
  end
  return unpack(values, 1, n)
end

return cmsgpack
