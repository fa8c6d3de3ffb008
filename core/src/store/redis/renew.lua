-- Renews the slot ARGV[1] of the pool KEYS[1] for ARGV[4] milliseconds, if its token and its mark are ARGV[6] and ARGV[7], or the two
-- values after them, and so on: its token becomes ARGV[2], its mark ARGV[3] and its source ARGV[5]. Answers with the server's clock in milliseconds. With
-- nil nothing was changed, and keymill looks closer.
--
-- Tokens and marks stay texts here: Lua's numbers are exact up to 2^53 only, which times in milliseconds do not reach.
local row = redis.call('HGET', KEYS[1], ARGV[1])
if not row or redis.call('PTTL', KEYS[1]) ~= -1 then
  return false
end
local token, mark, kept, owner = string.match(row, '^(%d+) (%d+) %d+ ([^ ]+ %d+ %d+) [^ ]* (.*)$')
for at = 6, #ARGV, 2 do
  if token == ARGV[at] and mark == ARGV[at + 1] then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local ends_at = string.format('%.0f', now + ARGV[4])
    redis.call('HSET', KEYS[1], ARGV[1], table.concat({ARGV[2], ARGV[3], ends_at, kept, ARGV[5], owner}, ' '))
    return string.format('%.0f', now)
  end
end
return false
