if ARGV[4] ~= '' and redis.call('HGET', KEYS[3], ARGV[3]) ~= ARGV[4] .. ' ' .. ARGV[2] then return { 'fenced' } end
redis.call('XDEL', KEYS[2], '0-0')                  -- a write that memory pressure does not refuse: a dead letter moves, it does not add
local out, a = {}, 6
for i = 1, tonumber(ARGV[5]) do
  local id, nf = ARGV[a], tonumber(ARGV[a + 4])
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if not p or p[2] ~= ARGV[2] then out[i] = 'gone'
  else
    local e = redis.call('XRANGE', KEYS[1], id, id)[1]
    local f = e and e[2]
    if not f and nf > 0 then f = {}; for k = 1, nf do f[k] = ARGV[a + 4 + k] end end
    if not f then redis.call('XACK', KEYS[1], ARGV[1], id); out[i] = 'lost'
    else
      local origin, d = id, {}
      for k = 1, #f, 2 do
        if f[k] == 'origin' then origin = f[k + 1] elseif f[k] ~= 'attempt' and string.sub(f[k], 1, 5) ~= 'dead-' then d[#d + 1] = f[k]; d[#d + 1] = f[k + 1] end
      end
      for _, v in ipairs({ 'dead-group', ARGV[1], 'dead-partition', ARGV[3], 'dead-origin', origin, 'dead-reason', ARGV[a + 1], 'dead-attempts', ARGV[a + 2], 'dead-deliveries', ARGV[a + 3] }) do d[#d + 1] = v end
      local r = redis.pcall('XADD', KEYS[2], '*', unpack(d))
      if type(r) == 'table' then return string.find(r.err, 'OOM ') and { 'oom' } or r end
      out[i] = r
      redis.call('XACK', KEYS[1], ARGV[1], id)
    end
  end
  a = a + 5 + nf
end
return out
