local n = 0
for i = 2, #ARGV do
  n = n + redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('HDEL', KEYS[2], ARGV[i])
end
local nx = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if nx[2] then redis.call('ZADD', KEYS[3], nx[2], ARGV[1]) else redis.call('ZREM', KEYS[3], ARGV[1]) end
return n
