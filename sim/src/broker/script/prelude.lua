-- What a script sees: the libraries that the server offers, behind tables that nothing can write to, so that no script
-- leaves anything for the next one. Returns the environment, what runs a script in it, and what the host fills.
local old, plain, random, seed, handler, load_strict, cjson, cmsgpack, bit = ...
local pcall, xpcall, rawset, rawget, error, type = pcall, xpcall, rawset, rawget, error, type
local READONLY = 'Attempt to modify a readonly table'

local frozen = {}
local function refuse() error(READONLY, 2) end
local function freeze(t)
  local proxy = setmetatable({}, { __index = t, __newindex = refuse, __metatable = false })
  frozen[proxy] = true
  return proxy
end

local function copy(t)
  local all = {}
  for k, v in next, t do all[k] = v end
  return all
end

local G = {}
for _, name in ipairs({ '_VERSION', 'assert', 'collectgarbage', 'error', 'gcinfo', 'getmetatable', 'ipairs', 'next',
  'pairs', 'rawequal', 'rawget', 'select', 'tonumber', 'tostring', 'type', 'unpack' }) do
  G[name] = _G[name]
end

-- Errors of the host's functions arrive as objects: scripts see what the server would have raised. Since 7.0 pcall also
-- unpacks the table that redis.call raises.
local function caught(ok, e, ...)
  if ok then return ok, e, ... end
  e = plain(e)
  if not old and type(e) == 'table' and type(rawget(e, 'err')) == 'string' then e = e.err end
  return false, e
end
local function resumed(ok, e, ...)
  if ok then return ok, e, ... end
  return false, plain(e)
end
local resume = coroutine.resume
function G.pcall(f, ...) return caught(pcall(f, ...)) end
function G.xpcall(f, h) return xpcall(f, function(e) return h(plain(e)) end) end

function G.rawset(t, k, v)
  if frozen[t] then error(READONLY, 0) end
  return rawset(t, k, v)
end
local setmetatable0 = setmetatable
function G.setmetatable(t, m)
  if frozen[t] then error(READONLY, 0) end
  return setmetatable0(t, m)
end

-- Compiled code is refused: a wrong byte in it would be a wrong access of the process.
local loadstring0 = loadstring
function G.loadstring(text, name)
  if type(text) == 'string' and string.byte(text, 1) == 27 then return nil, 'compiled code is not modelled' end
  return loadstring0(text, name)
end
function G.load(pieces, name)
  local text, piece = {}, pieces()
  while piece and piece ~= '' do
    text[#text + 1] = piece
    piece = pieces()
  end
  return G.loadstring(table.concat(text), name or '=(load)')
end

local math_ = copy(math)
function math_.random(low, high)
  local r = random() % 2147483647 / 2147483647
  if not low then return r end
  if not high then low, high = 1, low end
  if low > high then error("bad argument #2 to 'random' (interval is empty)", 2) end
  return math.floor(r * (high - low + 1)) + low
end
math_.randomseed = seed

local coroutine_ = copy(coroutine)
function coroutine_.resume(...) return resumed(resume(...)) end

G.coroutine, G.math, G.table = freeze(coroutine_), freeze(math_), freeze(copy(table))
G.string, G.cjson, G.cmsgpack, G.bit = freeze(copy(string)), freeze(cjson), freeze(cmsgpack), freeze(bit)
local text_meta = getmetatable('')
text_meta.__index = G.string
text_meta.__metatable = freeze({ __index = G.string })

local redis = {}
G.redis = freeze(redis)

local env, dirty = {}, false
local function exists(name) return rawget(G, name) ~= nil end
local function keep(t, name, value)
  dirty = true
  rawset(t, name, value)
end
local create, access = load_strict(exists, keep)
setmetatable(G, { __index = access })
setmetatable(env, { __index = G, __newindex = old and create or refuse, __metatable = false })
frozen[env] = true
G._G = env

local function run(script, call, pcall_, keys, argv)
  redis.call, redis.pcall, G.KEYS, G.ARGV = call, pcall_, keys, argv
  local ok, value = xpcall(script, handler)
  if dirty then
    for name in next, env do env[name] = nil end
    dirty = false
  end
  return ok, value
end

return env, G, redis, run
