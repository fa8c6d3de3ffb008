-- Compare-and-set of the row KEYS[1]: from period ARGV[1] and next ARGV[2] (both empty: from no row at all) to period ARGV[3]
-- and next ARGV[4]. Answers with 1; with 0 the row is another one by now, and nothing was changed.
local row = redis.call('HMGET', KEYS[1], 'period', 'next')
if ARGV[2] == '' then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return 0
  end
elseif row[1] ~= ARGV[1] or row[2] ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'period', ARGV[3], 'next', ARGV[4])
return 1
