if redis.call('EXISTS', KEYS[1]) == 0 then return { 'none' } end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function key(id) local m, s = string.match(id, '^(%d+)%-(%d+)$'); return string.rep('0', 20 - #m) .. m .. string.rep('0', 20 - #s) .. s end
local have, keep, pin = {}, nil, ''
for _, g in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local r = {}
  for k = 1, #g, 2 do r[g[k]] = g[k + 1] end
  have[r.name] = true
  local low
  if r.pending > 0 then low = redis.call('XPENDING', KEYS[1], r.name)[2]
  else local m, s = string.match(r['last-delivered-id'], '^(%d+)%-(%d+)$'); low = m .. '-' .. string.format('%.0f', s + 1) end
  if not keep or key(low) < key(keep) then keep, pin = low, r.name end
end
local young, memory = tonumber(ARGV[5]), redis.pcall('INFO', 'memory')
if type(memory) == 'string' then
  local used, most = string.match(memory, 'used_memory:(%d+)'), string.match(memory, '\nmaxmemory:(%d+)')
  if used and most and tonumber(most) > 0 and tonumber(used) > 0.9 * tonumber(most) then young = 0 end
end
if keep and young > 0 then
  local oldest = string.format('%.0f', now - young) .. '-0'
  if key(oldest) < key(keep) then keep = oldest end
end
local missing = {}
local reg = redis.call('HGETALL', KEYS[2])
for i = 1, #reg, 2 do if not have[reg[i]] and not string.find(reg[i + 1], ' gone ') then missing[#missing + 1] = reg[i] end end
if #missing > 0 then return { 'missing', missing } end
local done, dropped, L = 0, 0, tonumber(ARGV[4])
if keep and ARGV[1] == '1' then done = redis.call('XTRIM', KEYS[1], 'MINID', '~', keep, 'LIMIT', L) end
local over = tonumber(ARGV[2]) >= 0 and redis.call('XLEN', KEYS[1]) > tonumber(ARGV[2])
local age = tonumber(ARGV[3])
if done == 0 and (over or age >= 0) then
  if keep and ARGV[1] == '1' then done = redis.call('XTRIM', KEYS[1], 'MINID', keep) end
  if over then dropped = redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[2], 'LIMIT', L) end
  if age >= 0 then dropped = dropped + redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', now - age), 'LIMIT', L) end
end
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
return { 'ok', done, dropped, keep or '', pin, redis.call('XLEN', KEYS[1]), first and first[1] or '' }
