-- Compare-and-set of the slot ARGV[1] of the pool KEYS[1]: from ARGV[2] (empty: from no slot at all) to ARGV[3]. Answers with 1; with
-- 0 the slot is another one by now, and nothing was changed.
local row = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if row ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
