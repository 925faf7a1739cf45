local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local due = string.sub(ARGV[3], 1, 1) == '@' and string.sub(ARGV[3], 2) or string.format('%.0f', now + ARGV[3])
local r = redis.pcall('HSETNX', KEYS[2], ARGV[2], cmsgpack.pack({ unpack(ARGV, 4) }))  -- takes memory, and comes first: refused, nothing has happened
if type(r) == 'table' then return string.find(r.err, 'OOM ') and { 'oom' } or r end
if r == 0 then return { 'known', redis.call('ZSCORE', KEYS[1], ARGV[2]) or due } end
redis.call('ZADD', KEYS[1], due, ARGV[2])
redis.call('ZADD', KEYS[3], 'LT', due, ARGV[1])
return { 'ok', due }
