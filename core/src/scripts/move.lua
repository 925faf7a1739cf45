if ARGV[4] ~= '' and redis.call('HGET', KEYS[5], ARGV[3]) ~= ARGV[4] .. ' ' .. ARGV[2] then return { 'fenced' } end
local kind = redis.call('TYPE', KEYS[3]).ok
if kind ~= 'stream' and kind ~= 'none' then return redis.error_reply('WRONGTYPE ' .. KEYS[3] .. ' is not a stream') end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, tonumber(ARGV[5]))
local moved, bytes, bare = 0, 0, 0
redis.call('ZREM', KEYS[1], '')                     -- a write that memory pressure does not refuse: a move frees memory in the end
if #due > 0 and ARGV[1] ~= '' and kind == 'none' then redis.call('XGROUP', 'CREATE', KEYS[3], ARGV[1], '0', 'MKSTREAM') end
for _, item in ipairs(due) do
  local b = redis.call('HGET', KEYS[2], item)
  local ok, fields = pcall(cmsgpack.unpack, b or '')
  if not ok or type(fields) ~= 'table' or #fields == 0 or #fields % 2 == 1 then bare = bare + 1
  else
    bytes = bytes + #b
    if moved > 0 and bytes > tonumber(ARGV[6]) then break end
    redis.call('XADD', KEYS[3], '*', unpack(fields))
    moved = moved + 1
  end
  redis.call('HDEL', KEYS[2], item)
  redis.call('ZREM', KEYS[1], item)
end
local nx = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if nx[2] then redis.call('ZADD', KEYS[4], nx[2], ARGV[3]) else redis.call('ZREM', KEYS[4], ARGV[3]) end
return { moved, nx[2] and math.max(0, nx[2] - now) or -1, bare, redis.call('ZCARD', KEYS[4]) }
