local names = { [ARGV[2]] = true, ['@free'] = true }
local left = 0
for _, k in ipairs(KEYS) do
  local list = redis.call('EXISTS', k) == 1 and redis.pcall('XINFO', 'CONSUMERS', k, ARGV[1]) or {}
  for _, c in ipairs(list) do
    local r = {}
    for j = 1, #c, 2 do r[c[j]] = c[j + 1] end
    if names[r.name] then
      if r.pending == 0 then redis.call('XGROUP', 'DELCONSUMER', k, ARGV[1], r.name)
      elseif r.name == ARGV[2] then left = left + r.pending end
    end
  end
end
return left
