-- One run, by its name, for whoever has it parked: granted if it is due. As redis_steps.lua:
-- applied as a whole, or nothing is done. One that is not to be had is answered, and not
-- remembered. KEYS[1]: "{prefix}:". ARGV[1]: see one_encode() of redis_quick.c.

local K = KEYS[1]
local call, pack, mp = redis.call, cmsgpack.pack, cmsgpack.unpack
local committer, advance, seq, publishes, sticky, id, session, status, handlers =
    unpack(mp(ARGV[1]))

local memory_key, row_key = K .. 'c:' .. committer, K .. 'r:' .. id
local raws = call('MGET', memory_key, row_key)
if raws[1] and mp(raws[1])[1] >= seq then return false end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + advance
local r = raws[2] and mp(raws[2])
if not r or r[6] ~= 0 or r[5] == 1 or not r[10] or r[10] > now then return pack({ now }) end
local is_served = false
for i = 1, #handlers do
    is_served = is_served or handlers[i] == r[1]
end
local s = call('HGET', K .. 's', session)
s = s and mp(s)
if not is_served or not s or s[6] or s[5] <= now then return pack({ now }) end
local entry = r[9] > 0 and call('LINDEX', K .. 'i:' .. id, -1)

call('ZREM', K .. 'q:' .. r[1], struct.pack('>I8', r[10] + 4503599627370496) .. id)
r[6], r[7] = session, r[7] + 1
if sticky:byte(r[4] + 1) ~= 49 then r[4] = status end
call('SET', row_key, pack(r))
call('ZADD', K .. 'o:' .. session, 0, id)
call('SET', memory_key, pack({ seq, { seq, seq, false, {}, { seq, false, { id, r[7], r[9] } } } }),
     'PX', 604800000)
if publishes then redis.pcall('PUBLISH', K .. 'n', committer) end
return pack({ now, pack(entry and #entry <= 4096 and { id, entry } or {}), '\144',
              { id, r[7], r[9] } })
