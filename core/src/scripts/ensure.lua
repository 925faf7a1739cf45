redis.call('PERSIST', KEYS[1])
local m = redis.call('HMGET', KEYS[1], 'partitions', 'version')
local have, version = tonumber(m[1] or 0) or 0, tonumber(m[2] or 1) or 1
local want, its = tonumber(ARGV[1]), tonumber(ARGV[2])
local function ver(x) local v, state = string.match(x or '', '^(%d+) (%a+) '); return v and v * 2 + (state == 'live' and 1 or 0) or 0 end
if want > 0 and (have == 0 or its > version or (its == version and its > 1 and want > have)) then
  have, version = math.max(have, want), its
  redis.call('HSET', KEYS[1], 'partitions', have, 'version', version)
end
for i = 3, #ARGV, 2 do
  if ver(ARGV[i + 1]) > ver(redis.call('HGET', KEYS[2], ARGV[i])) then redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
end
local all, made = redis.call('HGETALL', KEYS[2]), 0
for k = 3, #KEYS do
  local known = {}
  if redis.call('EXISTS', KEYS[k]) == 1 then
    for _, g in ipairs(redis.call('XINFO', 'GROUPS', KEYS[k])) do
      for j = 1, #g, 2 do if g[j] == 'name' then known[g[j + 1]] = true end end
    end
  end
  for i = 1, #all, 2 do
    local state, start = string.match(all[i + 1], '^%d+ (%a+) (%S+)$')
    if state == 'live' and not known[all[i]] then redis.call('XGROUP', 'CREATE', KEYS[k], all[i], start, 'MKSTREAM'); made = made + 1
    elseif state == 'gone' and known[all[i]] then redis.call('XGROUP', 'DESTROY', KEYS[k], all[i]) end
  end
end
return { have, made, all, version }
