-- Units that start a run each, for nobody in particular: the row, its first facts, perhaps values
-- and timers. As redis_steps.lua: all of them are applied, or nothing is done and the answer is
-- nothing. KEYS[1]: "{prefix}:". ARGV[1]: see starts_encode() of redis_quick.c.

local K = KEYS[1]
local call, pack, take = redis.call, cmsgpack.pack, cmsgpack.unpack_limit
local at, committer, advance, first, last, publishes, hints, absent, ids = take(ARGV[1], 8, 0)
local n = #ids / 16

-- ---- what is there ------------------------------------------------------------------------------

local memory_key = K .. 'c:' .. committer
local keys, seen = { memory_key }, {}
for i = 1, n do
    local id = ids:sub(16 * i - 15, 16 * i)
    if seen[id] then return false end
    seen[id] = true
    keys[i + 1] = K .. 'r:' .. id
end
local raws = call('MGET', unpack(keys))
if raws[1] then -- an array of more than 15 has a longer head
    local _, seq = take(raws[1], 1, raws[1]:byte() == 220 and 3 or 1)
    if seq >= first then return false end
end
for i = 1, n do
    if raws[i + 1] then return false end
end
for i = 1, #absent, 2 do -- space, key in turn
    if call('HEXISTS', K .. 'v:' .. absent[i], absent[i + 1]) == 1 then return false end
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + advance

local texts, entries, rets, listed, sets, puts = {}, {}, {}, {}, {}, false
local is_ready = false
for i = 1, n do
    local seq, row, handler, due, is_idle, entry, values, timers
    at, seq, row, handler, due, is_idle, entry, values, timers = take(ARGV[1], 8, at)
    local id, key, member = ids:sub(16 * i - 15, 16 * i), nil, nil
    texts[2 * i - 1], texts[2 * i] = keys[i + 1], row
    listed[2 * i - 1], listed[2 * i] = '0', id
    entries[i] = entry
    rets[2 * i - 1], rets[2 * i] = seq, 0
    if due then
        key, member = K .. 'q:' .. handler, struct.pack('>I8', due + 4503599627370496) .. id
        is_ready = is_ready or due <= now
    elseif is_idle then
        key, member = K .. 'w:' .. is_idle .. ':' .. handler, id
    end
    if key then
        local set = sets[key] or {}
        set[#set + 1] = '0'
        set[#set + 1] = member
        sets[key] = set
    end
    if values then -- space, key, run, revision, bytes, is it to be absent, in turn
        puts = puts or {}
        for k = 1, #values, 6 do
            local of = values[k] .. '\0' .. values[k + 1]
            if puts[of] then return false end
            puts[of] = true
            local v = call('HGET', K .. 'v:' .. values[k], values[k + 1])
            local version, _ = 0, nil
            if v and values[k + 5] then return false end
            if v then
                _, version = take(v, 1, 1)
            else
                local x = K .. 'x:' .. values[k]
                local set = sets[x] or {}
                set[#set + 1] = '0'
                set[#set + 1] = values[k + 1]
                sets[x] = set
            end
            puts[#puts + 1] = K .. 'v:' .. values[k]
            puts[#puts + 1] = values[k + 1]
            puts[#puts + 1] =
                '\148' .. pack(version + 1, values[k + 2], values[k + 3], values[k + 4])
        end
    end
    if timers then
        for k = 1, #timers do
            local timer = timers[k]
            local t, own = K .. 't', K .. 'k:' .. timer:sub(9, 24)
            local all, set = sets[t] or {}, sets[own] or {}
            all[#all + 1] = '0'
            all[#all + 1] = timer
            set[#set + 1] = '0'
            set[#set + 1] = timer:sub(1, 8) .. timer:sub(25)
            sets[t], sets[own] = all, set
        end
    end
end

-- ---- writing ------------------------------------------------------------------------------------

call('MSET', unpack(texts))
for i = 1, n do call('RPUSH', K .. 'j:' .. ids:sub(16 * i - 15, 16 * i), entries[i]) end
call('ZADD', K .. 'ids', unpack(listed))
for key, set in pairs(sets) do
    for i = 1, #set, 1000 do call('ZADD', key, unpack(set, i, math.min(i + 999, #set))) end
end
if puts then
    for k = 1, #puts, 3 do call('HSET', puts[k], puts[k + 1], puts[k + 2]) end
end
call('SET', memory_key, '\146' .. pack(last) .. '\149' .. pack(first, last, false, rets, false),
     'PX', '604800000')

-- ---- hints, as redis_commit.lua gives them ------------------------------------------------------

if publishes then
    redis.pcall('PUBLISH', K .. 'n', committer)
elseif hints and is_ready then
    local entry = redis.pcall('XADD', K .. 'h', 'MAXLEN', '~', 1000, '*', 'c', committer)
    if type(entry) == 'string' then
        redis.pcall('PUBLISH', K .. 'n',
                    committer .. struct.pack('>I2', #entry + 1) .. 'w' .. entry)
    end
end
return pack({ now })
