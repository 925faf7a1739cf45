if ARGV[4] ~= '' and redis.call('HGET', KEYS[3], ARGV[3]) ~= ARGV[4] .. ' ' .. ARGV[2] then return { 'fenced' } end
local g, me, from, page = ARGV[1], ARGV[2], ARGV[5], tonumber(ARGV[8])
local hand = {}
for i = 13, #ARGV do hand[ARGV[i]] = true end
local list = from == '' and redis.call('XPENDING', KEYS[1], g, ARGV[7], '+', page)
  or redis.call('XPENDING', KEYS[1], g, ARGV[7], '+', page, from)
local cursor = #list == page and '(' .. list[page][1] or ''
local got, dead, lost, room, ordered = {}, {}, {}, tonumber(ARGV[11]), ARGV[12] == '1'
for _, p in ipairs(list) do
  local id, n = p[1], p[4]
  if not hand[id] and p[3] >= tonumber(ARGV[6]) then
    local e = redis.call('XRANGE', KEYS[1], id, id)[1]
    local before = 0                                                   -- deliveries of the message before this entry was made
    for k = 1, e and #e[2] or 0, 2 do if e[2][k] == 'attempt' then before = (tonumber(e[2][k + 1]) or 1) - 1 end end
    if not e then redis.call('XACK', KEYS[1], g, id); lost[#lost + 1] = id
    elseif n + before >= tonumber(ARGV[9]) then
      local origin, d = id, {}
      for k = 1, #e[2], 2 do
        if e[2][k] == 'origin' then origin = e[2][k + 1]
        elseif e[2][k] ~= 'attempt' and string.sub(e[2][k], 1, 5) ~= 'dead-' then d[#d + 1] = e[2][k]; d[#d + 1] = e[2][k + 1] end
      end
      for _, v in ipairs({ 'dead-group', g, 'dead-partition', ARGV[3], 'dead-origin', origin, 'dead-reason', 'deliveries', 'dead-attempts', string.format('%.0f', n + before), 'dead-deliveries', tostring(n) }) do d[#d + 1] = v end
      redis.call('XDEL', KEYS[2], '0-0')              -- memory pressure refuses only a first write: this one moves
      if type(redis.pcall('XADD', KEYS[2], '*', unpack(d))) == 'string' then redis.call('XACK', KEYS[1], g, id); dead[#dead + 1] = id
      elseif ordered then cursor = id; break end                       -- memory full: it stays pending, and nothing may pass it
    elseif n >= tonumber(ARGV[10]) and room == 0 then
      if ordered then cursor = id; break end
    else
      if n >= tonumber(ARGV[10]) then room = room - 1 end
      if from ~= me then n = n + 1 end
      redis.call('XCLAIM', KEYS[1], g, me, 0, id, 'RETRYCOUNT', n, 'JUSTID')
      got[#got + 1] = { id, n, e[2] }
    end
  end
end
return { cursor, got, dead, lost }
