redis.call('PERSIST', KEYS[1])
local function key(id)
  local m, s = string.match(id, '^(%d+)%-(%d+)$')
  return string.rep('0', 20 - #m) .. m .. string.rep('0', 20 - #s) .. s
end
local x = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'STREAM', KEYS[1]) or {}
for j = 1, #x, 2 do
  if x[j] == 'last-generated-id' and key(x[j + 1]) >= key(ARGV[2]) then
    for _, g in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
      for k = 1, #g, 2 do if g[k] == 'name' and g[k + 1] == ARGV[1] then return 0 end end
    end
    redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[3])
    return 1
  end
end
return 0
