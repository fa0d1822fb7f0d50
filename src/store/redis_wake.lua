-- One unit that puts an entry into a run's inbox and wakes the run, for nobody in particular; and
-- perhaps asks for values and puts some. As redis_steps.lua: applied as a whole, or nothing is
-- done and the answer is nothing. KEYS[1]: "{prefix}:". ARGV[1]: see wake_encode() of
-- redis_quick.c.

local K = KEYS[1]
local call, pack, mp = redis.call, cmsgpack.pack, cmsgpack.unpack
local committer, token, advance, seq, publishes, hints, sticky, quiet, id, entry, status, hasten,
    conds, puts = unpack(mp(ARGV[1]))

-- ---- what is there ------------------------------------------------------------------------------

local memory_key, row_key = K .. 'c:' .. committer, K .. 'r:' .. id
local raws = call('MGET', memory_key, row_key)
if not raws[2] or (raws[1] and mp(raws[1])[1] >= seq) then return false end
local r = mp(raws[2])
if r[5] == 1 then return false end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + advance
for i = 1, #conds, 3 do -- space, key, version in turn
    local v = call('HGET', K .. 'v:' .. conds[i], conds[i + 1])
    if (v and mp(v)[1] or 0) ~= conds[i + 2] then return false end
end
local had = {}
for i = 1, #puts, 5 do -- space, key, run, revision, bytes in turn; no value twice
    had[i] = call('HGET', K .. 'v:' .. puts[i], puts[i + 1])
end
local owner = r[6] ~= 0 and call('HGET', K .. 's', r[6])
local wakes = r[6] == 0 and not (r[10] and (r[10] <= now or not hasten)) and
    (not r[3] or call('ZRANGE', K .. 'l:' .. r[3], 0, 0)[1] == id)

-- ---- writing ------------------------------------------------------------------------------------

local DUE = 4503599627370496
r[9] = r[9] + 1
if wakes then
    local queue = K .. 'q:' .. r[1]
    if r[10] then
        call('ZREM', queue, struct.pack('>I8', r[10] + DUE) .. id)
    elseif quiet:byte(r[4] + 1) ~= 49 then
        call('ZREM', K .. 'w:' .. r[4] .. ':' .. r[1], id)
    end
    r[10] = now
    if sticky:byte(r[4] + 1) ~= 49 then r[4] = status end
    call('ZADD', queue, 0, struct.pack('>I8', now + DUE) .. id)
end
call('SET', row_key, pack(r))
call('RPUSH', K .. 'i:' .. id, entry)
for i = 1, #puts, 5 do
    local key, v = puts[i + 1], had[i]
    call('HSET', K .. 'v:' .. puts[i], key,
         pack({ v and mp(v)[1] + 1 or 1, puts[i + 2], puts[i + 3], puts[i + 4] }))
    if not v then call('ZADD', K .. 'x:' .. puts[i], 0, key) end
end
call('SET', memory_key, pack({ seq, { seq, seq, false, { seq, 0 }, false } }), 'PX', 604800000)
if not hints then return pack({ now }) end

-- ---- hints, as redis_commit.lua gives them ------------------------------------------------------

local told = ''
if r[6] == 0 and r[10] and r[10] <= now then
    local at = redis.pcall('XADD', K .. 'h', 'MAXLEN', '~', 1000, '*', 'c', committer, 'r', id)
    if type(at) == 'string' then told = struct.pack('>I2', #at + 17) .. 'k' .. id .. at end
elseif owner and mp(owner)[2] ~= token then
    told = '\0\17r' .. id
end
if publishes then
    redis.pcall('PUBLISH', K .. 'n', committer) -- more than that
elseif told ~= '' then
    redis.pcall('PUBLISH', K .. 'n', committer .. told)
end
return pack({ now })
