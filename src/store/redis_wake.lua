-- One unit that puts an entry into a run's inbox and wakes the run, for nobody in particular; and
-- perhaps asks for values and puts some. As redis_steps.lua: applied as a whole, or nothing is
-- done and the answer is nothing. KEYS[1]: "{prefix}:". ARGV[1]: see wake_encode() of
-- redis_quick.c.

local K = KEYS[1]
local call, pack, take = redis.call, cmsgpack.pack, cmsgpack.unpack_limit
local _, committer, token, advance, seq, publishes, hints, sticky, quiet, id, entry, wanted, hasten,
    conds, puts = take(ARGV[1], 14, 0)

-- ---- what is there ------------------------------------------------------------------------------

local DUE, ROW = 4503599627370496, '\220\0\17' -- the head of an array of 17 columns
local memory_key, row_key = K .. 'c:' .. committer, K .. 'r:' .. id
local raws = call('MGET', memory_key, row_key)
local memory, raw = raws[1], raws[2]
if not raw or raw:sub(1, 3) ~= ROW then return false end
if memory then -- an array of more than 15 has a longer head
    local _, last = take(memory, 1, memory:byte() == 220 and 3 or 1)
    if last >= seq then return false end
end
local rest, handler, key, lane, status, terminal, session, epoch, journal, inbox, due =
    take(raw, 10, 3)
if terminal == 1 then return false end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + advance
local versions = {} -- of the values that are asked for
for i = 1, #conds, 3 do -- space, key, version in turn
    local v = call('HGET', K .. 'v:' .. conds[i], conds[i + 1])
    local is = 0
    if v then _, is = take(v, 1, 1) end
    if is ~= conds[i + 2] then return false end
    versions[conds[i] .. '\0' .. conds[i + 1]] = is
end
local had = {}
for i = 1, #puts, 5 do -- space, key, run, revision, bytes in turn; no value twice
    local is = versions[puts[i] .. '\0' .. puts[i + 1]]
    if not is then
        local v = call('HGET', K .. 'v:' .. puts[i], puts[i + 1])
        is = 0
        if v then _, is = take(v, 1, 1) end
    end
    had[i] = is
end
local owner = session ~= 0 and call('HGET', K .. 's', session)
local wakes = session == 0 and not (due and (due <= now or not hasten)) and
    (not lane or call('ZRANGE', K .. 'l:' .. lane, 0, 0)[1] == id)

-- ---- writing ------------------------------------------------------------------------------------

if wakes then
    local queue = K .. 'q:' .. handler
    if due then
        call('ZREM', queue, struct.pack('>I8', due + DUE) .. id)
    elseif quiet:byte(status + 1) ~= 49 then
        call('ZREM', K .. 'w:' .. status .. ':' .. handler, id)
    end
    due = now
    if sticky:byte(status + 1) ~= 49 then status = wanted end
    call('ZADD', queue, 0, struct.pack('>I8', now + DUE) .. id)
end
call('SET', row_key, ROW .. pack(handler, key, lane, status, terminal, session, epoch, journal,
                                 inbox + 1, due) .. raw:sub(rest + 1))
call('RPUSH', K .. 'i:' .. id, entry)
for i = 1, #puts, 5 do
    call('HSET', K .. 'v:' .. puts[i], puts[i + 1],
         '\148' .. pack(had[i] + 1, puts[i + 2], puts[i + 3], puts[i + 4]))
    if had[i] == 0 then call('ZADD', K .. 'x:' .. puts[i], 0, puts[i + 1]) end
end
call('SET', memory_key, '\146' .. pack(seq) .. '\149' .. pack(seq, seq, false, { seq, 0 }, false),
     'PX', 604800000)

-- ---- hints, as redis_commit.lua gives them ------------------------------------------------------

if publishes then
    redis.pcall('PUBLISH', K .. 'n', committer) -- more than all of them
elseif hints and session == 0 and due and due <= now then
    local at = redis.pcall('XADD', K .. 'h', 'MAXLEN', '~', 1000, '*', 'c', committer, 'r', id)
    if type(at) == 'string' then
        redis.pcall('PUBLISH', K .. 'n',
                    committer .. struct.pack('>I2', #at + 17) .. 'k' .. id .. at)
    end
elseif hints and owner then
    local _, _, hash = take(owner, 2, 1)
    if hash ~= token then redis.pcall('PUBLISH', K .. 'n', committer .. '\0\17r' .. id) end
end
return '\145' .. pack(now)
