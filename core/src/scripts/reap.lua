local keep, n = {}, 0
for i = 4, #ARGV do keep[ARGV[i]] = true end
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local r = {}
  for k = 1, #c, 2 do r[c[k]] = c[k + 1] end
  if r.pending == 0 and r.idle >= tonumber(ARGV[2]) and not keep[r.name] and n < tonumber(ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], r.name); n = n + 1
  end
end
return n
