if ARGV[4] ~= '' and redis.call('HGET', KEYS[5], ARGV[3]) ~= ARGV[4] .. ' ' .. ARGV[2] then return { 'fenced' } end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local out, a = {}, 6
for i = 1, tonumber(ARGV[5]) do
  local id, delay, attempt, tag, nf = ARGV[a], tonumber(ARGV[a + 1]), ARGV[a + 2], ARGV[a + 3], tonumber(ARGV[a + 4])
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if not p or p[2] ~= ARGV[2] then out[i] = 'gone'
  else
    local e = redis.call('XRANGE', KEYS[1], id, id)[1]
    local f = e and e[2]
    if not f and nf > 0 then f = {}; for k = 1, nf do f[k] = ARGV[a + 4 + k] end end
    if not f then redis.call('XACK', KEYS[1], ARGV[1], id); out[i] = 'lost'
    else
      local body, origin = {}, id
      for k = 1, #f, 2 do
        if f[k] == 'origin' then origin = f[k + 1]
        elseif f[k] ~= 'attempt' then body[#body + 1] = f[k]; body[#body + 1] = f[k + 1] end
      end
      for _, v in ipairs({ 'attempt', attempt, 'origin', origin }) do body[#body + 1] = v end
      local item, due = tag .. ':' .. id, string.format('%.0f', now + delay)
      local r = redis.pcall('HSET', KEYS[3], item, cmsgpack.pack(body))     -- takes memory, and comes first: refused, nothing has happened
      if type(r) == 'table' then return string.find(r.err, 'OOM ') and { 'oom' } or r end
      redis.call('ZADD', KEYS[2], due, item)
      redis.call('ZADD', KEYS[4], 'LT', due, ARGV[3])
      redis.call('XACK', KEYS[1], ARGV[1], id)
      out[i] = due
    end
  end
  a = a + 5 + nf
end
return out
