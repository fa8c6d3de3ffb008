-- Compare-and-set of the row KEYS[1]: from the fields ARGV[1] to ARGV[7] (all empty: from no row at all) to ARGV[8] to ARGV[14].
-- Answers with 1; with 0 the row is another one by now, and nothing was changed.
local fields = {'date', 'next', 'state', 'stores', 'store', 'chunk', 'writer'}
if ARGV[2] == '' then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return 0
  end
else
  local row = redis.call('HMGET', KEYS[1], unpack(fields))
  for at = 1, #fields do
    if row[at] ~= ARGV[at] then
      return 0
    end
  end
end
local row = {}
for at, field in ipairs(fields) do
  row[2 * at - 1], row[2 * at] = field, ARGV[#fields + at]
end
redis.call('HSET', KEYS[1], unpack(row))
return 1
