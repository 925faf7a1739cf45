redis.call('PERSIST', KEYS[1])
local have = tonumber(redis.call('HGET', KEYS[1], 'partitions') or 0)
local want = tonumber(ARGV[1])
local function ver(x) local v, state = string.match(x or '', '^(%d+) (%a+) '); return v and v * 2 + (state == 'live' and 1 or 0) or 0 end
if have == 0 or (want > have and ARGV[2] == '1') then
  redis.call('HSET', KEYS[1], 'partitions', want)
  have = want
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
return { have, made, all }
