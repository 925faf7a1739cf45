local me, ttl, mode, room = ARGV[1], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[9])
local t = redis.call('TIME')
local now, us = t[1] * 1000 + math.floor(t[2] / 1000), t[1] * 1000000 + t[2]
local function n(x) return tonumber(x or 0) or 0 end
local function s(x) return string.format('%.0f', x) end
local KEEP, WIDEST = 604800000, 1000
redis.call('PEXPIRE', KEYS[1], KEEP)                 -- lets the writes through when memory is full
local h = redis.call('HMGET', KEYS[1], 'gen', 'fence', 'clock', 'run', 'grace', 'floor', 'parts', 'owned', 'seq ' .. me)
if n(ARGV[12]) <= n(h[9]) then return { 'stale' } end
local gen, fence, clock, grace, floor = n(h[1]), n(h[2]), n(h[3]), n(h[5]), n(h[6])
local P = n(redis.call('HGET', KEYS[5], 'partitions'))
if P < 1 then P = math.max(n(h[7]), n(ARGV[8])) end
P = math.min(math.floor(P), WIDEST)
local changed = P ~= n(h[7])

-- what this server may have forgotten
local back = clock - now > 1000
local owned = redis.call('EXISTS', KEYS[2])
local bare = owned == 0 and n(h[8]) > 0
if owned == 1 and redis.call('EXISTS', KEYS[3]) == 0 then     -- whoever owns something was there
  for _, v in ipairs(redis.call('HVALS', KEYS[2])) do
    local who = string.match(v, '^%d+ (.*)$')
    if who then redis.call('ZADD', KEYS[3], s(now + ttl), who) end
  end
  changed = true
end
local run = ARGV[6] == '' and h[4] or ARGV[6]        -- who may not ask for it notices no restart
local restarted, forgot = h[4] and h[4] ~= '' and h[4] ~= run, n(ARGV[7]) > fence or bare
if back or restarted or forgot then
  for _, m in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do redis.call('ZADD', KEYS[3], s(now + ttl), m) end
  grace = math.min(grace, now + ttl)
  changed = true
end
if restarted or forgot then
  local upto, start, lost = now + ttl, n(ARGV[10]), n(ARGV[11])
  if not forgot and not back and start >= clock then
    upto = math.min(upto, (lost < 0 and start + 1000 or math.min(clock + lost, start + 1000)) + ttl)
  end
  if grace == 0 then floor = fence end
  if bare then floor = 0 end
  if upto > now then grace = math.max(grace, upto) end
  fence = math.max(fence, n(ARGV[7]))
end

-- nothing is new: a heartbeat
local late = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. s(now), 'LIMIT', 0, 100)
local nh = tonumber(ARGV[13])
if mode == 'run' and gen > 0 and gen == n(ARGV[5]) and not changed and grace == 0 and #late == 0
  and redis.call('PEXPIRE', KEYS[3], KEEP) == 1 and redis.call('PEXPIRE', KEYS[4], KEEP) == 1
  and (redis.call('PEXPIRE', KEYS[2], KEEP) == 1 or nh == 0) then
  redis.call('ZADD', KEYS[3], s(now + ttl), me)
  redis.call('HSET', KEYS[1], 'clock', s(now), 'seq ' .. me, ARGV[12])
  return { 'same', s(now), s(gen) }
end

-- who is there, and who is in line
for _, m in ipairs(late) do
  if m ~= me then
    redis.call('ZREM', KEYS[3], m); redis.call('HDEL', KEYS[1], 'seq ' .. m)
    if redis.call('ZREM', KEYS[4], m) == 1 then changed = true end
  end
end
redis.call('ZADD', KEYS[3], s(now + ttl), me)
if mode == 'join' or mode == 'run' then
  if redis.call('ZADD', KEYS[4], ARGV[2], me) == 1 then changed = true end
elseif redis.call('ZREM', KEYS[4], me) == 1 then changed = true end
local alive = {}
for _, m in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do alive[m] = true end
for _, m in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  if not alive[m] then redis.call('ZREM', KEYS[4], m); changed = true end
end

-- who owns what, and what this member says that it holds
local own, held, mine = {}, {}, 0
local function put(p, tok)
  own[p] = { tok, me }; held[p] = true; mine = mine + 1; changed = true
  redis.call('HSET', KEYS[2], p, s(tok) .. ' ' .. me)
end
local function drop(p) own[p] = nil; changed = true; redis.call('HDEL', KEYS[2], p) end
local function grant(p) fence = math.max(fence + 1, us); put(p, fence) end
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  local tok, who = string.match(all[i + 1], '^(%d+) (.*)$')
  if tok and alive[who] then own[all[i]] = { n(tok), who } else drop(all[i]) end
end
for i = 1, nh do
  local p, tok = ARGV[12 + 2 * i], n(ARGV[13 + 2 * i])
  local o, is = own[p], n(p) < P
  if is and o and o[2] == me and o[1] == tok then held[p] = true; mine = mine + 1
  elseif is and grace > 0 and tok > floor and tok > (o and o[1] or 0) then
    put(p, tok)
    fence = math.max(fence, tok)
  end
end
if grace > 0 and now >= grace then grace, floor, changed = 0, 0, true end

-- what it may have: what it does not say it holds is given up, or granted anew
local M, r, q = redis.call('ZCARD', KEYS[4]), redis.call('ZRANK', KEYS[4], me), 0
if r then q = math.floor(P / M) + (r < P % M and 1 or 0) end
local may, stray, more = mode == 'run' and grace == 0, {}, 0
for p, o in pairs(own) do if o[2] == me and not held[p] then stray[#stray + 1] = p end end
table.sort(stray)
for _, p in ipairs(stray) do
  if may and mine < q and n(p) < P then grant(p) else drop(p) end
end
for k = 0, P - 1 do
  if not may or mine >= q then break end
  local p = s((math.floor(P * r / M) + k) % P)
  if not own[p] then
    if room <= 0 then more = 1; break end
    room = room - 1; grant(p)
  end
end

if grace > 0 then q = math.max(q, mine) end           -- nobody could be given what it would give up
if changed then gen = math.max(gen + 1, us) end     -- never one that somebody remembers from before a flush
redis.call('HSET', KEYS[1], 'gen', s(gen), 'fence', s(fence), 'clock', s(now), 'run', run, 'grace', s(grace),
  'floor', s(floor), 'parts', s(P), 'owned', redis.call('HLEN', KEYS[2]), 'seq ' .. me, ARGV[12])
for i = 2, 4 do redis.call('PEXPIRE', KEYS[i], KEEP) end
local list = {}
for p in pairs(held) do list[#list + 1] = p; list[#list + 1] = s(own[p][1]) end
return { 'full', s(now), mode == 'run' and more == 0 and s(gen) or '0', s(fence), P, q, M, s(grace > 0 and grace - now or 0), more, list }
