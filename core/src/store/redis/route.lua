-- Compare-and-set of the route table KEYS[1]: from version ARGV[1] (empty: from no table at all) to version ARGV[2] with the text
-- ARGV[3]. Answers with 1; with 0 the table has another version by now, and nothing was changed.
local version = redis.call('HGET', KEYS[1], 'version') or ''
if version ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'text', ARGV[3])
return 1
