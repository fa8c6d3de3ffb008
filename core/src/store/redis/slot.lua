-- Compare-and-set of the slot ARGV[1] of the pool KEYS[1]: from ARGV[2] (empty: from no slot at all) to ARGV[3] (empty: it is deleted), if the pool's floor is
-- ARGV[4] (empty: there is none; not given: whatever it is). Answers with 1; with 0 the slot or the floor is another one by now, and
-- nothing was changed.
local row = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if row ~= ARGV[2] then
  return 0
end
if ARGV[4] and (redis.call('HGET', KEYS[1], 'floor') or '') ~= ARGV[4] then
  return 0
end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
