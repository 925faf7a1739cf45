local mine, lost = {}, {}
for i = 3, #ARGV do
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if p and p[2] == ARGV[2] then mine[#mine + 1] = ARGV[i] else lost[#lost + 1] = ARGV[i] end
end
if #mine > 0 then mine[#mine + 1] = 'JUSTID'; redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(mine)) end
return lost
