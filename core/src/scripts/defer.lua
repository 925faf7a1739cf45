local out = {}
for i = 3, #ARGV, 2 do
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if p and p[2] == ARGV[2] then
    redis.call('XCLAIM', KEYS[1], ARGV[1], '@retry', 0, ARGV[i], 'IDLE', string.format('%.0f', 3600000 - ARGV[i + 1]), 'JUSTID')
    out[#out + 1] = 1
  else out[#out + 1] = 0 end
end
return out
