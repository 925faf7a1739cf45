if ARGV[4] ~= '' and redis.call('HGET', KEYS[2], ARGV[3]) ~= ARGV[4] .. ' ' .. ARGV[2] then return -1 end
local n = 0
for i = 5, #ARGV, 2 do
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if p and p[2] == ARGV[2] then
    redis.call('XCLAIM', KEYS[1], ARGV[1], '@free', 0, ARGV[i], 'RETRYCOUNT', ARGV[i + 1] == '1' and p[4] or math.max(0, p[4] - 1), 'JUSTID')
    n = n + 1
  end
end
return n
