-- Reserves ARGV[4] numbers of the row KEYS[1], if nothing about it is out of the ordinary: it stands in period ARGV[1], its
-- next number is at least ARGV[2] and at most ARGV[3], its state, stores, store and chunk are ARGV[5] to ARGV[8], and it does
-- not expire. Its writer becomes ARGV[9]. Answers with the first number reserved. With nil nothing was changed, and keymill looks closer.
--
-- Numbers stay texts here: Lua's are exact up to 2^53 only. HINCRBY counts in the server's own 64 bits.

-- Whether a <= b, both without leading zeros: the longer one is larger. Lua numbers hold 15 digits exactly, so longer ones are
-- compared by halves.
local function at_most(a, b)
  if #a ~= #b then
    return #a < #b
  end
  if #a <= 15 then
    return tonumber(a) <= tonumber(b)
  end
  local high_a, high_b = tonumber(string.sub(a, 1, -11)), tonumber(string.sub(b, 1, -11))
  if high_a ~= high_b then
    return high_a < high_b
  end
  return tonumber(string.sub(a, -10)) <= tonumber(string.sub(b, -10))
end

local row = redis.call('HMGET', KEYS[1], 'date', 'next', 'state', 'stores', 'store', 'chunk')
local lo = row[2]
if row[1] ~= ARGV[1] or not lo or not string.find(lo, '^[1-9]%d*$') then
  return false
end
if row[3] ~= ARGV[5] or row[4] ~= ARGV[6] or row[5] ~= ARGV[7] or row[6] ~= ARGV[8] then
  return false
end
if not at_most(ARGV[2], lo) or not at_most(lo, ARGV[3]) or redis.call('PTTL', KEYS[1]) ~= -1 then
  return false
end
redis.call('HINCRBY', KEYS[1], 'next', ARGV[4])
redis.call('HSET', KEYS[1], 'writer', ARGV[9])
return lo
