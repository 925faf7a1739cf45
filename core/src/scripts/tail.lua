local out = {}
for i, k in ipairs(KEYS) do
  out[i] = '0-0'
  local x = redis.call('EXISTS', k) == 1 and redis.pcall('XINFO', 'STREAM', k) or {}
  for j = 1, #x, 2 do if x[j] == 'last-generated-id' then out[i] = x[j + 1] end end
end
return out
