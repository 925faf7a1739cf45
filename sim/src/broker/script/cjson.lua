-- JSON for scripts, as the server's cjson does it where scripts can tell: null is a value of its own, an empty table is
-- an object, a table with positive whole keys is an array unless it is too sparse.
local raise, null = ...
local encode_value
local ESCAPES = { ['"'] = '\\"', ['\\'] = '\\\\', ['/'] = '\\/', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n',
  ['\r'] = '\\r', ['\t'] = '\\t', ['\127'] = '\\u007f' }

local function quote(text)
  return '"' .. string.gsub(text, '[%c"\\/]', function(c)
    return ESCAPES[c] or string.format('\\u%04x', string.byte(c))
  end) .. '"'
end

-- The length of the array that a table is, or nil for an object.
local function array_length(t)
  local max, count = 0, 0
  for k in next, t do
    if type(k) ~= 'number' or k < 1 or k % 1 ~= 0 then return nil end
    count = count + 1
    if k > max then max = k end
  end
  if count == 0 then return nil end
  if max > 10 and max > count * 2 then raise('Cannot serialise table: excessively sparse array') end
  return max
end

local function encode_table(t, depth)
  if depth > 1000 then raise('Cannot serialise, excessive depth (1001)') end
  local parts, n = {}, array_length(t)
  if n then
    for i = 1, n do parts[i] = encode_value(rawget(t, i), depth) end
    return '[' .. table.concat(parts, ',') .. ']'
  end
  for k, v in next, t do
    if type(k) == 'number' then k = string.format('%.14g', k) end
    if type(k) ~= 'string' then raise('Cannot serialise table: table key must be a number or string') end
    parts[#parts + 1] = quote(k) .. ':' .. encode_value(v, depth)
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

function encode_value(v, depth)
  local kind = type(v)
  if v == nil or v == null then return 'null' end
  if kind == 'string' then return quote(v) end
  if kind == 'boolean' then return tostring(v) end
  if kind == 'table' then return encode_table(v, depth + 1) end
  if kind ~= 'number' then raise('Cannot serialise ' .. kind .. ': type not supported') end
  if v ~= v or v == math.huge or v == -math.huge then raise('Cannot serialise number: must not be NaN or Inf') end
  return string.format('%.14g', v)
end

local decode_value

local function fail(what, text, at)
  local found = at > #text and 'T_END' or 'invalid token'
  raise('Expected ' .. what .. ' but found ' .. found .. ' at character ' .. at)
end

local function skip(text, at) return (string.find(text, '[^ \t\r\n]', at)) or #text + 1 end

local function utf8(n)
  if n < 0x80 then return string.char(n) end
  local tail = string.char(0x80 + n % 0x40)
  if n < 0x800 then return string.char(0xC0 + math.floor(n / 0x40)) .. tail end
  tail = string.char(0x80 + math.floor(n / 0x40) % 0x40) .. tail
  if n < 0x10000 then return string.char(0xE0 + math.floor(n / 0x1000)) .. tail end
  tail = string.char(0x80 + math.floor(n / 0x1000) % 0x40) .. tail
  return string.char(0xF0 + math.floor(n / 0x40000)) .. tail
end

local PLAIN = { ['"'] = '"', ['\\'] = '\\', ['/'] = '/', b = '\b', f = '\f', n = '\n', r = '\r', t = '\t' }

-- The code point of the escape whose digits begin at `at`, and where it ends.
local function code_point(text, at)
  local n = tonumber(string.match(text, '^%x%x%x%x', at) or fail('value', text, at), 16)
  if n < 0xD800 or n > 0xDBFF then return n, at + 4 end
  local low = tonumber(string.match(text, '^\\u(%x%x%x%x)', at + 4) or fail('value', text, at), 16)
  if low < 0xDC00 or low > 0xDFFF then fail('value', text, at) end
  return 0x10000 + (n - 0xD800) * 0x400 + low - 0xDC00, at + 10
end

local function decode_string(text, at)
  local parts = {}
  while true do
    local stop = string.find(text, '[%c"\\]', at)
    local c = stop and string.sub(text, stop, stop)
    if c ~= '"' and c ~= '\\' then fail('value', text, stop or #text + 1) end
    parts[#parts + 1] = string.sub(text, at, stop - 1)
    if c == '"' then return table.concat(parts), stop + 1 end
    c = string.sub(text, stop + 1, stop + 1)
    if c == 'u' then
      local n
      n, at = code_point(text, stop + 2)
      parts[#parts + 1] = utf8(n)
    else
      parts[#parts + 1] = PLAIN[c] or fail('value', text, stop)
      at = stop + 2
    end
  end
end

local function decode_array(text, at, depth)
  local t, n = {}, 0
  at = skip(text, at)
  if string.sub(text, at, at) == ']' then return t, at + 1 end
  while true do
    n = n + 1
    t[n], at = decode_value(text, at, depth)
    at = skip(text, at)
    local c = string.sub(text, at, at)
    if c == ']' then return t, at + 1 end
    if c ~= ',' then fail('comma or array end', text, at) end
    at = at + 1
  end
end

local function decode_object(text, at, depth)
  local t = {}
  at = skip(text, at)
  if string.sub(text, at, at) == '}' then return t, at + 1 end
  while true do
    at = skip(text, at)
    if string.sub(text, at, at) ~= '"' then fail('object key string', text, at) end
    local key
    key, at = decode_string(text, at + 1)
    at = skip(text, at)
    if string.sub(text, at, at) ~= ':' then fail('colon', text, at) end
    t[key], at = decode_value(text, at + 1, depth)
    at = skip(text, at)
    local c = string.sub(text, at, at)
    if c == '}' then return t, at + 1 end
    if c ~= ',' then fail('comma or object end', text, at) end
    at = at + 1
  end
end

function decode_value(text, at, depth)
  if depth > 1000 then raise('Found too many nested data structures (1001)') end
  at = skip(text, at)
  local c = string.sub(text, at, at)
  if c == '{' then return decode_object(text, at + 1, depth + 1) end
  if c == '[' then return decode_array(text, at + 1, depth + 1) end
  if c == '"' then return decode_string(text, at + 1) end
  local word = string.match(text, '^%a+', at)
  if word == 'null' then return null, at + 4 end
  if word == 'true' then return true, at + 4 end
  if word == 'false' then return false, at + 5 end
  local digits = string.match(text, '^-?%d+%.?%d*[eE]?[+-]?%d*', at)
  local n = digits and tonumber(digits)
  if not n then fail('value', text, at) end
  return n, at + #digits
end

local cjson = { null = null }

function cjson.encode(...)
  if select('#', ...) ~= 1 then raise("bad argument #1 to 'encode' (expected 1 argument)") end
  return encode_value((...), 0)
end

function cjson.decode(...)
  if select('#', ...) ~= 1 then raise("bad argument #1 to 'decode' (expected 1 argument)") end
  local text = ...
  if type(text) == 'number' then text = tostring(text) end
  if type(text) ~= 'string' then raise("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ')') end
  local value, at = decode_value(text, 1, 0)
  at = skip(text, at)
  if at <= #text then fail('the end', text, at) end
  return value
end

return cjson
