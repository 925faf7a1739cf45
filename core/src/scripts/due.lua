local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local out, there = {}, {}
for k = 1, 2 do
  local nx = redis.call('ZRANGE', KEYS[k], 0, 0, 'WITHSCORES')
  out[k] = { nx[2] and math.max(0, nx[2] - now) or -1,
    redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', string.format('%.0f', now), 'LIMIT', 0, tonumber(ARGV[2])) }
end
for k = 3, #KEYS do
  local known = redis.call('TYPE', KEYS[k]).ok ~= 'stream'
  if not known then
    for _, g in ipairs(redis.call('XINFO', 'GROUPS', KEYS[k])) do
      for j = 1, #g, 2 do known = known or g[j] == 'name' and g[j + 1] == ARGV[1] end
    end
    if not known then                                  -- somebody removed the group: what waits there is still its
      redis.call('PERSIST', KEYS[k])                   -- a write that memory pressure does not refuse
      redis.call('XGROUP', 'CREATE', KEYS[k], ARGV[1], '0')
    end
    there[#there + 1] = k - 3
  end
end
return { out[1], out[2], there }
