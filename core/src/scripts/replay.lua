redis.call('XDEL', KEYS[1], '0-0')                  -- a write that memory pressure does not refuse: a replay moves, it does not add
local out = {}
for i = 3, #ARGV do
  local e = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  if not e then out[#out + 1] = 'gone'
  else
    local b, from, part, origin = { 'attempt', '1' }, '', '', nil
    for k = 1, #e[2], 2 do
      local f, v = e[2][k], e[2][k + 1]
      if f == 'dead-group' then from = v elseif f == 'dead-partition' then part = v elseif f == 'dead-origin' then origin = v
      elseif f ~= 'attempt' and string.sub(f, 1, 5) ~= 'dead-' then b[#b + 1] = f; b[#b + 1] = v end
    end
    if part ~= ARGV[2] or (ARGV[1] ~= '' and from ~= ARGV[1]) then out[#out + 1] = 'other'
    else
      if origin then b[#b + 1] = 'origin'; b[#b + 1] = origin end
      if ARGV[1] ~= '' and redis.call('EXISTS', KEYS[2]) == 0 then redis.call('XGROUP', 'CREATE', KEYS[2], ARGV[1], '0', 'MKSTREAM') end
      out[#out + 1] = redis.call('XADD', KEYS[2], '*', unpack(b))
      redis.call('XDEL', KEYS[1], ARGV[i])
    end
  end
end
return out
