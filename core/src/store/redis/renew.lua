-- Renews the slot ARGV[1] of the pool KEYS[1] for ARGV[4] milliseconds, if its token is ARGV[2] and its mark is one of ARGV[5] and so
-- on: its mark becomes ARGV[3]. Answers with the server's clock in milliseconds. With nil nothing was changed, and keymill looks closer.
--
-- Tokens and marks stay texts here: Lua's numbers are exact up to 2^53 only, which times in milliseconds do not reach.
local row = redis.call('HGET', KEYS[1], ARGV[1])
if not row or redis.call('PTTL', KEYS[1]) ~= -1 then
  return false
end
local token, mark, owner = string.match(row, '^(%d+) (%d+) %d+ (.*)$')
if token ~= ARGV[2] then
  return false
end
for at = 5, #ARGV do
  if mark == ARGV[at] then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local new = token .. ' ' .. ARGV[3] .. ' ' .. string.format('%.0f', now + ARGV[4]) .. ' ' .. owner
    redis.call('HSET', KEYS[1], ARGV[1], new)
    return string.format('%.0f', now)
  end
end
return false
